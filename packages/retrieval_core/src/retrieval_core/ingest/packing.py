"""Which blocks share a chunk: those of one section, and small sections with their neighbours under the same heading."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from retrieval_core.ingest.boundaries import cut_block
from retrieval_core.text.markdown import Block
from retrieval_core.text.sentences import trim
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Path = tuple[str, ...]
    Allowance = Callable[[Path], int]


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


@dataclass(frozen=True, slots=True)
class ChunkDraft:
    """A chunk to be: where it lies, and the headings above all of it."""

    span: Span
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Packer:
    """Fills chunks with the blocks of a document.

    Attributes:
        text: The document.
        measure: Counts the tokens of a range of the text.
        allowance: The most tokens that a chunk below some headings may have.
        min_tokens: Sections below it are put together with neighbours.
    """

    text: str
    measure: Callable[[Span], int]
    allowance: Allowance
    min_tokens: int

    def pack(self, node: SectionNode, lead: int | None = None) -> list[ChunkDraft]:
        """Return the chunks of a section and those below it.

        A heading says nothing alone, so it always goes with what follows: with the text below it, or else with the
        first section below it.

        Args:
            node: The section.
            lead: Where the headings above it begin that have no text of their own.
        """
        blocks = node.blocks
        start = lead if lead is not None else blocks[0].span.start if blocks else None
        elements: list[list[ChunkDraft]] = []
        if any(block.kind != "heading" for block in blocks) or not node.children:
            elements.append(self._pack_blocks(blocks, node.path, start))
            start = None
        for child in node.children:
            elements.append(self.pack(child, start))
            start = None
        return [draft for element in self._join_small(elements) for draft in element]

    def _pack_blocks(self, blocks: Sequence[Block], path: Path, start: int | None) -> list[ChunkDraft]:
        limit = self.allowance(path)
        return [ChunkDraft(span, path) for span in self._fill(self._units(blocks, limit, start), limit)]

    def _units(self, blocks: Sequence[Block], limit: int, start: int | None) -> list[Span]:
        """Return the ranges that are not cut any further: whole blocks where they fit, otherwise pieces of them.

        A heading belongs to the first block below it, unless that one has to be cut.
        """
        units: list[Span] = []
        for position, block in enumerate(blocks):
            start = block.span.start if start is None else start
            whole = Span(start, block.span.end)
            if block.kind == "heading" and position + 1 < len(blocks):
                continue
            if self.measure(whole) <= limit:
                units.append(whole)
            else:
                headings = trim(self.text, start, block.span.start)
                if headings is not None:
                    units.extend(cut_block(self.text, Block("heading", headings), limit, self.measure))
                units.extend(cut_block(self.text, block, limit, self.measure))
            start = None
        return units

    def _fill(self, units: Sequence[Span], limit: int) -> list[Span]:
        """Join units to as few chunks as possible, of sizes as even as possible.

        Filling each to the brim would leave a crumb at the end of every section; so the smallest brim that needs no
        more chunks is used.
        """
        sizes = [self.measure(unit) for unit in units]
        if units and sum(sizes) <= limit:
            return self._verified(units, limit)
        fewest = len(_runs(sizes, limit))
        low, high = max(sizes, default=0), limit
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if len(_runs(sizes, middle)) <= fewest else (middle + 1, high)
        return [span for run in _runs(sizes, high) for span in self._verified(units[run.start : run.stop], limit)]

    def _verified(self, units: Sequence[Span], limit: int) -> list[Span]:
        """Return the units as one range, or as several where the whole counts more tokens than its parts together."""
        whole = Span(units[0].start, units[-1].end)
        if len(units) == 1 or self.measure(whole) <= limit:
            return [whole]
        half = len(units) // 2
        return [*self._verified(units[:half], limit), *self._verified(units[half:], limit)]

    def _join_small(self, elements: Sequence[list[ChunkDraft]]) -> list[list[ChunkDraft]]:
        """Join neighbouring sections of one chunk each, until they reach the minimum or do not fit.

        What stays too small at the end of such a row goes to the chunk before it.
        """
        joined: list[list[ChunkDraft]] = []
        for element in elements:
            merged = self._merged(joined[-1], element) if joined and self._is_small(joined[-1]) else None
            if merged is not None:
                joined[-1] = [merged]
            else:
                joined.append(element)
        for position in range(len(joined) - 1, 0, -1):
            if self._is_small(joined[position]):
                merged = self._merged(joined[position - 1], joined[position])
                if merged is not None:
                    joined[position - 1 : position + 1] = [[merged]]
        return joined

    def _is_small(self, element: Sequence[ChunkDraft]) -> bool:
        return len(element) == 1 and self.measure(element[0].span) < self.min_tokens

    def _merged(self, first: Sequence[ChunkDraft], second: Sequence[ChunkDraft]) -> ChunkDraft | None:
        if len(first) != 1 or len(second) != 1:
            return None
        path = _common_prefix(first[0].path, second[0].path)
        span = Span(first[0].span.start, second[0].span.end)
        return ChunkDraft(span, path) if self.measure(span) <= self.allowance(path) else None


def _runs(sizes: Sequence[int], limit: int) -> list[range]:
    """Return which consecutive sizes add up to at most the limit, each run as long as possible."""
    runs: list[range] = []
    start, total = 0, 0
    for position, size in enumerate(sizes):
        if position > start and total + size > limit:
            runs.append(range(start, position))
            start, total = position, 0
        total += size
    return [*runs, range(start, len(sizes))] if sizes else runs


def _common_prefix(first: Path, second: Path) -> Path:
    shared = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return tuple(heading for heading, _ in shared)
