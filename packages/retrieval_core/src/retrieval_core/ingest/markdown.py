"""Where the blocks of a Markdown text begin and end."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from retrieval_core.ingest.blocks import Block
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    from retrieval_core.ingest.blocks import BlockKind

_NEWLINE = re.compile(r"\r\n?|\n")
_ANCHOR = re.compile(r"\s*\{[#.:][^{}]*\}\s*$")
_KINDS: dict[str, BlockKind] = {
    "heading_open": "heading",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "table_open": "table",
    "fence": "code",
    "code_block": "code",
    "html_block": "code",
}
_PART_TOKENS = {"list": "list_item_open", "table": "tr_open"}
_PART_LEVELS = {"list": 1, "table": 2}


def parse_markdown(text: str) -> tuple[Block, ...]:
    """Return the blocks of a CommonMark text with tables, in order; every character outside them is white space.

    Headings inside lists and quotations structure these, not the document, and are no blocks of their own.
    """
    lines = _Lines(text)
    blocks: list[Block] = []
    covered = 0
    tokens = _parser().parse(text)
    for position, token in enumerate(tokens):
        if token.level or token.map is None:
            continue
        first, last = token.map
        blocks.extend(lines.paragraphs(covered, first))
        covered = last
        span = lines.span(first, last)
        if span is not None:
            blocks.append(_block(_KINDS.get(token.type, "paragraph"), span, tokens, position, lines))
    blocks.extend(lines.paragraphs(covered, lines.count))
    return tuple(blocks)


def first_heading(text: str) -> str | None:
    """Return the words of a Markdown text's first heading, ``None`` where it has none."""
    return next((block.title for block in parse_markdown(text) if block.title), None)


def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - loading it takes longer than parsing most files

    parser = MarkdownIt("commonmark").enable("table")
    # What is inside a paragraph does not matter here, and parsing it would be most of the work.
    parser.core.ruler.disable("inline")
    return parser


def _block(kind: BlockKind, span: Span, tokens: Sequence[Token], position: int, lines: _Lines) -> Block:
    if kind == "heading":
        level = int(tokens[position].tag.removeprefix("h"))
        return Block(kind, span, level=level, title=_plain(tokens[position + 1].content))
    if kind in _PART_TOKENS:
        return Block(kind, span, parts=tuple(_parts(kind, tokens, position, lines)))
    return Block(kind, span)


def _parts(kind: BlockKind, tokens: Sequence[Token], position: int, lines: _Lines) -> Iterator[Span]:
    """Yield the body rows of the table, or the top-level items of the list, that opens at a position."""
    for token in tokens[position + 1 :]:
        if not token.level:
            return
        if token.type == _PART_TOKENS[kind] and token.level == _PART_LEVELS[kind] and token.map is not None:
            is_header = kind == "table" and token.map[0] == (tokens[position].map or (0, 0))[0]
            span = lines.span(*token.map)
            if span is not None and not is_header:
                yield span


def _plain(markdown: str) -> str:
    """Return the words of one line of Markdown: no emphasis, no link targets, no anchors."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - see above

    inline = MarkdownIt("commonmark").parseInline(_ANCHOR.sub("", markdown))[0].children or []
    words = "".join(
        " " if token.type == "softbreak" else token.content for token in inline if token.type != "html_inline"
    )
    return " ".join(words.replace("\u200b", "").split())


class _Lines:
    """Turns line numbers into offsets."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in _NEWLINE.finditer(text)), len(text)]
        self.count = len(self._starts) - 1

    def span(self, first: int, last: int) -> Span | None:
        """Return lines ``first`` to ``last``, excluded, without blank lines around them; ``None`` if all are blank."""
        while first < last and not self._line(first).strip():
            first += 1
        start = self._starts[first]
        length = len(self._text[start : self._starts[max(first, last)]].rstrip())
        return Span(start, start + length) if length else None

    def paragraphs(self, first: int, last: int) -> Iterator[Block]:
        """Yield what stands in lines that the parser made no block of, such as definitions of link targets."""
        blank = [line for line in range(first, last) if not self._line(line).strip()]
        for before, after in pairwise((first - 1, *blank, last)):
            span = self.span(before + 1, after)
            if span is not None:
                yield Block("paragraph", span)

    def _line(self, number: int) -> str:
        return self._text[self._starts[number] : self._starts[number + 1]]
