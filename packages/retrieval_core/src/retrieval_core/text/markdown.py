"""A text as a sequence of blocks: what a writer of Markdown, or with blank lines alone, separates as one thing.

:func:`plain_text` returns Markdown as plain sentences.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.text.quotes import find_quote
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    _SpanOf = Callable[[int, int], Span | None]

BlockKind: TypeAlias = Literal["heading", "paragraph", "list", "table", "code"]

_PARAGRAPH = re.compile(r"(?:^[^\S\n]*\S.*(?:\n|\Z))+", re.MULTILINE)
_NEWLINE = re.compile(r"\r\n?|\n")
_ANCHOR = re.compile(r"\s*\{[#.:][^{}]*\}\s*$")
_LONGEST_HEADING = 1_000
_WINDOW = 10_000
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
_BULLET = re.compile(r"[^\S\n]*(?:[-*+]|(\d{1,9}[.)]))(?:[^\S\n]+|$)", re.MULTILINE)
_QUOTATION = re.compile(r"^[^\S\n]{0,3}> ?", re.MULTILINE)
_CALLOUT = re.compile(r"\s*(?:\[!\w+\]|(?:!!!|\?\?\?\+?)[^\S\n]+\w[^\n]*)(?:\n|\Z)")
"""The line that begins a note of GitHub or MkDocs."""
_DEFINITION = re.compile(r"^[^\S\n]{0,3}\[[^\]\n]+\]:[^\S\n]*\S[^\n]*(?:\n|\Z)", re.MULTILINE)
_FENCE = re.compile(r"[^\S\n]{0,3}(`{3,}|~{3,})")
_CELL = re.compile(r"(?<!\\)\|")
_IDENTIFIER = re.compile(r"-{0,2}[^\W_](?:[\w.:/=@-]*[^\W_])?")
"""Code that reads the same without its ticks, also where the text is shown as Markdown."""
_BREAKS = frozenset({"softbreak", "hardbreak"})
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive lines that belong together.

    Attributes:
        span: From the start of its first line, with its indentation, to its last character that is no white space.
        level: 1 to 6 for headings, otherwise 0.
        title: The words of a heading, without markup.
        parts: Body rows of a table, or top-level items of a list.
    """

    kind: BlockKind
    span: Span
    level: int = 0
    title: str = ""
    parts: tuple[Span, ...] = ()


_MARK = r"""[=\-~^"'`#*+.:_]"""
_TITLE = re.compile(
    rf"(?:(?P<over>{_MARK})(?P=over)*\n)?(?P<words>[^\n]+)\n(?P<under>{_MARK})(?P=under)*[ \t]*(?=\n|\Z)"
    r"|(?P<marks>={1,6})[ \t]+(?P<after>[^\n]*\w[^\n]*)(?=\n|\Z)"
)


def titled_blocks(text: str) -> tuple[Block, ...]:
    """Return the titles and paragraphs of reStructuredText or AsciiDoc in order.

    A title is a line with a line of one punctuation mark below it that is as long, or one that begins with ``==``. The
    marks have the levels in which they first occur.
    """
    blocks: list[Block] = []
    levels: dict[tuple[str | None, str], int] = {}
    for block in plain_blocks(text):
        found = _TITLE.match(text, block.span.start, block.span.end)
        if found is None or (found["words"] and not _is_title(found)):
            blocks.append(block)
            continue
        if found["marks"]:
            level = len(found["marks"])
        else:
            level = levels.setdefault((found["over"], found["under"]), len(levels) + 1)
        title = found["words"] or found["after"].rstrip().removesuffix(f" {found['marks']}")
        blocks.append(Block("heading", Span(found.start(), found.end()), min(level, 6), " ".join(title.split())))
        blocks += (
            Block("paragraph", Span(each.span.start + found.end(), each.span.end + found.end()))
            for each in plain_blocks(text[found.end() : block.span.end])
        )
    return tuple(blocks)


def _is_title(found: re.Match[str]) -> bool:
    """Return whether a line is as long as the one below it, and the line above it is equal to that."""
    first, *middle, last = found[0].rstrip().split("\n")
    if found["over"]:
        return first == last and len(middle[0].rstrip()) <= len(last)
    return not first[0].isspace() and len(first.rstrip()) <= len(last) and any(map(str.isalnum, first))


def plain_blocks(text: str) -> tuple[Block, ...]:
    """Return the paragraphs of a plain text in order; every character outside them is white space."""
    return tuple(
        Block("paragraph", Span(match.start(), match.start() + len(match[0].rstrip())))
        for match in _PARAGRAPH.finditer(text)
    )


