"""How often the semantic cache answers, how often wrongly, and what a look-up costs.

``python benchmarks/semantic_cache.py`` prints, for the embedder of this machine:

- of the pairs of look-alikes in ``data/``, whose answers differ, how many are answered with the other's result, in
  both directions, and of the paraphrases, whose answers are the same, how many are; each at several thresholds, by the
  vectors alone and with the guard that compares the words;
- the time of a look-up among 1,000 questions, beside 1,000 comparisons one by one, in the same run.

It ends with an error where a look-alike is answered with the other's result at the default threshold, or a look-up
takes a millisecond or more.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.config import SemanticCacheConfig
from retrieval_core.pipeline.cache import MAX_QUESTIONS, SemanticCache
from retrieval_core.text.query import plain_question

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.types import Vector

DATA = Path(__file__).parent / "data"
THRESHOLDS = (0.98, 0.95, 0.92, 0.9)
LOOK_ALIKES = ("lookalikes", "lookalikes_later", "lookalikes_foreign")
PARAPHRASES = ("paraphrases", "paraphrases_foreign")
"""The foreign ones were written before the comparison that is measured here."""
ENTRIES = MAX_QUESTIONS
TURNS = 50


async def main() -> None:
    """Print the three tables."""
    embedder = LocalEmbedder()
    try:
        wrong = sum([await look_alikes(embedder, name) for name in LOOK_ALIKES])
        for name in PARAPHRASES:
            await paraphrases(embedder, name)
    finally:
        await embedder.aclose()
    milliseconds = look_up(embedder.dimension)
    if wrong or milliseconds >= 1:
        sys.exit(f"{wrong} false hits at {SemanticCacheConfig().threshold}, {milliseconds:.3f} ms a look-up")


async def look_alikes(embedder: LocalEmbedder, name: str) -> int:
    """Print how many look-alikes are mistaken for one another; return that number at the default threshold."""
    rows, cosines = await read(embedder, name)
    print(f"\n{name}: {len(rows)} pairs, {2 * len(rows)} look-ups")
    print("threshold   by vectors alone   with the guard")
    default = SemanticCacheConfig().threshold
    mistaken = 0
    for threshold in THRESHOLDS:
        near = [row for row, cosine in zip(rows, cosines, strict=True) if cosine >= threshold]
        both = 2 * sum(plain_question(one) == plain_question(two) for _, one, two in near)
        mistaken = both if threshold == default else mistaken
        print(f"{threshold:9.2f} {2 * len(near):18d} {both:16d}")
    groups = Counter(row[0] for row, cosine in zip(rows, cosines, strict=True) if cosine >= default)
    print(f"at {default} by vectors alone: " + ", ".join(f"{group} {count}" for group, count in groups.most_common()))
    return mistaken


async def paraphrases(embedder: LocalEmbedder, name: str) -> None:
    """Print how many paraphrases are found, by kind."""
    rows, cosines = await read(embedder, name)
    print(f"\n{name}: {len(rows)} pairs; found with the guard, and by vectors alone")
    print(f"{'kind':22} pairs " + " ".join(f"{threshold:>12.2f}" for threshold in THRESHOLDS))
    accepted = [plain_question(one) == plain_question(two) for _, one, two in rows]
    for kind in [*dict.fromkeys(row[0] for row in rows), "all"]:
        chosen = [place for place, row in enumerate(rows) if kind in {row[0], "all"}]
        cells: list[str] = []
        for threshold in THRESHOLDS:
            near = [place for place in chosen if cosines[place] >= threshold]
            cells.append(f"{sum(accepted[place] for place in near):6d} / {len(near):3d}")
        print(f"{kind:22} {len(chosen):5d} " + " ".join(cells))


async def read(embedder: LocalEmbedder, name: str) -> tuple[list[tuple[str, str, str]], list[float]]:
    """Return the pairs of a file with their kind, and the cosine of each."""
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [(row["category"], row["question"], row["other"]) for row in map(json.loads, lines)]
    vectors = [(await embedder.embed_query(one), await embedder.embed_query(two)) for _, one, two in rows]
    return rows, [cosine(one, two) for one, two in vectors]


def cosine(one: Vector, two: Vector) -> float:
    """Return the cosine of two vectors."""
    return float(one @ two / (np.linalg.norm(one) * np.linalg.norm(two)))


def look_up(dimension: int) -> float:
    """Print what a look-up costs beside a loop over the same vectors; return its median in milliseconds."""
    generator = np.random.default_rng(7)
    vectors = generator.normal(size=(ENTRIES, dimension)).astype(np.float32)
    known = SemanticCache(0.98, ENTRIES, 300, time.monotonic)
    questions = [f"How do I configure device {number}?" for number in range(ENTRIES)]
    for number, (question, vector) in enumerate(zip(questions, vectors, strict=True)):
        known.add("p", question, vector, str(number))
    asked = [
        (f"how can i configure device {number}", vectors[number]) for number in range(0, ENTRIES, ENTRIES // TURNS)
    ]
    assert all(known.find("p", *question).match for question in asked)
    best, median = times([lambda question=question: known.find("p", *question) for question in asked])
    loops = [lambda vector=vector: max(cosine(vector, other) for other in vectors) for _, vector in asked[:5]]
    loop, _ = times(loops)
    print(f"\na look-up among {ENTRIES:,} questions of {dimension} components, guard and all, {len(asked)} look-ups:")
    print(f"median {median:.3f} ms, best {best:.3f} ms; {ENTRIES:,} single comparisons {loop:.1f} ms (best of 5)")
    return median


def times(actions: Sequence[Callable[[], object]]) -> tuple[float, float]:
    """Return the shortest and the median time of several actions, in milliseconds."""
    taken: list[float] = []
    for act in actions:
        started = time.perf_counter()
        act()
        taken.append((time.perf_counter() - started) * 1000)
    return min(taken), sorted(taken)[len(taken) // 2]


if __name__ == "__main__":
    asyncio.run(main())
