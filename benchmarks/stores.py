"""The stores that keep an index on this machine, side by side: building it, asking it, and what it takes.

``python benchmarks/stores.py [SIZE ...]`` makes passages out of seeded random numbers, each store and size in a process
of its own, and prints a table. Vectors have 384 components and lie around a fixed number of centres, as those of
texts do; the words of a passage follow Zipf's law. Times are medians in milliseconds; ratios say more than the values.
Recall is the share of the exact ten best that a search by vector finds, among all passages and among the hundredth that
passes a filter. Needs the extras ``lancedb`` and ``qdrant``, and the package ``qdrant-edge-py``: the engine of a Qdrant
server in this process, with the points, indexes and filters that the store makes, and without HTTP.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from retrieval_core.adapters.stores.term_vectors import question_weights
from retrieval_core.ports import Candidate, Change, SearchRequest
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types import Chunk
from retrieval_core.types.filters import Eq, Lt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core.types import Matrix

SIZES = (1_000, 10_000, 20_000, 100_000, 300_000)
STORES = ("sqlite", "lancedb", "qdrant's engine", "qdrant, local mode")
MOST = {"qdrant, local mode": 20_000}
"""Sizes beyond which a store is not asked: Qdrant's client says so itself."""
DIMENSION = 384
CENTRES = 500
SPREAD = 0.7
"""Standard deviation around a centre, of which each component has 1."""
WORDS = 20_000
LENGTHS = (15, 45)
"""Words of a passage, the fewest and the most."""
BATCH = 5_000
"""Passages of one write."""
QUERIES = 20
CANDIDATES = 200
"""Passages a side, as the pipeline asks for them."""
TENANTS = 100
COLUMNS = {
    "build_s": "build, s",
    "cold_ms": "first search",
    "dense": "dense",
    "dense_10": "dense, 10",
    "lexical": "lexical",
    "both": "both sides",
    "narrow": "dense, 1 % pass",
    "wide": "dense, 50 % pass",
    "write": "one passage written",
    "recall": "recall@10",
    "recall_narrow": "recall@10, 1 % pass",
    "rss_mb": "memory, MB",
    "disk_mb": "disk, MB",
}


class EdgeStore:
    """Qdrant's engine, as far as it takes to measure it."""

    def __init__(self, place: Path) -> None:
        from retrieval_core.adapters.stores.qdrant.filters import HAS, IS, NUMBERS, digest

        self._edge: Any = import_module("qdrant_edge")
        self._analyzer = Analyzer()
        if place.exists():
            self._shard = self._edge.EdgeShard.load(str(place))
            return
        place.mkdir()
        config = self._edge.EdgeConfig(
            vectors={"dense": self._edge.EdgeVectorParams(size=DIMENSION, distance=self._edge.Distance.Cosine)},
            sparse_vectors={"words": self._edge.EdgeSparseVectorParams(modifier=self._edge.Modifier.Idf)},
        )
        self._shard = self._edge.EdgeShard.create(str(place), config)
        for field, index in (
            (HAS, self._edge.KeywordIndexParams(enable_hnsw=False)),
            (IS, self._edge.KeywordIndexParams()),
            (f"{NUMBERS}.{digest('part')}", self._edge.FloatIndexParams()),
        ):
            self._shard.update(self._edge.UpdateOperation.create_field_index(field, index))

    async def upsert(self, change: Change) -> None:
        """Write passages."""
        from qdrant_client import models

        from retrieval_core.adapters.stores.qdrant.points import chunk_points

        points = [
            self._edge.Point(point.id, {name: self._vector(one) for name, one in point.vector.items()}, point.payload)
            for point in chunk_points(change, self._analyzer, 1, models, "benchmark")
        ]
        await asyncio.to_thread(self._shard.update, self._edge.UpdateOperation.upsert_points(points))

    async def optimize(self) -> None:
        """Make the graphs of vectors, which a server does by itself."""
        await asyncio.to_thread(self._shard.optimize)

    async def search(self, request: SearchRequest) -> list[Candidate]:
        """Search by vector or by words."""
        return await asyncio.to_thread(self._search, request)

    async def aclose(self) -> None:
        """Close the files."""
        await asyncio.to_thread(self._shard.close)

    def _search(self, request: SearchRequest) -> list[Candidate]:
        from retrieval_core.adapters.stores.qdrant.filters import as_filter, translate

        nearest = self._edge.Query.Nearest
        if request.vector is not None:
            query = nearest(request.vector.tolist(), using="dense")
        else:
            weights = question_weights(self._analyzer.query_terms(request.text or ""))
            query = nearest(self._edge.SparseVector([*weights], [*weights.values()]), using="words")
        condition = None if request.filter is None else as_filter(translate(request.filter).expression)
        where = None if condition is None else self._filter(condition)
        asked = self._edge.QueryRequest(limit=request.limit, query=query, filter=where, with_payload=True)
        return [Candidate(point.payload["id"], point.score) for point in self._shard.query(asked)]

    def _vector(self, vector: Any) -> Any:
        return self._edge.SparseVector(vector.indices, vector.values) if hasattr(vector, "indices") else vector

    def _filter(self, expression: Any) -> Any:
        """Return a filter in Qdrant's JSON as the engine's own objects."""
        if "key" not in expression:
            clauses = {clause: [self._filter(part) for part in parts] for clause, parts in expression.items()}
            return self._edge.Filter(**clauses)
        key = expression["key"]
        if "range" in expression:
            return self._edge.FieldCondition(key=key, range=self._edge.RangeFloat(**expression["range"]))
        match = expression["match"]
        value = self._edge.MatchAny(match["any"]) if "any" in match else self._edge.MatchValue(match["value"])
        return self._edge.FieldCondition(key=key, match=value)


