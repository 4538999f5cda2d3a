"""What is the Pinecone store's own: limits, batches, ids, requests and what it remembers."""

from __future__ import annotations

import asyncio
import json
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from retrieval_core.errors import (
    ConfigurationError,
    DimensionMismatchError,
    EmbedderMismatchError,
    IndexFormatError,
    InvalidParameterError,
    StoreError,
)
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import (
    ChunkRange,
    CollectionState,
    FetchRequest,
    RecordDamage,
    SearchRequest,
    SourceState,
    StoreInfo,
)
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.store_kit import DIMENSION
from retrieval_core.testing.store_kit.base import by_vector, chunk, document, put, unit, units
from retrieval_core.types.filters import OPERATORS, Eq, Gt, chunk_fields, matches
from support.pinecone_service import KEY, PineconeService
from support.pinecone_support import run, store_of
from support.wire_server import WireServer

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.adapters.stores.pinecone import PineconeStore

PATIENCE = 30.0


def test_sides_are_known_without_asking() -> None:
    """What a store searches by is told before any request."""
    with WireServer(PineconeService(DIMENSION)) as server:
        assert store_of(server).sides == {"dense"}
        both = store_of(server, sparse=True)
        assert both.sides == {"dense", "lexical"}
        assert ", sparse by " in both.id
        assert store_of(server, embedder_id=None, dimension=None).sides == frozenset()
        assert server.count() == 0


def test_a_store_describes_the_index() -> None:
    """Counts are those of the namespace, and there is neither manifest nor generation."""

    async def test(store: PineconeStore) -> None:
        await put(store, chunk("a", document="d"), chunk("b", document="e"), documents=(document("d"),))
        assert await store.describe() == StoreInfo(
            f"Pinecone index {server.url}, namespace __default__",
            None,
            None,
            2,
            2,
            frozenset({"dense"}),
            OPERATORS,
            collection=CollectionState(DIMENSION, "Cosine", 2, 2, "green"),
        )

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"api_key": None}, ConfigurationError, "PINECONE_API_KEY"),
        ({"host": None}, ConfigurationError, "PINECONE_INDEX_NAME"),
        ({"fields": {"txt": "a"}}, InvalidParameterError, "txt"),
        ({"dimension": None}, InvalidParameterError, "come together"),
    ],
)
def test_wrong_arguments_are_told_at_once(options: dict[str, Any], error: type[Exception], message: str) -> None:
    """What cannot work is refused when the store is made."""
    with WireServer(PineconeService(DIMENSION)) as server, pytest.raises(error, match=message):
        store_of(server, **options)


@pytest.mark.parametrize(
    ("service", "options", "error"),
    [
        (PineconeService(DIMENSION + 1), {}, DimensionMismatchError),
        (PineconeService(DIMENSION, "euclidean"), {}, IndexFormatError),
        (PineconeService(DIMENSION, "cosine"), {"sparse": True}, IndexFormatError),
    ],
)
def test_an_index_that_does_not_fit_is_refused(
    service: PineconeService, options: dict[str, Any], error: type[Exception]
) -> None:
    """Another dimension or metric is told with the first search and the first write, and nothing is written."""

    async def test(store: PineconeStore) -> None:
        for call in (lambda: store.search(SearchRequest(5, vector=unit(0))), lambda: put(store, chunk("a"))):
            with pytest.raises(error):
                await call()
        assert not service.namespaces

    with WireServer(service) as server:
        run(server, test, **options)


def test_without_an_embedder_or_words_there_is_no_search() -> None:
    """A store opened without an embedder neither writes nor compares vectors, and one without words says so."""

    async def bare(store: PineconeStore) -> None:
        with pytest.raises(EmbedderMismatchError):
            await put(store, chunk("a"))
        with pytest.raises(StoreError):
            await store.search(SearchRequest(5, vector=unit(0)))

    async def dense(store: PineconeStore) -> None:
        with pytest.raises(StoreError, match="has no keyword search"):
            await store.search(SearchRequest(5, text="word"))

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, bare, embedder_id=None, dimension=None)
        run(server, dense)


