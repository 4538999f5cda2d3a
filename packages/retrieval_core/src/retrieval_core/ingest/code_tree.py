"""Source code and structured text as sections and blocks: by definitions, else by indentation and blank lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from retrieval_core.ingest.definitions import Definition, find_definitions
from retrieval_core.ingest.sections import SectionNode
from retrieval_core.text.markdown import Block
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CONTINUES = re.compile(r"[)\]}>{]|</|(?:begin|do|done|elif|else|end|ensure|esac|except|fi|finally|rescue|then)\b")
"""How a line begins that belongs to the lines above it, whatever its indentation."""
_LEADS = re.compile(r"[#/*@;%\[\"'-]|<!--")
"""How a line begins that belongs to the lines below it: a comment, a decorator or an attribute."""
_COMMENT = re.compile(r"(?:#|--|//+|%+|;+)(?:[\s!]|$)|/\*|<!--")
"""How a comment begins that has its line to itself."""
_COMMENT_ENDS = ("*/", "-->")
_COMMENT_GAP = re.compile(r"\*|///?|//!|#+|--|;+|%+")
"""A line between the paragraphs of a comment."""
_CLOSES = re.compile(r"[)\]};,]*|end")
_LONGEST_NAME = 80
_DEEPEST = 12


@dataclass(frozen=True, slots=True)
class _Item:
    """Consecutive lines: one at the indentation of its neighbours, and all that are deeper below it.

    Attributes:
        first: The first of its lines.
        last: The line after its last one.
        head: The line that the deeper ones belong to; ``None`` if there are none.
    """

    first: int
    last: int
    head: int | None


class _Lines:
    """A text's lines, by number from 0."""

    def __init__(self, text: str) -> None:
        self.text = text
        starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.starts = [*starts, len(text)]
        self.count = len(starts)
        self.words = [text[start:end].strip() for start, end in pairwise(self.starts)]
        self.depths = [_depth(text[start:end]) for start, end in pairwise(self.starts)]

    def span(self, first: int, last: int) -> Span | None:
        """Return lines ``first`` to ``last``, excluded, without blank lines around them; ``None`` if all are blank."""
        while first < last and not self.words[first]:
            first += 1
        while first < last and not self.words[last - 1]:
            last -= 1
        if first == last:
            return None
        start = self.starts[first]
        return Span(start, start + len(self.text[start : self.starts[last]].rstrip()))

    def paragraphs(self, first: int, last: int) -> Iterator[Span]:
        """Yield lines as ranges that begin where a comment has a line without words."""
        gaps = (line for line in range(first + 1, last) if _COMMENT_GAP.fullmatch(self.words[line]))
        for start, end in pairwise((first, *gaps, last)):
            if (span := self.span(start, end)) is not None:
                yield span

    def items(self, first: int, last: int) -> Iterator[_Item]:
        """Yield the items of some lines; blank lines are between them."""
        used = [line for line in range(first, last) if self.words[line]]
        if not used:
            return
        base = min(self.depths[line] for line in [each for each in used if not self._continues(each)] or used)
        starts: list[int] = []
        heads: dict[int, int] = {}
        ends: dict[int, int] = {}
        for line in used:
            if not starts or (self.depths[line] <= base and not self._continues(line)):
                starts.append(line)
            elif self.depths[line] > base:
                heads.setdefault(starts[-1], ends[starts[-1]] - 1)
            ends[starts[-1]] = line + 1
        yield from (_Item(start, ends[start], heads.get(start)) for start in starts)

    def _continues(self, line: int) -> bool:
        return _CONTINUES.match(self.words[line]) is not None


def _depth(line: str) -> int:
    indentation = line[: len(line) - len(line.lstrip())]
    return len(indentation.expandtabs(4))


def code_tree(text: str, language: str | None, fits: Callable[[Span], bool]) -> SectionNode:
    """Return the sections of code: one for each definition, with its comments above it.

    If there is no grammar of the language, each top-level item with lines below it is a section.

    Args:
        text: The code.
        language: Its name, such as ``python``.
        fits: Whether a range may be one block. Items that may not are cut into the items in them.
    """
    lines = _Lines(text)
    root = SectionNode(0, ())
    found = find_definitions(text, language) or [
        Definition(name, item.first, item.last)
        for item in _with_leads(lines, list(lines.items(0, lines.count)))
        if item.head is not None and not _is_comment(lines, item) and (name := _name(lines.words[item.head]))
    ]
    _grow(root, lines, (0, lines.count), found, fits)
    return root


