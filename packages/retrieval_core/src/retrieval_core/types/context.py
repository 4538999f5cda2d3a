"""What a language model is shown of the passages that were found, and how to check it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.types.documents import FrozenDict, PageSpan, Span, content_hash, freeze
from retrieval_core.types.escapes import escape_name

if TYPE_CHECKING:
    from retrieval_core.types.documents import Chunk, Metadata
    from retrieval_core.types.results import Degradation, Hit, StageRecord

Role: TypeAlias = Literal["primary", "parent", "sibling", "cross_page"]
"""Why a passage is there: it was found; it is the section or page around one that was; it stands beside one on the same
page or under the same parent; or beside one, beyond that border."""

Outcome: TypeAlias = Literal["kept", "shortened", "dropped"]


@dataclass(frozen=True, slots=True)
class Quote:
    """A stretch of a document's text, word for word.

    Attributes:
        span: Where it stands in the document's text; ``None`` for text that was added without a document.
        content_hash: :func:`content_hash` of ``text``; computed when it is not given.
    """

    text: str
    span: Span | None = None
    content_hash: str = ""

    def __post_init__(self) -> None:
        if not self.content_hash:
            object.__setattr__(self, "content_hash", content_hash(self.text))


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a passage comes from, in a form that can be checked against the index.

    Attributes:
        number: The passage's number in its pack, from 1.
        chunk_ids: The chunks that it was made of, in the document's order; a parent's own id for a parent.
        quotes: Its text, in the document's order: one quote, or several where something between them is left out.
        source: Path or URL.
    """

    number: int
    document_id: str
    chunk_ids: tuple[str, ...]
    quotes: tuple[Quote, ...]
    source: str | None = None
    title: str | None = None
    page_span: PageSpan | None = None
    section_path: tuple[str, ...] = ()
    row_range: tuple[int, int] | None = None
    item_range: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class CitationCheck:
    """Whether a citation still says what the index says.

    Attributes:
        differences: What does not match, in words; empty where everything does.
    """

    citation: Citation
    differences: tuple[str, ...] = ()

    @property
    def matches(self) -> bool:
        """Whether every quote stands in the index, word for word and where the citation says."""
        return not self.differences


@dataclass(frozen=True, slots=True)
class ContextPassage:
    """One passage of a pack.

    Attributes:
        id: The id of the chunk or section it is; of a merged passage, that of its best primary.
        role: Its best part's.
        text: Word for word, without its heading line. Where a line of it looks like one, the pack's text has a
            backslash before it.
        citation: Where the text comes from.
        hits: The primaries in it, best first; empty for the other roles.
        primary_id: The id of the hit that brought it along; its own for a primary.
        tokens: What it takes by itself, heading line included, by the pack's counter.
        shortened: Whether sentences were left out: at its end to fit the budget, or because they do not bear on the
            question.
    """

    id: str
    role: Role
    text: str
    citation: Citation
    hits: tuple[Hit, ...]
    primary_id: str
    tokens: int
    shortened: bool = False

    @property
    def score(self) -> float | None:
        """The score of the best hit in it."""
        return self.hits[0].score if self.hits else None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What became of one chunk or parent that was considered.

    Attributes:
        id: Of the chunk or section; each stands in the ledger once.
        role: Its best role.
        reason: Why it was dropped or shortened, in words; empty where it was kept.
        passage: The number of the passage that it is in; ``None`` where it was dropped.
        tokens: What its own text takes; ``None`` where that was not counted.
    """

    id: str
    document_id: str
    role: Role
    outcome: Outcome
    reason: str = ""
    passage: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ContextPack:
    """What a language model is shown, within a token budget, with its sources and an account of what was left out.

    Attributes:
        query: As it was asked.
        passages: What is shown, in order.
        context_pack: The passages as one text, at most ``max_tokens`` long by the counter that was used.
        ledger: One entry for everything that was considered.
        token_count: Tokens of ``context_pack``.
        max_tokens: The budget.
        trace: ``pinecone_candidates``, ``rerank_results``, ``final_token_count`` and ``expansion_stats``.
        stages: One record for each stage, in the order they ended.
        degraded: Empty when everything worked as configured.
        note: Why the pack is empty, where it is and that is known.
    """

    query: str
    passages: tuple[ContextPassage, ...]
    context_pack: str
    ledger: tuple[LedgerEntry, ...]
    token_count: int
    max_tokens: int
    trace: Metadata = field(default_factory=FrozenDict)
    stages: tuple[StageRecord, ...] = ()
    degraded: tuple[Degradation, ...] = ()
    latency_ms: float = 0.0
    note: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "trace", freeze(self.trace))

    @property
    def citations(self) -> tuple[str, ...]:
        """One line for each passage on where it comes from, in order: see :func:`format_citation`."""
        return tuple(format_citation(passage.citation) for passage in self.passages)

    @property
    def selected_chunks(self) -> tuple[Metadata, ...]:
        """The passages as plain mappings, in order."""
        return tuple(_as_mapping(passage) for passage in self.passages)

    @property
    def sources(self) -> tuple[Citation, ...]:
        """The passages' citations, in order."""
        return tuple(passage.citation for passage in self.passages)


def format_citation(place: Chunk | Citation) -> str:
    """Return where a text comes from, as ``Doc: guide.pdf | Page: 3-4 | Section: Setup > Linux``.

    Parts that it does not have are left out; ranges of table rows and list items come last. It is one line with these
    parts, whatever the names in it are: see :func:`~retrieval_core.types.escapes.escape_name`.
    """
    parts = [f"Doc: {escape_name(place.document_id)}"]
    if place.page_span:
        parts.append(f"Page: {_range(place.page_span.first, place.page_span.last)}")
    if place.section_path:
        parts.append(f"Section: {' > '.join(map(escape_name, place.section_path))}")
    if place.row_range:
        parts.append(f"Rows: {_range(*place.row_range)}")
    if place.item_range:
        parts.append(f"Items: {_range(*place.item_range)}")
    return " | ".join(parts)


def on_one_line(text: str) -> str:
    """Return a text with single blanks for all its white space."""
    return " ".join(text.split())


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _as_mapping(passage: ContextPassage) -> Metadata:
    citation = passage.citation
    return FrozenDict(
        {
            "number": citation.number,
            "chunk_id": passage.id,
            "chunk_ids": citation.chunk_ids,
            "doc_id": citation.document_id,
            "role": passage.role,
            "primary_chunk_id": passage.primary_id,
            "score": passage.score,
            "text": passage.text,
            "tokens": passage.tokens,
            "shortened": passage.shortened,
            "source": citation.source,
            "title": citation.title,
            "page": None if citation.page_span is None else (citation.page_span.first, citation.page_span.last),
            "section_path": citation.section_path,
            "row_range": citation.row_range,
            "item_range": citation.item_range,
            "quotes": tuple(
                FrozenDict(
                    {
                        "text": quote.text,
                        "span": None if quote.span is None else (quote.span.start, quote.span.end),
                        "content_hash": quote.content_hash,
                    }
                )
                for quote in citation.quotes
            ),
            "citation": format_citation(citation),
        }
    )
