"""What the store asks of Qdrant, evaluated by Qdrant's own engine in this process, and compared with our oracles."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("qdrant_edge", reason="the group 'test-qdrant' is not installed")
pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")

from qdrant_client import models

from retrieval_core.adapters.stores.foreign import FieldMapping
from retrieval_core.adapters.stores.qdrant.filters import (
    HAS,
    IS,
    NUMBERS,
    as_filter,
    digest,
    translate,
    translate_foreign,
)
from retrieval_core.adapters.stores.qdrant.points import chunk_points
from retrieval_core.adapters.stores.query_terms import MEAN_LENGTH, question_weights
from retrieval_core.ports import Change
from retrieval_core.testing import filter_strategies
from retrieval_core.testing.store_kit import DIMENSION
from retrieval_core.testing.store_kit.base import chunk, units
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types import PageSpan
from retrieval_core.types.filters import And, Eq, Gte, In, Lt, Not, Or, chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from retrieval_core.types import Chunk
    from retrieval_core.types.filters import Filter

pytestmark = pytest.mark.slow

edge: Any = import_module("qdrant_edge")
ANALYZER = Analyzer()
MANY, NEAR = 6_000, 10
"""Vectors of the test of recall, and how many neighbours are asked for."""


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Make shards that are closed at the end."""
    opened: list[Any] = []

    def make(**options: Any) -> Any:
        folder = tmp_path / str(len(opened))
        folder.mkdir()
        given: dict[str, Any] = {
            "vectors": {"dense": edge.EdgeVectorParams(size=DIMENSION, distance=edge.Distance.Cosine)},
            "sparse_vectors": {"words": edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
        }
        opened.append(edge.EdgeShard.create(str(folder), edge.EdgeConfig(**{**given, **options})))
        return opened[-1]

    yield make
    for shard in opened:
        shard.close()


def as_edge(expression: Any) -> Any:
    """Return a filter in Qdrant's JSON as the engine's own objects."""
    if "key" not in expression:
        if "is_empty" in expression:
            return edge.IsEmptyCondition(expression["is_empty"]["key"])
        if "has_id" in expression:
            return edge.HasIdCondition(set(expression["has_id"]))
        return edge.Filter(**{clause: [as_edge(part) for part in parts] for clause, parts in expression.items()})
    if "range" in expression:
        return edge.FieldCondition(key=expression["key"], range=edge.RangeFloat(**expression["range"]))
    match = expression["match"]
    found = edge.MatchAny(match["any"]) if "any" in match else edge.MatchValue(match["value"])
    return edge.FieldCondition(key=expression["key"], match=found)


def put(shard: Any, points: Sequence[Any]) -> None:
    def vectors(point: Any) -> dict[str, Any]:
        return {
            name: edge.SparseVector(one.indices, one.values) if name == "words" else one
            for name, one in point.vector.items()
        }

    shard.update(
        edge.UpdateOperation.upsert_points([edge.Point(point.id, vectors(point), point.payload) for point in points])
    )


def ids_of(shard: Any, expression: Any) -> set[str]:
    """Return the names of the points for which an expression holds."""
    if expression is False:
        return set()
    found = as_filter(expression)
    request = edge.ScrollRequest(limit=1000, with_payload=True, filter=None if found is None else as_edge(found))
    points, _ = shard.scroll(request)
    return {point.payload["id"] for point in points}


def chunks_of(metadata: list[dict[str, Any]]) -> list[Chunk]:
    return [
        chunk(
            f"c{number}",
            document=f"d{number}",
            chunk_index=number,
            page_span=PageSpan(1, 2) if number else None,
            section_path=("a", "b")[:number],
            title="t" if number else None,
            metadata=fields,
        )
        for number, fields in enumerate(metadata)
    ]


@pytest.mark.parametrize("is_indexed", [False, True])
def test_filters_mean_to_the_engine_what_they_mean_to_us(shards: Callable[..., Any], is_indexed: bool) -> None:
    """Exact ones find just what matches; of the others nothing that matches is lost, with indexes and without."""
    shard = shards()
    if is_indexed:
        for key in (HAS, IS):
            shard.update(edge.UpdateOperation.create_field_index(key, edge.PayloadSchemaType.Keyword))
        for path in filter_strategies.PATHS:
            key = f"{NUMBERS}.{digest(path)}"
            shard.update(edge.UpdateOperation.create_field_index(key, edge.PayloadSchemaType.Float))
    seen = Counter[bool]()

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.lists(filter_strategies.metadata(), min_size=1, max_size=6),
        st.lists(filter_strategies.filters(), min_size=1, max_size=6),
    )
    def check(metadata: list[dict[str, Any]], filters: list[Filter]) -> None:
        chunks = chunks_of(metadata)
        change = Change(tuple(chunks), units(len(chunks)))
        points = chunk_points(change, ANALYZER, 1, models, "engine")
        put(shard, points)
        try:
            for condition in filters:
                expected = {item.id for item in chunks if matches(condition, chunk_fields(item))}
                pushed = translate(condition)
                found = ids_of(shard, pushed.expression)
                assert found == expected if pushed.is_exact else found >= expected
                seen[pushed.is_exact] += 1
        finally:
            shard.update(edge.UpdateOperation.delete_points([point.id for point in points]))

    check()
    assert seen[True] > seen[False] > 0


