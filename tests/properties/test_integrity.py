"""Whatever happens to whatever chunk, in whatever store, it is found; and where nothing has happened, nothing is."""

from __future__ import annotations

from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retrieval_core import Document, open_index
from retrieval_core.types import TextDifference, content_hash
from support.corruption import KINDS, LEXICAL, MODULES, Damage, lexical

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core import Index

STORES = ["memory", "sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in MODULES if name != "sqlite")]
PLACES = ("docs/guide.md", "docs/notes.txt", "table.csv#1", "table.csv#2")
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)
TEXTS = st.lists(WORDS | st.sampled_from(["# A heading", "## Another", "- item", "| a | b |", "|-|-|", "```", ""])).map(
    "\n".join
)


def filled(folder: Path, kind: str) -> Index:
    """Return an index of some files, which were written first."""
    pytest.importorskip(MODULES.get(kind, "retrieval_core"))
    guide = "\n\n".join(f"## Part {part}\n\n" + f"Sentence {part} of the guide. Ünïcödé 🚀! " * 9 for part in range(5))
    (folder / "docs").mkdir()
    (folder / "docs/guide.md").write_text(f"# Guide\n\n{guide}\n", encoding="utf-8")
    (folder / "docs/notes.txt").write_text("A note that is short.\n", encoding="utf-8")
    (folder / "table.csv").write_text("text,price\nA sturdy phone,99.5\nA thin phone,500\n", encoding="utf-8")
    index = open_index(config=lexical(folder, kind))
    index.ingest([folder / "docs", folder / "table.csv"])
    return index


@pytest.fixture(scope="module", params=STORES)
def damage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damage]:
    with filled(tmp_path_factory.mktemp("integrity"), request.param) as index:
        yield Damage(index)


@given(kind=st.sampled_from(sorted(KINDS)), place=st.sampled_from(PLACES), data=st.data())
def test_any_damage_to_any_chunk_is_found(damage: Damage, kind: str, place: str, data: st.DataObject) -> None:
    """With the chunk, both texts and where they part; and once it is undone, the index is clean again."""
    before = damage.chunks(place)
    number = data.draw(st.integers(0, len(before) - 1), label="chunk")
    offset = data.draw(st.integers(0, len(before[number].text) - 1), label="offset")
    after = KINDS[kind](before, number, offset)
    assume(after != before)
    damage.replace(place, after)
    report = damage.index.check_integrity()
    assert report.verdict == "mismatch"
    assert {found.document_id for found in report.mismatches} == {place}
    if kind != "doubled":
        assert before[number].id in {found.chunk_id for found in report.mismatches}
    told = {found.chunk_id: found for found in report.mismatches}
    stored = {chunk.id: chunk.text for chunk in after}
    for chunk in before:
        text = stored.get(chunk.id, "")
        if text != chunk.text:
            found = told[chunk.id]
            assert (found.stored_text, found.original_text) == (text, chunk.text)
            texts = text.encode(), chunk.text.encode()
            common = sum(takewhile(bool, map(eq, *texts)))
            assert found.difference == TextDifference(common, *map(len, texts))
    damage.replace(place, before)
    clean = damage.index.check_integrity()
    assert (clean.verdict, clean.documents, clean.unverifiable) == ("clean", 4, 0)


def test_nothing_is_written(damage: Damage) -> None:
    """An index has the same version before and after, whether something differs or not."""
    before = damage.index.describe()
    damage.index.check_integrity()
    damage.index.validate("docs/guide.md#1")
    assert damage.index.describe() == before


@pytest.mark.parametrize("store", STORES)
def test_a_repair_mends_what_differs_and_touches_nothing_else(tmp_path: Path, store: str) -> None:
    """Whatever happened; a file that was edited since is taken in as it is now."""
    with filled(tmp_path, store) as index:
        damage = Damage(index)

        def repaired(place: str) -> list[str]:
            """Return the texts of the one document that a repair has written."""
            others = {other: damage.stored(other) for other in PLACES if other != place}
            report = index.check_integrity(repair=True)
            assert (report.verdict, report.repaired) == ("clean", (place,))
            assert {other: damage.stored(other) for other in others} == others
            return [chunk.text for chunk in damage.chunks(place)]

        for number, happened in enumerate(KINDS.values()):
            place = PLACES[number % 2 * 2]  # the guide and a row of the table, which has one chunk, in turns
            before = damage.chunks(place)
            after = happened(before, len(before) // 2, 3)
            assert after != before
            damage.replace(place, after)
            assert repaired(place) == [chunk.text for chunk in before]
        (tmp_path / "docs/notes.txt").write_text("Another note.\n", encoding="utf-8")
        assert repaired("docs/notes.txt") == ["Another note."]


@given(st.lists(TEXTS, max_size=4), st.sampled_from(["memory", "sqlite"]))
def test_what_was_just_added_is_clean(tmp_path_factory: pytest.TempPathFactory, texts: list[str], kind: str) -> None:
    """Documents that came from no file too, once they are named; what is not named is counted."""
    store = LEXICAL.store.model_copy(update={"kind": kind})
    documents = [Document(str(number), text, "made up", content_hash(text)) for number, text in enumerate(texts)]
    place = tmp_path_factory.mktemp("added") / "index.db"
    with open_index(place, config=LEXICAL.model_copy(update={"store": store})) as index:
        index.add_documents(documents)
        if not documents:
            return
        named = index.check_integrity(document_ids=[document.id for document in documents])
        assert (named.verdict, named.documents, named.chunks) == ("clean", len(texts), index.describe().chunks)
        unnamed = index.check_integrity()
        assert (unnamed.unverifiable, unnamed.mismatches) == (index.describe().chunks, ())