def parse_markdown(text: str, *, window: int = _WINDOW) -> tuple[Block, ...]:
    """Return the blocks of a CommonMark text with tables, in order; every character outside them is white space.

    Headings inside lists and quotations structure these, not the document, and are no blocks of their own.

    Args:
        text: The document.
        window: Lines that are parsed at once. The parser makes a kilobyte of each paragraph.
    """
    return tuple(_blocks(text, window))


def first_heading(text: str) -> str | None:
    """Return the words of a Markdown text's first heading, ``None`` where it has none."""
    return next((block.title for block in _blocks(text, _WINDOW) if block.title), None)


def ends_in_prose(text: str) -> bool:
    """Whether a word behind a text, on its last line, is shown as one: not as code, nor lost behind a table's row."""
    last = len(_NEWLINE.findall(text))
    return not any(
        token.map is not None and token.map[0] <= last < token.map[1] and _KINDS.get(token.type) in {"code", "table"}
        for token in _parser().parse(f"{text} x")
    )


def _blocks(text: str, window: int) -> Iterator[Block]:
    lines = _Lines(text)
    covered = start = 0
    size = window
    while start < lines.count:
        stop = min(lines.count, start + size)
        tokens = _parser().parse(lines.text(start, stop))
        outer = [at for at, token in enumerate(tokens) if not token.level and token.map is not None]
        following = stop
        if stop < lines.count:  # the last block may go on behind the window; what is before it is closed
            if len(outer) < 2:
                size *= 2
                continue
            last = outer.pop()
            following = start + _lines_of(tokens[last])[0]
        for position in outer:
            token = tokens[position]
            first, end = (start + line for line in _lines_of(token))
            yield from lines.paragraphs(covered, first)
            covered = end
            span = lines.span(first, end)
            if span is not None:
                kind = _KINDS.get(token.type, "paragraph")
                yield _block(kind, span, tokens, position, partial(lines.span, offset=start))
        start, size = following, window
    yield from lines.paragraphs(covered, lines.count)


def _lines_of(token: Token) -> tuple[int, int]:
    first, end = token.map or (0, 0)
    return first, end


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - loading it takes longer than parsing most files

    parser = MarkdownIt("commonmark").enable("table")
    # What is inside a paragraph does not matter here, and parsing it would be most of the work.
    parser.core.ruler.disable("inline")
    return parser


@cache
def _inline_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - see above

    return MarkdownIt("commonmark")


def _block(kind: BlockKind, span: Span, tokens: Sequence[Token], position: int, span_of: _SpanOf) -> Block:
    if kind == "heading":
        level = int(tokens[position].tag.removeprefix("h"))
        return Block(kind, span, level=level, title=_plain(tokens[position + 1].content))
    if kind in _PART_TOKENS:
        return Block(kind, span, parts=tuple(_parts(kind, tokens, position, span_of)))
    return Block(kind, span)


def _parts(kind: BlockKind, tokens: Sequence[Token], position: int, span_of: _SpanOf) -> Iterator[Span]:
    """Yield the body rows of the table, or the top-level items of the list, that opens at a position."""
    for at in range(position + 1, len(tokens)):  # a slice would copy the rest of the document for each list
        token = tokens[at]
        if not token.level:
            return
        if token.type == _PART_TOKENS[kind] and token.level == _PART_LEVELS[kind] and token.map is not None:
            first, end = _lines_of(token)
            is_header = kind == "table" and first == _lines_of(tokens[position])[0]
            span = span_of(first, end)
            if span is not None and not is_header:
                yield span


def _plain(markdown: str) -> str:
    """Return the words of one line of Markdown: no emphasis, no link targets, no anchors."""
    inline = _inline_parser().parseInline(_ANCHOR.sub("", markdown[:_LONGEST_HEADING]))[0].children or []
    words = "".join(
        " " if token.type == "softbreak" else token.content for token in inline if token.type != "html_inline"
    )
    return " ".join(words.replace("\u200b", "").split())


