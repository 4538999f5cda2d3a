"""A LanceDB table with an index for words and one for each filtered column, searched with its hybrid query.

``lancedb`` compares all vectors; ``lancedb-ivf`` has an index of vectors (IVF_SQ, refined with ten times as many), as
is recommended for large tables, and does not find everything; ``lancedb-linear`` combines scores with the library's
own weights in place of ranks. All are asked with the API for event loops, since the
synchronous one makes threads for every hybrid query.
"""

from __future__ import annotations

import asyncio
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.collection import BLOCK, PARTS, TOP_K

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.collection import Collection, Condition, Question

COLUMNS = ["row", "text"]


class System:
    """One table in a folder."""

    def __init__(self, collection: Collection, place: Path, settings: Mapping[str, str]) -> None:
        os.environ["LANCEDB_LOG"] = "error"
        self._collection = collection
        self._place = place / "lancedb"
        self._approximate = settings["system"] == "lancedb-ivf"
        linear = settings["system"] == "lancedb-linear"
        self._reranker: Any = import_module("lancedb.rerankers").LinearCombinationReranker() if linear else None
        self._lancedb: Any = import_module("lancedb")
        self._kinds: Any = import_module("lancedb.index")
        self._arrow: Any = import_module("pyarrow")
        self._runner = asyncio.Runner()

    def load(self) -> None:
        """Write the table and make its indexes."""
        self._runner.run(self._load())

    def open(self) -> None:
        """Open the table."""
        self._runner.run(self._open())

    def search(self, question: Question) -> list[int]:
        """Search."""
        return self._runner.run(self.asearch(question))

    async def asearch(self, question: Question) -> list[int]:
        """Search on an event loop."""
        query = self._table.query().nearest_to(question.vector).distance_type("cosine")
        if self._approximate:
            query = query.refine_factor(10)
        if question.condition is not None:
            query = query.where(_filter(question.condition))
        score = "_distance"
        if question.mode == "hybrid":
            query, score = query.nearest_to_text(question.text, columns=["text"]), "_relevance_score"
            if self._reranker is not None:
                query = query.rerank(self._reranker)
        columns = COLUMNS if score == "_relevance_score" else [*COLUMNS, score]
        found = await query.select(columns).limit(self._collection.candidates).to_arrow()
        best = found.slice(0, TOP_K)
        return [row for row, text in zip(best["row"].to_pylist(), best["text"].to_pylist(), strict=True) if text]

    def close(self) -> None:
        """Close the event loop."""
        self._runner.close()

    async def _load(self) -> None:
        arrow = self._arrow
        vector = arrow.list_(arrow.float32(), self._collection.dimension)
        schema = arrow.schema(
            [
                ("row", arrow.int64()),
                ("text", arrow.string()),
                *((name, arrow.int64()) for name in PARTS),
                ("vector", vector),
            ]
        )
        database = await self._lancedb.connect_async(self._place)
        table = await database.create_table("passages", schema=schema)
        for start in range(0, len(self._collection), 10 * BLOCK):
            texts = self._collection.texts(start, start + 10 * BLOCK)
            rows = range(start, start + len(texts))
            vectors = self._collection.vectors[start : start + len(texts)].reshape(-1)
            columns = [
                arrow.array(rows, arrow.int64()),
                arrow.array(texts),
                *(arrow.array([row % number for row in rows], arrow.int64()) for number in PARTS.values()),
                arrow.FixedSizeListArray.from_arrays(arrow.array(vectors), self._collection.dimension),
            ]
            await table.add(arrow.Table.from_arrays(columns, schema=schema))
        await table.create_index("text", config=self._kinds.FTS(with_position=False))
        for name in PARTS:
            await table.create_index(name, config=self._kinds.BTree())
        if self._approximate:
            await table.create_index("vector", config=self._kinds.IvfSq(distance_type="cosine"))
        await table.optimize()

    async def _open(self) -> None:
        database = await self._lancedb.connect_async(self._place)
        self._table = await database.open_table("passages")


def _filter(condition: Condition) -> str:
    operator = "=" if condition.operator == "==" else condition.operator
    return f"{condition.field} {operator} {condition.value}"
