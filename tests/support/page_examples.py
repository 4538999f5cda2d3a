"""Examples of the documentation: where they are in a page, and whether what they print is what stands below them."""

from __future__ import annotations

import re

BLOCK = re.compile(r"^```(?P<language>python|console)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^```\w+\n# (?P<name>[\w.-]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
"""A file that the examples of its page use; a comment in its first line names it."""


def expected_output(code: str) -> str:
    """Return the comment lines at the end of an example: what it prints."""
    lines = code.rstrip("\n").split("\n")
    first = len(lines)
    while first and (lines[first - 1].startswith("# ") or lines[first - 1] == "#"):
        first -= 1
    return "\n".join(line[2:] for line in lines[first:])


def assert_prints(actual: str, expected: str) -> None:
    """Compare line by line; ``…`` stands for any text, and a line of its own for any lines."""
    pattern = re.escape(expected.strip()).replace("…", "(?s:.*?)")
    assert re.fullmatch(pattern, "\n".join(line.rstrip() for line in actual.strip().split("\n"))), (
        f"printed:\n{actual}\nbut the page says:\n{expected}"
    )
