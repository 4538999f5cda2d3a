"""What the tests of all frameworks share. None of them sends anything."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.frameworks import index_of_notes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core import Index

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # before it is imported
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """An index of three notes."""
    with index_of_notes(tmp_path) as index:
        yield index
