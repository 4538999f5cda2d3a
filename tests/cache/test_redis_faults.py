from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from redis_server import RedisServer, needs_server, run
from retrieval_core.cache.redis import RedisCache
from retrieval_core.errors import (
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from retrieval_core.testing.cache_kit import a_result

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
