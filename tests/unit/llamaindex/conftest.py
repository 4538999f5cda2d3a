"""Fixtures of the tests of the plug-in's inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.llamaindex_library import Library


@pytest.fixture
def library() -> Iterator[Library]:
    """A small library of passages, with the pipeline over it."""
    from support.llamaindex_library import Library

    with Library() as library:
        yield library
