"""What the Qdrant store does when Qdrant fails: one attempt for each call, and errors that say what happened."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")

from pydantic import SecretStr

from retrieval_core.adapters.stores.qdrant import QdrantStore
from retrieval_core.errors import (
    ConfigurationError,
    IndexNotFoundError,
    InvalidParameterError,
    MalformedAnswerError,
    MissingExtraError,
    ServiceConnectionError,
    ServiceError,
    StoreError,
)
from retrieval_core.ports import ChunkRange, FetchRequest, SearchRequest
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID
from retrieval_core.testing.store_kit.base import chunk, put, unit
from retrieval_core.types.filters import Eq
from support.qdrant_service import KEY, QdrantService
from support.qdrant_support import run
from support.remote_stores import faults
from support.wire_server import (
    Changed,
    Hang,
    Response,
    Status,
    WireServer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from support.wire_server import Fault

pytestmark = [pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection"), pytest.mark.slow]

POINTS = "/collections/retrieval/points"
CALLS: dict[str, tuple[str, Callable[[QdrantStore], Coroutine[Any, Any, Any]]]] = {
    "search": (f"{POINTS}/query", lambda store: store.search(SearchRequest(5, vector=unit(0), filter=Eq("a", 1)))),
    "search by words": (f"{POINTS}/query", lambda store: store.search(SearchRequest(5, text="text"))),
    "fetch ids": (POINTS, lambda store: store.fetch(FetchRequest(("a",)))),
    "fetch ranges": (f"{POINTS}/scroll", lambda store: store.fetch(FetchRequest(ranges=(ChunkRange("d", 0, 1),)))),
    "describe": (f"{POINTS}/count", lambda store: store.describe()),
    "version": (POINTS, lambda store: store.version()),
    "upsert": (f"{POINTS}/batch", lambda store: put(store, chunk("new", document="d"))),
    "sources": (f"{POINTS}/scroll", lambda store: store.sources()),
    "documents_of": (f"{POINTS}/scroll", lambda store: store.documents_of("source")),
    "document_ids": (f"{POINTS}/scroll", lambda store: store.document_ids()),
    "delete": (f"{POINTS}/count", lambda store: store.delete(["d"])),
    "count": (f"{POINTS}/count", lambda store: store.count_chunks(Eq("a", 1))),
    "fields": (f"{POINTS}/scroll", lambda store: store.fields(10)),
}
"""Each call, and the path of a request that it makes once the store knows its index."""

ERROR = {"status": {"error": "a fault that was asked for"}, "time": 0.0}
FAULTS: dict[str, tuple[Fault, type[ServiceError], int | None, bool]] = {
    **faults(ERROR),
    "no JSON": (Changed(lambda _: Response(body=b"<html>Welcome")), MalformedAnswerError, None, True),
    "another shape": (Changed(lambda _: Response(body={"result": 3})), MalformedAnswerError, None, True),
    "no result": (Changed(lambda _: Response(body={"status": "ok"})), MalformedAnswerError, None, True),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
def test_each_fault_is_one_attempt_and_a_typed_error(call: str, fault: str) -> None:
    """Whatever fails, the call makes one request and says what happened, and the next call works."""
    path, make = CALLS[call]
    spoilt, error, status, can_be_retried = FAULTS[fault]
    if (call, fault) == ("version", "not found"):
        pytest.skip("it then looks whether the collection is still there")

    async def test(store: QdrantStore) -> None:
        await put(store, chunk("a"))
        await make(store)
        await put(store, chunk("b"))
        before = server.count(path)
        server.fail(spoilt, path=path)
        with pytest.raises(error) as caught:
            await make(store)
        assert server.count(path) - before == 1
        assert caught.value.service == "qdrant"
        assert caught.value.status == status
        assert caught.value.can_be_retried is can_be_retried
        assert caught.value.__cause__ is not None
        assert KEY not in str(caught.value)
        await make(store)

    with WireServer(QdrantService()) as server:
        run(server, test)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(7, 7.0), ("0.5", None), ("Wed, 21 Oct 2026 07:28:30 GMT", None), ("soon", None), (None, None)],
)
def test_the_wait_that_qdrant_asks_for(header: float | str | None, seconds: float | None) -> None:
    """Whole seconds are understood, all that the client takes; whatever the header, the status is told."""

    async def test(store: QdrantStore) -> None:
        await put(store, chunk("a"))
        server.fail(Status(429, header, ERROR), path=f"{POINTS}/query")
        with pytest.raises(ServiceError) as caught:
            await store.search(SearchRequest(5, vector=unit(0)))
        assert (caught.value.status, caught.value.retry_after) == (429, seconds)
        assert caught.value.can_be_retried

    with WireServer(QdrantService()) as server:
        run(server, test)


def test_a_wrong_key_is_explained() -> None:
    """The advice names the key, and the key is not shown."""

    async def test(store: QdrantStore) -> None:
        with pytest.raises(ServiceError, match=r"status 401: Must provide an API key .* Check the API key") as caught:
            await store.describe()
        assert "wrong-key" not in str(caught.value)

    with WireServer(QdrantService()) as server:
        run(server, test, api_key=SecretStr("wrong-key"))


def test_a_chunk_that_no_request_can_hold() -> None:
    """Nothing of the change is written, and the message says what to do."""

    async def test(store: QdrantStore) -> None:
        with pytest.raises(
            InvalidParameterError, match=r"chunk 'big' comes to 30\d{6} bytes.*Split it into smaller ones"
        ):
            await put(store, chunk("small"), chunk("big", "x" * 30_000_000))
        assert not any(request.method == "PUT" and "points" in request.path for request in server.requests)

    with WireServer(QdrantService()) as server:
        run(server, test)


def test_a_server_without_a_key() -> None:
    """A server of one's own may ask for none; none is sent then."""

    async def test(store: QdrantStore) -> None:
        await put(store, chunk("a"))
        assert (await store.describe()).chunks == 1
        assert all("api-key" not in request.headers for request in server.requests)

    with WireServer(QdrantService(None)) as server:
        run(server, test, api_key=None)


