"""A text as a sequence of blocks: what a writer separates with blank lines or marks as one thing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from retrieval_core.types import Span

BlockKind: TypeAlias = Literal["heading", "paragraph", "list", "table", "code"]

_PARAGRAPH = re.compile(r"(?:^[^\S\n]*\S.*(?:\n|\Z))+", re.MULTILINE)


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


def plain_blocks(text: str) -> tuple[Block, ...]:
    """Return the paragraphs of a plain text in order; every character outside them is white space."""
    return tuple(
        Block("paragraph", Span(match.start(), match.start() + len(match[0].rstrip())))
        for match in _PARAGRAPH.finditer(text)
    )
