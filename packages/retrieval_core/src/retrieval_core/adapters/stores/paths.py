"""The fields of a chunk as paths with values, and values in forms that services can compare: for stores elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrieval_core.types import JSON


def flat(fields: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return every path at which :func:`retrieval_core.types.filters.lookup` finds a value, with that value."""
    found: dict[str, JSON] = {}
    for key, value in fields.items():
        if isinstance(value, Mapping) and "." not in key:
            found.update((f"{key}.{path}", inner) for path, inner in flat(value).items())
    found.update(fields)  # a key that holds the dot itself wins
    return {path: value for path, value in found.items() if value is not None}


def exact_float(value: float) -> float | None:
    """Return a number as a 64-bit float, ``None`` where that is another number."""
    try:
        return as_float if (as_float := float(value)) == value else None
    except OverflowError:
        return None


def item_token(path: str, value: str | float) -> str:
    """Return a text that stands for a value below a path; equal values, and no others, have the same."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps([path, value])


def is_text(text: str) -> bool:
    """Whether a text can be encoded in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
