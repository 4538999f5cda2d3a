"""What several tests of the plugin use: a small index, and strategies for hits."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import load_config
from retrieval_core.errors import SearchError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Change
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.filter_strategies import metadata, texts
from retrieval_core.types import Chunk, Document, Hit, Origin, PageSpan, Scores, Section, Span

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from llama_index.core.schema import NodeWithScore

    from llama_index.retrievers.retrieval_core import PassageNode
    from retrieval_core.ports import Candidate, Fetched, FetchRequest, SearchRequest


def passage(item: NodeWithScore) -> PassageNode:
    """Return the node of a passage with its type."""
    from llama_index.retrievers.retrieval_core import PassageNode

    assert isinstance(item.node, PassageNode)
    return item.node


MOON = ("The moon is bright.", "The moon is 384,400 km away.", "The moon has no air.", "Moon rocks are old.")
SUN = ("The sun is a star.", "The sun is eight light minutes away.")


def chunk(document: str, index: int, text: str, total: int, **fields: Any) -> Chunk:
    return Chunk(
        f"{document}#{index}",
        document,
        text,
        chunk_index=index,
        total_chunks=total,
        span=Span(index * 100, index * 100 + len(text)),
        section_path=(document.removesuffix(".md"),),
        parent_id=f"{document}/section",
        title=document.removesuffix(".md").title(),
        source=document,
        timestamp=datetime(2026, 1, 2, tzinfo=UTC),
        **fields,
    )


CHUNKS = (
    *(chunk("moon.md", n, text, len(MOON), metadata={"kind": "moon", "year": 1969 + n}) for n, text in enumerate(MOON)),
    *(chunk("sun.md", n, text, len(SUN), metadata={"kind": "star", "tags": ["hot"]}) for n, text in enumerate(SUN)),
)


class Spy(MemoryStore):
    """A memory store that counts fetches, and whose searches fail on demand."""

    def __init__(self, embedder: FakeEmbedder) -> None:
        super().__init__(embedder_id=embedder.id, dimension=embedder.dimension)
        self.fetches: list[FetchRequest] = []
        self.failing: set[str] = set()

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        if ("lexical" if request.vector is None else "dense") in self.failing:
            msg = "the index went away"
            raise SearchError(msg)
        return await super().search(request)

    async def fetch(self, request: FetchRequest) -> Fetched:
        self.fetches.append(request)
        return await super().fetch(request)


@dataclass
class Library:
    """A pipeline over a few passages about the moon and the sun."""

    embedder: FakeEmbedder = field(default_factory=FakeEmbedder)
    chunks: Sequence[Chunk] = CHUNKS
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.store = Spy(self.embedder)
        self.pipeline = RetrievalPipeline(self.store, self.embedder, config=load_config(overrides=self.settings))
        self.pipeline.sync.run(self._fill())

    async def _fill(self) -> None:
        vectors = await self.embedder.embed_texts([item.indexed_text for item in self.chunks])
        documents = tuple(
            Document(name, "", name, content_hash="1") for name in sorted({item.document_id for item in self.chunks})
        )
        sections = tuple(
            Section(f"{item.id}/section", item.id, "section", (item.id,), Span(0, 1000)) for item in documents
        )
        await self.store.upsert(Change(tuple(self.chunks), np.asarray(vectors), documents, sections))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.pipeline.close()


_RANKS = st.none() | st.integers(1, 1000)
_SCORES = st.none() | st.floats(-1e6, 1e6)
_COUNTS = st.integers(0, 10**6)
_PAIRS = st.none() | st.tuples(_COUNTS, _COUNTS)
_NAMES = st.none() | texts()
_TIMES = st.none() | st.datetimes(
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-5, minutes=-30))]) | st.none()
)
# Names that provenance uses too, and the one under which it then is.
_COLLIDING = st.dictionaries(
    st.sampled_from(
        [
            "title",
            "source",
            "citation",
            "document_id",
            "span_start",
            "retrieval_core_title",
            "retrieval_core_retrieval_core_title",
        ]
    ),
    st.one_of(texts(), st.integers(), st.none(), st.dictionaries(st.just("title"), texts())),
    max_size=3,
)


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, **other}


def chunks() -> st.SearchStrategy[Chunk]:
    return st.builds(
        Chunk,
        id=texts(),
        document_id=texts(),
        text=texts(),
        chunk_index=_COUNTS,
        total_chunks=_COUNTS,
        page_span=st.none() | st.builds(PageSpan, _COUNTS, _COUNTS),
        section_path=st.lists(texts(), max_size=3).map(tuple),
        span=st.none() | st.builds(Span, _COUNTS, _COUNTS),
        parent_id=_NAMES,
        row_range=_PAIRS,
        item_range=_PAIRS,
        title=_NAMES,
        source=_NAMES,
        timestamp=_TIMES,
        embedding_model=_NAMES,
        metadata=st.builds(_both, metadata(), _COLLIDING),
    )


def hits() -> st.SearchStrategy[Hit]:
    scores = st.builds(Scores, _SCORES, _RANKS, _SCORES, _RANKS, _SCORES, _SCORES, _SCORES, _SCORES)
    return st.builds(
        Hit,
        chunks(),
        st.floats(-1e6, 1e6),
        scores,
        found_by=st.lists(st.builds(Origin, texts(), texts()), max_size=2).map(tuple),
        excerpts=st.lists(st.builds(Span, _COUNTS, _COUNTS), max_size=2).map(tuple),
        source_index=_NAMES,
    )