class _Lines:
    """Turns line numbers into offsets."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = array("Q", [0])
        self._starts.extend(match.end() for match in _NEWLINE.finditer(text))
        self._starts.append(len(text))
        self.count = len(self._starts) - 1

    def text(self, first: int, last: int) -> str:
        """Return lines ``first`` to ``last``, excluded."""
        return self._text[self._starts[first] : self._starts[last]]

    def span(self, first: int, last: int, offset: int = 0) -> Span | None:
        """Return lines ``first`` to ``last``, excluded, without blank lines around them; ``None`` if all are blank.

        Both are counted from the line ``offset``.
        """
        first, last = first + offset, last + offset
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


def plain_text(markdown: str) -> str:
    """Return Markdown as plain sentences: without headings' marks, bullets, emphasis, link targets, pictures and pipes.

    Blocks of code stay as they are, and so does what a citation check would not find in the text without its markup.

    Args:
        markdown: A part of a document.
    """
    return _plain_at(markdown, 0)


def _plain_at(text: str, depth: int) -> str:
    blocks = (_plain_block(text, block, depth) for block in parse_markdown(text))
    return "\n\n".join(block for block in blocks if block)


def _plain_block(text: str, block: Block, depth: int) -> str:
    said = text[block.span.start : block.span.end]
    if block.kind == "code":
        return "" if said.lstrip().startswith("<!--") and said.endswith("-->") else _closed(said)
    if block.kind == "heading":
        return block.title
    if block.kind == "table":
        rows = [text[part.start : part.end] for part in block.parts]
        return "\n".join(_rows(said.partition("\n")[0], rows))
    if block.kind == "list" and block.parts and depth < _DEEPEST:
        return "\n".join(filter(None, (_item(text[part.start : part.end], depth) for part in block.parts)))
    return _paragraph(said, depth)


def _closed(code: str) -> str:
    """Return a block of code whose fence ends, so that nothing below it is taken for code."""
    first, *rest = code.rstrip().split("\n")
    fence = _FENCE.match(first)
    if fence is None or (rest and re.fullmatch(rf"[^\S\n]{{0,3}}{fence[1][0]}{{{len(fence[1])},}}", rest[-1])):
        return code
    return "\n".join((first, *rest, fence[1]))


def _rows(head: str, rows: Sequence[str]) -> Iterator[str]:
    """Yield the rows of a table, each cell with the name of its column."""
    names = _cells(head)
    for row in rows:
        cells = _cells(row)
        named = [*names, *[""] * (len(cells) - len(names))]
        told = (f"{name}: {cell}" if name else cell for name, cell in zip(named, cells, strict=False) if cell)
        yield "; ".join(told)


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|").removesuffix("|")
    return [_inline(cell.strip()) for cell in _CELL.split(inner)]


def _item(item: str, depth: int) -> str:
    """Return an item of a list: with its number, or without its bullet."""
    mark = _BULLET.match(item)
    if mark is None:
        return _paragraph(item, depth)
    width = mark.end()
    first, *rest = item[width:].split("\n")
    content = "\n".join((first, *(line[min(width, len(line) - len(line.lstrip())) :] for line in rest)))
    told = _plain_at(content, depth + 1)
    if mark[1] and told:
        # Behind the number a fence would belong to the item; its end, on its own line, would begin another one.
        return f"{mark[1]}\n{told}" if _FENCE.match(told) else f"{mark[1]} {told}"
    return told


def _paragraph(said: str, depth: int) -> str:
    if said.lstrip().startswith(">") and depth < _DEEPEST:
        return _plain_at(_QUOTATION.sub("", said), depth + 1)
    rows = [line.strip() for line in said.strip().split("\n")]
    if all(len(row) > 2 and row[0] == row[-1] == "|" for row in rows):  # a table whose head is in another chunk
        return "\n".join("; ".join(filter(None, _cells(row))) for row in rows)
    told = _inline(_DEFINITION.sub("", _CALLOUT.sub("", said, count=1)).strip())
    return told if any(character.isalnum() for character in told) else ""


def _inline(said: str) -> str:
    """Return the words of a paragraph; as it is, if its words could not be found in it again or would be markup."""
    if not said:
        return ""
    tokens = _strikethrough_parser().parseInline(said)[0].children or []
    told = _words(tokens)
    whole = told if not any(token.type == "image" for token in tokens) else _words(tokens, with_pictures=True)
    if whole == said or (find_quote(whole, said) is not None and _is_prose(told)):
        return told
    return said


def _words(tokens: Sequence[Token], *, with_pictures: bool = False) -> str:
    parts: list[str] = []
    for token in tokens:
        if token.type in _BREAKS:
            parts.append(" ")
        elif token.type == "code_inline":
            is_plain = _IDENTIFIER.fullmatch(token.content) is not None
            parts.append(token.content if is_plain else f"{token.markup}{token.content}{token.markup}")
        elif token.type != "image" or with_pictures:
            parts.append(token.content)
    return " ".join("".join(parts).split())


def _is_prose(told: str) -> bool:
    """Whether a text would be shown as it is where it is taken for Markdown."""
    return all(block.kind == "paragraph" for block in parse_markdown(told))


@cache
def _strikethrough_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - loading it takes longer than parsing most files

    return MarkdownIt("commonmark").enable("strikethrough")
