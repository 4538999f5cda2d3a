"""What stands around the hits: their parents and neighbours, read in one request and sorted by why they are there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.stages.format import quotes_of
from retrieval_core.ports import ChunkRange, Fetched, FetchRequest
from retrieval_core.types import Chunk, Hit, Quote, Role, Scores, Span
from retrieval_core.types.filters import lookup, matches, paths_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.config import ContextConfig
    from retrieval_core.types import JSON, Document
    from retrieval_core.types.filters import Filter

ROLES: tuple[Role, ...] = ("primary", "parent", "sibling", "cross_page")
"""From the best to the least; what is two things at a time counts as the better one."""


@dataclass(frozen=True, slots=True)
class Item:
    """A chunk, or a parent in the form of one, that is considered for a context.

    Attributes:
        hit: The primary that brought it along; its own hit for a primary.
        rank: That primary's rank, from 0.
        quotes: What is left of its text, in the document's order.
        shortened: Whether sentences were cut off at its end.
        withheld: Parts of its text that are not shown because they do not bear on the question.
    """

    chunk: Chunk
    role: Role
    hit: Hit
    rank: int
    quotes: tuple[Quote, ...]
    shortened: bool = False
    withheld: tuple[Quote, ...] = ()

    @property
    def id(self) -> str:
        """The chunk's id, or the parent's."""
        return self.chunk.id

    @property
    def distance(self) -> int:
        """How many positions it stands away from its primary."""
        return abs(self.chunk.chunk_index - self.hit.chunk.chunk_index)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What can be put around hits.

    Attributes:
        chunks: By id.
        parents: Sections, pages or larger chunks around chunks, in the form of a chunk, by id.
        texts: Whole documents by id, as far as they are known.
    """

    chunks: Mapping[str, Chunk]
    parents: Mapping[str, Chunk]
    texts: Mapping[str, str]


def surroundings_request(hits: Sequence[Hit], settings: ContextConfig, condition: Filter | None) -> FetchRequest | None:
    """Return the one request that reads everything around all hits; ``None`` where nothing is wanted."""
    reach = _reach(settings)
    placed = [hit.chunk for hit in hits if hit.chunk.has_position]
    ranges = _ranges(placed, reach) if reach else ()
    parents: tuple[str, ...] = ()
    if settings.include_parents:
        parents = tuple(dict.fromkeys(hit.chunk.parent_id for hit in hits if hit.chunk.parent_id is not None))
    documents: tuple[str, ...] = ()
    if parents or settings.window:
        documents = tuple(dict.fromkeys(hit.chunk.document_id for hit in hits))
    if not (ranges or parents):
        return None
    return FetchRequest(ranges=ranges, section_ids=parents, document_ids=documents, filter=condition)


def surroundings_of(fetched: Fetched, condition: Filter | None = None) -> Surroundings:
    """Return what a store gave, with sections in the form of chunks.

    A section is there only where the filter would let every passage of its document pass: its text has no fields of
    its own, and may hold passages that were not to be seen. So a filter on something that differs within a document,
    such as the page, leaves all sections out.
    """
    texts = {name: document.text for name, document in fetched.documents.items()}
    parents: dict[str, Chunk] = {}
    for name, section in fetched.sections.items():
        document = fetched.documents.get(section.document_id)
        if document is None or not _passes_whole(document, condition):
            continue
        text = document.text[section.span.start : section.span.end]
        parents[name] = Chunk(
            name,
            section.document_id,
            text,
            page_span=section.page_span,
            section_path=section.path,
            span=section.span,
            title=document.title,
            source=document.source,
        )
    return Surroundings(fetched.chunks, parents, texts)


