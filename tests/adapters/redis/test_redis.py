from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from retrieval_core.adapters.caches import redis as redis_module
from retrieval_core.adapters.caches.redis import RedisCache, encode
from retrieval_core.errors import (
    ConfigurationError,
    InvalidParameterError,
    MissingExtraError,
    ServiceConnectionError,
)
from retrieval_core.testing.cache_kit import a_result
from support.redis_server import RedisServer, has_server, needs_server, run

if TYPE_CHECKING:
    pass

PATIENCE = 30.0
PASSWORD = "p/ss w#rd-4711"
ENCODED = "p%2Fss%20w%23rd-4711"


class TestWithoutServer:
    """What needs none."""

    def test_a_server_that_is_missing_is_an_error_where_nobody_would_see_it(self) -> None:
        """The tests with a server are skipped on a machine without one, but not silently in continuous integration."""
        assert has_server("valkey-server", has_client=True, environment={"CI": "true"})
        assert not has_server(None, has_client=True, environment={})
        assert not has_server(None, has_client=False, environment={"CI": "true"})
        with pytest.raises(RuntimeError, match="test-redis"):
            has_server(None, has_client=True, environment={"CI": "true"})

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "localhost:6379",
            "http://localhost",
            "redis://:se/cret@localhost",
            "redis://:se#cret@localhost",
            "redis://:se?cret@localhost",
            "redis://localhost:secret",
            "redis://se/cret:a@localhost/0",
            "redis://localhost/secret",
            "redis://[secret",
            "unix://",
        ],
    )
    def test_a_url_that_is_none(self, url: str) -> None:
        """It is refused at once, and nothing of it is shown, since it may be a part of the password."""
        with pytest.raises(ConfigurationError, match="percent-encoded") as caught:
            RedisCache(SecretStr(url))
        shown = str(caught.value) + repr(caught.value.problems) + repr(caught.value.__context__)
        assert "secret" not in shown.replace("user:password", "")
        assert "cret" not in shown

    @pytest.mark.parametrize(
        "settings",
        [
            {"ttl_seconds": 0},
            {"ttl_seconds": float("nan")},
            {"namespace": ""},
            {"namespace": "a b"},
            {"namespace": "a*"},
            {"namespace": "a" * 101},
            {"max_value_bytes": 0},
        ],
    )
    def test_impossible_settings(self, settings: dict[str, Any]) -> None:
        """What is out of range is refused, with its name."""
        with pytest.raises(InvalidParameterError, match=next(iter(settings))):
            RedisCache(SecretStr("redis://localhost"), **settings)

    def test_what_is_shown_of_it(self) -> None:
        """Where it leads, and neither user nor password."""
        assert repr(RedisCache(SecretStr("rediss://user:pw@[::1]:7/2"))) == "RedisCache(::1:7/2, namespace='retrieval')"
        assert repr(RedisCache(SecretStr("unix:///a/b?password=pw"))) == "RedisCache(/a/b, namespace='retrieval')"

    def test_the_client_is_imported_late(self) -> None:
        """Making a cache loads nothing of the client."""
        program = (
            "import sys\n"
            "from pydantic import SecretStr\n"
            "from retrieval_core.adapters.caches.redis import RedisCache\n"
            "RedisCache(SecretStr('redis://localhost'))\n"
            "print('redis' in sys.modules)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"

    def test_a_missing_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the client the first call says what to install."""
        monkeypatch.setitem(sys.modules, "redis.asyncio", None)
        with pytest.raises(MissingExtraError, match=r"\[redis\]"):
            asyncio.run(RedisCache(SecretStr("redis://localhost")).get("key"))

    @pytest.mark.skipif(find_spec("redis") is None, reason="the extra 'redis' is not installed")
    @pytest.mark.parametrize("query", ["colour=secret", "db=secret", "max_connections=-1"])
    def test_an_unknown_parameter(self, query: str) -> None:
        """A parameter that the client does not know is an error of the configuration, and is not shown."""
        with pytest.raises(ConfigurationError, match="parameter") as caught:
            asyncio.run(RedisCache(SecretStr(f"redis://localhost?{query}")).get("key"))
        assert "secret" not in str(caught.value) + repr(caught.value.problems)

    @pytest.mark.skipif(find_spec("redis") is None, reason="the extra 'redis' is not installed")
    def test_nobody_there(self) -> None:
        """A port that nobody listens on is a lost connection, which may be tried again."""
        import socket

        with socket.socket() as taken:  # bound, so that nobody else has it, and not listening
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            cache = RedisCache(SecretStr(f"redis://user:{ENCODED}@127.0.0.1:{port}"))

            async def test(cache: RedisCache) -> None:
                for call in (cache.get("key"), cache.set("key", a_result()), cache.clear()):
                    with pytest.raises(ServiceConnectionError, match=f"127.0.0.1:{port} cannot be reached") as caught:
                        await call
                    assert caught.value.can_be_retried
                    assert caught.value.service == "redis"
                    assert PASSWORD not in repr(caught.value)

            run(cache, test)


@needs_server
class TestKeeping:
    """What lies in the server."""

    def test_the_server_counts_the_time(self, server: RedisServer) -> None:
        """A result has its time to live from the start, and the token that clears it has none."""

        async def test(cache: RedisCache) -> None:
            await cache.set("key", a_result())
            keys = await asyncio.to_thread(server.ask, "KEYS", "*")
            name = next(word for word in keys.split() if b":result:" in word)
            left = int((await asyncio.to_thread(server.ask, "PTTL", name))[1:])
            assert 3_000_000 < left <= 3_600_500
            assert await asyncio.to_thread(server.ask, "PTTL", "retrieval:token") == b":-1\r\n"
            await asyncio.to_thread(server.ask, "PEXPIREAT", name, "1")
            assert await cache.get("key") is None

        run(RedisCache(server.url, ttl_seconds=3600.5), test)

    def test_a_result_is_gone_after_its_time(self, server: RedisServer) -> None:
        """The server itself forgets it."""

        async def test(cache: RedisCache) -> None:
            await cache.set("key", a_result())
            while await cache.get("key"):
                pass

        run(RedisCache(server.url, ttl_seconds=0.001), test)

    def test_nothing_of_a_key_is_in_the_server(self, server: RedisServer) -> None:
        """Keys are hashed; a user's text is neither a key, nor a pattern, nor a command."""

        async def test(cache: RedisCache) -> None:
            for text in ("SECRET", "*", "a\r\nFLUSHALL\r\n", "é"):
                await cache.set(text, a_result())
            keys = (await asyncio.to_thread(server.ask, "KEYS", "*")).split()[2::2]
            assert len(keys) == 5
            assert all(name == b"ns:token" or (name.startswith(b"ns:result:") and len(name) == 74) for name in keys)

        run(RedisCache(server.url, namespace="ns"), test)

    def test_namespaces_do_not_meet(self, server: RedisServer) -> None:
        """Neither results nor clears pass from one to another, and foreign keys stay."""

        async def test(cache: RedisCache) -> None:
            other = RedisCache(server.url, namespace="other")
            await asyncio.to_thread(server.ask, "SET", "foreign", "value")
            await cache.set("key", a_result("mine"))
            await other.set("key", a_result("other"))
            await cache.clear()
            assert await cache.get("key") is None
            assert await other.get("key") == a_result("other")
            assert await asyncio.to_thread(server.ask, "GET", "foreign") == b"$5\r\nvalue\r\n"
            await other.aclose()

        run(RedisCache(server.url, namespace="other:result"), test)

    def test_a_clear_is_for_all_processes(self, server: RedisServer) -> None:
        """What one cache clears, none that shares the namespace has any more, and each can keep anew at once."""

        async def test(first: RedisCache) -> None:
            second = RedisCache(server.url)
            await first.set("a", a_result())
            await second.set("b", a_result())
            assert await second.get("a") == await first.get("b") == a_result()
            await first.clear()
            assert await second.get("a") is None
            assert await first.get("b") is None
            await first.clear()
            await second.set("b", a_result("new"))  # has not heard of the second clear
            assert await second.get("b") == await first.get("b") == a_result("new")
            await second.aclose()

        run(RedisCache(server.url), test)

    def test_a_lost_token_brings_nothing_back(self, server: RedisServer) -> None:
        """When the server forgets the token, what was cleared before stays cleared, and new results can be kept."""

        async def test(cache: RedisCache) -> None:
            await cache.set("key", a_result())
            await cache.clear()
            await asyncio.to_thread(server.ask, "DEL", "retrieval:token")
            assert await cache.get("key") is None
            await cache.set("other", a_result())
            assert await cache.get("key") is None
            assert await cache.get("other") == a_result()

        run(RedisCache(server.url), test)

    def test_what_was_searched_for_before_a_clear_is_not_kept_after_it(self, server: RedisServer) -> None:
        """It may be what the other process cleared for; the next time the question is asked, it is kept again."""

        async def test(cache: RedisCache) -> None:
            other = RedisCache(server.url)
            await other.set("something", a_result())
            assert await cache.get("key") is None
            await other.clear()
            assert await cache.get("key") is None  # asked once more meanwhile, which changes nothing
            await cache.set("key", a_result("stale"))
            assert await cache.get("key") is None
            await cache.set("key", a_result("fresh"))
            assert await other.get("key") == a_result("fresh")
            await other.aclose()

        run(RedisCache(server.url), test)

    def test_keys_that_are_missed_are_forgotten(self, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
        """Questions that are never answered leave nothing behind for ever."""
        monkeypatch.setattr(redis_module, "_MOST_MISSED", 3)

        async def test(cache: RedisCache) -> None:
            for number in range(10):
                await cache.get(f"key {number}")
            assert list(cache._missed) == ["key 7", "key 8", "key 9"]

        run(RedisCache(server.url), test)

    @pytest.mark.parametrize("damage", ["other bytes", "cut off", "other version", "too large", "bad token"])
    def test_what_is_no_result_is_a_miss(self, server: RedisServer, damage: str) -> None:
        """Whatever somebody else wrote there, it is as if nothing were there, and it can be replaced."""

        async def test(cache: RedisCache) -> None:
            await cache.set("key", a_result())
            name = cache._key("key")
            token = (await asyncio.to_thread(server.ask, "GET", "retrieval:token"))[5:-2]
            data = encode(a_result())
            if damage == "bad token":
                await asyncio.to_thread(server.ask, "SET", "retrieval:token", "short")
                assert await cache.get("key") is None
                await cache.clear()
            else:
                value = {
                    "other bytes": b"\x00\xff",
                    "cut off": token + data[:-1],
                    "other version": token + b"\x00" + data[1:],
                    "too large": token + data + b" " * 100_000,
                }[damage]
                await asyncio.to_thread(server.ask, "SET", name, value)
            assert await cache.get("key") is None
            await cache.set("key", a_result("new"))
            assert await cache.get("key") == a_result("new")

        run(RedisCache(server.url, max_value_bytes=50_000), test)

    def test_too_large_a_result_is_not_kept(self, server: RedisServer) -> None:
        """Nor does the smaller one stay that it was to replace."""

        async def test(cache: RedisCache) -> None:
            await cache.set("key", a_result())
            await cache.set("key", a_result("word " * 10_000))
            assert await cache.get("key") is None
            exact = RedisCache(server.url, max_value_bytes=len(encode(a_result())))
            await exact.set("key", a_result())
            assert await exact.get("key") == a_result()
            await exact.aclose()

        run(RedisCache(server.url, max_value_bytes=50_000), test)


@needs_server
def test_event_loops_of_several_threads(server: RedisServer) -> None:
    """One cache serves loops in several threads at once, each over connections of its own."""
    cache = RedisCache(server.url)
    errors: list[BaseException] = []

    async def use(name: str) -> None:
        for number in range(20):
            await cache.set(name, a_result(name, number))
            assert await cache.get(name) == a_result(name, number)
        await cache.aclose()

    def in_thread(name: str) -> None:
        try:
            asyncio.run(use(name))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=in_thread, args=(f"thread {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
