"""A new folder: ``python benchmarks/first_search.py FOLDER [--quality]``.

Indexes the folder anew with the default embedder and says when all its words could be searched, when all was done, and
how many CPU seconds that took. With ``--quality`` FOLDER is
a BEIR collection, and nDCG@10 of the default search is printed while the vectors come, in a random order.
"""

from __future__ import annotations

import argparse
import logging
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core import Index, load_config, open_index
from retrieval_core.evaluate import load_collection
from retrieval_core.evaluate.run import ScoredDocument, measure
from retrieval_core.ports import Change, ChunkRange, FetchRequest

if TYPE_CHECKING:
    from retrieval_core.evaluate import Collection
    from retrieval_core.ingest.report import IndexProgress

SHARES = (0, 10, 25, 50, 75, 90, 100)
SEED = 1


def first_search(folder: Path, index_file: Path) -> None:
    """Index a folder and print the times."""
    started, cpu = time.perf_counter(), time.process_time()
    words: list[tuple[float, float]] = []

    def tell(progress: IndexProgress) -> None:
        if not progress.to_embed:
            words.append((time.perf_counter() - started, time.process_time() - cpu))

    with open_index(index_file, config=load_config()) as index:
        report = index.ingest(folder, tell)
    took, spent = time.perf_counter() - started, time.process_time() - cpu
    print(f"{report.documents:,} documents, {report.chunks:,} passages")
    print(f"words: {words[-1][0]:.1f} s, {words[-1][1]:.1f} CPU s; all: {took:.1f} s, {spent:.1f} CPU s")


def quality(collection: Collection, index_file: Path) -> None:
    """Print nDCG@10 with vectors for some of the passages."""
    config = load_config(overrides={"cache.kind": "none"})
    with open_index(index_file, config=config) as whole:
        whole.add_documents(collection.documents())
        ids = _ids(whole, collection)
        kept = whole.sync.run(whole.store.fetch(FetchRequest(chunk_ids=ids, with_vectors=True)))
    with open_index(index_file.with_name("some.db"), config=config) as index:
        chunks = [kept.chunks[name] for name in ids]
        random.Random(SEED).shuffle(chunks)
        index.sync.run(index.store.upsert(Change(tuple(chunks), unembedded=frozenset(ids))))
        assert "add_vectors" in index.store.capabilities
        done = 0
        logging.getLogger("retrieval_core").setLevel(logging.ERROR)  # each search says what is missing
        print("| vectors | nDCG@10 |\n|---|---|")
        for share in SHARES:
            upcoming = chunks[done : len(chunks) * share // 100]
            if upcoming:
                vectors = [kept.vectors[chunk.id] for chunk in upcoming]
                index.sync.run(index.store.add_vectors(Change(tuple(upcoming), vectors)))  # pyright: ignore[reportArgumentType] - a list will do
            done += len(upcoming)
            print(f"| {share} % | {_ndcg(index, collection):.4f} |", flush=True)
        print(f"| words alone | {_ndcg(index, collection, 'lexical'):.4f} |")


def _ids(index: Index, collection: Collection) -> tuple[str, ...]:
    ranges = tuple(ChunkRange(document.id, 0, 10_000) for document in collection.documents())
    return tuple(index.sync.run(index.store.fetch(FetchRequest(ranges=ranges))).chunks)


def _ndcg(index: Index, collection: Collection, mode: str = "hybrid") -> float:
    rankings: dict[str, tuple[ScoredDocument, ...]] = {}
    for name, text in collection.queries.items():
        hits = index.retrieve(text, top_k=50, mode=mode).hits  # pyright: ignore[reportArgumentType] - one of the modes
        best = dict.fromkeys(hit.chunk.document_id for hit in hits)
        rankings[name] = tuple(ScoredDocument(each, -float(rank)) for rank, each in enumerate(best))
    return measure(collection.judgements, rankings).ndcg_at_10


def main() -> None:
    """Measure what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quality", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "index.db"
        if given.quality:
            quality(load_collection(given.folder), place)
        else:
            first_search(given.folder, place)


if __name__ == "__main__":
    main()