def _passes_whole(document: Document, condition: Filter | None) -> bool:
    if condition is None:
        return True
    fields: dict[str, JSON] = {"document_id": document.id, "title": document.title, "source": document.source}
    if document.timestamp is not None:
        fields["timestamp"] = document.timestamp.isoformat()
    fields |= document.metadata
    # What the document does not have, its passages may have, each its own: that a field is absent proves nothing.
    known = all(lookup(fields, path) is not None for path in paths_of(condition))
    return known and matches(condition, fields)


def surroundings_in(chunks: Iterable[Chunk]) -> Surroundings:
    """Return a plain list of chunks as surroundings; a chunk whose id is another one's ``parent_id`` is its parent."""
    by_id = {chunk.id: chunk for chunk in chunks}
    parents = {chunk.parent_id for chunk in by_id.values()} & by_id.keys()
    parents = {name for name in parents if name is not None and not _is_its_own_ancestor(name, by_id)}
    return Surroundings(
        {name: chunk for name, chunk in by_id.items() if name not in parents},
        {name: chunk for name, chunk in by_id.items() if name in parents},
        {},
    )


def _is_its_own_ancestor(name: str, by_id: Mapping[str, Chunk]) -> bool:
    seen: set[str] = set()
    above = by_id[name].parent_id
    while above is not None and above in by_id and above not in seen:
        if above == name:
            return True
        seen.add(above)
        above = by_id[above].parent_id
    return False


def expand(hits: Sequence[Hit], around: Surroundings, settings: ContextConfig) -> tuple[Item, ...]:
    """Return the hits and what stands around them, each once, in the order in which a context shows them.

    Each primary, best first, is followed by its parent; then come all siblings, then all neighbours across the border
    of a page, both by the rank of their primary and by position. In a window, parents have borders too.
    """
    reach = _reach(settings)
    lines: dict[str, list[Chunk]] = {}
    for chunk in around.chunks.values() if reach else ():
        lines.setdefault(chunk.document_id, []).append(chunk)
    for line in lines.values():
        line.sort(key=_position)
    best: dict[str, _Claim] = {}
    for rank, hit in enumerate(hits):
        primary = hit.chunk
        _keep_best(best, _Claim(primary, "primary", hit, rank))
        parent = None if primary.parent_id is None else around.parents.get(primary.parent_id)
        if settings.include_parents and parent is not None:
            _keep_best(best, _Claim(parent, "parent", hit, rank))
        line = lines.get(primary.document_id, [])
        first = bisect_left(line, primary.chunk_index - reach, key=_position)
        for chunk in line[first : bisect_right(line, primary.chunk_index + reach, key=_position)]:
            if (role := _role(primary, chunk, settings)) is not None:
                _keep_best(best, _Claim(chunk, role, hit, rank))
    items = (_item(claim, around.texts.get(claim.chunk.document_id)) for claim in best.values())
    return tuple(sorted(items, key=place_of))


def place_of(item: Item) -> tuple[int, int, int, str, int, str]:
    """Return what items are ordered by."""
    level = max(0, ROLES.index(item.role) - 1)
    chunk = item.chunk
    return level, item.rank, item.role == "parent", chunk.document_id, chunk.chunk_index, chunk.id


def as_hits(chunks: Iterable[Chunk], scores: Iterable[float]) -> tuple[Hit, ...]:
    """Return chunks from elsewhere, best first, as hits.

    Raises:
        InvalidParameterError: There are not as many scores as chunks.
    """
    found, given = tuple(chunks), tuple(scores)
    if len(found) != len(given):
        msg = f"each chunk needs a score, got {len(found)} chunks and {len(given)} scores"
        raise InvalidParameterError(msg)
    return tuple(Hit(chunk, score, Scores(final=score)) for chunk, score in zip(found, given, strict=True))


def with_quotes(item: Item, quotes: tuple[Quote, ...], *, shortened: bool = False) -> Item:
    """Return an item with less text."""
    return replace(item, quotes=quotes, shortened=item.shortened or shortened)


