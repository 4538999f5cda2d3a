"""Small files that would become very large; see ``tests/support/bombs.py`` for the table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from support.bombs import BOMBS, MOST_MEMORY, read_apart

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell the memory of a process in other ways")
@pytest.mark.parametrize("name", BOMBS)
def test_no_bomb_takes_much_memory(tmp_path: Path, name: str) -> None:
    """Each is read or refused, in a process of its own, which takes less than 300 MB more than for an ordinary file."""
    suffix, make = BOMBS[name]
    path = tmp_path / f"bomb{suffix}"
    path.write_bytes(make())
    outcome, grown = read_apart(path)
    assert outcome
    assert grown < MOST_MEMORY
