"""Keeping an index in step with files."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core import Document, open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import ChunkingConfig
from retrieval_core.errors import EmbeddingError, ServiceError, StoreError
from retrieval_core.ingest.ingester import Ingester, approximate_tokens
from retrieval_core.ingest.report import ColumnNote, IndexProgress, IndexReport
from retrieval_core.ports import Change, FetchRequest, SearchRequest
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from support.plugins import Panic, UnspeakableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Bench:
    """A folder, an index of it, and everything counted."""

    def __init__(self, folder: Path, **chunking: Any) -> None:
        self.folder = folder
        self.embedder = FakeEmbedder()
        self.store = MemoryStore(embedder_id=self.embedder.id, dimension=self.embedder.dimension)
        self.progress: list[IndexProgress] = []
        self.use(**chunking)

    def use(self, **chunking: Any) -> None:
        settings = ChunkingConfig(**chunking)
        self.ingester = Ingester(self.store, self.embedder, chunking=settings, base=self.folder, now=lambda: NOON)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def index(self, *names: str) -> IndexReport:
        paths = [self.folder / name for name in names or (".",)]
        return asyncio.run(self.ingester.index(paths, self.progress.append))

    def texts_embedded(self) -> int:
        return sum(map(len, self.embedder.batches))

    def chunks(self) -> dict[str, Chunk]:
        found = asyncio.run(self.store.search(SearchRequest(limit=1000, text="word")))
        return dict(asyncio.run(self.store.fetch(FetchRequest(chunk_ids=tuple(c.chunk_id for c in found)))).chunks)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def counts(report: IndexReport) -> tuple[int, int, int, int]:
    return report.added, report.updated, report.unchanged, report.removed


def test_a_folder_is_indexed_with_everything_that_a_citation_needs(bench: Bench) -> None:
    """Each chunk knows its document, source, section, time and model, and its span points at its text."""
    bench.write("docs/a.md", "# Guide\n\n## Setup\n\nThe word of the setup.\n")
    report = bench.index("docs")
    assert counts(report) == (1, 0, 0, 0)
    assert (report.documents, report.chunks, report.failed) == (1, 1, ())
    (chunk,) = bench.chunks().values()
    document = asyncio.run(bench.store.fetch(FetchRequest(document_ids=("docs/a.md",)))).documents["docs/a.md"]
    assert chunk.document_id == chunk.source == "docs/a.md"
    assert chunk.span is not None
    assert document.text[chunk.span.start : chunk.span.end] == chunk.text
    assert chunk.timestamp == NOON
    assert chunk.embedding_model == bench.embedder.id
    assert "Guide" in (chunk.title or "") or "Guide" in chunk.section_path


def test_unchanged_files_are_not_read_again(bench: Bench) -> None:
    """A second run embeds nothing and says how many documents it left alone."""
    bench.write("a.md", "One word.")
    bench.write("rows.csv", "text,n\none word,1\nanother word,2\n")
    bench.index()
    embedded = bench.texts_embedded()
    report = bench.index()
    assert counts(report) == (0, 0, 3, 0)
    assert bench.texts_embedded() == embedded


def test_a_changed_file_replaces_its_document(bench: Bench) -> None:
    """The old text cannot be found afterwards."""
    bench.write("a.md", "The old word.")
    bench.index()
    bench.write("a.md", "The new word.")
    assert counts(bench.index()) == (0, 1, 0, 0)
    assert [chunk.text.strip() for chunk in bench.chunks().values()] == ["The new word."]


def test_a_touched_file_with_the_same_text_costs_no_embedding(bench: Bench) -> None:
    """Other bytes with the same text, here other line ends, leave the document as it is."""
    bench.write("a.md", "One word.\n")
    bench.index()
    embedded = bench.texts_embedded()
    (bench.folder / "a.md").write_bytes(b"One word.\r\n")
    assert counts(bench.index()) == (0, 0, 1, 0)
    assert bench.texts_embedded() == embedded


def test_only_changed_rows_are_embedded(bench: Bench) -> None:
    """Rows with ids keep them when others come, go or change."""
    rows = [{"id": str(n), "text": f"word number {n}"} for n in range(50)]
    bench.write("rows.jsonl", "\n".join(map(json.dumps, rows)))
    bench.index()
    embedded = bench.texts_embedded()
    rows[7]["text"] = "a word that changed"
    del rows[20]
    rows.insert(0, {"id": "new", "text": "a new word"})
    bench.write("rows.jsonl", "\n".join(map(json.dumps, rows)))
    assert counts(bench.index()) == (1, 1, 48, 1)
    assert bench.texts_embedded() == embedded + 2


def test_vanished_files_are_removed_from_walked_folders_only(bench: Bench) -> None:
    """Indexing one folder says nothing about another."""
    for name in ("docs/a.md", "docs/b.md", "other/c.md"):
        bench.write(name, f"The word in {name}.")
    bench.index()
    (bench.folder / "docs/a.md").unlink()
    (bench.folder / "other/c.md").unlink()
    assert counts(bench.index("docs")) == (0, 0, 1, 1)
    assert {chunk.source for chunk in bench.chunks().values()} == {"docs/b.md", "other/c.md"}


def test_a_file_that_cannot_be_read_any_more_keeps_what_was_known(bench: Bench) -> None:
    """Reported by name and reason; its document and all other files are as they should be."""
    bench.write("a.md", "The word of a.")
    bench.write("b.md", "The word of b.")
    bench.index()
    (bench.folder / "a.md").write_bytes(b"\x00\x01\x02 binary \x00")
    bench.write("b.md", "The new word of b.")
    report = bench.index()
    assert counts(report) == (0, 1, 0, 0)
    (failed,) = report.failed
    assert failed.path.endswith("a.md")
    assert failed.error
    assert {chunk.text.strip() for chunk in bench.chunks().values()} == {"The word of a.", "The new word of b."}


def test_missing_paths_are_reported(bench: Bench) -> None:
    """What was asked for and is not there is a failure with a name."""
    bench.write("a.md", "A word.")
    report = asyncio.run(bench.ingester.index([bench.folder / "nowhere", bench.folder / "a.md"]))
    assert report.added == 1
    assert [file.path for file in report.failed] == [str(bench.folder / "nowhere")]


def test_rows_that_share_an_id_do_not_overwrite_each_other(bench: Bench) -> None:
    """Every row can be found, whether or not the ids in the file are unique."""
    bench.write("rows.jsonl", '{"id": "1", "text": "first word"}\n{"id": "1", "text": "second word"}\n')
    bench.index()
    assert {chunk.document_id: chunk.text for chunk in bench.chunks().values()} == {
        "rows.jsonl#1": "first word",
        "rows.jsonl#2": "second word",
    }


def test_another_chunking_makes_new_chunks_of_the_same_files(bench: Bench) -> None:
    """The recipe counts, not the bytes alone."""
    bench.write("a.md", "\n\n".join(f"Paragraph {n} has a word and then some more of them." for n in range(40)))
    before = bench.index().chunks
    bench.use(max_tokens=32, min_tokens=0)
    report = bench.index()
    assert counts(report) == (0, 1, 0, 0)
    assert report.chunks > before


def test_progress_ends_with_everything_done(bench: Bench) -> None:
    """Files and bytes never go back and end at their totals."""
    for n in range(300):
        bench.write(f"{n}.md", f"The word number {n}.")
    bench.index()
    files = [progress.files_done for progress in bench.progress]
    assert len(files) > 1
    assert files == sorted(files)
    last = bench.progress[-1]
    assert (last.files_done, last.bytes_done, last.chunks_done) == (last.files_total, last.bytes_total, 300)


def test_a_run_that_breaks_off_is_completed_by_the_next(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written stays, and what was not is done by the next run, once."""
    for n in range(300):
        bench.write(f"{n}.md", f"The word number {n}.")
    upsert, calls = bench.store.upsert, 0

    async def breaking_off(change: Change) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            msg = "the disk is full"
            raise StoreError(msg)
        await upsert(change)

    monkeypatch.setattr(bench.store, "upsert", breaking_off)
    with pytest.raises(StoreError, match="disk is full"):
        bench.index()
    written = bench.chunks().keys()
    assert 0 < len(written) < 300
    monkeypatch.setattr(bench.store, "upsert", upsert)
    report = bench.index()
    assert report.added == 300 - len(written)
    assert report.unchanged == len(written)
    assert report.chunks == 300