def test_a_search_is_one_request() -> None:
    """Candidates carry their chunks, so nothing is fetched; ties at the limit and wrong matches cost another one."""

    async def test(store: PineconeStore) -> None:
        await put(store, *(chunk(f"c{row:02}", metadata={"n": row}) for row in range(30)), vectors=units(30))
        await store.search(SearchRequest(5, vector=unit(0)))
        before = server.count()
        found = await store.search(SearchRequest(5, vector=unit(0), filter=Eq("n", 3)))
        assert [item.chunk for item in found] == [chunk("c03", metadata={"n": 3})]
        assert server.count() - before == 1
        assert "values" not in server.requests[-1].json() or not server.requests[-1].json()["includeValues"]

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_neighbours_are_one_request() -> None:
    """All ranges of a query are read at once, and its chunks by id at once."""

    async def test(store: PineconeStore) -> None:
        await put(store, *(chunk(f"{d}{row}", document=d, chunk_index=row) for d in "abc" for row in range(9)))
        before = server.count()
        found = await store.fetch(FetchRequest(ranges=tuple(ChunkRange(name, 3, 5) for name in "abc")))
        assert set(found.chunks) == {f"{name}{row}" for name in "abc" for row in (3, 4, 5)}
        assert server.count() - before == 1
        await store.fetch(FetchRequest(tuple(f"a{row}" for row in range(9))))
        assert server.count() - before == 2

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_large_changes_are_sent_in_parts() -> None:
    """No request has more than 1000 vectors or 2 MB; the service refuses such ones, and everything arrives."""

    async def test(store: PineconeStore) -> None:
        await put(store, *(chunk(f"c{row}", "x" * 30_000) for row in range(150)))
        await put(store, *(chunk(f"n{row}", document="n") for row in range(2_100)))
        assert (await store.describe()).chunks == 2_250
        sizes = [len(request.body) for request in server.requests if request.path == "/vectors/upsert"]
        assert max(sizes) <= 2_000_000
        assert await store.delete(["n"]) == 2_100

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_ids_that_pinecone_does_not_take() -> None:
    """Long ids, other scripts, and those that look like ours are kept under their hash and come back as they were."""
    longest = "x" * 512
    names = ("ü", longest + "x", longest, "", "rc-sha256-abc", "a\nb", "plain#0")

    async def test(store: PineconeStore) -> None:
        await put(store, *(chunk(name) for name in names))
        found = await store.fetch(FetchRequest(names))
        assert set(found.chunks) == set(names)
        assert set(await by_vector(store, unit(0))) == set(names)
        assert {"plain#0", longest} <= service.records().keys()

    service = PineconeService(DIMENSION)
    with WireServer(service) as server:
        run(server, test)


def test_pinecones_own_filters_find_the_users_fields() -> None:
    """Fields that fit stand under their own names, nested ones under their paths, as any other program would ask."""

    async def test(store: PineconeStore) -> None:
        await put(store, chunk("a", metadata={"brand": "Acme", "price": 3, "new": True, "tags": ["x"], "o": {"p": 1}}))
        metadata = service.records()["a"].metadata
        kept = {name: metadata[name] for name in ("brand", "price", "new", "tags", "o.p")}
        assert kept == {"brand": "Acme", "price": 3.0, "new": True, "tags": ["x"], "o.p": 1.0}

    service = PineconeService(DIMENSION)
    with WireServer(service) as server:
        run(server, test)


def test_filters_on_what_pinecone_cannot_compare() -> None:
    """More is asked for until the limit is reached, where Pinecone lets pass what does not match."""

    async def test(store: PineconeStore) -> None:
        rows = [chunk(f"c{row:03}", metadata={"sizes": [row, row + 1]}) for row in range(200)]
        await put(store, *rows, vectors=units(200))
        condition = Gt("sizes", 190)
        wanted = {item.id for item in rows if matches(condition, chunk_fields(item))}
        assert set(await by_vector(store, unit(0), 10, condition)) == wanted

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_long_ids_fit_into_addresses() -> None:
    """Ids that are asked for are part of an address, which a server takes up to some length only."""

    async def test(store: PineconeStore) -> None:
        names = {f"{number:03}{'x' * 400}" for number in range(60)}
        await put(store, *(chunk(name) for name in names))
        assert (await store.fetch(FetchRequest(chunk_ids=tuple(names)))).chunks.keys() == names

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_a_source_is_forgotten_before_its_documents() -> None:
    """A deletion that breaks off in its middle leaves nothing that would be taken for up to date."""

    async def test(store: PineconeStore) -> None:
        state = SourceState("s", "h", "r", 1)
        await put(store, chunk("d#0"), documents=(document("d", source="s"),), sources=(state,))
        assert dict(await store.sources()) == {"s": state}
        start = len(server.requests)
        assert await store.delete(["d"]) == 1
        deleted = [
            request.json()["namespace"] for request in server.requests[start:] if request.path == "/vectors/delete"
        ]
        assert deleted == ["__default____sources", "", "__default____documents"]
        assert dict(await store.sources()) == {}

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_weights_of_words_stay() -> None:
    """Chunks that are indexed later are compared with those that an earlier version indexed: by BM25, as then."""
    service = PineconeService(DIMENSION, "dotproduct")

    async def test(store: PineconeStore) -> None:
        await put(store, chunk("a", "moon moon orbit"), chunk("b", "moon " * 20 + "x " * 300))
        weights = {name: sorted(record.sparse.values()) for name, record in service.records().items()}
        assert weights["a"] == pytest.approx([1.6787, 1.9043], abs=1e-4)
        assert weights["b"] == pytest.approx([2.0537, 2.1896], abs=1e-4)

    with WireServer(service) as server:
        run(server, test, sparse=True)


