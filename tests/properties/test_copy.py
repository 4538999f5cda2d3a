"""Copying an index to another store: all of it arrives, an interrupted copy is continued, and nothing is embedded."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core import Chunk, Document, copy_index, load_config, open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.errors import StoreError
from retrieval_core.index import copying
from retrieval_core.ports import Change, ChunkRange, FetchRequest, SearchRequest, SourceState, Store
from retrieval_core.types import PageSpan, Section, Span

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from retrieval_core.types import CopyProgress

DIMENSION = 5
IDENTITY: dict[str, Any] = {"embedder_id": "letters", "dimension": DIMENSION}
WORDS = ("moon", "tide", "Mond", "漢字", "naïve", "x" * 300, "")
NAMES = st.sampled_from(["a.md", "b/c.md", "ä 'quoted'.md", "t.csv#1", "t.csv#2", "z" * 200, "%_", "0"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEYWORDS = load_config(overrides={"embedder.kind": "none", "search.mode": "lexical"})
MOMENT = datetime(2026, 11, 28, 10, 17, 1, 23, UTC)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Return an index as one change: documents with sections, chunks without a document, chunks without a vector."""
    chunks: list[Chunk] = []
    documents: list[Document] = []
    sections: list[Section] = []
    for name in draw(st.sets(NAMES, max_size=6)):
        has_text, metadata = draw(st.booleans()), draw(st.dictionaries(st.text(max_size=4), JSON, max_size=2))
        if has_text:
            source = draw(st.sampled_from([name, "t.csv"]))
            documents.append(Document(name, "text of it", source, "", "Title", metadata, MOMENT))
            sections.append(Section(f"{name}!", name, "section", ("Über", "uns"), Span(0, 4), PageSpan(1, 2)))
        total = draw(st.integers(1, 3))
        chunks += [
            Chunk(
                f"{name}#{number}",
                name,
                " ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4))),
                number,
                total,
                parent_id=f"{name}!" if has_text else None,
                section_path=("Über", "uns"),
                span=Span(number, number + 2) if has_text else None,
                source=name,
                metadata=metadata,
                timestamp=MOMENT,
                embedding_model="letters",
                lines=(1, 2),
            )
            for number in range(total)
        ]
    late = frozenset(chunk.id for chunk in chunks if draw(st.integers(0, 5)) == 0)
    seeds = draw(st.lists(st.integers(0, 2**32 - 1), min_size=len(chunks), max_size=len(chunks)))
    rows = [np.random.default_rng(seed).normal(size=DIMENSION) for seed in seeds]
    kept = [row for row, chunk in zip(rows, chunks, strict=True) if chunk.id not in late]
    states = [SourceState(document.source, "hash", "recipe", 1, "elsewhere/x") for document in documents]
    return Change(
        tuple(chunks),
        np.array(kept, np.float32) if kept else None,
        tuple(documents),
        tuple(sections),
        sources=tuple({state.source: state for state in states}.values()),
        unembedded=late,
    )


async def everything(store: Store) -> tuple[Any, ...]:
    """Return all that a store has of an index, with what it finds and what waits."""
    names = sorted(await store.document_ids())
    ranges = tuple(map(ChunkRange.whole, names))
    found = await store.fetch(FetchRequest(ranges=ranges, document_ids=tuple(names), with_vectors=True))
    sections = await store.fetch(FetchRequest(section_ids=tuple(f"{name}!" for name in names)))
    by_words = [await store.search(SearchRequest(9, text=word)) for word in ("moon", "Mond tide", "uns")]
    return (
        names,
        found.chunks,
        found.documents,
        sections.sections,
        {name: vector.tobytes() for name, vector in found.vectors.items()},
        await store.sources(),
        await store.unembedded() if "unembedded" in store.capabilities else {},
        [[(each.chunk_id, round(each.score, 9)) for each in found] for found in by_words],
    )


def closed(*stores: Store) -> None:
    for store in stores:
        asyncio.run(store.aclose())


@given(changes())
@settings(max_examples=12)
def test_all_of_an_index_arrives_and_comes_back(change: Change) -> None:
    """Records, vectors bit by bit, states of files, what waits for its vector, and results: there and back."""
    with TemporaryDirectory() as folder:
        first, back = SqliteStore(f"{folder}/a.db", **IDENTITY), SqliteStore(f"{folder}/b.db", **IDENTITY)
        between = MemoryStore(**IDENTITY)
        asyncio.run(first.upsert(change))
        there, again = copy_index(first, between), copy_index(between, back)
        assert asyncio.run(everything(first)) == asyncio.run(everything(back))
        assert there.checksum == again.checksum
        assert (there.documents, there.chunks) == (again.documents, again.chunks)
        assert (there.rounded, there.notes) == (0, ())
        assert asyncio.run(back.find_damage()).is_none
        closed(first, between, back)


@given(changes(), changes(), st.integers(0, 12), st.booleans())
@settings(max_examples=12)
def test_an_interrupted_copy_is_continued(before: Change, after: Change, steps: int, changed: bool) -> None:
    """Wherever it ended, and whether or not the source was changed since, the second run completes the copy."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "FIRST_DOCUMENTS", 1)
        patch.setattr(copying, "MOST_DOCUMENTS", 1)
        source, target = SqliteStore(f"{folder}/a.db", **IDENTITY), SqliteStore(f"{folder}/b.db", **IDENTITY)
        asyncio.run(source.upsert(before))
        left = iter(range(steps))

        def stop(_: CopyProgress) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        try:
            copy_index(source, target, stop)
        except KeyboardInterrupt:
            with open_index(f"{folder}/b.db", config=KEYWORDS) as index:
                assert "documents copied so far" in index.retrieve("moon").degraded[0].reason
            with pytest.raises(StoreError, match="not complete"):
                copy_index(target, MemoryStore(**IDENTITY))
        else:
            return
        if changed:
            asyncio.run(
                source.upsert(replace(after, removed_documents=tuple({chunk.document_id for chunk in before.chunks})))
            )
        report = copy_index(source, target)
        assert asyncio.run(everything(source)) == asyncio.run(everything(target))
        assert any("changed" in note for note in report.notes) == changed
        closed(source, target)


class _WithoutStates(MemoryStore):
    capabilities = MemoryStore.capabilities - {"sources"}


def test_an_index_without_files_has_one_checksum_in_all_stores() -> None:
    """Also in a store that couldn't keep the states of files."""
    source = MemoryStore(**IDENTITY)
    chunk = Chunk("c", "d", "moon", embedding_model="letters")
    asyncio.run(source.upsert(Change(chunks=(chunk,), vectors=np.eye(1, DIMENSION, dtype=np.float32))))
    checksums = {copy_index(source, target(**IDENTITY)).checksum for target in (MemoryStore, _WithoutStates)}
    assert len(checksums) == 1


class _Claimed(MemoryStore):
    @asynccontextmanager
    async def claimed(self, work: str, *, is_patient: bool = True) -> AsyncGenerator[bool]:
        assert (work, is_patient) == ("copying", False)
        yield False


def test_two_processes_do_not_copy_to_one_index() -> None:
    """The first one that completes would remove the marker of the other, and what that has written."""
    source, target = MemoryStore(**IDENTITY), _Claimed(**IDENTITY)
    chunk = Chunk("c", "d", "moon", embedding_model="letters")
    asyncio.run(source.upsert(Change(chunks=(chunk,), vectors=np.eye(1, DIMENSION, dtype=np.float32))))
    with pytest.raises(StoreError, match="another process is copying"):
        copy_index(source, target)
    assert asyncio.run(target.describe()).documents == 0