def test_chunks_from_elsewhere_are_stamped_and_found(bench: Bench) -> None:
    """A chunk with an id that is there already replaces it; a time that it brought along is kept."""
    earlier = datetime(2020, 5, 17, tzinfo=UTC)
    asyncio.run(
        bench.ingester.add([Chunk("c1", "d1", "the first word"), Chunk("c2", "d1", "a word", timestamp=earlier)])
    )
    asyncio.run(bench.ingester.add([Chunk("c1", "d1", "the last word")]))
    found = bench.chunks()
    assert {chunk.text for chunk in found.values()} == {"the last word", "a word"}
    assert [found[id_].timestamp for id_ in ("c1", "c2")] == [NOON, earlier]
    assert found["c1"].embedding_model == bench.embedder.id


def test_chunks_that_the_embedder_reads_in_part_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A whole page as one chunk would be found by its first paragraphs only."""

    class ReadsThirtyTwoWords(FakeEmbedder):
        @property
        def max_tokens(self) -> int:
            return 32

        def count_tokens(self, text: str) -> int:
            return len(text.split())

    with open_index(tmp_path / "notes.db", embedder=ReadsThirtyTwoWords()) as index:
        index.add([Chunk("fits", "d", "word " * 32), Chunk("long", "d", "word " * 33)])
        assert "1 of 2 chunks are longer than 32 tokens" in caplog.text
        caplog.clear()
        index.add([Chunk("fits", "d", "word " * 32)])
        index.add_documents([Document("split", "word " * 99)])
        assert not caplog.records


def test_a_document_is_deleted_with_its_chunks(bench: Bench) -> None:
    """The number of chunks that went is returned, 0 for a document that was not there."""
    asyncio.run(bench.ingester.add([Chunk("c1", "d1", "one word"), Chunk("c2", "d2", "another word")]))
    assert asyncio.run(bench.ingester.delete(["d1"])) == 1
    assert asyncio.run(bench.ingester.delete(["d1"])) == 0
    assert bench.chunks().keys() == {"c2"}


def test_without_an_embedder_there_are_words_and_no_vectors(tmp_path: Path) -> None:
    """An index without vectors needs no model."""
    store = MemoryStore(embedder_id=None, dimension=None)
    ingester = Ingester(store, None, chunking=ChunkingConfig(), base=tmp_path)
    (tmp_path / "a.md").write_text("A word.")
    assert asyncio.run(ingester.index([tmp_path])).added == 1
    assert len(asyncio.run(store.search(SearchRequest(limit=5, text="word")))) == 1


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_tokens_are_estimated_where_the_embedder_does_not_count_them(text: str, tokens: int) -> None:
    """One for each four characters, rounded up."""
    assert approximate_tokens(text) == tokens


def test_a_deleted_document_comes_back_when_its_file_is_indexed_again(bench: Bench) -> None:
    """What is remembered of the file goes with the document."""
    bench.write("a.md", "A word.")
    bench.index()
    asyncio.run(bench.ingester.delete(["a.md"]))
    assert counts(bench.index()) == (1, 0, 0, 0)
    assert bench.chunks().keys() == {"a.md#0"}


def test_rows_with_an_id_are_the_same_wherever_they_stand(bench: Bench) -> None:
    """An incremental run leaves what a fresh one would make: no number of a row that has moved."""
    bench.write("rows.csv", "id,text\nx,one word\n")
    bench.index()
    bench.write("rows.csv", "id,text\nnew,another word\nx,one word\n")
    bench.index()
    assert {chunk.row_range for chunk in bench.chunks().values()} == {None}


def test_documents_with_the_same_id_are_refused_by_name(bench: Bench) -> None:
    """A row and a file that would be called the same: the second is reported, and the rest goes on."""
    bench.write("a.csv", "id,text\nx.md,one word\n")
    bench.write("a.csv#x.md", "Another word.")
    bench.write("z.md", "The last word.")
    report = bench.index()
    assert report.added == 2
    assert "same document id" in report.failed[0].error


UNFORESEEN = [
    RecursionError(),
    Panic("out of range"),
    GeneratorExit(),
    KeyboardInterrupt(),
    SystemExit(),
    UnspeakableError(),
]


def name_of(error: object) -> str:
    return type(error).__name__


@pytest.mark.parametrize("step", ["read_file", "split_document"])
@pytest.mark.parametrize("error", UNFORESEEN, ids=name_of)
def test_one_file_that_cannot_be_taken_in_stops_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: BaseException, step: str
) -> None:
    """Whatever a parser raises is that file's failure."""
    from retrieval_core.ingest import ingester
    from retrieval_core.ingest import reading as file_reading

    module = file_reading if step == "read_file" else ingester
    usual = getattr(module, step)

    def unlucky(given: Any, *rest: Any, **more: Any) -> Any:
        if "unlucky" in (given.text if step == "split_document" else given.name):
            raise error
        return usual(given, *rest, **more)

    def reading(*given: Any) -> Any:
        yield from unlucky(*given)

    monkeypatch.setattr(module, step, reading if step == "read_file" else unlucky)
    bench.write("an-unlucky-file.md", "An unlucky word.")
    bench.write("b.md", "A word.")
    report = bench.index()
    assert report.added == 1
    (failed,) = report.failed
    assert failed.path.endswith("an-unlucky-file.md")
    assert name_of(error) in failed.error or "tried to end the process" in failed.error


