"""The names of the ways to search."""

from __future__ import annotations

from typing import Any

MODE_NAMES = {"vector": "dense", "keyword": "lexical"}
"""Other names of modes."""


def named_mode(mode: Any) -> Any:
    """Return a mode by its main name; every other value as it is."""
    return MODE_NAMES.get(mode, mode) if isinstance(mode, str) else mode