def opened(kind: str, place: Path, **identity: Any) -> Any:
    """Open a store; nothing of the others is imported, so that memory is its own."""
    match kind:
        case "sqlite":
            from retrieval_core.adapters.stores.sqlite import SqliteStore

            return SqliteStore(place, **identity)
        case "lancedb":
            from retrieval_core.adapters.stores.lancedb import LanceDBStore

            return LanceDBStore(place, **identity)
        case "qdrant's engine":
            return EdgeStore(place)
        case _:
            from retrieval_core.adapters.stores.qdrant import QdrantStore

            return QdrantStore(path=str(place), **identity)


def vectors(generator: np.random.Generator, count: int) -> Matrix:
    """Return vectors of unit length around the centres."""
    centres = np.random.default_rng(7).normal(size=(CENTRES, DIMENSION))
    made = np.empty((count, DIMENSION), dtype=np.float32)
    for start in range(0, count, 10_000):
        rows = len(made[start : start + 10_000])
        part = centres[generator.integers(CENTRES, size=rows)]
        part = part + SPREAD * generator.normal(size=(rows, DIMENSION))
        made[start : start + rows] = part / np.linalg.norm(part, axis=1, keepdims=True)
    return made


def word(number: int) -> str:
    """Return a word of consonants alone: a single term, which no stemmer shortens."""
    letters = "bcdfghjklmnpqrtvwxz"
    made = "q"
    while number:
        number, letter = divmod(number, len(letters))
        made += letters[letter]
    return made + "q"