class _Claim(NamedTuple):
    """What a chunk is to one of the hits."""

    chunk: Chunk
    role: Role
    hit: Hit
    rank: int

    @property
    def order(self) -> tuple[int, int, int]:
        return ROLES.index(self.role), self.rank, abs(self.chunk.chunk_index - self.hit.chunk.chunk_index)


def _keep_best(best: dict[str, _Claim], claim: _Claim) -> None:
    known = best.get(claim.chunk.id)
    if known is None or claim.order < known.order:
        best[claim.chunk.id] = claim


def _item(claim: _Claim, text: str | None) -> Item:
    chunk, span = claim.chunk, claim.chunk.span
    if claim.role == "parent":
        chunk = replace(chunk, lines=_lines_around(chunk, claim.hit.chunk))
    # A span that cannot be the text's, or that is seen not to be, is no place that the text could be checked against.
    if span is not None and (
        span.start < 0
        or span.end - span.start != len(chunk.text)
        or (text is not None and text[span.start : span.end] != chunk.text)
    ):
        span = None
    if claim.role != "primary" or not claim.hit.excerpts:
        return Item(*claim._replace(chunk=chunk), quotes_of(chunk, (), span))
    excerpts = claim.hit.excerpts
    edges = [0, *(edge for part in excerpts for edge in (part.start, part.end)), len(chunk.text)]
    between = tuple(Span(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end)
    withheld = quotes_of(chunk, between, span) if between else ()
    return Item(*claim, quotes_of(chunk, excerpts, span), withheld=withheld)


def _lines_around(parent: Chunk, chunk: Chunk) -> tuple[int, int] | None:
    """Return the lines of a parent, counted from those of a chunk in it."""
    if parent.span is None or chunk.span is None or chunk.lines is None or chunk.span.start < parent.span.start:
        return parent.lines
    first = chunk.lines[0] - parent.text.count("\n", 0, chunk.span.start - parent.span.start)
    return first, first + parent.text.count("\n")


def _reach(settings: ContextConfig) -> int:
    return settings.window or max(settings.neighbor_same_page, settings.neighbor_cross_page)


def _position(chunk: Chunk) -> int:
    return chunk.chunk_index


def _role(primary: Chunk, other: Chunk, settings: ContextConfig) -> Role | None:
    """Return what a chunk of the same document is to a primary, ``None`` where it is no neighbour or too far away."""
    distance = abs(other.chunk_index - primary.chunk_index)
    # Parts of a larger chunk that was found stand in it, not beside it.
    if not distance or other.parent_id == primary.id or primary.parent_id == other.id:
        return None
    gap = _pages_between(primary, other)
    share_parent = primary.parent_id == other.parent_id and (primary.parent_id is not None or gap is None)
    together = share_parent or gap == 0
    if settings.window:
        return None if distance > settings.window else "sibling" if together else "cross_page"
    if together and distance <= settings.neighbor_same_page:
        return "sibling"
    return "cross_page" if gap == 1 and distance <= settings.neighbor_cross_page else None


def _pages_between(primary: Chunk, other: Chunk) -> int | None:
    """Return 0 where two chunks share a page, 1 where their pages touch; ``None`` where pages are not known."""
    here, there = primary.page_span, other.page_span
    if here is None or there is None:
        return None
    return max(0, there.first - here.last, here.first - there.last)


def _ranges(chunks: Sequence[Chunk], reach: int) -> tuple[ChunkRange, ...]:
    """Return the positions within reach of some chunks, those of one document joined where they touch."""
    wanted = sorted({(chunk.document_id, chunk.chunk_index) for chunk in chunks})
    ranges: list[ChunkRange] = []
    for document_id, position in wanted:
        first, last = max(0, position - reach), position + reach
        if ranges and ranges[-1].document_id == document_id and first <= ranges[-1].last + 1:
            ranges[-1] = ChunkRange(document_id, ranges[-1].first, last)
        else:
            ranges.append(ChunkRange(document_id, first, last))
    return tuple(ranges)