def test_filters_of_other_collections_lose_nothing(shards: Callable[..., Any]) -> None:
    """Whatever the payloads of another program hold, the engine finds at least what matches."""
    shard = shards()
    fields = {"text": "page_content", "metadata": "metadata", "source": "metadata.b", "document_id": "key"}
    mapping = FieldMapping.load(fields, "store.qdrant.fields")

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.lists(
            st.tuples(filter_strategies.metadata(), st.one_of(filter_strategies.scalars(), st.none())),
            min_size=1,
            max_size=5,
        ),
        st.lists(filter_strategies.filters(), min_size=1, max_size=6),
    )
    def check(metadata: list[tuple[dict[str, Any], Any]], filters: list[Filter]) -> None:
        payloads = {
            number: {"id": str(number), "page_content": "text", "metadata": fields, "key": key}
            for number, (fields, key) in enumerate(metadata, 1)
        }
        points = [models.PointStruct(id=number, vector={}, payload=payload) for number, payload in payloads.items()]
        put(shard, points)
        try:
            for condition in (*filters, In("source", ("a", 1, True, "1")), Eq("document_id", "2")):
                expected = {
                    str(number)
                    for number, payload in payloads.items()
                    if matches(condition, mapping.visible(str(number), payload))
                }
                assert ids_of(shard, translate_foreign(condition, mapping).expression) >= expected
        finally:
            shard.update(edge.UpdateOperation.delete_points(list(payloads)))

    check()


def test_words_are_scored_by_bm25(shards: Callable[..., Any]) -> None:
    """The engine's product of sparse vectors, with its own document counts, is BM25 with a constant mean length."""
    shard = shards()
    texts = ["ports and ports", "the firewall opens ports", "a firewall", "nothing of it", "ports " * 300]
    chunks = [chunk(f"c{number}", text, document=f"d{number}") for number, text in enumerate(texts)]
    put(shard, chunk_points(Change(tuple(chunks), units(len(chunks))), ANALYZER, 1, models, "engine"))
    put(shard, [models.PointStruct(id=7, vector={}, payload={"id": "a point without words"})])
    for question in ("ports", "firewall ports", "ports firewall ports", "opens", "absent"):
        terms = Counter(ANALYZER.query_terms(question))
        expected: dict[str, float] = {}
        for item in chunks:
            counts = Counter(ANALYZER.terms(item.indexed_text))
            norm = 1.2 * (0.25 + 0.75 * counts.total() / MEAN_LENGTH)
            score = 0.0
            for term, repeats in terms.items():
                having = sum(term in ANALYZER.terms(other.indexed_text) for other in chunks)
                rarity = log(1 + (len(chunks) - having + 0.5) / (having + 0.5))
                score += repeats * rarity * counts[term] * 2.2 / (counts[term] + norm)
            if score:
                expected[item.id] = score
        weights = question_weights(ANALYZER.query_terms(question))
        query = edge.Query.Nearest(edge.SparseVector([*weights], [*weights.values()]), using="words")
        found = shard.query(edge.QueryRequest(limit=10, query=query, with_payload=True))
        assert {point.payload["id"]: point.score for point in found} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "condition",
    [
        None,
        Lt("n", 5),
        Eq("half", True),
        And((Gte("n", 20), Not(Eq("half", False)))),
        Or((Eq("n", 1), In("n", (2, 3)))),
    ],
    ids=["no filter", "a twentieth", "half", "two fifths", "one in thirty"],
)
def test_an_index_of_vectors_finds_the_nearest(shards: Callable[..., Any], condition: Filter | None) -> None:
    """With the indexes that the store asks for, the graph of vectors has a recall of 0.95 and more, filtered or not.

    The graph is used however few points pass; a server compares them all one by one, if they are few.
    """
    size = 24
    random = np.random.default_rng(1)
    centres = random.normal(size=(60, size))
    vectors = centres[random.integers(60, size=MANY)] + 0.5 * random.normal(size=(MANY, size))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    chunks = [chunk(f"c{row}", metadata={"n": row % 100, "half": row % 2 == 0}) for row in range(MANY)]
    shard = shards(
        vectors={"dense": edge.EdgeVectorParams(size=size, distance=edge.Distance.Cosine)},
        hnsw_config=edge.HnswIndexConfig(16, 100, 10),
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=10),
    )
    shard.update(edge.UpdateOperation.create_field_index(HAS, edge.KeywordIndexParams(enable_hnsw=False)))
    shard.update(edge.UpdateOperation.create_field_index(IS, edge.KeywordIndexParams()))
    shard.update(edge.UpdateOperation.create_field_index(f"{NUMBERS}.{digest('n')}", edge.FloatIndexParams()))
    put(shard, chunk_points(Change(tuple(chunks), vectors), ANALYZER, 1, models, "engine"))
    shard.optimize()
    passing = np.array([matches(condition, chunk_fields(item)) for item in chunks])
    expression = as_filter(translate(condition).expression)
    where = None if expression is None else as_edge(expression)
    found = total = 0
    for query in vectors[random.integers(MANY, size=40)] + 0.1 * random.normal(size=(40, size)):
        cosines = np.where(passing, vectors @ query, -9.0)
        best = {f"c{row}" for row in np.argsort(-cosines)[:NEAR]}
        answer = shard.query(
            edge.QueryRequest(
                limit=NEAR, query=edge.Query.Nearest(query.tolist(), using="dense"), filter=where, with_payload=True
            )
        )
        found += len(best & {point.payload["id"] for point in answer})
        total += NEAR
    assert shard.info().indexed_vectors_count >= MANY
    assert found / total >= 0.95
