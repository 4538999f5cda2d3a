"""Documents into chunks, the unit of search, and into sections, their parents.

Every character of a document that is no white space is in exactly one chunk, headings included, and a chunk is always a
range of the document's text. Nothing overlaps: what surrounds a chunk is one fetch of its parent or neighbours away.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Literal

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ingest.code_tree import code_tree
from retrieval_core.ingest.readers.base import page_span
from retrieval_core.ingest.sections import SectionNode, section_tree
from retrieval_core.text.markdown import Block, parse_markdown, plain_blocks, titled_blocks
from retrieval_core.text.sentences import LIST_ITEM, sentence_ends, trim
from retrieval_core.types import Chunk, Section, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from retrieval_core.ingest.readers.base import ParsedDocument, ParsedPage
    from retrieval_core.text.markdown import BlockKind
    from retrieval_core.types import Document

    Level = Callable[[str], list[int]]
    """Returns the offsets at which a text may be cut."""
    Path = tuple[str, ...]
    Allowance = Callable[[Path], int]

_LINE_END = re.compile(r"\n+")
_ITEM_START = re.compile(rf"\n+(?=[ \t]*{LIST_ITEM}[ \t])")
_WORD_END = re.compile(r"\s+")
_JOINERS = "\u200d\ufe0e\ufe0f"
# Only this many characters for each token allowed are looked at when words are counted out; no tokenizer takes more.
_WINDOW = 64
_SLACK = 1.1


def _line_ends(text: str) -> list[int]:
    return [match.end() for match in _LINE_END.finditer(text)]


def _item_starts(text: str) -> list[int]:
    return [match.end() for match in _ITEM_START.finditer(text)]


_LEVELS: dict[BlockKind, tuple[Level, ...]] = {
    "heading": (),
    "paragraph": (sentence_ends, _line_ends),
    "list": (_item_starts, sentence_ends, _line_ends),
    "table": (_line_ends,),
    "code": (_line_ends,),
}


_BLOCKS: dict[str, Callable[[str], tuple[Block, ...]]] = {
    "markdown": parse_markdown,
    "plain": plain_blocks,
    "titled": titled_blocks,
}


def cut_block(text: str, block: Block, limit: int, measure: Callable[[Span], int]) -> list[Span]:
    """Cut a block into the largest natural pieces of at most ``limit`` tokens each.

    Prose is cut after sentences, then after lines; tables and code after lines; lists before items first. What is
    longer still is cut between words, and only a single longer word inside.

    Returns:
        Pieces in order. All characters outside them are white space.
    """
    return list(_cut(text, block.span, _LEVELS[block.kind], limit, measure))


def _cut(text: str, span: Span, levels: Sequence[Level], limit: int, measure: Callable[[Span], int]) -> Iterator[Span]:
    if measure(span) <= limit:
        yield span
    elif levels:
        start = span.start
        ends = [start + end for end in levels[0](text[start : span.end])]
        for end in (*ends, span.end):
            piece = trim(text, start, end, keep_indentation=levels[0] is not sentence_ends)
            if piece is not None:
                yield from _cut(text, piece, levels[1:], limit, measure)
            start = end
    else:
        yield from _cut_words(text, span, limit, measure)


def _cut_words(text: str, span: Span, limit: int, measure: Callable[[Span], int]) -> Iterator[Span]:
    """Take as many words as fit, again and again; of a word that does not fit, as many characters.

    The pieces are made about equally long, so that no crumb is left at the end.
    """
    total = measure(span)
    limit = min(limit, int(_SLACK * total / -(-total // limit)) + 1)
    start = span.start
    while (rest := trim(text, start, span.end)) is not None:
        window = min(rest.end, rest.start + _WINDOW * limit)
        if window == rest.end and measure(rest) <= limit:
            yield rest
            return
        words = (match.start() for match in _WORD_END.finditer(text, rest.start, window))
        first = next(words, None)
        fitting = None if first is None else _longest(rest.start, chain((first,), words), limit, measure)
        start = fitting or _cut_word(text, rest.start, first or window, limit, measure)
        yield Span(rest.start, start)


def _cut_word(text: str, start: int, end: int, limit: int, measure: Callable[[Span], int]) -> int:
    characters = range(start + 1, end + 1)
    whole = (at for at in characters if at == len(text) or not _continues(text[at]))
    # A pile of accents beyond any budget is cut as well; and a single code point stays, whatever it costs.
    return _longest(start, whole, limit, measure) or _longest(start, characters, limit, measure) or start + 1


def _longest(start: int, ends: Iterable[int], limit: int, measure: Callable[[Span], int]) -> int | None:
    """Return the last of the ends that is within the limit; counts grow with the text, so halving finds it.

    The search first doubles its reach, and no more ends than that are taken: the text may be a thousand times longer
    than what fits.
    """
    remaining, reached = iter(ends), list[int]()
    low, high = -1, 1
    while len(reached) < high:
        reached += islice(remaining, high - len(reached))
        if len(reached) == high and measure(Span(start, reached[-1])) <= limit:
            low, high = high - 1, high * 2
        else:
            high = min(high - 1, len(reached))
    while high - low > 1:
        middle = (low + high) // 2
        if measure(Span(start, reached[middle])) <= limit:
            low = middle
        else:
            high = middle
    return reached[low] if low >= 0 else None


def _continues(character: str) -> bool:
    """Whether a character is drawn as part of the one before it."""
    return bool(unicodedata.combining(character)) or character in _JOINERS


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


_LEAST_TOKENS = 16
_HEADING_WIDTHS = (160, 80, 40, 20, 10)
# Joining headings, line end and text may cost a token or two more than each alone.
_HEADING_MARGIN = 2


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """How long chunks are, in tokens of the embedder.

    Attributes:
        max_tokens: The most that the text of a chunk counts, at least 16.
        min_tokens: Sections shorter than this are joined with small neighbours under the same heading, as long as they
            fit; 0 gives every section its own chunk.
        window: The most that :attr:`Chunk.indexed_text`, title and headings included, counts, at least twice 16:
            what the embedder reads. Headings take at most half of it. ``None`` where nothing is cut off.
    """

    max_tokens: int
    min_tokens: int
    window: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < _LEAST_TOKENS:
            msg = f"max_tokens must be at least {_LEAST_TOKENS}, got {self.max_tokens}"
            raise InvalidParameterError(msg)
        if not 0 <= self.min_tokens <= self.max_tokens:
            msg = f"min_tokens must be between 0 and max_tokens ({self.max_tokens}), got {self.min_tokens}"
            raise InvalidParameterError(msg)
        if self.window is not None and self.window < 2 * _LEAST_TOKENS:
            msg = f"window must be at least {2 * _LEAST_TOKENS}, got {self.window}"
            raise InvalidParameterError(msg)


def split_document(
    parsed: ParsedDocument,
    document: Document,
    sizes: ChunkSizes,
    count_tokens: Callable[[str], int],
    *,
    embedding_model: str | None = None,
) -> tuple[tuple[Chunk, ...], tuple[Section, ...]]:
    """Split a document along its structure.

    Sections under headings come first. A section that fits is one chunk, one that does not is cut between paragraphs,
    tables, lists and code blocks, and only where one of these does not fit, between its rows, items, lines, sentences
    or, last of all, words. The chunks of one section are made about equally long.

    Args:
        parsed: What the reader returned.
        document: Its document; both have the same text.
        sizes: How long chunks are.
        count_tokens: Counts as the embedder does.
        embedding_model: Id of the embedder.

    Returns:
        The chunks in the order of the text, and the sections that they lie in: one for each heading, or one for each
        page where there are pages and no headings. A document without either that takes several chunks is one section
        as a whole. A chunk's parent is the innermost section that holds all of it.
    """
    text = document.text

    @cache
    def measure(span: Span) -> int:
        return count_tokens(text[span.start : span.end])

    @cache
    def headings(path: tuple[str, ...]) -> tuple[str | None, tuple[str, ...], int]:
        return fit_headings(document.title, path, sizes.window, count_tokens)

    def allowance(path: tuple[str, ...]) -> int:
        return sizes.max_tokens if sizes.window is None else min(sizes.max_tokens, sizes.window - headings(path)[2])

    if parsed.markup == "code":
        longest = allowance(()) * 7 // 8  # the names of definitions above it need some room
        tree = code_tree(text, parsed.language, lambda span: measure(span) <= longest)
    else:
        tree = section_tree(_BLOCKS[parsed.markup](text))
    drafts = Packer(text, measure, allowance, sizes.min_tokens).pack(tree)
    spans = [draft.span for draft in drafts]
    sections = _sections(document.id, tree, parsed.pages, spans)
    parents = _parents(spans, sections)
    contents = [block for node in tree.walk() for block in node.blocks if block.kind != "heading"]
    chunks: list[Chunk] = []
    line, counted = parsed.first_line, 0
    for index, (draft, parent) in enumerate(zip(drafts, parents, strict=True)):
        title, path, _ = headings(draft.path)
        rows, items = _part_ranges(draft.span, contents)
        if parsed.row is not None:  # a row with an id has no number: that changes when rows above it come and go
            rows = (parsed.row, parsed.row) if parsed.key is None else None
        line, counted = line + text.count("\n", counted, draft.span.start), draft.span.start
        lines = (line, line + text.count("\n", counted, draft.span.end))
        chunks.append(
            Chunk(
                id=f"{document.id}#{index}",
                document_id=document.id,
                text=text[draft.span.start : draft.span.end],
                chunk_index=index,
                total_chunks=len(drafts),
                page_span=page_span(draft.span, parsed.pages),
                section_path=path,
                span=draft.span,
                parent_id=parent,
                row_range=rows,
                item_range=items,
                title=title,
                source=document.source,
                timestamp=document.timestamp,
                embedding_model=embedding_model,
                metadata=document.metadata,
                lines=lines if parsed.row is None else None,
            )
        )
    return tuple(chunks), sections


def _sections(
    document_id: str, tree: SectionNode, pages: Sequence[ParsedPage], chunks: Sequence[Span]
) -> tuple[Section, ...]:
    """Return a document's sections: by its headings, otherwise by its pages.

    The whole document is a section too where several chunks need it: if one of them lies in no other section.
    """

    def section(number: int, kind: Literal["section", "page"], path: tuple[str, ...], span: Span) -> Section:
        return Section(f"{document_id}#{kind}-{number}", document_id, kind, path, span, page_span(span, pages))

    if tree.children:
        nodes = enumerate((node for node in tree.walk() if node.level), start=1)
        sections = [section(number, "section", node.path, node.span) for number, node in nodes]
    else:
        sections = [section(page.number, "page", (), page.span) for page in pages if page.span.start < page.span.end]
    if len(chunks) > 1 and None in _parents(chunks, sections):
        sections.insert(0, section(0, "section", (), Span(chunks[0].start, chunks[-1].end)))
    return tuple(sections)


def _parents(chunks: Sequence[Span], sections: Sequence[Section]) -> list[str | None]:
    """Return for each chunk the id of the innermost section that holds all of it.

    Args:
        chunks: In the order of the text, without overlaps.
        sections: In the order of the text, outer before inner ones, each wholly inside or outside of every other.
    """
    parents: list[str | None] = []
    begun: list[Section] = []
    upcoming = deque(sections)
    for chunk in chunks:
        while upcoming and upcoming[0].span.start <= chunk.start:
            begun.append(upcoming.popleft())
        while begun and begun[-1].span.end < chunk.end:  # so it holds no later chunk either
            begun.pop()
        parents.append(begun[-1].id if begun else None)
    return parents


def _part_ranges(span: Span, blocks: Sequence[Block]) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Return the rows and the items, counted from 1, that a chunk is made of.

    Headings apart, the chunk must lie in a single table or list.
    """
    first = bisect_right(blocks, span.start, key=lambda block: block.span.end)
    last = bisect_left(blocks, span.end, key=lambda block: block.span.start) - 1
    if first != last or blocks[first].kind not in {"table", "list"}:
        return None, None
    parts = blocks[first].parts
    low = bisect_right(parts, span.start, key=lambda part: part.end)
    high = bisect_left(parts, span.end, key=lambda part: part.start)
    numbers = (low + 1, high) if low < high else None
    return (numbers, None) if blocks[first].kind == "table" else (None, numbers)


