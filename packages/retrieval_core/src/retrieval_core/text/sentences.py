"""Where sentences end, and the marks that lists begin with."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

LIST_ITEM = r"(?:[-*+•]|\d{1,9}[.)])"
"""Matches the mark of a list's item, behind which white space stands."""
_CLOSED = "[\"'”’»)\\]*_]*\\Z"  # noqa: RUF001
ASKS = re.compile(f"[?？؟]{_CLOSED}")  # noqa: RUF001
INTRODUCES = re.compile(f"[:：]{_CLOSED}")  # noqa: RUF001
"""Found in what ends with a colon, whatever closes behind it."""

# A full stop before a lower-case letter mostly ends an abbreviation; the number of a note may follow it. East Asian
# full stops need no space after them. That nothing is tried in the middle of several marks keeps rows of dots cheap.
# It begins with all marks in one set, which is looked for much quicker than what may not stand before them.
SENTENCE_END = re.compile(
    r"[.!?…؟۔।。！？｡](?:"  # noqa: RUF001
    r"(?<=[.!?…؟۔।])(?<![.!?…؟۔।]{2})[.!?…؟۔।]*+[\"'”’»)\]]*(?:\[\w{1,4}\])*\s++(?![a-z])"  # noqa: RUF001
    r"|(?<=[。！？｡])[。！？｡]*[」』”’）]*\s*)"  # noqa: RUF001
)
"""Matches from the mark that ends a sentence to the beginning of the next one."""

# What has no full stops ends with a paragraph, or before the next row or item.
_BREAK = re.compile(r"\n[^\S\n]*\n\s*|\n(?=[^\S\n]*(?:\||" + LIST_ITEM + "))")
FENCE = re.compile(
    r"^[^\S\n]*(?:(?:[-*+]|\d{1,9}[.)])[^\S\n]+)?(?:`{3,}(?=[^`\n]*$)|~{3,})(?P<info>[^\n]*)(?:\n|\Z)", re.MULTILINE
)
"""Matches the line that opens or closes a block of code, also of one inside of a list's item."""
_HEADING = re.compile(r"[^\S\n]*(?:#|<!--)")
_ROW = re.compile(r"[^\S\n]*\|")
_RULE = re.compile(r"[^\S\n]*\|[ \t:|-]*")
"""The line below the head of a table."""
_ITEM_NUMBER = re.compile(r"(?:^|\n)[^\S\n]*\d{1,3}\Z")
_HEADINGS = re.compile(r"(?:#{1,6}[^\S\n][^\n]*(?:\n\s*+|\Z))+")
_TABLE_HEAD = re.compile(r"\|[^\n]*\n[^\S\n]*\|[ \t:|-]*(?=\n)")
_ITEM = re.compile(rf"[^\S\n]*{LIST_ITEM}[^\S\n]")
_LINE_START = 12
"""How far before its full stop the line of an item's number is looked for to begin, in code points."""


def sentence_ends(text: str) -> list[int]:
    """Return the offsets at which a text may be cut so that whole sentences stand before, white space left out.

    Paragraphs, table rows and list items end a sentence too; the number of an item is no sentence. Nothing ends with a
    heading, with the head of a table alone, or inside a fenced block of code: what stands before would say nothing. The
    last offset is the end of the text, white space left out; a text of white space has none.
    """
    begin, whole = len(text) - len(text.lstrip()), len(text.rstrip())
    ends = {_without_space(text, match.start()) for match in _BREAK.finditer(text)}
    for match in SENTENCE_END.finditer(text):
        at = match.start()
        # The digit is looked for first, since few full stops follow one.
        if not (text[at - 1 : at].isdecimal() and _ITEM_NUMBER.search(text, max(0, at - _LINE_START), at)):
            ends.add(_without_space(text, match.end()))
    inside = sorted(end for end in ends if begin < end < whole)
    return [*_saying_something(text, inside), whole] if whole else []


def _saying_something(text: str, ends: list[int]) -> Iterator[int]:
    """Yield the offsets, in order, before which neither a heading, nor the head of a table, nor a half block stands."""
    fences = [match.start() for match in FENCE.finditer(text)] if "```" in text or "~~~" in text else []
    before, quiet = 0, -1  # in a line, nothing that says something ends before `quiet`
    for end in ends:
        start = text.rfind("\n", before, end) + 1
        if start or quiet < 0:
            row = _RULE.match(text, start)
            is_label = _HEADING.match(text, start) or (row and not _follows_row(text, start))
            quiet = len(text) if is_label else row.end() if row else 0
        if end > quiet and not bisect_left(fences, end) % 2:
            yield end
        before = end


def _follows_row(text: str, start: int) -> bool:
    """Whether the line before the one that begins here is a table's too."""
    before = text.rfind("\n", 0, max(0, start - 1)) + 1
    return _ROW.match(text, before, start) is not None


def _without_space(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, or what stands for one: a table row, a list item, a block of code.

    Attributes:
        span: Where it stands in its text, without white space around it.
        heads: What it needs to be understood where others are left out, in the text's order: the headings directly
            above it, and the head of its table or the words that introduce its list. Empty where these are part of it.
        introduces_next: Whether it ends with a colon above a list, a table or a fenced block of code, and so says
            little without the sentence after it.
    """

    span: Span
    heads: tuple[Span, ...] = ()
    introduces_next: bool = False


def sentences_of(text: str) -> tuple[Sentence, ...]:
    """Return the sentences of a text, in order; together they are all of it but for white space.

    They end where :func:`sentence_ends` says, so the first one below a heading has the heading, and the first row of a
    table its head.
    """
    found: list[Sentence] = []
    above: Span | None = None
    group: Span | None = None  # the table's head, or the words that introduce the list
    begin = 0
    for end in sentence_ends(text):
        start = body = end - len(text[begin:end].lstrip())
        if (headings := _HEADINGS.match(text, start, end)) is not None:
            body = headings.end()
            above, group = None, None  # its own
        elif found and text[found[-1].span.end - 1] == ":":
            group = found[-1].span
            found[-1] = replace(found[-1], introduces_next=_is_block(text, start))
        elif group is not None and not _goes_on(text, begin, start):
            group = None
        found.append(Sentence(Span(start, end), tuple(head for head in (above, group) if head is not None)))
        if headings is not None:
            above = Span(start, _without_space(text, body))
        if (head := _TABLE_HEAD.match(text, body, end)) is not None:
            group = Span(body, _without_space(text, head.end()))
        begin = end
    return tuple(found)


def _goes_on(text: str, end: int, start: int) -> bool:
    """Whether what begins at ``start`` belongs to the list or the table that what ended before it is in."""
    return text.count("\n", end, start) < 2 or _ITEM.match(text, start) is not None


def _is_block(text: str, start: int) -> bool:
    """Whether a fenced block of code, a list or a table begins at ``start``."""
    return text.startswith(("```", "~~~"), start) or any(kind.match(text, start) for kind in (_ITEM, _ROW))


def trim(text: str, start: int, end: int, *, keep_indentation: bool = False) -> Span | None:
    """Return a range without the white space around it, ``None`` where nothing else is in it."""
    part = text[start:end]
    kept = part.rstrip()
    if not kept:
        return None
    first = len(kept) - len(kept.lstrip())
    if keep_indentation:
        first = kept.rfind("\n", 0, first) + 1
    return Span(start + first, start + len(kept))
