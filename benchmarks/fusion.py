"""Which way of combining the sides is best: ``python benchmarks/fusion.py FOLDER [NAME ...] [--indexes FOLDER]``.

FOLDER holds BEIR collections, by default ``scifact``, ``cranfield``, ``esci_us_small`` and ``limit_small``. Of each an
index is made with the default settings, unless the folder of ``--indexes`` has ``NAME.db``. Its passages and vectors
are copied into a LanceDB store. Both stores are asked for each side's candidates once a question; these lists are
combined in every way, and LanceDB is asked for its own hybrid. ``--queries N`` asks the first N questions only.

Prints nDCG@10 for each collection and the mean over them; then, for the mean, how far the default is from every other
way over the same store's lists, and p of that difference (see ``significance.py``). The default over the lists of the
default store is also compared with LanceDB's own hybrid. Ends with 1 if the default is significantly below any of them
(p < .05). Needs the extra ``lancedb``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, get_args

import numpy as np
from significance import p_value, shown

from retrieval_core import load_config, open_index
from retrieval_core.adapters.registry import build_embedder, build_store
from retrieval_core.adapters.stores.lancedb import LanceDBStore
from retrieval_core.evaluate import ScoredDocument, load_collection, measure
from retrieval_core.pipeline.stages.fuse import FusionMethod, fuse
from retrieval_core.pipeline.stages.transform import normalize
from retrieval_core.ports import Change, ChunkRange, FetchRequest, SearchRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.evaluate import Collection
    from retrieval_core.ports import Candidate, Embedder, Store
    from retrieval_core.types import Chunk, Vector

    Figures = NDArray[np.float64]
    Way = tuple[str, str]
    """A store, and what is done with its lists."""
    Measured = Mapping[Way, Figures]

COLLECTIONS = ("scifact", "cranfield", "esci_us_small", "limit_small")
WEIGHTS = (0.3, 0.7)
"""Of the dense side, beside the default."""
SIGNIFICANT = 0.05
BATCH = 500
"""Documents that are read at a time."""
DEPTH = 10
"""Documents of a ranking that are judged."""
STORES = ("sqlite", "lancedb")
NATIVE = ("lancedb", "its own hybrid")


@dataclass(frozen=True)
class Passages:
    """Everything that an index holds."""

    chunks: tuple[Chunk, ...]
    vectors: Mapping[str, Vector]
    documents: Mapping[str, str] = field(init=False)
    """Ids of documents by those of their passages."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "documents", {chunk.id: chunk.document_id for chunk in self.chunks})


@dataclass(frozen=True)
class Opened:
    """A collection with its index."""

    config: RetrievalConfig
    collection: Collection
    store: Store
    embedder: Embedder
    passages: Passages

    @property
    def candidates(self) -> int:
        """How many passages each side is asked for."""
        return self.config.search.candidates

    async def asked(self) -> AsyncIterator[tuple[str, str, Vector]]:
        """Yield each question's id, its text as it is searched for, and its vector."""
        for number, (query_id, query) in enumerate(self.collection.queries.items(), 1):
            text = normalize(query, self.config.query).text
            yield query_id, text, await self.embedder.embed_query(text)
            if sys.stderr.isatty():
                print(f"\r{number} of {len(self.collection.queries)}", end="\r", file=sys.stderr, flush=True)

    def ndcg(self, query_id: str, ranking: Iterable[str]) -> float:
        """Return nDCG@10 of passages, best first; a document stands where its best passage does."""
        documents = dict.fromkeys(self.passages.documents[chunk_id] for chunk_id in ranking)
        ranked = [ScoredDocument(name, 0.0) for name in list(documents)[:DEPTH]]
        return measure({query_id: self.collection.judgements[query_id]}, {query_id: ranked}).ndcg_at_10


@asynccontextmanager
async def opened(folder: Path, indexes: Path | None, queries: int | None) -> AsyncGenerator[Opened]:
    """Open a collection's index, and make it first where there is none."""
    whole = load_collection(folder)
    config = load_config(overrides={"cache.kind": "none"})
    with TemporaryDirectory(prefix="benchmark-fusion-") as temporary:
        ready = None if indexes is None else indexes / f"{folder.name}.db"
        if ready is None or not ready.is_file():
            ready = Path(temporary, "index.db")
            print(f"{folder.name}: indexing", file=sys.stderr, flush=True)
            async with open_index(ready, config=config) as index:
                await index.aadd_documents(whole.documents())
        embedder = build_embedder(config.embedder)
        if embedder is None:
            sys.exit("the default embedder is needed; install the extra 'local'")
        store = build_store(config.store, ready, embedder)
        try:
            passages = await read(store, [document.id for document in whole.documents()])
            indexed = set(passages.documents.values())
            missing = [item.id for item in whole.documents() if item.text.strip() and item.id not in indexed]
            if missing:
                sys.exit(
                    f"{ready} lacks {len(missing)} documents of {folder.name}, such as {missing[0]}; index it anew"
                )
            asked = whole if queries is None else whole.first(queries)
            yield Opened(config, asked, store, embedder, passages)
        finally:
            await store.aclose()


