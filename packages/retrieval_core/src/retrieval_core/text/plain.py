"""Markdown as plain sentences, in words that a citation check still finds in the document."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from retrieval_core.text.markdown import parse_markdown
from retrieval_core.text.quotes import find_quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    from retrieval_core.text.markdown import Block

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


def plain_text(markdown: str) -> str:
    """Return Markdown as plain sentences: without headings' marks, bullets, emphasis, link targets, pictures and pipes.

    Blocks of code stay as they are, and so does what a citation check would not find in the text without its markup.

    Args:
        markdown: A part of a document.
    """
    return _plain(markdown, 0)


def _plain(text: str, depth: int) -> str:
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
    told = _plain(content, depth + 1)
    if mark[1] and told:
        # Behind the number a fence would belong to the item; its end, on its own line, would begin another one.
        return f"{mark[1]}\n{told}" if _FENCE.match(told) else f"{mark[1]} {told}"
    return told


def _paragraph(said: str, depth: int) -> str:
    if said.lstrip().startswith(">") and depth < _DEEPEST:
        return _plain(_QUOTATION.sub("", said), depth + 1)
    rows = [line.strip() for line in said.strip().split("\n")]
    if all(len(row) > 2 and row[0] == row[-1] == "|" for row in rows):  # a table whose head is in another chunk
        return "\n".join("; ".join(filter(None, _cells(row))) for row in rows)
    told = _inline(_DEFINITION.sub("", _CALLOUT.sub("", said, count=1)).strip())
    return told if any(character.isalnum() for character in told) else ""


def _inline(said: str) -> str:
    """Return the words of a paragraph; as it is, if its words could not be found in it again or would be markup."""
    if not said:
        return ""
    tokens = _parser().parseInline(said)[0].children or []
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
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - loading it takes longer than parsing most files

    return MarkdownIt("commonmark").enable("strikethrough")
