"""Documents into chunks, the unit of search, and into sections, their parents.

Every character of a document that is no white space is in exactly one chunk, headings included, and a chunk is always a
range of the document's text. Nothing overlaps: what surrounds a chunk is one fetch of its parent or neighbours away.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Literal

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ingest.packing import Packer, section_tree
from retrieval_core.ingest.parsed import page_span
from retrieval_core.text.markdown import parse_markdown, plain_blocks
from retrieval_core.types import Chunk, Section, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ingest.packing import SectionNode
    from retrieval_core.ingest.parsed import ParsedDocument, ParsedPage
    from retrieval_core.ports import TokenCounter
    from retrieval_core.text.markdown import Block
    from retrieval_core.types import Document

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
    count_tokens: TokenCounter,
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
    blocks = parse_markdown(text) if parsed.markup == "markdown" else plain_blocks(text)
    tree = section_tree(blocks)

    @cache
    def measure(span: Span) -> int:
        return count_tokens(text[span.start : span.end])

    @cache
    def headings(path: tuple[str, ...]) -> tuple[str | None, tuple[str, ...], int]:
        return fit_headings(document.title, path, sizes.window, count_tokens)

    def allowance(path: tuple[str, ...]) -> int:
        return sizes.max_tokens if sizes.window is None else min(sizes.max_tokens, sizes.window - headings(path)[2])

    drafts = Packer(text, measure, allowance, sizes.min_tokens).pack(tree)
    spans = [draft.span for draft in drafts]
    sections = _sections(document.id, tree, parsed.pages, spans)
    parents = _parents(spans, sections)
    contents = [block for block in blocks if block.kind != "heading"]
    chunks: list[Chunk] = []
    for index, (draft, parent) in enumerate(zip(drafts, parents, strict=True)):
        title, path, _ = headings(draft.path)
        rows, items = _part_ranges(draft.span, contents)
        if parsed.row is not None:  # a row with an id has no number: that changes when rows above it come and go
            rows = (parsed.row, parsed.row) if parsed.key is None else None
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
        nodes = enumerate(islice(tree.walk(), 1, None), start=1)
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
    title: str | None, path: tuple[str, ...], window: int | None, count_tokens: TokenCounter
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


def _heading_cost(title: str | None, path: tuple[str, ...], count_tokens: TokenCounter) -> int:
    heading = " > ".join(dict.fromkeys(part for part in (title, *path) if part))
    return count_tokens(heading + "\n") + _HEADING_MARGIN if heading else 0


def _shorten(text: str, width: int) -> str:
    """Cut a text before a word, so that it has at most so many characters, the ellipsis included."""
    if len(text) <= width:
        return text
    words, _, _ = text[:width].rpartition(" ")
    return (words or text[: width - 1]).rstrip()[: width - 1] + "…"