async def read(store: Store, documents: Sequence[str]) -> Passages:
    """Return all passages of some documents."""
    chunks: dict[str, Chunk] = {}
    vectors: dict[str, Vector] = {}
    for start in range(0, len(documents), BATCH):
        ranges = tuple(ChunkRange(name, 0, 1_000_000) for name in documents[start : start + BATCH])
        fetched = await store.fetch(FetchRequest(ranges=ranges, with_vectors=True))
        chunks.update(fetched.chunks)
        vectors.update(fetched.vectors)
    return Passages(tuple(chunks.values()), vectors)


async def copy(passages: Passages, place: Path, embedder: Embedder) -> LanceDBStore:
    """Return a LanceDB store that holds the passages, its indexes up to date."""
    store = LanceDBStore(place, embedder_id=embedder.id, dimension=embedder.dimension)
    await store.upsert(Change(passages.chunks, np.stack([passages.vectors[chunk.id] for chunk in passages.chunks])))
    await store.optimize()
    return store


async def measured(subject: Opened, place: Path) -> Measured:
    """Return nDCG@10 of every way and question."""
    other = await copy(subject.passages, place, subject.embedder)
    stores: dict[str, Store] = dict(zip(STORES, (subject.store, other), strict=True))
    figures: defaultdict[Way, list[float]] = defaultdict(list)
    try:
        async for query_id, text, vector in subject.asked():
            for name, store in stores.items():
                dense = await store.search(SearchRequest(subject.candidates, vector=vector))
                lexical = await store.search(SearchRequest(subject.candidates, text=text))
                for way, ranking in rankings(dense, lexical, subject.config.search.dense_weight).items():
                    figures[name, way].append(subject.ndcg(query_id, ranking))
            both = await other.search_both(SearchRequest(subject.candidates, vector=vector, text=text))
            figures[NATIVE].append(subject.ndcg(query_id, [item.chunk_id for item in both]))
    finally:
        await other.aclose()
    return {way: np.array(values) for way, values in figures.items()}


def rankings(dense: Sequence[Candidate], lexical: Sequence[Candidate], weight: float) -> dict[str, list[str]]:
    """Return ids of passages, best first, of each side alone and of every fusion."""
    found = {
        "dense alone": [item.chunk_id for item in dense],
        "lexical alone": [item.chunk_id for item in lexical],
    }
    for dense_weight in (weight, *WEIGHTS):
        for method in get_args(FusionMethod):
            fused = fuse(dense, lexical, method=method, dense_weight=dense_weight)
            found[label(method, dense_weight)] = [item.chunk_id for item in fused]
    return found


def label(method: str, weight: float) -> str:
    """Name a fusion."""
    return f"{method}, {weight:g}"


def print_figures(figures: Mapping[str, Measured]) -> None:
    """Print a table for each collection, and the mean over them."""
    tables = {
        f"{name}, {next(iter(ways.values())).size} questions": {way: float(part.mean()) for way, part in ways.items()}
        for name, ways in figures.items()
    }
    tables[f"mean of {', '.join(figures)}"] = {
        way: float(np.mean([table[way] for table in tables.values()])) for way in next(iter(tables.values()))
    }
    for name, table in tables.items():
        print(f"\n## {name}\n\n| nDCG@10 | {' | '.join(STORES)} |\n|---|---|---|")
        for what in dict.fromkeys(what for _, what in table):
            cells = (f"{table[store, what]:.4f}" if (store, what) in table else "" for store in STORES)
            print(f"| {what} | {' | '.join(cells)} |")


def compare(figures: Mapping[str, Measured], default: str) -> bool:
    """Print how the default differs from every other way, and return whether it is not significantly below any."""
    collections = list(figures.values())
    pairs = [((store, default), (store, what)) for store, what in collections[0] if what != default]
    pairs.append(((STORES[0], default), NATIVE))
    print("\n## the default against the others, on the mean\n\n| default | other | difference | p |\n|---|---|---|---|")
    holds = True
    for one, other in pairs:
        differences = [ways[one] - ways[other] for ways in collections]
        difference = float(np.mean([part.mean() for part in differences]))
        p = p_value(*differences)
        below = difference < 0 and p < SIGNIFICANT
        holds = holds and not below
        row = f"| {': '.join(one)} | {': '.join(other)} | {difference:+.4f} | {shown(p)}{', BELOW' if below else ''} |"
        print(row, flush=True)
    return holds


async def main() -> None:
    """Measure each collection, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=COLLECTIONS)
    parser.add_argument("--indexes", type=Path)
    parser.add_argument("--queries", type=int)
    arguments = parser.parse_args()
    figures: dict[str, Measured] = {}
    for name in arguments.names:
        async with opened(arguments.folder / name, arguments.indexes, arguments.queries) as subject:
            with TemporaryDirectory(prefix="benchmark-fusion-") as place:
                figures[name] = await measured(subject, Path(place, "lancedb"))
    print_figures(figures)
    search = load_config().search
    holds = compare(figures, label(search.fusion, search.dense_weight))
    print(f"\nThe default is {'not ' if holds else ''}significantly below another way.")
    sys.exit(not holds)


if __name__ == "__main__":
    asyncio.run(main())
