"""Comparing an index with its originals: kept texts, files, samples, repairs, and what cannot be compared."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from retrieval_core import Chunk, Document, Index, open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.compat.service import ValidationResult
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError
from retrieval_core.ports import Change, FetchRequest, SourceState
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Span, TextDifference, content_hash
from retrieval_core.types.integrity import difference
from support.corruption import KINDS, LEXICAL, MODULES, Damage, bytes_below, lexical

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.ports import Fetched

GUIDE = "docs/guide.md"
ROWS = "text,price\nA sturdy phone,99.5\nA thin phone,500\n"


class TextlessStore(MemoryStore):
    """Keeps chunks and hashes alone, as an index at a service may."""

    async def fetch(self, request: FetchRequest) -> Fetched:
        """Return what was asked for but documents."""
        return replace(await super().fetch(request), documents={})


def filled(folder: Path, store: MemoryStore | None = None, kind: str = "sqlite") -> Index:
    """Return an index of three files with four documents, which are written first."""
    (folder / "docs").mkdir()
    guide = "\n\n".join(f"## Part {part}\n\nSentence {part} of the guide." for part in range(4))
    (folder / GUIDE).write_text(f"# Guide\n\n{guide}\n", encoding="utf-8")
    (folder / "docs/notes.txt").write_text("A note.\n", encoding="utf-8")
    (folder / "table.csv").write_text(ROWS, encoding="utf-8")
    index = open_index(config=lexical(folder, kind), store=store)
    assert index.ingest([folder / "docs", folder / "table.csv"]).documents == 4
    return index


@pytest.fixture(params=MODULES)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    pytest.importorskip(MODULES[request.param])
    with filled(tmp_path, kind=request.param) as index:
        yield index


def damaged(index: Index, kind: str, place: str = GUIDE, number: int = 1, offset: int = 3) -> None:
    """Let something happen to a chunk."""
    damage = Damage(index)
    damage.replace(place, KINDS[kind](damage.chunks(place), number, offset))


@pytest.mark.parametrize(
    ("stored", "original", "expected"),
    [
        ("same", "same", TextDifference(4, 4, 4)),
        ("", "abc", TextDifference(0, 0, 3)),
        ("abc", "", TextDifference(0, 3, 0)),
        ("ab", "abc", TextDifference(2, 2, 3)),
        ("axc", "abc", TextDifference(1, 3, 3)),
        ("xbc", "abc", TextDifference(0, 3, 3)),
        ("abx", "abc", TextDifference(2, 3, 3)),
        ("caf\u00e9", "cafe\u0301", TextDifference(3, 5, 6)),
        ("\U0001f680", "\U0001f681", TextDifference(3, 4, 4)),
    ],
)
def test_where_two_texts_part(stored: str, original: str, expected: TextDifference) -> None:
    """In bytes of UTF-8, without any normalisation."""
    assert difference(stored, original) == expected


def test_a_clean_index(index: Index, tmp_path: Path) -> None:
    """Everything is counted, nothing is found, and no byte of the index is another one."""
    before = bytes_below(tmp_path)
    report = index.check_integrity()
    assert (report.verdict, report.documents, report.chunks) == ("clean", 4, index.describe().chunks)
    assert (report.unverifiable, report.absent_sources, report.repaired) == (0, (), ())
    assert before == bytes_below(tmp_path) != {}


def test_what_a_finding_says(index: Index) -> None:
    """Both texts, where they part, and the words of the specification's example."""
    original = Damage(index).chunks(GUIDE)[1].text
    damaged(index, "truncated", offset=9)
    (found,) = index.check_integrity().mismatches
    assert (found.chunk_id, found.document_id, found.source) == (f"{GUIDE}#1", GUIDE, GUIDE)
    assert (found.stored_text, found.original_text) == (original[:9], original)
    assert found.difference == TextDifference(9, 9, len(original))
    assert found.mismatch_details == (
        f"Stored text truncated or corrupted (length mismatch: 9 vs {len(original)} chars); first difference at byte 9 "
        f"(9 vs {len(original)}); its hash is that of another text"
    )
    assert index.validate(f"{GUIDE}#1") == found
    told = ValidationResult.of(found)
    assert (told.matches, told.validation_passed, told.original_text) == (False, False, original)
    assert told.mismatch_details == found.mismatch_details


