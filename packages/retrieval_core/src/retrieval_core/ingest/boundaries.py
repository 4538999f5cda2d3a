"""Where a block may be cut when it is too long for one chunk: at the largest unit of language that helps."""

from __future__ import annotations

import re
import unicodedata
from itertools import chain, islice
from typing import TYPE_CHECKING

from retrieval_core.text.sentences import LIST_ITEM, sentence_ends, trim
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from retrieval_core.text.markdown import Block, BlockKind

    Level = Callable[[str], list[int]]
    """Returns the offsets at which a text may be cut."""

_LINE_END = re.compile(r"\n+")
_ITEM_START = re.compile(rf"\n+(?=[ \t]*{LIST_ITEM}[ \t])")
_WORD_END = re.compile(r"\s+")
_JOINERS = "\u200d\ufe0e\ufe0f"
# Only this many characters for each token allowed are looked at when words are counted out; no tokenizer takes more.
_WINDOW = 64
_SLACK = 1.1


def _line_ends(text: str) -> list[int]:
    return [match.end() for match in _LINE_END.finditer(text)]


def _item_starts(text: str) -> list[int]:
    return [match.end() for match in _ITEM_START.finditer(text)]


_LEVELS: dict[BlockKind, tuple[Level, ...]] = {
    "heading": (),
    "paragraph": (sentence_ends, _line_ends),
    "list": (_item_starts, sentence_ends, _line_ends),
    "table": (_line_ends,),
    "code": (_line_ends,),
}


def cut_block(text: str, block: Block, limit: int, measure: Callable[[Span], int]) -> list[Span]:
    """Cut a block into the largest natural pieces of at most ``limit`` tokens each.

    Prose is cut after sentences, then after lines; tables and code after lines; lists before items first. What is
    longer still is cut between words, and only a single longer word inside.

    Returns:
        Pieces in order. All characters outside them are white space.
    """
    return list(_cut(text, block.span, _LEVELS[block.kind], limit, measure))


def _cut(text: str, span: Span, levels: Sequence[Level], limit: int, measure: Callable[[Span], int]) -> Iterator[Span]:
    if measure(span) <= limit:
        yield span
    elif levels:
        start = span.start
        ends = [start + end for end in levels[0](text[start : span.end])]
        for end in (*ends, span.end):
            piece = trim(text, start, end, keep_indentation=levels[0] is not sentence_ends)
            if piece is not None:
                yield from _cut(text, piece, levels[1:], limit, measure)
            start = end
    else:
        yield from _cut_words(text, span, limit, measure)


def _cut_words(text: str, span: Span, limit: int, measure: Callable[[Span], int]) -> Iterator[Span]:
    """Take as many words as fit, again and again; of a word that does not fit, as many characters.

    The pieces are made about equally long, so that no crumb is left at the end.
    """
    total = measure(span)
    limit = min(limit, int(_SLACK * total / -(-total // limit)) + 1)
    start = span.start
    while (rest := trim(text, start, span.end)) is not None:
        window = min(rest.end, rest.start + _WINDOW * limit)
        if window == rest.end and measure(rest) <= limit:
            yield rest
            return
        words = (match.start() for match in _WORD_END.finditer(text, rest.start, window))
        first = next(words, None)
        fitting = None if first is None else _longest(rest.start, chain((first,), words), limit, measure)
        start = fitting or _cut_word(text, rest.start, first or window, limit, measure)
        yield Span(rest.start, start)


def _cut_word(text: str, start: int, end: int, limit: int, measure: Callable[[Span], int]) -> int:
    characters = range(start + 1, end + 1)
    whole = (at for at in characters if at == len(text) or not _continues(text[at]))
    # A pile of accents beyond any budget is cut as well; and a single code point stays, whatever it costs.
    return _longest(start, whole, limit, measure) or _longest(start, characters, limit, measure) or start + 1


def _longest(start: int, ends: Iterable[int], limit: int, measure: Callable[[Span], int]) -> int | None:
    """Return the last of the ends that is within the limit; counts grow with the text, so halving finds it.

    The search first doubles its reach, and no more ends than that are taken: the text may be a thousand times longer
    than what fits.
    """
    remaining, reached = iter(ends), list[int]()
    low, high = -1, 1
    while len(reached) < high:
        reached += islice(remaining, high - len(reached))
        if len(reached) == high and measure(Span(start, reached[-1])) <= limit:
            low, high = high - 1, high * 2
        else:
            high = min(high - 1, len(reached))
    while high - low > 1:
        middle = (low + high) // 2
        if measure(Span(start, reached[middle])) <= limit:
            low = middle
        else:
            high = middle
    return reached[low] if low >= 0 else None


def _continues(character: str) -> bool:
    """Whether a character is drawn as part of the one before it."""
    return bool(unicodedata.combining(character)) or character in _JOINERS