def test_a_key_in_an_answer_is_hidden() -> None:
    """An error that repeats the key comes out without it."""

    async def test(store: QdrantStore) -> None:
        server.fail(Status(400, body={"status": {"error": f"the key {KEY} may not"}}))
        with pytest.raises(ServiceError, match="may not") as caught:
            await store.describe()
        assert KEY not in str(caught.value)

    with WireServer(QdrantService()) as server:
        run(server, test)


def test_a_server_that_is_not_there() -> None:
    """A refused connection is told as one, and later calls work once the server is back."""

    async def test(store: QdrantStore) -> None:
        await put(store, chunk("a"))
        await asyncio.to_thread(server.refuse)
        with pytest.raises(ServiceConnectionError, match="Check that the address"):
            await store.describe()
        await asyncio.to_thread(server.accept)
        assert (await store.describe()).chunks == 1

    with WireServer(QdrantService()) as server:
        run(server, test)


@pytest.mark.parametrize("call", CALLS)
def test_cancelling_leaves_qdrant(call: str) -> None:
    """A cancelled call closes its connection, so that Qdrant need not go on; the store stays usable."""
    path, make = CALLS[call]

    async def test(store: QdrantStore) -> None:
        await put(store, chunk("a"))
        await make(store)
        await put(store, chunk("b"))
        before = server.count(path)
        server.fail(Hang(), path=path)
        task: asyncio.Task[Any] = asyncio.create_task(make(store))
        await server.until(lambda: server.count(path) > before)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.disconnected == 1)
        await make(store)

    with WireServer(QdrantService()) as server:
        run(server, test)