def fit_headings(
    title: str | None, path: tuple[str, ...], window: int | None, count_tokens: Callable[[str], int]
) -> tuple[str | None, tuple[str, ...], int]:
    """Return title and headings such that they take at most half of the window, and how many tokens they take.

    Where they are longer, each is cut to 160 characters, then to 80, and so on; where 10 are too many still, the
    outermost go.
    """
    budget = None if window is None else window // 2
    cost = _heading_cost(title, path, count_tokens)
    if budget is None or cost <= budget:
        return title, path, cost
    for width in _HEADING_WIDTHS:
        title, path = title and _shorten(title, width), tuple(_shorten(part, width) for part in path)
        cost = _heading_cost(title, path, count_tokens)
        if cost <= budget:
            return title, path, cost
    while path and cost > budget:
        title, path = None, path[1:]
        cost = _heading_cost(title, path, count_tokens)
    return (title, path, cost) if cost <= budget else (None, (), 0)


def _heading_cost(title: str | None, path: tuple[str, ...], count_tokens: Callable[[str], int]) -> int:
    heading = " > ".join(dict.fromkeys(part for part in (title, *path) if part))
    return count_tokens(heading + "\n") + _HEADING_MARGIN if heading else 0


def _shorten(text: str, width: int) -> str:
    """Cut a text before a word, so that it has at most so many characters, the ellipsis included."""
    if len(text) <= width:
        return text
    words, _, _ = text[:width].rpartition(" ")
    return (words or text[: width - 1]).rstrip()[: width - 1] + "…"
