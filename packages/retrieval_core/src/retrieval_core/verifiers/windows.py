"""What of passages a sentence can be held against: one to three neighbouring sentences, or a row of a table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core.claims import Statement, statement_of
from retrieval_core.sentences import sentences_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.sentences import Sentence

MOST_SENTENCES = 3
"""Neighbouring sentences of a window."""
LONGEST_READ = 2000
"""Code points of a window, and of a sentence of an answer, that are read."""
_LONGEST_PASSAGE = 20_000
"""Code points of a passage that are looked at."""
_RULE = re.compile(r"[ \t|:-]{3,}")
_NOTHING = frozenset({"no", "-", "\u2013", "\u2014", "none", "never", "false", "n/a", "\u2717", "\u274c"})
_YES = frozenset({"yes", "true", "x", "\u2713", "\u2714", "\u2705"})


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a passage.

    Attributes:
        passage: The passage's place, from 0.
        start, end: Where it stands in the passage.
        sentences: How many it has.
        read: It, taken apart; of a table's row each cell with its column's name.
        figures: All figures that it has.
        context: The whole passage, taken apart.
    """

    passage: int
    start: int
    end: int
    sentences: int
    read: Statement
    figures: frozenset[str]
    context: Statement


def windows_of(passages: Sequence[str]) -> tuple[Window, ...]:
    """Return all windows of all passages, in order."""
    return tuple(
        window for place, passage in enumerate(passages) for window in _windows(place, passage[:_LONGEST_PASSAGE])
    )


def _windows(place: int, passage: str) -> Iterator[Window]:
    context = statement_of(passage)
    sentences = sentences_of(passage)
    rows = [_row(passage, sentence) for sentence in sentences]
    for first, sentence in enumerate(sentences):
        for last in range(first, min(first + MOST_SENTENCES, len(sentences))):
            if last > first and (rows[first] is not None or rows[last] is not None):
                break
            span = slice(sentence.span.start, sentences[last].span.end)
            row = rows[first]
            read = statement_of((passage[span] if row is None else row)[:LONGEST_READ])
            values = frozenset(value for figure in read.figures for value in figure.values)
            yield Window(place, span.start, span.stop, last - first + 1, read, values, context)


def _row(passage: str, sentence: Sentence) -> str | None:
    """Return a row of a table as a sentence that names each cell's column; ``None`` where it is none."""
    own = passage[sentence.span.start : sentence.span.end].strip().splitlines()
    if not own or not own[-1].lstrip().startswith("|"):
        return None
    lines = [line for head in sentence.heads for line in passage[head.start : head.end].splitlines()] + own
    head = next((lines[place] for place in range(len(lines) - 1) if _RULE.fullmatch(lines[place + 1].strip())), None)
    cells = _cells(own[-1])
    if head is None:
        return "; ".join(cells)
    return "; ".join(_said(name, cell) for name, cell in zip(_cells(head), cells, strict=False))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _said(name: str, cell: str) -> str:
    if name.istitle():  # a capital letter that is no name's
        name = name.lower()
    if cell.lower() in _NOTHING:
        return f"not {name}"
    return name if cell.lower() in _YES else f"{name} {cell}"
