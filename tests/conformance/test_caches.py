"""Every cache that comes with the library passes the kit."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.adapters.caches.redis import RedisCache
from retrieval_core.testing.cache_kit import CacheConformance
from support.redis_server import RedisServer, needs_server

if TYPE_CHECKING:
    from collections.abc import Generator

    from retrieval_core.ports import ResultCache


@pytest.fixture(scope="module")
def redis_server() -> Generator[RedisServer]:
    with TemporaryDirectory(prefix="redis-") as folder:  # the path of a socket must be short
        server = RedisServer(Path(folder))
        yield server
        server.kill()


class TestMemoryCache(CacheConformance):
    async def open_cache(self) -> ResultCache:
        return MemoryCache()


@needs_server
class TestRedisCache(CacheConformance):
    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        self.url = redis_server.url

    async def open_cache(self) -> ResultCache:
        return RedisCache(self.url)
