from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.index.serialization import chunk_to_json, hit_to_json, result_to_json
from retrieval_core.pipeline.stages.fuse import fuse
from retrieval_core.ports import Candidate
from retrieval_core.types import Chunk, Degradation, Hit, PageSpan, RetrievalResult, Scores, Span, StageRecord

CHUNK = Chunk(
    id="guide.pdf#3",
    document_id="guide.pdf",
    text="Turn the key.",
    chunk_index=3,
    total_chunks=9,
    page_span=PageSpan(3, 4),
    section_path=("Setup", "Linux"),
    span=Span(10, 23),
    parent_id="guide.pdf@2",
    row_range=(1, 2),
    item_range=(3, 3),
    lines=(12, 18),
    title="Guide",
    source="docs/guide.pdf",
    timestamp=datetime(2024, 5, 1, tzinfo=UTC),
    embedding_model="fake",
    metadata={"price": 9.5, "tags": ["a"]},
)
HIT = Hit(CHUNK, 0.25, Scores(dense=0.5, dense_rank=1, final=0.25))


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def test_a_result() -> None:
    """A result has exactly these keys, and numbers, texts and lists for values."""
    result = RetrievalResult(
        query="How?",
        hits=(HIT,),
        formatted_context="text",
        metadata={"mode": "hybrid"},
        latency_ms=1.23456,
        degraded=(Degradation("embed", "out of order"),),
        trace=(StageRecord("embed", 1.0),),
    )
    assert as_json(result_to_json(result)) == {
        "query": "How?",
        "hits": [as_json(hit_to_json(HIT, 1))],
        "degraded": [{"stage": "embed", "reason": "out of order"}],
        "latency_ms": 1.235,
        "relevance": None,
        "from_cache": False,
        "metadata": {"mode": "hybrid"},
        "rewrites": [],
        "evaluation": None,
    }
    assert [record["stage"] for record in result_to_json(result, with_trace=True)["trace"]] == ["embed"]


def test_a_hit() -> None:
    """A hit is its rank and scores and all of its chunk, on one level."""
    assert as_json(hit_to_json(HIT, 2)) == {
        "rank": 2,
        "score": 0.25,
        "scores": {
            "dense": 0.5,
            "dense_rank": 1,
            "lexical": None,
            "lexical_rank": None,
            "fused": None,
            "mmr": None,
            "rerank": None,
            "relevance": None,
            "final": 0.25,
        },
        "relevance_reason": None,
        "evidence": None,
        "id": "guide.pdf#3",
        "document_id": "guide.pdf",
        "text": "Turn the key.",
        "title": "Guide",
        "source": "docs/guide.pdf",
        "section_path": ["Setup", "Linux"],
        "page_span": [3, 4],
        "row_range": [1, 2],
        "item_range": [3, 3],
        "lines": [12, 18],
        "span": [10, 23],
        "chunk_index": 3,
        "total_chunks": 9,
        "parent_id": "guide.pdf@2",
        "content_hash": CHUNK.content_hash,
        "timestamp": "2024-05-01T00:00:00+00:00",
        "embedding_model": "fake",
        "metadata": {"price": 9.5, "tags": ["a"]},
        "citation": "Doc: guide.pdf:12-18 | Page: 3-4 | Section: Setup > Linux | Rows: 1-2 | Items: 3",
    }


def test_what_a_chunk_lacks_is_null() -> None:
    """The keys are the same for every chunk."""
    bare = as_json(chunk_to_json(Chunk("a", "d", "t")))
    assert bare.keys() == chunk_to_json(CHUNK).keys()
    absent = {name for name, value in bare.items() if value is None}
    assert absent == {
        *("title", "source", "page_span", "row_range", "item_range", "lines", "span", "parent_id", "timestamp"),
        "embedding_model",
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(text=st.text(), metadata=st.dictionaries(st.text(), json_values), score=st.floats(-1, 1, width=32))
def test_every_result_can_be_written(text: str, metadata: dict[str, Any], score: float) -> None:
    """Whatever is in the texts and metadata, and whichever floats a store gave, JSON can hold it and gives it back."""
    ranked = fuse((Candidate("a", np.float32(score)),), None)  # pyright: ignore[reportArgumentType]
    hits = tuple(Hit(Chunk("a", "d", text, metadata=metadata), item.score, item.scores) for item in ranked)
    written = as_json(result_to_json(RetrievalResult(text, hits, text, metadata, 0.0)))
    assert written["metadata"] == written["hits"][0]["metadata"] == metadata
    assert written["query"] == written["hits"][0]["text"] == text
