"""Texts of models and of conversations: made short, told apart, and whether they can be searched for."""

from __future__ import annotations


def clipped(text: str, limit: int) -> str:
    """Return a text on one line of at most so many code points, cut before a word where that loses little."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    start = line[:limit]
    space = line.rfind(" ", 0, limit + 1)
    return start[:space] if space > limit * 0.8 else start


def is_searchable(text: str) -> bool:
    """Whether there is a letter or a digit in a text: without one, no side finds anything by it."""
    return any(map(str.isalnum, text))


def key(text: str) -> str:
    """Return what two texts share that differ in case, white space and marks at their ends alone."""
    return " ".join(text.casefold().split()).strip(" ?!.,;:'\"")
