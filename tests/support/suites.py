"""A small index, the suites that are run on it, and results made up for comparing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from retrieval_core import open_index
from retrieval_core.config import load_config
from retrieval_core.evaluate.suite import CaseResult, CaseStatus, IndexTarget, Suite, SuiteResult, run_suite
from retrieval_core.evaluate.suite.results import PerformanceMetrics, Problem, Subject, to_json
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from retrieval_core import Index

__all__ = [
    "PAGES", "PerformanceMetrics", "Problem", "Subject", "chunks", "made_up", "one", "run", "small_index", "to_json",
]  # fmt: skip

PAGES = {
    "tapirs.md": ["Tapirs swim well and eat leaves.", "A tapir calf has stripes and spots."],
    "trains.md": ["The night train to Vienna leaves at nine.", "Tickets are sold at the counter."],
    "bread.md": ["Bread is baked until its crust is brown."],
    "owls.md": ["Owls hunt at night and sleep by day."],
}


def chunks(pages: Mapping[str, Iterable[str]] = PAGES) -> list[Chunk]:
    """Return the passages of pages, as an index has them."""
    made: list[Chunk] = []
    for document, page in pages.items():
        texts = list(page)
        made += [
            Chunk(
                f"{document}#{number}",
                document,
                text,
                chunk_index=number,
                total_chunks=len(texts),
                source=document,
                timestamp=datetime(2026, 1, 2, tzinfo=UTC),
                embedding_model="fake-words-256",
                metadata={"kind": document.split(".")[0]},
            )
            for number, text in enumerate(texts)
        ]
    return made


def small_index(folder: Path, **settings: Any) -> Index:
    """Open an index of :data:`PAGES` that keeps no results; the caller closes it."""
    given = {key.replace("__", "."): value for key, value in settings.items()}
    config = load_config(overrides={"cache.kind": "none", "store.kind": "memory", **given})
    index = open_index(folder / "index.db", config=config, embedder=FakeEmbedder())
    index.add(chunks())
    return index


def run(index: Index, *cases: Mapping[str, Any], **options: Any) -> SuiteResult:
    """Run cases; those without a name are called 1, 2 and so on."""
    named = [{"name": str(number), **case} for number, case in enumerate(cases, 1)]
    suite = Suite.model_validate({"name": "made up", "cases": named, **options.pop("suite", {})})
    return asyncio.run(run_suite(IndexTarget(index), suite, **options))


def one(index: Index, **case: Any) -> CaseResult:
    """Run one case and return its result."""
    return run(index, case).results[0]


def made_up(recalls: Mapping[str, float], corpus: str | None = "c") -> SuiteResult:
    """Return a result whose cases have these values of ``recall@5`` and ``ndcg@10``."""
    results = [
        CaseResult(
            name,
            name,
            CaseStatus.PASSED if value == 1 else CaseStatus.FAILED,
            ranks={"document:d": 1 if value else None},
            measures=dict.fromkeys(("recall@5", "recall@k", "ndcg@10", "mrr"), value),
            retrieval_time_ms=1.0,
        )
        for name, value in sorted(recalls.items())
    ]
    subject = Subject("somewhere", 4, corpus=corpus)
    return SuiteResult("made up", subject, tuple(results), (), PerformanceMetrics(), 1.0, "2026-01-02T00:00:00+00:00")
