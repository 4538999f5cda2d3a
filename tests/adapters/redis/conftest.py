from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from support.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture
def server() -> Generator[RedisServer]:
    with TemporaryDirectory(prefix="redis-") as folder:  # the path of a socket must be short
        server = RedisServer(Path(folder))
        yield server
        server.kill()
