"""How good answers of quotes are: ``python benchmarks/extractive.py FOLDER [--index FILE] [--queries N]``.

The folder holds a BEIR collection whose queries have a ``reference_answer`` in their ``metadata``; where they have
none, only the sources are judged. Each query is asked of a hybrid index with the default settings: of the index at
FILE, which must hold that collection, or of a temporary one. From its context, answers are made with several scorers.

Prints for each scorer, over the queries with judgements: F1 of the words and ROUGE-L against the reference, p of the
difference in F1 from words alone (paired randomisation, two-sided), the part of the stretches that are from a relevant
document, the answers' length in code points, and the time of an answer beside that of the search before it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from significance import p_value, shown

from retrieval_core import load_config, open_index
from retrieval_core.adapters.registry import build_embedder
from retrieval_core.adapters.rerankers.local import LocalCrossEncoder
from retrieval_core.evaluate import load_collection
from retrieval_core.pipeline.answer.extract import MOST, extract
from retrieval_core.ports import Reranker, RerankScores
from retrieval_core.run.runner import Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.text.analysis import Analyzer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from retrieval_core.evaluate import Collection
    from retrieval_core.pipeline.answer.extract import ExtractedAnswer
    from retrieval_core.ports import Embedder
    from retrieval_core.types import ContextPack

    Answering = Callable[[str, ContextPack], Awaitable[ExtractedAnswer]]

_WORD = re.compile(r"\w+")
_MARKER = re.compile(r"\[\d+\]")


@dataclass
class Figures:
    """What was measured of one way to answer, one figure for each query."""

    f1: list[float] = field(default_factory=list[float])
    rouge_l: list[float] = field(default_factory=list[float])
    relevant: list[float] = field(default_factory=list[float])
    length: list[float] = field(default_factory=list[float])
    seconds: list[float] = field(default_factory=list[float])


class ByCosine(Reranker):
    """Scores by an embedder alone, each sentence by itself: a cosine, put into [0, 1]."""

    id = "cosine"
    batch_size = 256

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score texts."""
        question = await self._embedder.embed_query(query)
        cosines = (await self._embedder.embed_texts(passages)) @ question
        return RerankScores(tuple(float(min(1, max(0, cosine))) for cosine in cosines))


