"""Title and headings in front of a chunk, short enough to leave room for its text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrieval_core.ports import TokenCounter

_WIDTHS = (160, 80, 40, 20, 10)
# Joining headings, line end and text may cost a token or two more than each alone.
_MARGIN = 2


def fit_headings(
    title: str | None, path: tuple[str, ...], window: int | None, count_tokens: TokenCounter
) -> tuple[str | None, tuple[str, ...], int]:
    """Return title and headings such that they take at most half of the window, and how many tokens they take.

    Where they are longer, each is cut to 160 characters, then to 80, and so on; where 10 are too many still, the
    outermost go.
    """
    budget = None if window is None else window // 2
    cost = _cost(title, path, count_tokens)
    if budget is None or cost <= budget:
        return title, path, cost
    for width in _WIDTHS:
        title, path = title and _shorten(title, width), tuple(_shorten(part, width) for part in path)
        cost = _cost(title, path, count_tokens)
        if cost <= budget:
            return title, path, cost
    while path and cost > budget:
        title, path = None, path[1:]
        cost = _cost(title, path, count_tokens)
    return (title, path, cost) if cost <= budget else (None, (), 0)


def _cost(title: str | None, path: tuple[str, ...], count_tokens: TokenCounter) -> int:
    heading = " > ".join(dict.fromkeys(part for part in (title, *path) if part))
    return count_tokens(heading + "\n") + _MARGIN if heading else 0


def _shorten(text: str, width: int) -> str:
    """Cut a text before a word, so that it has at most so many characters, the ellipsis included."""
    if len(text) <= width:
        return text
    words, _, _ = text[:width].rpartition(" ")
    return (words or text[: width - 1]).rstrip()[: width - 1] + "…"