def test_a_broken_write_is_made_again() -> None:
    """A change that broke off left its source unknown, and the version another: nobody takes it for done."""
    from dataclasses import replace

    from retrieval_core.ports import Change, SourceState
    from retrieval_core.testing.store_kit.base import document, units

    service = QdrantService()
    state = SourceState("s", "h", "r", 1)
    change = Change(
        (chunk("a", "x" * 7_000_000), chunk("b", "y" * 7_000_000)),
        units(2),
        documents=(document("d", source="s"),),
        sources=(state,),
    )

    async def test(store: QdrantStore) -> None:
        await put(store, chunk("first", document="e"))
        before = await store.version()
        service.updates_left = 1
        with pytest.raises(ServiceError, match="no space left"):
            await store.upsert(change)
        service.updates_left = None
        assert await store.version() != before
        assert "s" not in await store.sources()
        await store.upsert(change)
        assert dict(await store.sources()) == {"s": state}
        await store.upsert(replace(change, chunks=change.chunks[:1], vectors=units(1)))
        assert set((await store.fetch(FetchRequest(("a", "b")))).chunks) == {"a"}

    with WireServer(service) as server:
        run(server, test)


def test_a_change_of_one_document_is_one_request() -> None:
    """All its steps go out together, in order."""

    async def test(store: QdrantStore) -> None:
        await put(store, chunk("a"))
        service.updates.clear()
        before = server.count()
        from retrieval_core.ports import SourceState
        from retrieval_core.testing.store_kit.base import document

        await put(store, chunk("a"), documents=(document("d"),), sources=(SourceState("s", "h", "r", 1),))
        assert service.updates == [5]  # the state, points, what they replace, the source, the state
        assert server.count() - before == 2  # and the state was read

    service = QdrantService()
    with WireServer(service) as server:
        run(server, test)


def test_a_collection_that_goes_is_noticed() -> None:
    """Who removes the collection elsewhere removes the index: there is no version, and it can be built again."""

    async def test(store: QdrantStore) -> None:
        await put(store, chunk("a"))
        assert await store.version() is not None
        service.client.delete_collection("retrieval")
        assert await store.version() is None
        with pytest.raises(IndexNotFoundError, match="retrieval index"):
            await store.describe()
        await put(store, chunk("b"))
        assert (await store.describe()).chunks == 1

    service = QdrantService()
    with WireServer(service) as server:
        run(server, test)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the client the error holds the line that installs it."""

    async def missing(store: QdrantStore) -> None:
        for call in (
            store.describe,
            lambda: put(store, chunk("a")),
            lambda: store.search(SearchRequest(5, text="a", filter=Eq("a", 1))),
            lambda: store.delete(["d"]),
            lambda: store.fetch(FetchRequest(("a",))),
        ):
            with pytest.raises(MissingExtraError, match=r"\[qdrant\]"):
                await call()
        await store.aclose()

    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    asyncio.run(missing(QdrantStore(url="http://127.0.0.1:1")))
    asyncio.run(missing(QdrantStore(path=":memory:")))


@pytest.mark.parametrize("name", ["", "..", "a/b", "a?b", "a#b", "a%2fb", "a\nb", "x" * 256])
def test_names_that_no_collection_can_have_are_refused(name: str) -> None:
    """Before any of it becomes part of an address."""
    with pytest.raises(ConfigurationError, match="cannot name a collection"):
        QdrantStore(url="http://localhost", collection=name)


def test_an_address_is_needed() -> None:
    """Without address and folder the error says what to set."""
    with pytest.raises(ConfigurationError, match=r"QDRANT_URL .* store.qdrant.path") as caught:
        QdrantStore()
    assert caught.value.missing_keys == ("QDRANT_URL",)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the client leaves the lock's file open
def test_a_folder_is_kept_and_open_once(tmp_path: Path) -> None:
    """The local mode's folder outlives the process, and a second store is told why it cannot have it."""

    async def main() -> None:
        def opened() -> QdrantStore:
            return QdrantStore(path=str(tmp_path / "q"), embedder_id=EMBEDDER_ID, dimension=DIMENSION)

        store, other = opened(), opened()
        await put(store, chunk("a", metadata={"n": 1}))
        with pytest.raises(StoreError, match="Only one process"):
            await other.describe()
        await store.aclose()
        assert [found.chunk_id for found in await other.search(SearchRequest(5, text="text", filter=Eq("n", 1)))] == [
            "a"
        ]
        await other.aclose()

    asyncio.run(main())
    gc.collect()  # now, not in whichever test comes next: the file warns when it is collected
