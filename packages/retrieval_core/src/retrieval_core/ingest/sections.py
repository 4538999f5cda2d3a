"""The sections of a document, as a tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from retrieval_core.text.markdown import Block


@dataclass(slots=True)
class SectionNode:
    """A heading with everything below it, down to the next heading of its own or a higher level; the root has none.

    Attributes:
        path: Headings from the outermost to its own.
        blocks: Its heading and what stands before the first heading below it.
    """

    level: int
    path: tuple[str, ...]
    blocks: list[Block] = field(default_factory=list["Block"])
    children: list[SectionNode] = field(default_factory=list["SectionNode"])

    @property
    def span(self) -> Span:
        """From its heading to the end of the last section in it."""
        last = self.children[-1].span.end if self.children else self.blocks[-1].span.end
        return Span(self.blocks[0].span.start if self.blocks else self.children[0].span.start, last)

    def walk(self) -> Iterator[SectionNode]:
        """Yield this node and all below it, in the order of the text."""
        yield self
        for child in self.children:
            yield from child.walk()


def section_tree(blocks: Iterable[Block]) -> SectionNode:
    """Return the sections of a document below a root that has no heading."""
    root = SectionNode(0, ())
    open_nodes = [root]
    for block in blocks:
        if block.kind == "heading":
            while open_nodes[-1].level >= block.level:
                open_nodes.pop()
            parent = open_nodes[-1]
            node = SectionNode(block.level, (*parent.path, block.title) if block.title else parent.path)
            parent.children.append(node)
            open_nodes.append(node)
        open_nodes[-1].blocks.append(block)
    return root
