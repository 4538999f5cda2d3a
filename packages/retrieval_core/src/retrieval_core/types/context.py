"""Context packs: the passages that a language model is shown, with their citations."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.types.display import Display
from retrieval_core.types.documents import FrozenDict, PageSpan, Span, content_hash, freeze
from retrieval_core.types.escapes import escape_name

if TYPE_CHECKING:
    from retrieval_core.types.documents import Chunk, Metadata
    from retrieval_core.types.results import Degradation, Hit, Relevance, StageRecord

Role: TypeAlias = Literal["primary", "parent", "sibling", "cross_page"]
"""Why a passage is in a pack: it was found; it is the section or page around a found one; it stands beside a found one
on the same page or under the same parent; or beside one, beyond that border."""

Outcome: TypeAlias = Literal["kept", "shortened", "dropped"]

QuoteVerdict: TypeAlias = Literal["exact", "equivalent", "not_found"]
"""How a quote is in a text: ``exact`` is character by character; ``equivalent`` has the same words in other typography
or markup, or leaves some out where it says so."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Quote:
    """A stretch of a document's text, word for word.

    Attributes:
        span: Its place in the document's text; ``None`` for a chunk that was added without a document.
        content_hash: By default :func:`content_hash` of ``text``.
    """

    text: str
    span: Span | None = None
    content_hash: str = ""

    def __post_init__(self) -> None:
        if not self.content_hash:
            object.__setattr__(self, "content_hash", content_hash(self.text))


@dataclass(frozen=True, slots=True, repr=False)
class Citation(Display):
    """The source of a passage, in a form that can be checked against the index.

    Attributes:
        number: The passage's number in its pack, from 1.
        chunk_ids: The chunks that it was made of, in the document's order; a parent's own id for a parent.
        quotes: Its text, in the document's order: one quote, or several where text between them is left out.
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
    """The comparison of a citation with the index.

    Attributes:
        differences: In words; empty where everything matches.
        verdict: The worst of its quotes: ``exact`` if everything matches; ``equivalent`` if the index has the words of
            each quote in other typography, markup or another place; ``not_found`` if it does not.
        found: The words of each quote as the index has them, if the verdict is ``equivalent``.
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
        """Whether every quote stands in the index, word for word and where the citation says."""
        return not self.differences


@dataclass(frozen=True, slots=True, repr=False)
class ContextPassage(Display):
    """One passage of a pack.

    Attributes:
        id: Of the chunk or section; of a merged passage, that of its best primary.
        role: The role of its best part.
        text: Word for word, without its heading line. In the pack's text, a line of it that looks like a heading line
            has a backslash before it.
        hits: The primaries in it, best first; empty for the other roles.
        primary_id: The id of the hit that brought it along; its own for a primary.
        tokens: Of itself with its heading line, by the pack's counter.
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
    """The outcome for one chunk or parent that was considered for a pack.

    Attributes:
        id: Of the chunk or section; each stands in the ledger once.
        role: Its best role.
        reason: Why it was dropped or shortened, in words; empty where it was kept.
        passage: The number of the passage that it is in; ``None`` where it was dropped.
        tokens: Of its own text; ``None`` where they were not counted.
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
    """The passages that a language model is shown, within a token budget, with their sources and what was left out.

    Attributes:
        query: As it was asked.
        passages: In the order shown.
        context_pack: The passages as one text, at most ``max_tokens`` long by the counter that was used.
        ledger: One entry for each chunk or parent that was considered.
        token_count: Tokens of ``context_pack``.
        max_tokens: The budget.
        trace: ``pinecone_candidates``, ``rerank_results``, ``final_token_count`` and ``expansion_stats``.
        stages: One record for each stage, in the order they ended.
        degraded: Empty when everything worked as configured.
        note: Why the pack is empty, where it is and that is known; else what :attr:`Relevance.note` says of its hits.
        relevance: Whether the hits answer the query; ``None`` for packs of hits that no pipeline of ours found.
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
        """One line for each passage, in order: see :func:`format_citation`."""
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
    """Return a citation as one line, such as ``Doc: guide.pdf | Page: 3-4 | Section: Setup > Linux``.

    A document whose ID is a UUID is named by its source, if known. Ranges of table rows and list items come last. Names
    are escaped, so they can't forge parts of the line.

    Args:
        place: A chunk or a citation.

    Example::

        with open_index("notes.db") as index:
            print(format_citation(index.retrieve("how far away is the moon").hits[0].chunk))
    """
    name = (_UUID.fullmatch(place.document_id) and place.source) or place.document_id
    parts = [f"Doc: {escape_name(name)}"]
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
    """Return a text with each run of white space as one blank."""
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
