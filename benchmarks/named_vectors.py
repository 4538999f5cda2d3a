"""Whether titles as vectors of their own help: ``python benchmarks/named_vectors.py FOLDER [NAME ...]``.

FOLDER holds BEIR collections whose documents have titles, by default ``scifact``, ``cranfield`` and ``esci_us_small``;
``--indexes`` and ``--queries`` as in ``fusion.py``. Each title is embedded, and the cosines of passage and title are
combined by every rule and with several weights of the title, as ``vectors.rule`` and ``vectors.weights`` do. The text
of a passage begins with its title; with ``--bare`` passages are embedded anew without it, so that the titles' vectors
say something that those of the passages do not.

Prints nDCG@10 by meaning alone and of hybrid search with equal weights, and p of the mean's difference from no further
vector (see ``significance.py``).
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from fusion import opened
from significance import p_value, shown

from retrieval_core.pipeline.stages.combine import combine_vectors
from retrieval_core.pipeline.stages.fuse import fuse
from retrieval_core.ports import Candidate, SearchRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fusion import Figures, Opened

    from retrieval_core.pipeline.stages.combine import VectorRule
    from retrieval_core.ports import Embedder
    from retrieval_core.types import Matrix, Vector

    Way = tuple[str, str]
    """How the vectors are combined, and what is searched."""

COLLECTIONS = ("scifact", "cranfield", "esci_us_small")
WEIGHTS: Mapping[VectorRule, Sequence[float]] = {
    "mean": (0.1, 0.2, 0.3, 0.5, 1.0),
    "max": (0.3, 0.5, 0.9, 0.95, 1.0, 1.05),
}
"""Of the title's cosine, by rule; that of the passage has 1."""
NONE = "no further vector"
SIDES = ("dense", "hybrid")
EMBEDDED_AT_A_TIME = 256


class Vectors:
    """Vectors of passages, which are searched by comparing each."""

    def __init__(self, ids: Sequence[str], vectors: Matrix) -> None:
        self._ids = np.array(ids)
        self._vectors = vectors

    def search(self, vector: Vector, limit: int) -> list[Candidate]:
        """Return the nearest, best first; equal ones are ordered by chunk id."""
        cosines = self._vectors @ vector
        order = np.lexsort((self._ids, -cosines))[:limit]
        return [Candidate(str(self._ids[row]), float(cosines[row])) for row in order]


async def embedded(embedder: Embedder, texts: Mapping[str, str]) -> Vectors:
    """Embed texts, by chunk id; equal ones once."""
    distinct = sorted(set(texts.values()), key=len)
    rows: dict[str, Vector] = {}
    for start in range(0, len(distinct), EMBEDDED_AT_A_TIME):
        part = distinct[start : start + EMBEDDED_AT_A_TIME]
        rows.update(zip(part, await embedder.embed_texts(part), strict=True))
    return Vectors(list(texts), np.stack([rows[text] for text in texts.values()]))


async def measured(subject: Opened, *, bare: bool = False) -> dict[Way, Figures]:
    """Return nDCG@10 of every way and question; of bare passages those vectors that know nothing of the title."""
    count = subject.candidates
    passages = {chunk.id: chunk.text for chunk in subject.passages.chunks}
    of_text = await embedded(subject.embedder, passages) if bare else None
    titles = {chunk.id: chunk.title.strip() for chunk in subject.passages.chunks if chunk.title and chunk.title.strip()}
    further = await embedded(subject.embedder, titles)
    figures: defaultdict[Way, list[float]] = defaultdict(list)
    async for query_id, text, vector in subject.asked():
        in_store = await subject.store.search(SearchRequest(count, vector=vector))
        own = in_store if of_text is None else of_text.search(vector, count)
        words = await subject.store.search(SearchRequest(count, text=text))
        nearest = further.search(vector, count)
        ways = {NONE: own, "the title alone": nearest}
        if of_text is not None:
            ways["no further vector, but the title in the text"] = in_store
        for rule, weights in WEIGHTS.items():
            for weight in weights:
                ways[f"{rule}, {weight:g}"] = combine_vectors([(own, 1.0), (nearest, weight)], rule, count)
        for way, dense in ways.items():
            both = fuse(dense, words, method="zscore")
            figures[way, "dense"].append(subject.ndcg(query_id, [item.chunk_id for item in dense]))
            figures[way, "hybrid"].append(subject.ndcg(query_id, [item.chunk_id for item in both]))
    return {way: np.array(values) for way, values in figures.items()}


def print_table(figures: Mapping[str, Mapping[Way, Figures]]) -> None:
    """Print a row for each way to combine."""
    collections = list(figures.values())
    for side in SIDES:
        print(f"\n| {side} | {' | '.join(figures)} | mean | p |\n|---|{'---|' * len(figures)}---|---|")
        for way in dict.fromkeys(way for way, _ in collections[0]):
            means = [float(ways[way, side].mean()) for ways in collections]
            differences = [ways[way, side] - ways[NONE, side] for ways in collections]
            p = "" if way == NONE else shown(p_value(*differences))
            cells = " | ".join(f"{mean:.4f}" for mean in (*means, float(np.mean(means))))
            print(f"| {way} | {cells} | {p} |", flush=True)


async def main() -> None:
    """Measure each collection, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=COLLECTIONS)
    parser.add_argument("--indexes", type=Path)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--bare", action="store_true")
    arguments = parser.parse_args()
    figures: dict[str, Mapping[Way, Figures]] = {}
    for name in arguments.names:
        async with opened(arguments.folder / name, arguments.indexes, arguments.queries) as subject:
            figures[name] = await measured(subject, bare=arguments.bare)
    print_table(figures)


if __name__ == "__main__":
    asyncio.run(main())
