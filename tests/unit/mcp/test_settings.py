"""Indexes named on the command line."""

from __future__ import annotations

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core_mcp.settings import named_indexes


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("notes.db", {"notes": "notes.db"}),
        ("wiki=notes.db", {"wiki": "notes.db"}),
        ("/a=b/notes.db", {"notes": "/a=b/notes.db"}),
        (r"C:\a=b\notes.db", {"x": r"C:\a=b\notes.db"}),
        ("wiki=/a=b/notes.db", {"wiki": "/a=b/notes.db"}),
        ("/wiki/handbook/.retrieval/index.db", {"handbook": "/wiki/handbook/.retrieval/index.db"}),
    ],
)
def test_a_path_may_have_an_equals_sign(place: str, expected: dict[str, str]) -> None:
    """What stands before one is a name only where no folder does."""
    named = named_indexes([place], "")
    assert list(named.values()) == list(expected.values())
    if "\\" not in place:  # what a file is called there, only Windows knows
        assert named == expected