@pytest.mark.parametrize("error", UNFORESEEN, ids=name_of)
@pytest.mark.parametrize("in_thread", [True, False])
def test_whatever_an_embedder_raises_is_an_embedding_error(bench: Bench, error: BaseException, in_thread: bool) -> None:
    """Callers have one class to catch, and what was written until then stays."""

    def embed(texts: Sequence[str]) -> Any:
        raise error

    async def embed_here(texts: Sequence[str]) -> Any:
        raise error

    if not in_thread and isinstance(error, KeyboardInterrupt):
        pytest.skip("that is Ctrl-C")
    cast("Any", bench.embedder).embed_texts = embed if in_thread else embed_here
    with pytest.raises(EmbeddingError, match="could not be embedded"):
        asyncio.run(bench.ingester.add([Chunk("c", "d", "a word")]))


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ValueError("no such model"), "embedder"), (ServiceError("no such model", status=401), "authentication")],
)
def test_an_embedders_error_is_an_embedding_error(bench: Bench, error: Exception, kind: str) -> None:
    """Whatever a plug-in raises, callers have one class to catch, which says what kind of failure it was."""
    bench.embedder.failure = error
    with pytest.raises(EmbeddingError, match="no such model") as caught:
        asyncio.run(bench.ingester.add([Chunk("c", "d", "a word")]))
    assert (caught.value.kind, caught.value.__cause__) == (kind, error)


