"""What the Pinecone store does when Pinecone fails: one attempt for each call, and errors that say what happened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from pydantic import SecretStr

from retrieval_core.adapters.stores.pinecone import PineconeStore
from retrieval_core.errors import MalformedAnswerError, ServiceConnectionError, ServiceError
from retrieval_core.ports import ChunkRange, FetchRequest, SearchRequest
from retrieval_core.testing.store_kit import DIMENSION
from retrieval_core.testing.store_kit.base import chunk, put, unit
from retrieval_core.types.filters import Eq
from support.pinecone_service import KEY, PineconeService
from support.pinecone_support import run, store_of
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

    from support.wire_server import Fault

pytestmark = pytest.mark.slow

CALLS: dict[str, tuple[str, Callable[[PineconeStore], Coroutine[Any, Any, Any]]]] = {
    "search": ("/query", lambda store: store.search(SearchRequest(5, vector=unit(0), filter=Eq("a", 1)))),
    "fetch ids": ("/vectors/fetch", lambda store: store.fetch(FetchRequest(("a",)))),
    "fetch ranges": (
        "/vectors/fetch_by_metadata",
        lambda store: store.fetch(FetchRequest(ranges=(ChunkRange("d", 0, 1),))),
    ),
    "describe": ("/describe_index_stats", lambda store: store.describe()),
    "upsert": ("/vectors/upsert", lambda store: put(store, chunk("new", document="d"))),
    "sources": ("/vectors/fetch_by_metadata", lambda store: store.sources()),
    "documents_of": ("/vectors/fetch_by_metadata", lambda store: store.documents_of("source")),
    "document_ids": ("/vectors/fetch_by_metadata", lambda store: store.document_ids()),
    "delete": ("/vectors/fetch_by_metadata", lambda store: store.delete(["d"])),
}
"""Each call, and the path of the first request that it makes once the store knows its index."""

FAULTS: dict[str, tuple[Fault, type[ServiceError], int | None, bool]] = {
    **faults(),
    "another shape": (
        Changed(lambda _: Response(body={"matches": 3, "vectors": 3, "namespaces": 3, "upsertedCount": "x"})),
        MalformedAnswerError,
        None,
        True,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
def test_each_fault_is_one_attempt_and_a_typed_error(call: str, fault: str) -> None:
    """Whatever fails, the call makes one request and says what happened, and the next call works."""
    path, make = CALLS[call]
    spoilt, error, status, can_be_retried = FAULTS[fault]

    async def test(store: PineconeStore) -> None:
        await put(store, chunk("a"))
        await make(store)
        before = server.count(path)
        server.fail(spoilt, path=path)
        with pytest.raises(error) as caught:
            await make(store)
        assert server.count(path) - before == 1
        assert caught.value.service == "pinecone"
        assert caught.value.status == status
        assert caught.value.can_be_retried is can_be_retried
        assert caught.value.__cause__ is not None
        assert KEY not in str(caught.value)
        await make(store)

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


@pytest.mark.parametrize(
    ("header", "date", "seconds"),
    [
        (7, None, 7.0),
        ("0.5", None, 0.5),
        ("Wed, 21 Oct 2026 07:28:30 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", None, None),
        ("soon", None, None),
        ("-1", None, None),
        (None, None, None),
    ],
)
def test_the_wait_that_pinecone_asks_for(header: float | str | None, date: str | None, seconds: float | None) -> None:
    """Seconds and dates are understood, and what is neither is left out; nothing waits."""
    headers = {**({"Retry-After": str(header)} if header is not None else {}), **({"Date": date} if date else {})}

    async def test(store: PineconeStore) -> None:
        await store.describe()
        server.fail(Changed(lambda _: Response(429, {"message": "slow down"}, headers)))
        with pytest.raises(ServiceError, match="slow down") as caught:
            await store.search(SearchRequest(5, vector=unit(0)))
        assert caught.value.retry_after == seconds

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_a_wrong_key_is_explained() -> None:
    """The advice names the key, and the key is not shown."""

    async def test(store: PineconeStore) -> None:
        with pytest.raises(ServiceError, match="Check the API key") as caught:
            await store.describe()
        assert "wrong-key" not in str(caught.value)

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test, api_key=SecretStr("wrong-key"))


@pytest.mark.parametrize(("status", "advice"), [(403, "the index's project"), (404, "name or the host"), (500, None)])
def test_refusals_say_what_to_check(status: int, advice: str | None) -> None:
    """Only those that have a remedy come with one."""

    async def test(store: PineconeStore) -> None:
        with pytest.raises(ServiceError, match=f"status {status}") as caught:
            await store.describe()
        told = str(caught.value)
        assert "Check" not in told if advice is None else advice in told

    with WireServer(lambda _: Response(status, {"message": "no"})) as server:
        run(server, test)


def test_a_key_in_an_answer_is_hidden() -> None:
    """An error that repeats the key comes out without it."""

    async def test(store: PineconeStore) -> None:
        server.fail(Status(400, body={"message": f"the key {KEY} may not"}))
        with pytest.raises(ServiceError, match=r"the key \*\*\* may not"):
            await store.describe()

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_a_server_that_is_not_there() -> None:
    """A refused connection is told as one, and later calls work once the server is back."""

    async def test(store: PineconeStore) -> None:
        await asyncio.to_thread(server.refuse)
        with pytest.raises(ServiceConnectionError):
            await store.describe()
        await asyncio.to_thread(server.accept)
        assert (await store.describe()).chunks == 0

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


@pytest.mark.parametrize("call", CALLS)
def test_cancelling_leaves_pinecone(call: str) -> None:
    """A cancelled call closes its connection, so that Pinecone need not go on; the store stays usable."""
    path, make = CALLS[call]

    async def test(store: PineconeStore) -> None:
        await put(store, chunk("a"))
        await make(store)
        before = server.count(path)
        server.fail(Hang(), path=path)
        task: asyncio.Task[Any] = asyncio.create_task(make(store))
        await server.until(lambda: server.count(path) > before)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.disconnected == 1)
        await make(store)

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_a_part_that_fails_fails_the_whole() -> None:
    """Of several requests at once the first failure is told, as the error that it is."""

    async def test(store: PineconeStore) -> None:
        server.fail_always(Status(503), path="/vectors/upsert")
        with pytest.raises(ServiceError) as caught:
            await put(store, *(chunk(f"c{row}", "x" * 30_000) for row in range(300)))
        assert caught.value.status == 503

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_an_index_is_looked_up_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a host the name is asked for once, and a name that is not there is told."""
    with WireServer(lambda _: Response(404, {"error": {"code": "NOT_FOUND", "message": "no such index"}})) as server:
        monkeypatch.setenv("PINECONE_CONTROLLER_HOST", server.url)

        async def test(store: PineconeStore) -> None:
            with pytest.raises(ServiceError, match="no such index") as caught:
                await store.describe()
            assert caught.value.status == 404
            assert [request.path for request in server.requests] == ["/indexes/books"]

        run(server, test, host=None, index_name="books")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the client the error holds the line that installs it."""
    from retrieval_core.errors import MissingExtraError

    async def test(store: PineconeStore) -> None:
        with pytest.raises(MissingExtraError, match=r"\[pinecone\]"):
            await store.describe()

    with WireServer(PineconeService(DIMENSION)) as server:
        monkeypatch.setitem(__import__("sys").modules, "pinecone", None)
        run(server, test)


def test_hostile_hosts_are_refused_as_such() -> None:
    """What is no address is told by the client, and mapped."""

    async def main() -> None:
        with WireServer(PineconeService(DIMENSION)) as server:
            store = store_of(server, host="nonsense")
            with pytest.raises(ServiceError, match="nonsense"):
                await store.describe()
            await store.aclose()

    asyncio.run(main())
