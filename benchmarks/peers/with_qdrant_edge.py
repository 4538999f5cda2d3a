"""Qdrant Edge: the engine of a Qdrant server in this process, with a graph of vectors and BM25, fused by ranks.

Both sides are prefetched in one query. The graph is built before the questions, as a server does by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.collection import BLOCK, TOP_K, metadata

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.collection import Collection, Question


class System:
    """One shard in a folder."""

    def __init__(self, collection: Collection, place: Path, settings: Mapping[str, str]) -> None:
        del settings
        self._collection = collection
        self._place = place / "shard"
        self._edge: Any = import_module("qdrant_edge")

    def load(self) -> None:
        """Write all points and build the graph."""
        edge = self._edge
        self._place.mkdir()
        vectors = {"dense": edge.EdgeVectorParams(size=self._collection.dimension, distance=edge.Distance.Cosine)}
        shard = edge.EdgeShard.create(str(self._place), edge.EdgeConfig(vectors=vectors))
        numbers = edge.IntegerIndexParams(lookup=True, range=True, enable_hnsw=False)
        words = edge.TextIndexParams(
            tokenizer=edge.TokenizerType.Word,
            lowercase=True,
            stopwords=edge.Language.English,
            scoring=True,
            enable_hnsw=False,
        )
        for field, index in (("tenant", numbers), ("part", numbers), ("text", words)):
            shard.update(edge.UpdateOperation.create_field_index(field, index))
        for start in range(0, len(self._collection), BLOCK):
            texts = self._collection.texts(start, start + BLOCK)
            rows = self._collection.vectors[start : start + BLOCK]
            points = [
                edge.Point(row, {"dense": vector.tolist()}, {"text": text, **metadata(row)})
                for row, (text, vector) in enumerate(zip(texts, rows, strict=True), start)
            ]
            shard.update(edge.UpdateOperation.upsert_points(points))
        shard.optimize()
        shard.close()

    def open(self) -> None:
        """Open the shard."""
        self._shard = self._edge.EdgeShard.load(str(self._place))

    def search(self, question: Question) -> list[int]:
        """Search."""
        edge = self._edge
        passing = self._filter(question)
        dense = edge.Query.Nearest(question.vector.tolist(), using="dense")
        if question.mode == "dense":
            asked = edge.QueryRequest(limit=TOP_K, query=dense, filter=passing, with_payload=True)
        else:
            words = edge.TextQuery("text", question.text)
            limit = self._collection.candidates
            sides = [edge.Prefetch(limit=limit, query=side, filter=passing) for side in (dense, words)]
            fusion = edge.Fusion.Rrf(k=60)
            asked = edge.QueryRequest(limit=TOP_K, prefetches=sides, query=fusion, with_payload=True)
        return [int(point.id) for point in self._shard.query(asked) if point.payload["text"]]

    def close(self) -> None:
        """Close the shard."""
        self._shard.close()

    def _filter(self, question: Question) -> Any:
        condition = question.condition
        if condition is None:
            return None
        edge = self._edge
        if condition.operator == "==":
            passes = edge.FieldCondition(key=condition.field, match=edge.MatchValue(condition.value))
        else:
            passes = edge.FieldCondition(key=condition.field, range=edge.RangeFloat(lt=condition.value))
        return edge.Filter(must=[passes])
