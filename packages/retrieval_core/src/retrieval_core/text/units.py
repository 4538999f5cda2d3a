"""A text as blocks that can be quoted alone: paragraphs, and lists, tables and code with what introduces them."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from retrieval_core.text.markdown import parse_markdown
from retrieval_core.text.sentences import FENCE, INTRODUCES, sentence_ends, trim
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from retrieval_core.text.markdown import Block

Kind: TypeAlias = Literal["text", "row", "rest"]
"""The last: a fragment, such as a part of a block of code that is too long or does not end."""

LONGEST_BLOCK = 1200
"""Code points of a block with what introduces it; a longer one is divided."""
LONGEST_RUN = 400
"""Code points of a paragraph, and of the runs of sentences, items or rows that what is longer is divided into."""

LINK = re.compile(r"!?\[[^\]\n]{0,300}\](?:\([^)\n]{0,2000}\)|\[[^\]\n]{0,300}\])|<?\bhttps?://[^\s>]{1,2000}>?")
_NUMBER = re.compile(r"\s*(\d{1,9})[.)]\s")
_MAY_SWALLOW = re.compile(r"[`~<]|^(?: {4}|\t)", re.MULTILINE)


class Unit(NamedTuple):
    """What a text is divided into.

    Attributes:
        span: Where it stands in the text.
        heads: What it needs to be understood, above it and in order: the words that introduce its list and the first
            item, or the head of its table. Empty where these are part of it.
        headings: The titles above it in the text, the outermost first.
    """

    span: Span
    heads: tuple[Span, ...] = ()
    kind: Kind = "text"
    headings: tuple[str, ...] = ()


def units_of(text: str) -> list[Unit]:
    """Return what a text is divided into, in order, without headings and comments; no two spans overlap.

    A unit with its heads stands alone as Markdown: what comes after it is not swallowed by an open block of code.
    """
    begin = _end_of_open_code(text)
    units = list(_fragments(text, Span(0, begin)))
    path: dict[int, str] = {}
    for group in _groups(text, _blocks(text, begin)):
        if group[0].kind == "heading":
            path = {level: title for level, title in path.items() if level < group[0].level}
            path[group[0].level] = group[0].title
            if len(group) == 1:
                continue
        for unit in _divided(text, group):
            if unit.kind == "rest" or not _stands_alone(text, unit):
                units += _fragments(text, unit.span)
            else:
                units.append(unit._replace(headings=tuple(path.values())))
    return units


def _end_of_open_code(text: str) -> int:
    """Return the end of the block of code that a text begins inside of; 0 where it does not.

    Its first fence names no language then, and the next one does, or nothing follows.
    """
    fences = list(islice(FENCE.finditer(text), 2))
    if not fences or fences[0]["info"].strip():
        return 0
    is_last = len(fences) == 1 and not text[fences[0].end() :].strip()
    return fences[0].end() if is_last or (len(fences) > 1 and fences[1]["info"].strip()) else 0


def _blocks(text: str, begin: int) -> Iterator[Block]:
    """Yield the blocks of a text from an offset on."""
    for block in parse_markdown(text[begin:]):
        parts = tuple(Span(begin + part.start, begin + part.end) for part in block.parts)
        yield replace(block, span=Span(begin + block.span.start, begin + block.span.end), parts=parts)


def _groups(text: str, blocks: Iterable[Block]) -> list[list[Block]]:
    """Return blocks, each with what introduces it and what goes on with it."""
    groups: list[list[Block]] = []
    for block in blocks:
        if groups and _belongs(text, groups[-1][-1], block):
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _belongs(text: str, before: Block, block: Block) -> bool:
    """Whether a block is introduced by the one before it, or goes on with its numbers."""
    if block.kind == "heading" or _is_html(text, block) or _is_html(text, before):
        return False
    if before.kind == "heading":
        return block.kind != "paragraph"
    if _introduces(text, before) or (block.kind == "list" and _is_continued(text, block.span.start)):
        return True
    is_quotation = text.startswith(">", before.span.start)
    return block.kind in {"code", "table"} and before.kind in {"paragraph", "list"} and not is_quotation


def _introduces(text: str, block: Block) -> bool:
    return block.kind != "code" and INTRODUCES.search(text, block.span.start, block.span.end) is not None


def _is_html(text: str, block: Block) -> bool:
    return block.kind == "code" and text[block.span.start : block.span.start + 4].lstrip(" ").startswith("<")


def _is_continued(text: str, start: int) -> bool:
    """Whether a numbered list begins at another number than 1."""
    item = _NUMBER.match(text, start)
    return item is not None and int(item[1]) > 1


def _divided(text: str, group: Sequence[Block]) -> Iterator[Unit]:
    """Yield a group as one unit or, where it is too long, in runs of its parts."""
    whole = Span(group[0].span.start, group[-1].span.end)
    is_prose = len(group) == 1 and group[0].kind == "paragraph" and text[whole.start] not in ">|"
    if _is_html(text, group[0]) or _is_continued(text, whole.start):
        yield Unit(whole, kind="rest")
    elif whole.end - whole.start <= (LONGEST_RUN if is_prose else LONGEST_BLOCK):
        yield Unit(whole)
    else:
        runs: list[Unit] = []
        for part in _with_leads(text, group):
            if runs and part.span.end - runs[-1].span.start <= LONGEST_RUN:
                runs[-1] = runs[-1]._replace(span=Span(runs[-1].span.start, part.span.end))
            else:
                runs.append(part)
        yield from runs


def _with_leads(text: str, group: Sequence[Block]) -> list[Unit]:
    """Return the parts of a group: a block's first one together with what introduces it, the others below that."""
    found: list[Unit] = []
    lead: Span | None = None
    for block in group:
        parts = _parts(text, block)
        is_table = block.kind == "table"
        is_numbered = block.kind == "list" and _NUMBER.match(text, block.span.start) is not None
        heads = (*([lead] if lead else ()), *(parts[:1] if is_table or is_numbered else ()))
        for number, part in enumerate(parts):
            if (number == 0 and lead is not None) or (number == 1 and is_table):
                found[-1] = found[-1]._replace(span=Span(found[-1].span.start, part.end))
            else:
                found.append(Unit(part, heads if number else (), "row" if number and is_table else "text"))
        lead = parts[-1] if block.kind == "heading" or _introduces(text, block) else None
    return found


