"""A text as the sentences, list items, table rows and blocks of code that can be quoted from it alone."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from retrieval_core.sentences import sentences_of
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.sentences import Sentence

Kind: TypeAlias = Literal["text", "item", "row", "code", "rest"]
"""The last: a fragment, such as a part of a block of code that is too long or does not end."""

LONGEST = 500
"""Code points of a sentence; a longer one is cut at white space."""
LONGEST_BLOCK = 800
"""Code points of a block of code or a table row with what introduces it; a longer one, which cannot be cut, is only
fragments."""

_FENCE = re.compile(
    r"^(?P<indent>[ \t]*+)(?P<item>(?:[-*+]|\d{1,9}[.)])[ \t]++)?(?:(?P<ticks>`{3,}+)(?=[^`\n]*$)|(?P<tildes>~{3,}+))"
    r"(?P<info>[^\n]*)$",
    re.MULTILINE,
)
_BEFORE = re.compile(
    r"(?:[^\S\n]*+(?:#{1,6}(?=\s)[^\n]*|<!--[^\n]*?-->|!!![^\n]*|>[^\S\n]*\[!\w+\][^\n]*"
    r"|[-*_=]{3,}+[^\S\n]*+(?=\n|\Z)|\[[^\]\n]{1,200}\]:[^\n]*|!\[[^\]\n]{0,200}\]\([^\n]*)\s*+)+"
)
"""What may stand before a sentence and is none: headings, comments, labels of notes, rules, targets, pictures."""
_HEADING = re.compile(r"^[^\S\n]*#{1,6}[^\n]*\s*+\Z", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]\n]{0,300}\](?:\([^)\n]{0,2000}\)|\[[^\]\n]{0,300}\])|<?\bhttps?://[^\s>]{1,2000}>?")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,9}[.)])[^\S\n]")
ENDS_OPEN = re.compile("(?:[?？؟:：]|\\n[^\\S\\n]*(?:==+|--+))[\"'”’»)\\]*_]*\\Z")  # noqa: RUF001
"""Ends what asks, what introduces something that is not there, and an underlined heading."""
_NOT_INDENTED = re.compile(r"\n\S")
_UNDERLINE = re.compile(r"\n[^\S\n]{0,3}-{2,}+[^\S\n]*+(?:\n|\Z)")
"""Below a line, makes a heading of it, or ends a front matter."""
_REFERS = re.compile(r"(?:the above|this|that|these|those|it|they|such)\b", re.IGNORECASE)
"""Begins a sentence that says little without the one before it, even if that ends a paragraph."""
_SWALLOWS = re.compile(r"^[ ]{0,3}<(?:script|pre|style|textarea|[!?])", re.IGNORECASE | re.MULTILINE)
"""What follows such a tag is not shown as text until it is closed."""


class Unit(NamedTuple):
    """What a text is divided into.

    Attributes:
        span: Where it stands in the text.
        heads: What it needs to be understood: the head of its table, or the words that introduce its list or block.
        before: The sentence before it in its paragraph, or item in its list, where there is one.
        after: The one after it.
    """

    span: Span
    heads: tuple[Span, ...] = ()
    kind: Kind = "text"
    before: Span | None = None
    after: Span | None = None


def units_of(text: str) -> list[Unit]:
    """Return what a text is divided into, in order, without headings and other things that say nothing.

    A unit stands alone as Markdown: a fenced block of code is in one unit with both of its fences, or its lines are
    units without any fence.
    """
    units: list[Unit] = []
    for zone in _zones(text):
        for unit in _in_zone(text, zone):
            own = unit._replace(kind="rest") if zone.is_code or not _stands_alone(text, unit) else unit
            if units and _goes_on(text, units[-1], own):
                if "code" not in (own.kind, units[-1].kind) and not ENDS_OPEN.search(
                    text, own.span.start, own.span.end
                ):
                    units[-1] = units[-1]._replace(after=own.span)
                own = own._replace(before=units[-1].span)
            units.append(own)
    return units


def _stands_alone(text: str, unit: Unit) -> bool:
    """Whether it is no heading, and swallows nothing of what comes after it."""
    said = text[unit.span.start : unit.span.end]
    if _UNDERLINE.match(text, unit.span.end) or _SWALLOWS.search(said):
        return False
    if unit.kind == "code":  # a line that is not indented ends a list item, and leaves its last fence alone
        return _ITEM.match(said) is None or _NOT_INDENTED.search(said) is None
    return _FENCE.search(said) is None


def _goes_on(text: str, one: Unit, other: Unit) -> bool:
    """Whether two neighbours are of one paragraph or of one list, or the second needs the first."""
    refers = other.kind == "text" and _REFERS.match(text, other.span.start) is not None
    if one.kind in {"row", "rest"} or other.kind in {"row", "rest"} or (one.kind == "code" and not refers):
        return False
    between = text[one.span.end : other.span.start]
    if between.strip():
        return False
    if other.kind == "text":
        return refers or "\n\n" not in between
    return one.kind == "item" if other.kind == "item" else not other.heads


class _Zone(NamedTuple):
    """A part of a text that no fence stands open in.

    Attributes:
        blocks: The fenced blocks of it, in order.
        is_code: Whether it stands in a block of which only a part is there.
    """

    span: Span
    blocks: tuple[Span, ...] = ()
    is_code: bool = False


def _zones(text: str) -> list[_Zone]:
    """Return a text in parts, without the fences that belong to no other."""
    fences = list(_FENCE.finditer(text))
    zones: list[_Zone] = []
    begin = 0
    if _begins_inside(fences):
        zones.append(_Zone(Span(0, fences[0].start()), is_code=True))
        begin = fences[0].end()
        del fences[0]
    blocks: list[Span] = []
    opened: list[re.Match[str]] = []
    for fence in fences:
        if opened and _closes(fence, opened[0]):
            blocks.append(Span(opened[0].start(), fence.end()))
            opened.clear()
        else:
            opened.append(fence)
    for number, fence in enumerate(opened):
        zones.append(_Zone(Span(begin, fence.start()), tuple(blocks), is_code=number > 0))
        blocks, begin = [], fence.end()
    return [*zones, _Zone(Span(begin, len(text)), tuple(blocks), is_code=bool(opened))]


def _begins_inside(fences: Sequence[re.Match[str]]) -> bool:
    """Whether a text begins inside a block: its first fence has no language, and the next one that has opens one."""
    if not fences or _is_opening(fences[0]):
        return False
    return len(fences) > 1 and _is_opening(fences[1])


def _is_opening(fence: re.Match[str]) -> bool:
    return bool(fence["info"].strip() or fence["item"])


def _closes(fence: re.Match[str], opened: re.Match[str]) -> bool:
    kind = "ticks" if opened["ticks"] else "tildes"
    if _is_opening(fence) or fence[kind] is None or len(fence[kind]) < len(opened[kind]):
        return False
    if opened["item"] is not None:
        return bool(fence["indent"])
    return _is_indented(opened["indent"]) or not _is_indented(fence["indent"])


def _is_indented(space: str) -> bool:
    """Whether a line with that before it is code by its indentation, unless it is in a list."""
    return len(space.expandtabs(4)) > 3


def _in_zone(text: str, zone: _Zone) -> Iterator[Unit]:
    """Yield the sentences of a part of a text; those of one block, and those of one table row, are one."""
    joined: list[Sentence] = []
    ahead = deque(zone.blocks)
    for sentence in sentences_of(text[zone.span.start : zone.span.end]):
        own = _moved(sentence, zone.span.start)
        if joined:
            end = joined[-1].span.end
            while ahead and ahead[0].end <= end:
                ahead.popleft()
            # A block that stands deep inside a list item is none without it.
            if _is_in_row(text, joined[-1].span, own.span.start) or (
                ahead and (ahead[0].start < end or (ahead[0].start <= own.span.start and _is_deep(text, ahead[0])))
            ):
                joined[-1] = replace(joined[-1], span=Span(joined[-1].span.start, own.span.end), introduces_next=False)
                continue
        joined.append(own)
    starts = [block.start for block in zone.blocks]
    for sentence in joined:
        position = bisect_left(starts, sentence.span.end)
        has_block = position > 0 and zone.blocks[position - 1].end > sentence.span.start
        yield from _unit(text, sentence, has_block=has_block)


def _moved(sentence: Sentence, by: int) -> Sentence:
    heads = tuple(Span(head.start + by, head.end + by) for head in sentence.heads)
    return replace(sentence, span=Span(sentence.span.start + by, sentence.span.end + by), heads=heads)


def _is_in_row(text: str, before: Span, start: int) -> bool:
    """Whether a table row goes on between two sentences."""
    line = max(before.start, text.rfind("\n", before.start, before.end) + 1)
    return "\n" not in text[before.end : start] and text.startswith("|", line)


def _is_deep(text: str, block: Span) -> bool:
    line = text[block.start : block.start + 4]
    return _is_indented(line[: len(line) - len(line.lstrip())])


def _unit(text: str, sentence: Sentence, *, has_block: bool) -> Iterator[Unit]:
    """Yield a sentence without what stands above it, or its parts where it is too long."""
    above = _BEFORE.match(text, sentence.span.start, sentence.span.end)
    start = sentence.span.start if above is None else above.end()
    end = _without_quote_marks(text, start, sentence.span.end)
    if start >= end:
        return
    kind = _kind(text, start, end, has_block=has_block)
    heads = tuple(head for head in sentence.heads if _introduces(text[head.start : head.end]))
    if kind == "code" and not heads and (heading := _HEADING.search(text[sentence.span.start : start])) is not None:
        start = sentence.span.start + heading.start()
    if kind == "code":  # fences are a pair only where they stand equally deep
        line = text.rfind("\n", 0, start) + 1
        start = line if text[line:start].isspace() else start
    longest = LONGEST_BLOCK if kind in {"code", "row"} else LONGEST
    if end - start + sum(head.end - head.start for head in heads) > longest and kind != "row":
        heads = ()
    if sentence.introduces_next:
        yield from _parts(text, start, end, "rest")
    elif end - start + sum(head.end - head.start for head in heads) <= longest:
        yield Unit(Span(start, end), heads, kind)
    elif kind in {"code", "row"}:
        for begin, stop in _between_fences(text, start, end):
            yield from _parts(text, begin, stop, "rest")
    else:
        yield from _parts(text, start, end, kind)


def _kind(text: str, start: int, end: int, *, has_block: bool) -> Kind:
    if has_block:
        return "code"
    if text.startswith("|", start):
        return "row"
    return "item" if _ITEM.match(text, start, end) else "text"


def _introduces(head: str) -> bool:
    """Whether what stands above a sentence is shown with it: no heading, and nothing that swallows what follows."""
    return not head.startswith("#") and "```" not in head and "~~~" not in head and not _SWALLOWS.search(head)


def _without_quote_marks(text: str, start: int, end: int) -> int:
    """Return where a sentence ends if the empty lines of a quotation behind it are no part of it."""
    while start < end and (
        text[end - 1].isspace() or (text[end - 1] == ">" and (end - 1 == start or text[end - 2] in "\n "))
    ):
        end -= 1
    return end


def _between_fences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    begin = start
    for fence in _FENCE.finditer(text[start:end]):
        yield begin, start + fence.start()
        begin = start + fence.end()
    yield begin, end


def _parts(text: str, start: int, end: int, kind: Kind) -> Iterator[Unit]:
    """Yield parts of a text of bounded length, cut at white space where there is some."""
    while start < end:
        stop = min(end, start + LONGEST)
        if stop < end:
            stop = next((at for at in range(stop, start + LONGEST // 2, -1) if text[at].isspace()), stop)
        part = text[start:stop]
        if part.strip():
            yield Unit(Span(start + len(part) - len(part.lstrip()), start + len(part.rstrip())), (), kind)
        start = stop
