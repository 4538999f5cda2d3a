"""Cutting texts and answers to a bounded length.

Lengths of texts are in code points, those of answers in characters of their JSON.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MARK = " […]"
"""Marks a cut in a text."""
SMALLEST_ANSWER = 1_000
LARGEST_ANSWER = 1_000_000
"""The range of the bound that a caller can set for an answer, in characters of its JSON."""

_WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SENTENCE_END = re.compile(r"[.!?…][\"')\]]*(?=\s)|[\u3002\uff01\uff1f]|(?=\n\n)")
_SPACE = re.compile(r"(?=\s)")


def clean(text: str) -> str:
    """Return a text with every lone surrogate, which no JSON in UTF-8 can express, replaced by U+FFFD."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def has_lone_surrogate(value: object) -> bool:
    """Whether a JSON value contains a lone surrogate, in a text or in a key, at any depth."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if _LONE_SURROGATE.search(item):
                return True
        elif isinstance(item, dict):
            inner = cast("dict[str, object]", item)
            stack += [*inner.keys(), *inner.values()]
        elif isinstance(item, (list, tuple)):
            stack += cast("list[object]", item)
    return False


def json_length(value: object) -> int:
    """Return the characters of a value's JSON, as it goes over the wire."""
    return len(_WRITER.encode(value))


def good_end(text: str, start: int, size: int) -> int:
    """Return the end of a part of a text that begins at ``start`` and has at most ``size`` characters.

    That is behind the last sentence or paragraph that ends in the second half, else behind the last word there, else
    after ``size`` characters. It grows with ``size``.
    """
    end = start + size
    if end >= len(text):
        return len(text)
    half = start + max(1, size // 2)
    for boundary in (_SENTENCE_END, _SPACE):
        last = None
        # One character more, so that a pattern can look at what follows the end.
        for found in boundary.finditer(text, half - 1, end + 1):
            if half <= found.end() <= end:
                last = found.end()
        if last is not None:
            return last
    return end


def shorten(text: str, size: int) -> str:
    """Return a text of at most ``size`` characters, at least 5, with :data:`MARK` at its end where it was cut."""
    if len(text) <= size:
        return text
    return text[: good_end(text, 0, size - len(MARK))].rstrip() + MARK


def in_one_line(text: str, size: int) -> str:
    """Return a text for a heading: without control characters, with single spaces, of at most ``size`` characters."""
    return shorten(" ".join(_CONTROL.sub(" ", clean(text[: 4 * size])).split()), size)


def bounded(text: str, limit: int) -> str:
    """Return a text whose JSON, as the only part of an answer, stays below a limit of at least 100 characters.

    It is cut in its middle, as errors begin with the problem and end with the advice.
    """
    text = clean(text)

    def cut(size: int) -> str:
        return text if size >= len(text) else f"{text[: size - size // 3]}{MARK} {text[len(text) - size // 3 :]}"

    def fits(size: int) -> bool:
        return json_length([{"type": "text", "text": cut(size)}]) < limit

    return cut(len(text)) if fits(len(text)) else cut(largest(fits, 0, min(len(text) - 1, limit)) or 0)


def largest(fits: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the largest number in a range, ends included, that fits, by bisection; ``None`` where none does."""
    if low > high or not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def fit_mapping(mapping: Mapping[str, Any], size: int, longest_text: int) -> tuple[dict[str, Any], bool]:
    """Return the entries of a mapping, in their order, that fit into ``size`` characters of JSON.

    Texts longer than ``longest_text`` are shortened.

    Returns:
        The entries, and whether something was shortened or left out.
    """
    kept: dict[str, Any] = {}
    used = 2
    complete = True
    for key, value in mapping.items():
        entry = shorten(clean(value), longest_text) if isinstance(value, str) else value
        if has_lone_surrogate(entry) or has_lone_surrogate(key):
            complete = False
            continue
        cost = json_length(key) + json_length(entry) + 2
        if used + cost > size:
            complete = False
            continue
        used += cost
        kept[key] = entry
        complete = complete and entry == value
    return kept, not complete