def _parts(text: str, block: Block) -> list[Span]:
    """Return what a block may be divided into: sentences, items, the head of a table and its rows."""
    start, end = block.span.start, block.span.end
    if block.kind == "table":
        head = Span(start, block.parts[0].start if block.parts else end)
        parts = [Span(head.start, head.start + len(text[head.start : head.end].rstrip())), *block.parts]
    elif block.parts:
        parts = list(block.parts)
    elif block.kind == "paragraph":
        said = text[start:end]
        ends = [match.end() for match in re.finditer(r"[^\n]+", said)] if said[0] == "|" else sentence_ends(said)
        parts = list[Span]()
        begin = 0
        for stop in ends:
            parts.append(Span(start + stop - len(said[begin:stop].lstrip()), start + stop))
            begin = stop
    else:
        parts = [block.span]
    return [cut for part in parts for cut in (_cut(text, part) if block.kind == "paragraph" else [part])]


def _cut(text: str, span: Span) -> Iterator[Span]:
    """Yield parts of bounded length, cut at white space where there is some."""
    start, end = span.start, span.end
    while start < end:
        stop = min(end, start + LONGEST_RUN)
        if stop < end:
            stop = next((at for at in range(stop, start + LONGEST_RUN // 2, -1) if text[at].isspace()), stop)
        if (part := trim(text, start, stop)) is not None:
            yield part
        start = stop


def _stands_alone(text: str, unit: Unit) -> bool:
    """Whether it is short enough, and what comes after it is read as text."""
    said = "\n\n".join(text[span.start : span.end] for span in (*unit.heads, unit.span))
    if unit.span.end - unit.span.start > LONGEST_BLOCK + LONGEST_RUN:
        return False
    return _MAY_SWALLOW.search(said) is None or parse_markdown(f"{said}\n\n[1]")[-1].kind == "paragraph"


def _fragments(text: str, span: Span) -> Iterator[Unit]:
    """Yield the lines between fences, in parts."""
    begin = span.start
    for fence in FENCE.finditer(text, span.start, span.end):
        yield from (Unit(part, kind="rest") for part in _cut(text, Span(begin, fence.start())))
        begin = fence.end()
    yield from (Unit(part, kind="rest") for part in _cut(text, Span(begin, span.end)))