def test_the_same_length_with_another_byte(index: Index) -> None:
    """There is no length to complain about."""
    damaged(index, "rehashed", offset=3)
    (found,) = index.check_integrity().mismatches
    size = len(found.stored_text)
    assert found.mismatch_details == (
        f"Stored text corrupted (both {size} chars); first difference at byte 3 ({size} vs {size})"
    )


def test_a_chunk_that_is_all_right(index: Index) -> None:
    """It passes, and needs no details; one that is not there is None."""
    found = index.validate(f"{GUIDE}#2")
    assert found is not None
    assert (found.verdict, found.matches, found.mismatch_details, found.difference) == ("clean", True, None, None)
    assert ValidationResult.of(found).validation_passed
    assert index.validate("no such chunk") is None


def test_an_empty_stored_text(index: Index) -> None:
    """It is told as such, and matches nothing."""
    damaged(index, "truncated", offset=0)
    found = index.validate(f"{GUIDE}#1")
    assert found is not None
    assert (ValidationResult.of(found).stored_text, found.matches) == ("", False)


def test_only_the_hash_differs(index: Index) -> None:
    """The texts match, and still the validation has not passed."""
    damage = Damage(index)
    chunks = damage.chunks(GUIDE)
    damage.replace(GUIDE, [replace(chunks[0], content_hash=content_hash("another text")), *chunks[1:]])
    (found,) = index.check_integrity().mismatches
    assert (found.matches, found.validation_passed) == (True, False)
    assert found.mismatch_details == "its hash is that of another text"


def test_lost_and_superfluous_chunks(index: Index) -> None:
    """What is lost is told with its text, under the name that its chunk had; what is too many by its own."""
    original = Damage(index).chunks(GUIDE)[2].text
    damaged(index, "lost", number=2)
    (found,) = index.check_integrity().mismatches
    assert (found.chunk_id, found.stored_text, found.original_text) == (f"{GUIDE}#2", "", original)
    assert found.mismatch_details is not None
    assert "no chunk holds the text" in found.mismatch_details
    assert index.check_integrity(repair=True).verdict == "clean"
    damaged(index, "doubled", number=0)
    (found,) = index.check_integrity().mismatches
    assert found.chunk_id == f"{GUIDE}#4"
    assert found.problems == ("it is one too many: another chunk holds this part of its document",)


def test_chunks_beside_the_others(index: Index) -> None:
    """One between two others under a strange name, one with a wrong number, one beyond the text."""
    damage = Damage(index)
    chunks = damage.chunks(GUIDE)
    assert chunks[0].span is not None
    end = chunks[0].span.end
    damage.replace(GUIDE, [*chunks, replace(chunks[0], id="stray", text="\n", span=Span(end, end + 1))])
    assert [found.chunk_id for found in index.check_integrity().mismatches] == ["stray"]
    shifted = replace(chunks[-1], id=f"{GUIDE}#9", chunk_index=9)
    damage.replace(GUIDE, [*chunks[:-1], shifted])
    (found,) = index.check_integrity().mismatches
    assert found.problems == ("it says that it is chunk 9 of its document, and is 3",)
    damage.replace(GUIDE, [*chunks[:-1], replace(chunks[-1], span=Span(900, 909))])
    found, gap = index.check_integrity().mismatches
    assert "its range, 900 to 909, is not in its document" in (found.mismatch_details or "")
    assert gap.original_text == chunks[-1].text


def test_an_edited_file(index: Index, tmp_path: Path) -> None:
    """Its documents are told with the first byte that differs; chunks agree with what was read then."""
    text = (tmp_path / GUIDE).read_text(encoding="utf-8")
    (tmp_path / GUIDE).write_text(text.replace("Sentence 2", "Sentence two"), encoding="utf-8")
    report = index.check_integrity()
    assert report.mismatches == ()
    (found,) = report.differences
    assert (found.source, found.document_id) == (GUIDE, GUIDE)
    assert found.problem == "its file was edited after it was indexed"
    size = len(text)
    assert found.difference == TextDifference(text.index("2 of"), size, size + 2)
    repaired = index.check_integrity(repair=True)
    assert (repaired.verdict, repaired.repaired) == ("clean", (GUIDE,))