class Both(Reranker):
    """Scores by the mean rank of two scorers."""

    id = "both"
    batch_size = 256

    def __init__(self, one: Reranker, other: Reranker) -> None:
        self._scorers = (one, other)

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score texts."""
        ranks = np.zeros(len(passages))
        for scorer in self._scorers:
            scores = (await scorer.score(query, passages)).scores
            ranks += np.argsort(np.argsort(-np.array(scores), kind="stable"), kind="stable")
        return RerankScores(tuple(float(1 / (2 + rank)) for rank in ranks))


def words(text: str) -> list[str]:
    """Return the words of a text, without the markers of sources."""
    return _WORD.findall(_MARKER.sub("", text).lower())


def f1(answer: list[str], reference: list[str]) -> float:
    """Return the harmonic mean of the parts of both that the other has, as counted words."""
    shared = sum((Counter(answer) & Counter(reference)).values())
    return 2 * shared / (len(answer) + len(reference)) if shared else 0.0


def rouge_l(answer: list[str], reference: list[str]) -> float:
    """Return the same for the longest sequence of words that both have in order (Lin 2004)."""
    row = [0] * (len(reference) + 1)
    for word in answer:
        before = 0
        for place, other in enumerate(reference, start=1):
            before, row[place] = row[place], before + 1 if word == other else max(row[place], row[place - 1])
    return 2 * row[-1] / (len(answer) + len(reference)) if row[-1] else 0.0


async def measure(collection: Collection, references: dict[str, str], index: Path, most: int) -> dict[str, Figures]:
    """Answer every query in every way."""
    config = load_config(overrides={"cache.kind": "none"})
    analyzer, pool = Analyzer(), ThreadPool("benchmark", threads=2)
    cross_encoder, embedder = LocalCrossEncoder(), build_embedder(config.embedder)
    if embedder is None:
        sys.exit("the default settings have no embedder")
    cosine = ByCosine(embedder)

    async def answer(query: str, pack: ContextPack, *, scorer: Reranker | None, most: int = MOST) -> ExtractedAnswer:
        made = await extract(Run(pool), scorer, query, pack, analyzer, most=most)
        if made.failures:
            sys.exit(f"{query}: {made.failures}")
        return made

    ways: dict[str, Answering] = {
        "words": partial(answer, scorer=None),
        f"cross-encoder, {MOST // 2}": partial(answer, scorer=cross_encoder, most=MOST // 2),
        f"cross-encoder, {MOST} (default)": partial(answer, scorer=cross_encoder),
        f"cross-encoder, {2 * MOST}": partial(answer, scorer=cross_encoder, most=2 * MOST),
        f"embedder, {MOST}": partial(answer, scorer=cosine),
        f"both, {MOST}": partial(answer, scorer=Both(cross_encoder, cosine)),
    }
    figures = {name: Figures() for name in ("search", *ways)}
    async with open_index(index, config=config) as opened:
        for number, (name, query) in enumerate(list(collection.queries.items())[:most], start=1):
            started = time.perf_counter()
            pack = await opened.acontext(query)
            figures["search"].seconds.append(time.perf_counter() - started)
            reference = words(references.get(name, ""))
            for way, make in ways.items():
                started = time.perf_counter()
                made = await make(query, pack)
                own = figures[way]
                own.seconds.append(time.perf_counter() - started)
                said = words(made.text)
                own.f1.append(f1(said, reference))
                own.rouge_l.append(rouge_l(said, reference))
                own.length.append(len(made.text))
                cited = [item.citation for sentence in made.sentences for item in sentence.attributions]
                judged = collection.judgements[name]
                right = [item is not None and judged.get(item.document_id, 0) > 0 for item in cited]
                own.relevant.append(float(np.mean(right)) if right else 0.0)
            if sys.stderr.isatty():
                print(f"\r{number} of {len(collection.queries)} queries", end="", file=sys.stderr, flush=True)
    await cross_encoder.aclose()
    pool.close()
    return figures


def print_table(figures: dict[str, Figures]) -> None:
    """Print a row for each way to answer."""
    search = float(np.median(figures["search"].seconds))
    print(f"{len(figures['search'].seconds)} queries; search and context: {1000 * search:.0f} ms\n")
    print("| scorer | F1 | ROUGE-L | p | from a relevant document | length | ms | beside the search |")
    print("|---|---|---|---|---|---|---|---|")
    for name, own in figures.items():
        if name == "search":
            continue
        p = "" if name == "words" else shown(p_value(np.array(own.f1) - np.array(figures["words"].f1)))
        took = float(np.median(own.seconds))
        means = (np.mean(own.f1), np.mean(own.rouge_l))  # both 0 where there are no references
        print(
            f"| {name} | {means[0]:.4f} | {means[1]:.4f} | {p} | {np.mean(own.relevant):.3f} | "
            f"{np.mean(own.length):.0f} | {1000 * took:.0f} | {took / search:.1f} |"
        )


async def main() -> None:
    """Ask, answer and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--queries", type=int, default=1_000_000, help="how many of them, from the first")
    arguments = parser.parse_args()
    collection = load_collection(arguments.folder)
    references: dict[str, str] = {}
    for line in (arguments.folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        about: dict[str, Any] = row.get("metadata") or {}
        references[row["_id"]] = about.get("reference_answer") or ""
    with tempfile.TemporaryDirectory() as folder:
        index = arguments.index or Path(folder, "index.db")
        if arguments.index is None:
            async with open_index(index) as empty:
                await empty.aadd_documents(collection.documents())
        figures = await measure(collection, references, index, arguments.queries)
    print_table(figures)


if __name__ == "__main__":
    asyncio.run(main())
