"""Contexts for language models: passages with citations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.types.documents import FrozenDict, PageSpan, Span, content_hash, format_citation, freeze, lines_of
from retrieval_core.types.escapes import Display

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.types.documents import Metadata
    from retrieval_core.types.results import Degradation, Hit, Relevance, StageRecord

Role: TypeAlias = Literal["primary", "parent", "sibling", "cross_page"]
"""Why a passage is in the context: ``primary`` is a hit, and ``parent`` its section or page. ``sibling`` is a neighbor
on the same page or under the same parent, ``cross_page`` one on another page."""

Outcome: TypeAlias = Literal["kept", "shortened", "dropped"]

QuoteVerdict: TypeAlias = Literal["exact", "equivalent", "not_found"]
"""How a text contains a quote: ``exact``, character by character; ``equivalent``, with the same words in other
typography or markup, or with marked omissions; ``not_found``."""


@dataclass(frozen=True, slots=True)
class Quote:
    """Words of a document, unchanged.

    Attributes:
        text: The words.
        span: Range of the document's text; ``None`` for a chunk that was added without a document.
        content_hash: Default: :func:`content_hash` of ``text``.
        lines: First and last line, from 1; ``None`` if unknown.
    """

    text: str
    span: Span | None = None
    content_hash: str = ""
    lines: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if not self.content_hash:
            object.__setattr__(self, "content_hash", content_hash(self.text))

    def part(self, start: int, end: int) -> Quote:
        """Return a part of the words, with its place in the document.

        Args:
            start: Start in the text of the quote, in code points.
            end: End in the text of the quote, in code points.
        """
        span = None if self.span is None else Span(self.span.start + start, self.span.start + end)
        return Quote(self.text[start:end], span, lines=lines_of(self.text, start, end, self.lines))


@dataclass(frozen=True, slots=True, repr=False)
class Citation(Display):
    """The source of a passage, which ``index.verify()`` can check.

    Attributes:
        number: Number of the passage in the context, from 1.
        document_id: ID of the document.
        chunk_ids: IDs of its chunks, in the document's order; for a parent, its ID.
        quotes: The text, in the document's order: one quote, or several if text between them is left out.
        source: Path or URL.
        title: Title of the document.
        page_span: First and last page, if the document has pages.
        section_path: Headings above the passage, the outermost first.
        row_range: First and last table row, from 1.
        item_range: First and last list item, from 1.
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

    @property
    def lines(self) -> tuple[int, int] | None:
        """First and last line of the quotes, from 1; ``None`` if unknown."""
        known = [quote.lines for quote in self.quotes if quote.lines is not None]
        return (min(first for first, _ in known), max(last for _, last in known)) if known else None

    def _facts(self) -> Mapping[str, object]:
        quotes = " […] ".join(quote.text for quote in self.quotes)
        return {"number": self.number, "source": format_citation(self), "quotes": quotes}


@dataclass(frozen=True, slots=True)
class CitationCheck:
    """The result of comparing a citation with the index.

    Attributes:
        citation: The citation.
        differences: The differences in words; empty if everything matches.
        verdict: The worst verdict of its quotes. ``exact``: everything matches. ``equivalent``: the index contains the
            words in other typography, markup or another place. ``not_found``: it doesn't.
        found: The words of each quote in the index, if the verdict is ``equivalent``.
    """

    citation: Citation
    differences: tuple[str, ...] = ()
    verdict: QuoteVerdict = field(default=None)  # pyright: ignore[reportAssignmentType] - see __post_init__
    found: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.verdict is None:  # pyright: ignore[reportUnnecessaryComparison]
            object.__setattr__(self, "verdict", "not_found" if self.differences else "exact")

    @property
    def matches(self) -> bool:
        """Whether the index contains every quote, word for word and in the cited place."""
        return not self.differences


@dataclass(frozen=True, slots=True, repr=False)
class ContextPassage(Display):
    """One passage of a context.

    Attributes:
        id: ID of the chunk or section; for a merged passage, that of its best hit.
        role: Why it is in the context: ``primary``, ``parent``, ``sibling`` or ``cross_page``.
        text: The text, without its heading line. In the text of the context, lines that look like a heading line are
            escaped with a backslash.
        citation: The source.
        hits: The hits in it, best first; empty for other roles.
        primary_id: ID of the hit that it belongs to.
        tokens: Number of tokens with its heading line.
        shortened: Whether sentences are left out, to fit the budget or because they are not relevant.
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
        """The score of its best hit; ``None`` for other roles."""
        return self.hits[0].score if self.hits else None

    def _facts(self) -> Mapping[str, object]:
        return {
            "number": self.citation.number,
            "role": self.role,
            "source": format_citation(self.citation),
            "tokens": self.tokens,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The outcome for one chunk or parent that was considered for a context.

    Attributes:
        id: ID of the chunk or section; listed once.
        document_id: ID of the document.
        role: Its best role.
        outcome: ``kept``, ``shortened`` or ``dropped``.
        reason: Why it was dropped or shortened; empty if it was kept.
        passage: Number of its passage; ``None`` if it was dropped.
        tokens: Number of tokens of its text; ``None`` if not counted.
    """

    id: str
    document_id: str
    role: Role
    outcome: Outcome
    reason: str = ""
    passage: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ContextPack(Display):
    """The context for a language model: passages with citations, within a token budget.

    Attributes:
        query: The query as it was passed.
        passages: The passages, in the order shown.
        context_pack: The passages as one text for a prompt, at most ``max_tokens`` long.
        ledger: One entry per chunk or parent that was considered, with the reason if it was dropped.
        token_count: Number of tokens of ``context_pack``.
        max_tokens: The token budget.
        trace: ``pinecone_candidates``, ``rerank_results``, ``final_token_count`` and ``expansion_stats``.
        stages: One record per stage, in the order they ended.
        degraded: Stages that failed or were skipped; empty if everything worked as configured.
        latency_ms: Duration in milliseconds.
        note: Why the context is empty, or may not answer the query; ``None`` if nothing indicates it.
        relevance: Whether the hits answer the query; ``None`` for contexts of other hits.
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
    relevance: Relevance | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "trace", freeze(self.trace))

    @property
    def citations(self) -> tuple[str, ...]:
        """One line per passage, in order: see :func:`format_citation`."""
        return tuple(format_citation(passage.citation) for passage in self.passages)

    @property
    def selected_chunks(self) -> tuple[Metadata, ...]:
        """The passages as plain mappings, in order."""
        return tuple(_as_mapping(passage) for passage in self.passages)

    @property
    def sources(self) -> tuple[Citation, ...]:
        """The citations of the passages, in order."""
        return tuple(passage.citation for passage in self.passages)

    def _facts(self) -> Mapping[str, object]:
        return {
            "query": self.query,
            "passages": len(self.passages),
            "token_count": self.token_count,
            "max_tokens": self.max_tokens,
            "note": self.note,
            "degraded": tuple(degradation.stage for degradation in self.degraded),
        }


def on_one_line(text: str) -> str:
    """Return a text on one line: each run of white space becomes one space."""
    return " ".join(text.split())


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
            "lines": citation.lines,
            "quotes": tuple(
                FrozenDict(
                    {
                        "text": quote.text,
                        "span": None if quote.span is None else (quote.span.start, quote.span.end),
                        "content_hash": quote.content_hash,
                        "lines": quote.lines,
                    }
                )
                for quote in citation.quotes
            ),
            "citation": format_citation(citation),
        }
    )