def texts(generator: np.random.Generator, count: int) -> list[str]:
    """Return texts whose words follow Zipf's law."""
    weights = 1 / np.arange(1, WORDS + 1)
    lengths = generator.integers(*LENGTHS, size=count)
    drawn = generator.choice(WORDS, size=int(lengths.sum()), p=weights / weights.sum())
    words = np.array([word(number) for number in range(WORDS)])[drawn]
    ends = np.cumsum(lengths)
    return [" ".join(words[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


def chunk(number: int, text: str) -> Chunk:
    """Return a passage; ten of them make a document."""
    metadata = {"tenant": number % TENANTS, "part": number % 10}
    return Chunk(f"d{number // 10}#{number % 10}", f"d{number // 10}", text, number % 10, 10, metadata=metadata)


async def median(calls: list[Callable[[], Awaitable[Any]]]) -> float:
    """Return the median of what the calls take, in milliseconds."""
    took: list[float] = []
    for call in calls:
        start = time.perf_counter()
        await call()
        took.append(1000 * (time.perf_counter() - start))
    return float(np.median(took))


async def measure(kind: str, size: int, place: Path) -> dict[str, float]:
    """Build an index and ask it."""
    generator = np.random.default_rng(size)
    matrix = vectors(generator, size)
    questions = vectors(generator, QUERIES)
    words = [" ".join(map(word, generator.integers(20, 5_000, size=4).tolist())) for _ in range(QUERIES)]
    identity: dict[str, Any] = {"embedder_id": "benchmark", "dimension": DIMENSION}
    result: dict[str, float] = {}

    store = opened(kind, place, **identity)
    building = 0.0
    for start in range(0, size, BATCH):
        passages = texts(generator, len(matrix[start : start + BATCH]))
        change = Change(
            tuple(chunk(start + row, text) for row, text in enumerate(passages)), matrix[start : start + BATCH]
        )
        began = time.perf_counter()
        await store.upsert(change)
        building += time.perf_counter() - began
    began = time.perf_counter()
    await store.aclose()
    result["build_s"] = building + time.perf_counter() - began

    store = opened(kind, place, **identity)
    if kind in {"lancedb", "qdrant's engine"}:
        began = time.perf_counter()
        await store.optimize()
        result["build_s"] += time.perf_counter() - began

    def dense(row: int, limit: int = CANDIDATES, condition: Any = None) -> Awaitable[Any]:
        return store.search(SearchRequest(limit, vector=questions[row], filter=condition))

    def lexical(row: int) -> Awaitable[Any]:
        return store.search(SearchRequest(CANDIDATES, text=words[row]))

    async def both(row: int) -> None:
        await asyncio.gather(dense(row), lexical(row))

    def narrow(row: int) -> Awaitable[Any]:
        return dense(row, condition=Eq("tenant", 3))

    def wide(row: int) -> Awaitable[Any]:
        return dense(row, condition=Lt("part", 5))

    rows = range(QUERIES)
    result["cold_ms"] = await median([lambda: both(0)])
    asked: dict[str, Callable[[int], Awaitable[Any]]] = {
        "dense": dense,
        "dense_10": partial(dense, limit=10),
        "lexical": lexical,
        "both": both,
        "narrow": narrow,
        "wide": wide,
    }
    for name, ask in asked.items():
        await ask(0)
        result[name] = await median([partial(ask, row) for row in rows])
    for name, condition, passing in (
        ("recall", None, np.arange(size)),
        ("recall_narrow", Eq("tenant", 3), np.arange(3, size, TENANTS)),
    ):
        found = [{item.chunk_id for item in await dense(row, 10, condition)} for row in rows]
        best = [passing[np.argsort(-(matrix[passing] @ questions[row]))[:10]] for row in rows]
        exact = [{chunk(int(number), "").id for number in numbers} for numbers in best]
        result[name] = sum(len(one & other) for one, other in zip(found, exact, strict=True)) / (10 * QUERIES)
    result["write"] = await median(
        [
            lambda row=row: store.upsert(Change((chunk(row, words[row]),), matrix[row : row + 1]))
            for row in range(min(QUERIES, 10))
        ]
    )
    await store.aclose()
    # The passages' own vectors are in memory here for the comparison, so they do not count.
    result["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - matrix.nbytes / 2**20
    result["disk_mb"] = await asyncio.to_thread(megabytes, place)
    return result


def megabytes(place: Path) -> float:
    """Return how much room a file or folder takes."""
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files) / 2**20


def main() -> None:
    """Measure each store at each size, each in a process of its own, and print the table."""
    sizes = [int(size) for size in sys.argv[1:]] or list(SIZES)
    print("| passages | store |", " | ".join(COLUMNS.values()), "|", flush=True)
    print("|---" * (len(COLUMNS) + 2) + "|", flush=True)
    for size in sizes:
        for kind in (kind for kind in STORES if size <= MOST.get(kind, size)):
            done = subprocess.run(
                [sys.executable, __file__, "--one", kind, str(size)], stdout=subprocess.PIPE, text=True, check=True
            )
            result = json.loads(done.stdout)
            cells = " | ".join(
                f"{result[name]:.3g}" if result[name] < 1000 else f"{result[name]:.0f}" for name in COLUMNS
            )
            print(f"| {size:,} | {kind} | {cells} |", flush=True)


def main_of_one(kind: str, size: int) -> None:
    """Measure one store and print its figures as JSON."""
    with TemporaryDirectory(prefix="benchmark-stores-") as folder:
        print(json.dumps(asyncio.run(measure(kind, size, Path(folder) / "index"))))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        main_of_one(sys.argv[2], int(sys.argv[3]))
    else:
        main()