def test_chunks_of_edited_files(index: Index, tmp_path: Path) -> None:
    """Those whose file has other bytes now; one that was written again as it was, or is gone, is no edit."""
    chunks = [chunk for place in (GUIDE, "docs/notes.txt", "table.csv#1") for chunk in Damage(index).chunks(place)]
    later = 4_000_000_000
    for name in (GUIDE, "docs/notes.txt"):
        os.utime(tmp_path / name, (later, later))
    assert asyncio.run(index.aedited_since(chunks)) == frozenset()
    (tmp_path / GUIDE).write_text("# Another\n", encoding="utf-8")
    os.utime(tmp_path / GUIDE, (later, later))
    (tmp_path / "table.csv").unlink()
    edited = asyncio.run(index.aedited_since([*chunks, Chunk("own", "own", "text")]))
    assert edited == {chunk.id for chunk in chunks if chunk.document_id == GUIDE}


def test_an_edited_table(index: Index, tmp_path: Path) -> None:
    """Row by row: changed in the text or beside it, new, and gone; the others are as they were."""
    (tmp_path / "table.csv").write_text(ROWS.replace("sturdy", "heavy").replace("500", "501") + "New,1\n")
    told = {found.document_id: (found.problem, found.difference) for found in index.check_integrity().differences}
    edited = "its file was edited after it was indexed"
    assert told == {
        "table.csv#1": (edited, TextDifference(2, 14, 13)),
        "table.csv#2": (f"{edited}, with the same text", None),
        "table.csv#3": ("the index lacks it", TextDifference(0, 0, 3)),
    }
    (tmp_path / "table.csv").write_text(ROWS.rpartition("A thin")[0])
    (found,) = index.check_integrity().differences
    assert (found.document_id, found.problem) == ("table.csv#2", "its file does not hold it any more")
    report = index.check_integrity(repair=True)
    assert (report.verdict, report.documents) == ("clean", 3)


def test_an_edit_that_changes_nothing(index: Index, tmp_path: Path) -> None:
    """Other bytes that are read as the same documents are no difference."""
    (tmp_path / "table.csv").write_bytes(ROWS.replace("\n", "\r\n").encode())
    assert index.check_integrity().verdict == "clean"


def test_a_file_that_is_gone(index: Index, tmp_path: Path) -> None:
    """What is kept of it still proves its chunks, and can no longer be repaired from it."""
    (tmp_path / GUIDE).unlink()
    report = index.check_integrity()
    assert (report.verdict, report.absent_sources) == ("clean", (GUIDE,))
    damaged(index, "changed")
    report = index.check_integrity(repair=True)
    assert ([found.chunk_id for found in report.mismatches], report.repaired) == ([f"{GUIDE}#1"], ())


def test_a_file_that_cannot_be_read_any_more(index: Index, tmp_path: Path) -> None:
    """That it has changed is certain, and a repair keeps what is there."""
    (tmp_path / GUIDE).write_bytes(b" ")
    report = index.check_integrity(repair=True)
    (found,) = report.differences
    assert found.document_id is None
    assert "cannot be compared: it contains no text" in found.problem
    assert index.describe().documents == 4


@pytest.mark.parametrize("is_there", [True, False])
def test_a_document_that_is_lost(index: Index, tmp_path: Path, is_there: bool) -> None:
    """The count that was noted of a file tells it; the file, which one it is."""
    index.sync.run(index.store.upsert(Change(removed_documents=("table.csv#2",))))
    if not is_there:
        (tmp_path / "table.csv").unlink()
    (found,) = index.check_integrity().differences
    expected = (
        ("table.csv#2", "the index lacks it")
        if is_there
        else (None, "the index has 1 of its 2 documents: the file is not there")
    )
    assert (found.document_id, found.problem) == expected
    assert (index.check_integrity(repair=True).verdict == "clean") == is_there