def test_an_index_is_filled_from_files(tmp_path: Path) -> None:
    """Indexing works as with other stores: what did not change costs nothing, what is gone goes, and all is found."""
    from retrieval_core import open_index
    from retrieval_core.config import load_config
    from retrieval_core.testing.fakes import FakeEmbedder

    for name in ("one", "two"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nAll about {name}.", encoding="utf-8")
    embedder = FakeEmbedder()
    with WireServer(PineconeService(embedder.dimension, "dotproduct")) as server:
        store = store_of(server, embedder_id=embedder.id, dimension=embedder.dimension, sparse=True)
        with open_index(tmp_path / "none.db", config=load_config(), embedder=embedder, store=store) as index:
            assert index.ingest(tmp_path).added == 2
            sent = server.count("/vectors/upsert")
            assert index.ingest(tmp_path).unchanged == 2
            assert server.count("/vectors/upsert") == sent
            hits = index.retrieve("two", mode="lexical").hits
            assert [hit.chunk.source for hit in hits] == ["two.md"]
            assert index.delete("two.md") == 1
            assert not index.retrieve("two", mode="lexical").hits
            index.ingest(tmp_path)
            assert index.describe().chunks == 2


def test_namespaces_are_apart() -> None:
    """Two stores of one index see each their own."""

    async def test(store: PineconeStore) -> None:
        other = store_of(server, namespace="other")
        await put(store, chunk("a"), sources=(SourceState("s", "h", "r", 1),))
        await put(other, chunk("b"), chunk("c"))
        assert await by_vector(store, unit(0)) == ["a"]
        assert sorted(await by_vector(other, unit(0))) == ["b", "c"]
        assert not await other.sources()
        assert (await other.describe()).chunks == 2
        await other.aclose()

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test, namespace="one")


def test_a_record_of_another_version_is_refused() -> None:
    """What cannot be read is told, not guessed."""

    async def test(store: PineconeStore) -> None:
        for content in ("{", '{"v": 2}', '{"v": 1}'):
            service.put("x", unit(0), {"_rc": content, "_rc_text": "t", "_rc_doc": "d", "_rc_pos": 0})
            with pytest.raises(IndexFormatError):
                await store.search(SearchRequest(5, vector=unit(0)))

    service = PineconeService(DIMENSION)
    with WireServer(service) as server:
        run(server, test)


def test_damage_is_looked_for_in_some_documents() -> None:
    """A record that was changed by another program is named, if its document is asked for or none is."""
    service = PineconeService(DIMENSION)

    async def test(store: PineconeStore) -> None:
        await put(store, chunk("a", document="first"), chunk("b", document="second"))
        for name, record in service.records().items():
            record.values = unit(7) if name in {"a", "b"} else record.values
        for documents, names in ((None, {"a", "b"}), (["first"], {"a"}), (["other"], set[str]())):
            assert (await store.find_damage(documents)).chunks.keys() == names

    with WireServer(service) as server:
        run(server, test)


def test_records_without_checksums_are_counted() -> None:
    """An older version wrote none, so nobody can say whether these chunks are what they were."""
    service = PineconeService(DIMENSION)

    async def test(store: PineconeStore) -> None:
        await put(store, *(chunk(name, document=name) for name in "abc"))
        for name in "ab":
            metadata = service.records()[name].metadata
            kept = json.loads(metadata["_rc"])
            metadata["_rc"] = json.dumps({key: value for key, value in kept.items() if key != "seal"})
        damage = await store.find_damage(None)
        assert (damage.unsealed, damage.chunks) == (2, {})

    with WireServer(service) as server:
        run(server, test)


def test_a_record_that_cannot_be_read_is_damage() -> None:
    """It is named with its document, and the others are compared nevertheless."""
    service = PineconeService(DIMENSION)

    async def test(store: PineconeStore) -> None:
        await put(store, *(chunk(name, document=f"of {name}") for name in "ab"))
        service.records()["a"].metadata["_rc"] = "{"
        (damage,) = (await store.find_damage(None)).chunks.items()
        assert damage == ("a", RecordDamage("of a", ("record",)))

    with WireServer(service) as server:
        run(server, test)


def test_the_key_is_in_no_text() -> None:
    """Neither the store nor what it says of itself shows the key."""

    async def test(store: PineconeStore) -> None:
        assert KEY not in repr(store)
        assert KEY not in repr(await store.describe())

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_closing_inside_the_event_loop_that_made_the_connections() -> None:
    """``with`` around ``await``: leaving it waits for nothing that only this loop can do, and the loop does it then."""
    embedder = FakeEmbedder()
    ended = Event()

    async def main(server: WireServer) -> None:
        store = store_of(server, embedder_id=embedder.id, dimension=embedder.dimension)
        with RetrievalPipeline(store, embedder) as pipeline:
            await pipeline.aretrieve("saturn", mode="dense")
            assert server.connected
        with pytest.raises(StoreError, match="closed"):
            await store.describe()
        await server.until(lambda: not server.connected)
        ended.set()

    with WireServer(PineconeService(embedder.dimension)) as server:
        # In a thread of its own, so that a deadlock is a failure.
        Thread(target=lambda: asyncio.run(main(server)), daemon=True).start()
        assert ended.wait(PATIENCE)
