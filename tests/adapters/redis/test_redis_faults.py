from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from retrieval_core.adapters.caches import redis as cache_module
from retrieval_core.adapters.caches.redis import RedisCache
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import load_config
from retrieval_core.errors import (
    MissingExtraError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Change
from retrieval_core.testing.cache_kit import a_result
from retrieval_core.testing.clock import FakeClock
from retrieval_core.types import Chunk
from support.redis_server import RedisServer, needs_server, run

if TYPE_CHECKING:
    from collections.abc import Generator

PATIENCE = 30.0
PASSWORD = "p/ss w#rd-4711"
ENCODED = "p%2Fss%20w%23rd-4711"


@needs_server
class TestFailing:
    """What happens when the server does not work."""

    def test_killed_and_back(self, server: RedisServer) -> None:
        """While it is dead each call is a lost connection; when it is back, the same object works at once."""

        async def test(cache: RedisCache) -> None:
            for _ in range(2):
                await cache.set("key", a_result())
                assert await cache.get("key") == a_result()
                await asyncio.to_thread(server.kill)
                for call in (cache.get("key"), cache.set("key", a_result()), cache.clear(), cache.get("key")):
                    with pytest.raises(ServiceConnectionError) as caught:
                        await call
                    assert caught.value.can_be_retried
                await asyncio.to_thread(server.start)
                assert await cache.get("key") is None

        run(RedisCache(server.url), test)

    def test_killed_while_it_is_asked(self, server: RedisServer) -> None:
        """A connection that ends before the answer is a lost connection."""

        async def test(cache: RedisCache) -> None:
            await cache.set("key", a_result())
            server.halt()
            task = asyncio.create_task(cache.get("key"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not task.done()
            await asyncio.to_thread(server.kill)
            with pytest.raises(ServiceConnectionError):
                await task

        run(RedisCache(server.url), test)

    @pytest.mark.parametrize("used", [True, False], ids=["connected", "not yet connected"])
    def test_a_hung_server_can_be_left(self, server: RedisServer, used: bool) -> None:
        """Who stops waiting is let go; what the server says later is not taken for the answer to something else."""

        async def test(cache: RedisCache) -> None:
            await cache.set("key", a_result())
            if not used:
                await cache.aclose()
            server.halt()
            calls = [cache.get("key"), cache.set("other", a_result("other")), cache.clear()]
            tasks = [asyncio.create_task(call) for call in calls]
            done, _ = await asyncio.wait(tasks, timeout=0)
            for _ in range(20):
                await asyncio.sleep(0)
            assert not done
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(error) for error in ended] == [asyncio.CancelledError] * 3
            server.go_on()
            await cache.set("third", a_result("third"))
            assert await cache.get("third") == a_result("third")
            assert await cache.get("no such") is None

        run(RedisCache(server.url), test)

    def test_a_time_limit_in_the_url(self, server: RedisServer) -> None:
        """A user who sets the client's own time limit gets our error when it is over."""

        async def test(cache: RedisCache) -> None:
            await cache.clear()
            server.halt()
            with pytest.raises(ServiceTimeoutError, match="did not answer in time") as caught:
                await cache.get("key")
            assert caught.value.can_be_retried
            server.go_on()

        run(RedisCache(SecretStr(server.url.get_secret_value() + "?socket_timeout=0.01")), test)

    def test_one_attempt(self, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
        """A call whose connection breaks is made once, whatever the URL asks for; repeating is for others."""
        from redis.asyncio.connection import UnixDomainSocketConnection

        attempts: list[str] = []

        async def refuse(self: object) -> None:
            attempts.append("connect")
            raise ConnectionResetError("no")

        monkeypatch.setattr(UnixDomainSocketConnection, "_connect", refuse)

        async def test(cache: RedisCache) -> None:
            with pytest.raises(ServiceConnectionError):
                await cache.get("key")

        run(RedisCache(SecretStr(server.url.get_secret_value() + "?retry_on_timeout=yes")), test)
        assert attempts == ["connect"]

    def test_a_refused_command(self, server: RedisServer) -> None:
        """What the server refuses is an error that retrying does not help, and its text holds nothing of the result."""

        async def test(cache: RedisCache) -> None:
            await cache.clear()
            await asyncio.to_thread(server.ask, "CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(ServiceError, match=r"failed: .*maxmemory") as caught:
                await cache.set("key", a_result("CONFIDENTIAL " * 10))
            assert "CONFIDENTIAL" not in repr(caught.value) + repr(caught.value.__cause__)
            assert not caught.value.can_be_retried
            await asyncio.to_thread(server.ask, "CONFIG", "SET", "maxmemory", "0")
            await cache.set("key", a_result())
            await asyncio.to_thread(server.ask, "DEL", "retrieval:token")
            await asyncio.to_thread(server.ask, "LPUSH", "retrieval:token", "x")
            with pytest.raises(ServiceError, match="WRONGTYPE"):
                await cache.get("key")

        run(RedisCache(server.url), test)


@needs_server
class TestLoading:
    """The client, which takes its time to load."""

    @pytest.fixture
    def held(self, monkeypatch: pytest.MonkeyPatch) -> Generator[threading.Event]:
        """Loading waits until this is set."""
        opened, make = threading.Event(), RedisCache._make_client

        def make_when_opened(cache: RedisCache) -> Any:
            assert opened.wait(PATIENCE)
            made.append(1)
            return make(cache)

        made: list[int] = []
        monkeypatch.setattr(RedisCache, "_make_client", make_when_opened)
        yield opened
        assert len(made) == 1, "it was loaded more than once"

    def test_who_does_not_wait_leaves_it_to_others(self, server: RedisServer, held: threading.Event) -> None:
        """A caller who is cancelled does not end the loading, and whoever comes later finds it done."""

        async def test(cache: RedisCache) -> None:
            first = asyncio.create_task(cache.get("key"))
            for _ in range(20):
                await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert not cache.is_loaded
            later = asyncio.create_task(cache.get("key"))
            held.set()
            assert await later is None
            assert cache.is_loaded

        run(RedisCache(server.url), test)

    def test_a_pipeline_goes_on_without_it_meanwhile(self, server: RedisServer, held: threading.Event) -> None:
        """A question in a short time is answered, says why, and the cache is used by those that follow."""
        clock = FakeClock()
        cache = RedisCache(server.url)
        config = load_config(overrides={"deadline_seconds": 2, "search.mode": "lexical", "breaker.failures": 1})
        store = MemoryStore()
        pipeline = RetrievalPipeline(store, config=config, cache=cache, clock=clock)

        async def test(_: RedisCache) -> None:
            await store.upsert(Change(chunks=(Chunk("c", "d", "Anything."),)))  # which gives it a version
            asked = asyncio.create_task(pipeline.aretrieve("anything"))
            for _turn in range(50):
                await asyncio.sleep(0)
            clock.advance(0.11)
            (entry,) = (await asked).degraded
            assert entry.stage == "cache"
            assert "still loading after 110 ms" in entry.reason
            held.set()
            await cache.load()
            assert (await pipeline.aretrieve("anything")).degraded == ()
            assert (await pipeline.aretrieve("anything")).from_cache

        run(cache, test)

    def test_it_is_tried_again_where_it_failed(self, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
        """A failure is told to who asked, and is not kept."""

        async def test(cache: RedisCache) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(cache_module, "import_module", no_module)
                with pytest.raises(MissingExtraError):
                    await cache.load()
            assert not cache.is_loaded
            await cache.load()
            assert await cache.get("key") is None

        def no_module(name: str) -> None:
            raise ImportError(name)

        run(RedisCache(server.url), test)

    def test_closed_while_it_is_loaded(self, server: RedisServer, held: threading.Event) -> None:
        """Closing does not wait for it."""

        async def test(cache: RedisCache) -> None:
            loading = asyncio.create_task(cache.load())
            for _ in range(20):
                await asyncio.sleep(0)
            await cache.aclose()
            with pytest.raises(asyncio.CancelledError):
                await loading
            held.set()

        run(RedisCache(server.url), test)


@needs_server
class TestPasswords:
    """A server that wants one."""

    @pytest.fixture
    def locked(self) -> Generator[RedisServer]:
        with TemporaryDirectory(prefix="redis-") as folder:
            server = RedisServer(Path(folder), "--requirepass", PASSWORD)
            yield server
            server.kill()

    def test_the_right_one(self, locked: RedisServer) -> None:
        """Passwords with characters that URLs have a use for work when they are encoded."""

        async def test(cache: RedisCache) -> None:
            await cache.set("key", a_result())
            assert await cache.get("key") == a_result()

        run(RedisCache(SecretStr(f"unix://:{ENCODED}@{locked.socket}")), test)
        run(RedisCache(SecretStr(f"unix://{locked.socket}?password={ENCODED}")), test)

    @pytest.mark.parametrize("given", ["", "user:wrong-4711@", ":wrong-4711@"])
    def test_a_wrong_one(self, locked: RedisServer, given: str) -> None:
        """It is the caller's fault (401), which retrying does not help, and no password is shown."""

        async def test(cache: RedisCache) -> None:
            with pytest.raises(ServiceError, match="refuses the user") as caught:
                await cache.get("key")
            assert (caught.value.status, caught.value.can_be_retried) == (401, False)
            assert "4711" not in repr(caught.value) + repr(caught.value.__cause__)

        run(RedisCache(SecretStr(f"unix://{given}{locked.socket}")), test)

    def test_a_user_who_may_not(self, locked: RedisServer) -> None:
        """A user without the permission is told so (403)."""
        import socket

        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(locked.socket))
            admin.sendall(f'AUTH "{PASSWORD}"\r\nACL SETUSER reader on >pw-4711 ~* +get\r\n'.encode())
            assert admin.recv(100).startswith(b"+OK")

        async def test(cache: RedisCache) -> None:
            with pytest.raises(ServiceError, match="does not permit") as caught:
                await cache.get("key")
            assert (caught.value.status, caught.value.can_be_retried) == (403, False)

        run(RedisCache(SecretStr(f"unix://reader:pw-4711@{locked.socket}")), test)

    def test_a_server_that_quotes_the_password(self) -> None:
        """A server without AUTH repeats what it was sent; that is not repeated any further."""
        with TemporaryDirectory(prefix="redis-") as folder:
            server = RedisServer(Path(folder), "--rename-command", "AUTH", "")

            async def test(cache: RedisCache) -> None:
                with pytest.raises(ServiceError) as caught:
                    await cache.get("key")
                assert PASSWORD not in str(caught.value)
                assert caught.value.__cause__ is None
                assert caught.value.__suppress_context__

            run(RedisCache(SecretStr(f"unix://:{ENCODED}@{server.socket}")), test)
            server.kill()