def test_kept_texts_are_proved_too(index: Index) -> None:
    """A document whose text, title or metadata were changed with all that depends on them is not what its file says."""
    damage = Damage(index)
    (document,) = damage.stored("docs/notes.txt").documents.values()
    (chunk,) = damage.chunks("docs/notes.txt")
    forged = replace(chunk, text="B note.", content_hash="")
    index.sync.run(index.store.upsert(Change(chunks=(forged,), documents=(replace(document, text="B note.\n"),))))
    (found,) = index.check_integrity().differences
    assert found.problem == "the text that the index keeps of it is not that of its file, which has not changed"
    assert found.difference == TextDifference(0, 8, 8)
    index.sync.run(index.store.upsert(Change(chunks=(chunk,), documents=(replace(document, title="Another"),))))
    (found,) = index.check_integrity().differences
    assert found.problem == "title or metadata that the index keeps of it are not those of its file"
    index.sync.run(index.store.upsert(Change(chunks=(chunk,), documents=(replace(document, content_hash="0"),))))
    (found,) = index.check_integrity().differences
    assert found.problem == "its hash is not that of its file, with the same text"
    assert index.check_integrity(repair=True).verdict == "clean"


@pytest.mark.parametrize(
    "damage", ["text = CAST(x'ff41' AS TEXT)", "text = x'41'", "metadata = '{'", "span_end = NULL"]
)
def test_a_repair_leaves_the_others_alone(tmp_path: Path, damage: str) -> None:
    """Rows of other documents, of the same file too, keep their numbers, times and vectors."""
    (tmp_path / "table.csv").write_text(ROWS)
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
        index.ingest(tmp_path / "table.csv")

        def rows(*columns: str) -> list[tuple[object, ...]]:
            with sqlite3.connect(tmp_path / "index.db") as connection:
                found = connection.execute(f"SELECT {', '.join(columns)} FROM chunks ORDER BY id").fetchall()
            connection.close()
            return found

        before, texts = rows("number", "id", "timestamp", "text"), rows("id", "text", "content_hash")
        with sqlite3.connect(tmp_path / "index.db") as connection:
            connection.execute(f"UPDATE chunks SET {damage} WHERE id = 'table.csv#1#0'")
        connection.close()
        report = index.check_integrity()
        assert [found.document_id for found in report.differences] == ["table.csv#1"]
        assert "cannot be read" in report.differences[0].problem
        report = index.check_integrity(repair=True)
        assert (report.verdict, report.repaired, report.chunks) == ("clean", ("table.csv#1",), 2)
        assert rows("id", "text", "content_hash") == texts
        after = rows("number", "id", "timestamp", "text")
        assert after[1] == before[1]
        assert after[0] != before[0]
        assert index.retrieve("sturdy", mode="dense").hits


def test_samples(index: Index) -> None:
    """Whole documents, drawn by the seed; a damaged one is found by the seeds that draw it."""
    damaged(index, "lost")
    reports = [index.check_integrity(sample=2, seed=seed) for seed in range(20)]
    assert {report.documents for report in reports} == {2}
    assert {report.verdict for report in reports} == {"clean", "mismatch"}
    assert [report.verdict for report in reports] == [
        index.check_integrity(sample=2, seed=seed).verdict for seed in range(20)
    ]
    assert index.check_integrity(sample=99).verdict == "mismatch"
    assert index.check_integrity(sample=99, repair=True).repaired == (GUIDE,)
    with pytest.raises(InvalidParameterError, match="sample"):
        index.check_integrity(sample=0)


def test_what_came_from_no_file(index: Index) -> None:
    """It is counted unless it is named, and then compared with the text that is kept."""
    text = "A text that was written nowhere."
    index.add_documents([Document("made", text, "https://example.com/made", content_hash(text))])
    index.add([Chunk("alone#0", "alone", "A chunk without a document.")])
    assert (index.check_integrity().verdict, index.check_integrity().unverifiable) == ("unverifiable", 2)
    named = index.check_integrity(document_ids=["made", GUIDE])
    assert (named.verdict, named.documents, named.unverifiable) == ("unverifiable", 5, 1)
    found = index.validate("alone#0")
    assert found is not None
    assert (found.verdict, found.mismatch_details) == ("unverifiable", "There is no original to compare with")
    told = ValidationResult.of(found)
    assert (told.matches, told.original_text, told.mismatch_details) == (False, "", found.mismatch_details)
    damaged(index, "changed", place="made", number=0)
    named = index.check_integrity(document_ids=["made"], repair=True)
    assert [chunk.chunk_id for chunk in named.mismatches] == ["made#0"]
    with pytest.raises(InvalidParameterError, match="the index has no document 'unknown'"):
        index.check_integrity(document_ids=["unknown"])


