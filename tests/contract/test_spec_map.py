"""The map of the specification tells the truth about what is done."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/dev/spec-map.md"
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.read_text(encoding="utf-8").partition("\n## 1. ")[2].splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| name |"))
]
PLACES = sorted(
    {
        place
        for row in ROWS
        if row[2].startswith(("done", "equivalent", "unsupported on"))
        for place in re.findall(r"`(retrieval_core[\w.]*)`", row[1])
    }
)


def test_every_row_says_where_and_when() -> None:
    """Three cells, none of them empty, and a status of those that the page explains."""
    for row in ROWS:
        assert len(row) == 3, row
        assert row[0], row
        assert row[1], row
        assert re.fullmatch(r"done|equivalent|unsupported( on .+)?|issue \d+|later", row[2]), row


def test_something_is_done() -> None:
    """So that the next test has something to look at."""
    assert len(PLACES) > 50


@pytest.mark.parametrize("place", PLACES)
def test_what_is_done_is_there(place: str) -> None:
    """Every module, class and attribute that a finished row names can be imported."""
    parts = place.split(".")
    if parts[0] != "retrieval_core":
        pytest.importorskip(parts[0], reason="a package of its own, which is not installed here")
    size = next(size for size in range(len(parts), 0, -1) if _is_module(".".join(parts[:size])))
    attributes = parts[size:]
    if len(attributes) == 2 and attributes[1] in _fields(place):
        attributes = attributes[:1]
    assert reduce(getattr, attributes, import_module(".".join(parts[:size]))) is not None


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _fields(place: str) -> set[str]:
    """Return the fields of a dataclass, which a class without defaults does not have as attributes."""
    module, owner, _ = place.rsplit(".", 2)
    return set(getattr(getattr(import_module(module), owner), "__dataclass_fields__", ()))
