"""Threads for functions that are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool("test-plugins", threads=1)
    yield pool
    pool.close()