def test_an_altered_chunk_without_an_original(index: Index) -> None:
    """Its own hash still tells."""
    chunk = Chunk("alone#0", "alone", "A chunk without a document.")
    index.add([replace(chunk, text="Another text", content_hash=chunk.content_hash)])
    found = index.check_integrity(document_ids=["alone"])
    assert [(one.verdict, one.chunk_id) for one in found.mismatches] == [("mismatch", "alone#0")]


def test_without_kept_texts_the_files_are_read_again(tmp_path: Path) -> None:
    """As they were read then; without them either, nothing can be said, and nothing is."""
    store = TextlessStore()
    with filled(tmp_path, store) as index:
        total = index.describe().chunks
        assert (index.check_integrity().verdict, index.check_integrity().chunks) == ("clean", total)
        (chunk,) = Damage(index).chunks(GUIDE)[1:2]
        found = index.validate(chunk.id)
        assert found is not None
        assert found.verdict == "clean"
        index.sync.run(store.upsert(Change(chunks=(replace(chunk, text="Else.", content_hash=""),))))
        (found,) = index.check_integrity().mismatches
        assert (found.stored_text, found.original_text) == ("Else.", chunk.text)
        assert index.validate(chunk.id) == found
        assert index.check_integrity(repair=True).verdict == "clean"
        for name in (GUIDE, "docs/notes.txt", "table.csv"):
            (tmp_path / name).unlink()
        report = index.check_integrity()
        assert (report.verdict, report.unverifiable, report.chunks) == ("unverifiable", total, 0)
        assert len(report.absent_sources) == 3


def test_what_another_version_has_read(tmp_path: Path) -> None:
    """Its readers may have made another text of the same file, so the file says nothing about it."""
    store = TextlessStore()
    with filled(tmp_path, store) as index:
        state = store._contents.sources[GUIDE]
        for recipe in ("1 {} words", "3 no settings", ""):
            old = SourceState(state.source, state.content_hash, recipe, state.documents)
            index.sync.run(store.upsert(Change(sources=(old,))))
            report = index.check_integrity()
            assert (report.verdict, report.unverifiable) == ("unverifiable", 4)


def test_settings_that_have_changed_since(tmp_path: Path) -> None:
    """An index is compared with what was read when it was made, and not with what would be read now."""
    with filled(tmp_path):
        pass
    chunking = LEXICAL.chunking.model_copy(update={"max_tokens": 16, "columns": {"price": "cost"}})
    with open_index(
        tmp_path / ".retrieval/index.db", config=LEXICAL.model_copy(update={"chunking": chunking})
    ) as index:
        assert index.check_integrity().verdict == "clean"
        (tmp_path / "table.csv").write_text(ROWS + "\n")
        assert index.check_integrity().verdict == "clean"


def test_documents_with_pages(tmp_path: Path) -> None:
    """Pages are part of a document's hash and not kept, so their files are read again."""
    reportlab = pytest.importorskip("reportlab.pdfgen.canvas")
    pytest.importorskip("pypdfium2")
    canvas = reportlab.Canvas(str(tmp_path / "paper.pdf"))
    for page in range(3):
        canvas.drawString(72, 720, f"This is what stands on page {page} of the paper.")
        canvas.showPage()
    canvas.save()
    with open_index(tmp_path / "index.db", config=LEXICAL) as index:
        index.ingest(tmp_path / "paper.pdf")
        assert index.check_integrity().verdict == "clean"
        (tmp_path / "paper.pdf").unlink()
        assert index.check_integrity().verdict == "clean"


def test_an_index_that_is_not_there(tmp_path: Path) -> None:
    """There is nothing that could be clean."""
    with open_index(tmp_path / "index.db", config=LEXICAL) as index, pytest.raises(IndexNotFoundError):
        index.check_integrity()
