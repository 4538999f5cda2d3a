"""The Pinecone store against the kit, but for what a Pinecone index cannot have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from retrieval_core.errors import (
    DimensionMismatchError,
    InvalidParameterError,
)
from retrieval_core.ports import Change, ChunkRange, FetchRequest, SearchRequest, SourceState
from retrieval_core.testing.filter_strategies import HOSTILE_TEXTS
from retrieval_core.testing.store_kit import DIMENSION, StoreConformance
from retrieval_core.testing.store_kit.base import by_vector, chunk, chunk_of, document, put, unit, units
from retrieval_core.types.filters import Eq, Not
from support.pinecone_service import MOST_METADATA, PineconeService
from support.pinecone_support import store_of
from support.remote_stores import HasNoTransactions
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from retrieval_core.ports import Store

pytestmark = pytest.mark.slow


class _Conformance(HasNoTransactions, StoreConformance):
    """The kit, but for what a Pinecone index cannot have; what takes its place is said with each test."""

    metric = "cosine"
    options: ClassVar[dict[str, Any]] = {}
    negations_match_absent = False

    async def open_store(self, folder: Path) -> Store:
        return store_of(self.server, **self.options)

    @pytest.fixture(autouse=True)
    def _served(self) -> Iterator[None]:
        service = PineconeService(DIMENSION, self.metric, negations_match_absent=self.negations_match_absent)
        self.service = service
        with WireServer(service) as self.server:
            yield

    def run(self, folder: Path, test: Callable[[Any], Awaitable[None]]) -> None:
        self.service.namespaces.clear()
        super().run(folder, test)

    def test_an_empty_store_finds_nothing(self, tmp_path: Path) -> None:
        """The kit's test for the sides that the store has."""

        async def test(store: Store) -> None:
            requests = [SearchRequest(5, vector=unit(0))]
            requests += [SearchRequest(5, text="word")] if self.options.get("sparse") else []
            assert await store.delete(["d"]) == 0
            for request in requests:
                assert not await store.search(request)
            await put(store, chunk("a", "word"))
            await store.delete(["d"])
            for request in requests:
                assert not await store.search(request)
            assert not (await store.fetch(FetchRequest(chunk_ids=("a",)))).chunks
            info = await store.describe()
            assert (info.documents, info.chunks) == (0, 0)

        self.run(tmp_path, test)

    def test_documents_and_sections_come_back_equal(self, tmp_path: Path) -> None:
        """Documents and sections are not kept: none come back, and none are made up."""

        async def test(store: Store) -> None:
            await put(store, chunk("d#0"), documents=(document("d"),))
            found = await store.fetch(FetchRequest(document_ids=("d",), section_ids=("s",)))
            assert not found.documents
            assert not found.sections

        self.run(tmp_path, test)

    def test_a_document_is_replaced_as_a_whole(self, tmp_path: Path) -> None:
        """The kit's test for the chunks."""

        async def test(store: Store) -> None:
            await put(
                store, chunk("d#0", "first"), chunk("d#1"), chunk("e#0", "other", "e"), documents=(document("d"),)
            )
            await put(store, chunk("d#0", "third"), documents=(document("d"),))
            found = await store.fetch(FetchRequest(("d#0", "d#1", "e#0"), with_vectors=True))
            assert {name: item.text for name, item in found.chunks.items()} == {"d#0": "third", "e#0": "other"}
            assert set(found.vectors) == {"d#0", "e#0"}

        self.run(tmp_path, test)

    def test_removing_takes_everything_of_a_document(self, tmp_path: Path) -> None:
        """The kit's test for the chunks and the catalog."""

        async def test(store: Store) -> None:
            both = chunk("d#0"), chunk("d#1"), chunk("e#0", document="e")
            await put(store, *both, documents=(document("d"), document("e")))
            assert await store.delete(["d", "unknown"]) == 2
            assert set((await store.fetch(FetchRequest(("d#0", "d#1", "e#0")))).chunks) == {"e#0"}
            assert set(await store.documents_of("source")) == {"e"}
            assert await store.delete(["d"]) == 0
            await store.upsert(Change(removed_documents=("e",)))
            assert not (await store.fetch(FetchRequest(("e#0",)))).chunks
            assert (await store.describe()).documents == 0

        self.run(tmp_path, test)

    def test_a_change_that_fails_changes_nothing(self, tmp_path: Path) -> None:
        """The kit's test for the chunks: what is wrong is told before anything is written."""

        async def test(store: Store) -> None:
            await put(store, chunk("d#0", "before"), documents=(document("d"),))
            before, good = await store.describe(), chunk("d#0", "after")
            faults: list[tuple[type[Exception], Change]] = [
                (DimensionMismatchError, Change((good, chunk("x")), units(2)[:, :-1].copy())),
                (InvalidParameterError, Change((good, chunk("x")), units(1))),
                (InvalidParameterError, Change((good, chunk("x")), None)),
                (InvalidParameterError, Change((good, good), units(2))),
                (InvalidParameterError, Change((good, chunk("x", "x" * MOST_METADATA)), units(2))),
                (InvalidParameterError, Change((good,), units(1), sources=(SourceState("s" * 50_000, "h", "r", 1),))),
            ]
            for error, change in faults:
                removing = replace(change, documents=(document("d", "after"),), removed_documents=("d",))
                with pytest.raises(error):
                    await store.upsert(removing)
            found = await store.fetch(FetchRequest(chunk_ids=("d#0", "x")))
            assert [item.text for item in found.chunks.values()] == ["before"]
            assert await store.describe() == before

        self.run(tmp_path, test)

    def test_the_filter_guards_everything(self, tmp_path: Path) -> None:
        """The kit's test for the chunks."""

        async def test(store: Store) -> None:
            await put(
                store,
                chunk("d0", document="d", chunk_index=0, metadata={"tenant": "one"}),
                chunk("d1", document="d", chunk_index=1, metadata={"tenant": "two"}),
            )
            bound = await store.fetch(
                FetchRequest(("d0", "d1"), (ChunkRange("d", 0, 9),), filter=Eq("tenant", "one"), with_vectors=True)
            )
            assert set(bound.chunks) == {"d0"} == set(bound.vectors)

        self.run(tmp_path, test)

    def test_hostile_texts_are_stored_and_found(self, tmp_path: Path) -> None:
        """The kit's test for the chunks."""

        async def test(store: Store) -> None:
            chunks = [
                chunk(f"{number}{text}", f"word {text}", text, title=text or None, metadata={"value": text, text: 1})
                for number, text in enumerate(HOSTILE_TEXTS)
            ]
            await put(store, *chunks, documents=tuple(document(text, text, source=text) for text in HOSTILE_TEXTS))
            for item in chunks:
                text = item.document_id
                assert await chunk_of(store, item.id) == item
                request = FetchRequest(ranges=(ChunkRange(text, 0, 0),), filter=Eq("value", text))
                assert list((await store.fetch(request)).chunks) == [item.id]
                assert await by_vector(store, unit(0), 99, Eq("value", text)) == [item.id]
                assert item.id not in await by_vector(store, unit(0), 99, Not(Eq(text, 1)))
            assert await store.delete(list(HOSTILE_TEXTS)) == len(chunks)

        self.run(tmp_path, test)

    def test_large_values(self, tmp_path: Path) -> None:
        """What is too large is refused by name; what just fits is kept."""

        async def test(store: Store) -> None:
            for large in (chunk("big", "x" * 1_000_000), chunk("big", metadata={"list": list(range(10_000))})):
                with pytest.raises(InvalidParameterError, match=r"chunk 'big' comes to \d+ bytes"):
                    await put(store, chunk("small"), large)
            assert (await store.describe()).chunks == 0
            fits = chunk("fits", "é" * 19_000)
            await put(store, fits)
            assert await chunk_of(store, "fits") == fits
            assert await by_vector(store, unit(0), condition=Eq("value", "v" * 1_000_000)) == []

        self.run(tmp_path, test)


class TestCosine(_Conformance):
    pass


class TestSparse(_Conformance):
    metric = "dotproduct"
    options: ClassVar[dict[str, Any]] = {"sparse": True, "namespace": "ours"}
    negations_match_absent = True