def test_a_column_that_one_cell_makes_text_is_in_the_report(bench: Bench) -> None:
    """It is told of each table that is read, and not again while that stays as it is."""
    for name in ("a.csv", "b.csv"):
        bench.write(name, "\n".join(("text,price", *(f"A word.,{row}" for row in range(19)), "A word.,unknown")))
    report = bench.index()
    assert list(report.notes) == [
        ColumnNote(str(bench.folder / name), "price", 19, 20, "unknown", 20) for name in ("a.csv", "b.csv")
    ]
    assert report.failed == ()
    assert bench.index().notes == ()
    bench.write("b.csv", "text,price\nA word.,5\n")
    assert bench.index().notes == ()


CODE = {
    "src/app.py": "def start():\n    return 'word'\n",
    "src/schema_pb2.py": "# Generated by the protocol buffer compiler.  DO NOT EDIT!\nword = 1\n",
    "src/data.json": '{"a": "' + "x" * 5_000 + '"}',
    "src/big.sql": "select word;" + "\n" * 1_000_000,
    "src/app.min.js": "function word(){}",
    "vendor/lib/lib.go": "package word",
    "vendor/contract.md": "The word.",
    "node_modules/left/index.js": "module.exports = 1",
    "node_modules/left/README.md": "# left",
    "dist/app.js": "var word = 1",
    "package-lock.json": "{}",
    "logo.png": "",
}
SKIPPED = {"generated": 2, "larger than 1 MB": 1, "lock file": 1, "minified": 2, "vendored": 2}


def test_code_that_nobody_wrote_by_hand_is_skipped_and_counted(bench: Bench) -> None:
    """In every run, but not if it is named itself, and only code; on demand all is read."""
    for name, text in CODE.items():
        bench.write(f"files/{name}", text)

    def names() -> set[str]:
        states = asyncio.run(bench.store.sources())
        return {name.removeprefix("files/") for name, state in states.items() if state.documents}

    for _ in range(2):
        report = bench.index("files")
        assert (report.skipped, report.skipped_types) == (SKIPPED, {".png": 1})
        assert names() == {"src/app.py", "vendor/contract.md"}
    everything = asyncio.run(bench.ingester.index([bench.folder / "files"], gitignore=False))
    assert everything.skipped == {}
    assert names() == CODE.keys() - {"logo.png"}
    assert bench.index("files").removed == 6  # what is skipped by its content stays until it changes
    assert bench.index("files/vendor/lib/lib.go").added == 1