def _grow(
    node: SectionNode, lines: _Lines, within: tuple[int, int], found: list[Definition], fits: Callable[[Span], bool]
) -> None:
    """Add definitions to a section, and the lines between them."""
    between, last = within
    for definition in found:
        first = _lead(lines, between, definition.first)
        if first < between:  # it begins on the line on which the last one ends
            continue
        _add_lines(node, lines, between, first, fits)
        between = min(definition.last, last)
        while between < last and _CLOSES.fullmatch(lines.words[between]):
            between += 1
        section = SectionNode(node.level + 1, (*node.path, definition.name))
        span = lines.span(first, between)
        if definition.inner and span is not None and not fits(span):
            _grow(section, lines, (first, between), definition.inner, fits)
            if section.children and _is_opener(lines, first, section.blocks):
                section.blocks = [Block("heading", block.span) for block in section.blocks]
        else:
            section.blocks = _blocks(lines, first, between, fits)
        node.children.append(section)
    _add_lines(node, lines, between, last, fits)


def _add_lines(node: SectionNode, lines: _Lines, first: int, last: int, fits: Callable[[Span], bool]) -> None:
    """Add lines to a section: to its own blocks if no section in it comes before them."""
    blocks = _blocks(lines, first, last, fits)
    if blocks and node.children:
        node.children.append(SectionNode(0, node.path, blocks))
    else:
        node.blocks += blocks


def _lead(lines: _Lines, least: int, first: int) -> int:
    """Return the first line of the comments and decorators that are directly above a definition."""
    while first > least:
        above = first - 1
        if lines.words[above].endswith("*/"):
            start = next((line for line in range(above, least - 1, -1) if "/*" in lines.words[line]), above)
            above = start if lines.words[start].startswith("/*") else above
        if not _LEADS.match(lines.words[above]):
            break
        first = above
    return first


def _is_opener(lines: _Lines, first: int, blocks: Sequence[Block]) -> bool:
    """Return whether blocks are only the lines that open a definition: they say nothing without what follows."""
    if len(blocks) != 1 or _COMMENT.match(lines.words[first]):
        return False
    last = first + lines.text.count("\n", lines.starts[first], blocks[0].span.end) + 1
    return all(item.head is None for item in lines.items(first, last))


def _is_comment(lines: _Lines, item: _Item) -> bool:
    start, end = lines.words[item.first], lines.words[item.last - 1]
    if start.startswith(("/*", "<!--")):
        return end.endswith(_COMMENT_ENDS)
    return item.head is None and _COMMENT.match(start) is not None


def _with_leads(lines: _Lines, items: Sequence[_Item]) -> list[_Item]:
    """Return items with the comments directly above them, and those that have lines below them with decorators."""
    joined: list[_Item] = []
    for item in items:
        first = item.first
        while joined and joined[-1].last == first:
            above = joined[-1]
            is_decorator = item.head is not None and above.head is None and _LEADS.match(lines.words[above.first])
            if not is_decorator and not _is_comment(lines, above):
                break
            first = joined.pop().first
        joined.append(_Item(first, item.last, item.head))
    return joined


def _blocks(lines: _Lines, first: int, last: int, fits: Callable[[Span], bool], depth: int = 0) -> list[Block]:
    """Return lines as blocks that fit, as far as blank lines and indentation can make them fit."""
    whole = lines.span(first, last)
    if whole is None:
        return []
    if depth > _DEEPEST:
        return [Block("code", whole)]
    blocks: list[Block] = []
    run: list[Span] = []  # items without a blank line between them
    previous = first

    def close() -> None:
        together = Span(run[0].start, run[-1].end) if run else None
        spans = run if together is None or not fits(together) else [together]
        blocks.extend(Block("code", span) for span in spans)
        run.clear()

    for item in _with_leads(lines, list(lines.items(first, last))):
        span = lines.span(item.first, item.last)
        if span is None:
            continue
        if item.first > previous:
            close()
        if fits(span):
            run.append(span)
        elif item.head is None or _is_comment(lines, item):
            close()
            blocks += (Block("code", part) for part in lines.paragraphs(item.first, item.last))
        else:
            close()
            body = item.head + 1
            blocks += _blocks(lines, item.first, body, fits, depth + 1)
            blocks += _blocks(lines, body, item.last, fits, depth + 1)
        previous = item.last
    close()
    return blocks


def _name(line: str) -> str:
    """Return the line that a section begins with as its heading."""
    return " ".join(line.rstrip(" \t:{([=").split()).strip("\"'")[:_LONGEST_NAME]
