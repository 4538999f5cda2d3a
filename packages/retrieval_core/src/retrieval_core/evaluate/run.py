"""Evaluation of a configuration on a collection: index it, ask every query, measure the rankings."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, SearchError
from retrieval_core.evaluate.metrics import DEPTH, ScoredDocument, load_library, measure, rank_documents, write_run
from retrieval_core.index.open import open_index
from retrieval_core.types.filters import NotIn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.evaluate.beir import Collection
    from retrieval_core.index.index import Index
    from retrieval_core.ports import CataloguedStore, Embedder
    from retrieval_core.types import JSON, RetrievalResult
    from retrieval_core.types.filters import Filter

PASSAGES = 2 * DEPTH
"""Passages asked for at a time to find :data:`DEPTH` documents: enough where documents are about two passages long."""

OnProgress: TypeAlias = "Callable[[str, int, int], None]"
"""Takes the phase, ``"index"`` or ``"query"``, and how many of its documents or queries are done, of how many."""


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The measures of one evaluation; see :mod:`retrieval_core.evaluate.metrics`.

    Attributes:
        queries: Number of queries.
        latency_p50_ms: Median latency of single queries in milliseconds.
        index_seconds: Time from the empty index until the last document was written.
        index_bytes: Size of the index on the disk; ``None`` if it is not on the disk.
        ndcg_by_query: nDCG@10 of each query, by its id.
    """

    queries: int
    ndcg_at_10: float
    recall_at_10: float
    recall_at_100: float
    mrr_at_10: float
    latency_p50_ms: float
    latency_p95_ms: float
    index_seconds: float
    index_bytes: int | None
    ndcg_by_query: Mapping[str, float]

    def to_json(self) -> dict[str, JSON]:
        """Return the report under the measures' usual names, such as ``ndcg@10``."""
        return {
            "queries": self.queries,
            "ndcg@10": self.ndcg_at_10,
            "recall@10": self.recall_at_10,
            "recall@100": self.recall_at_100,
            "mrr@10": self.mrr_at_10,
            "latency_ms": {"p50": self.latency_p50_ms, "p95": self.latency_p95_ms},
            "index_seconds": self.index_seconds,
            "index_bytes": self.index_bytes,
        }


async def evaluate(
    collection: Collection,
    config: RetrievalConfig,
    *,
    embedder: Embedder | None = None,
    store: CataloguedStore | None = None,
    limit: int | None = None,
    on_progress: OnProgress | None = None,
    run_file: Path | None = None,
) -> EvaluationReport:
    """Index a collection, ask every query, one after the other, and measure the rankings.

    The index is in a temporary folder and is removed afterwards. Each query runs with the configured ``top_k``,
    which is timed, and whose documents lead the ranking. The rest of the hundred that recall@100 needs comes from
    :func:`rank_deeply`.

    Args:
        collection: From :func:`load_collection`.
        config: The settings to measure; ``config.index`` is not used, and nothing is cached.
        embedder: Used in place of the configured one, and closed afterwards.
        store: Used in place of the configured one, and closed afterwards; it must be empty.
        limit: Ask only the first ``limit`` queries, at least 1.
        run_file: File for the rankings; see :func:`write_run`.

    Raises:
        MissingExtraError: ``ir-measures`` is not installed.
        InvalidParameterError: ``limit`` is less than 1, the store is not empty, or the run file's folder is missing.
        SearchError: The result of a query was degraded, so that the figures would not be the configuration's.
        UnreadableFileError: The corpus has changed and cannot be read any more.
        OSError: The run file cannot be written.
        RetrievalError: The index could not be built, or a query failed.
    """
    await asyncio.to_thread(_check_output, run_file)
    config = config.model_copy(update={"cache": config.cache.model_copy(update={"kind": "none"})})
    asked = collection if limit is None else collection.first(limit)
    report = on_progress or _ignore
    folder = await asyncio.to_thread(TemporaryDirectory, prefix="retrieval-evaluate-")
    try:
        location = Path(folder.name) / "index.db"
        async with open_index(location, config=config, embedder=embedder, store=store) as index:
            index_seconds = await _fill(index, collection, report)
            rankings, latencies = await _ask(index, asked.queries, report)
        index_bytes = await asyncio.to_thread(
            _size_of, Path(folder.name)
        )  # closed, so that nothing waits to be written
    finally:
        await asyncio.to_thread(folder.cleanup)
    if run_file is not None:
        await asyncio.to_thread(write_run, run_file, rankings)
    return _judged(asked, rankings, latencies, index_seconds, index_bytes)


async def rank_deeply(index: Index, query: str, result: RetrievalResult) -> tuple[ScoredDocument, ...]:
    """Extend the documents of a query's result to the best hundred, or to all there are.

    The result's documents stay first. More come from asking for more passages of the same candidates, which keeps the
    order; while they are still too few, the query is asked again for passages of other documents only. In dense or
    lexical mode that is the order of one deep search; in hybrid mode, fusion sees other candidates each time.

    Args:
        result: Of ``query``, with the configured ``top_k``.

    Raises:
        SearchError: The result of a query was degraded.
    """
    settings = index.config.search
    ranking: dict[str, ScoredDocument] = {}
    _append(ranking, result)
    # Fewer hits than were asked for mean that nothing is left.
    top_k, same_candidates = settings.top_k, min(settings.candidates, PASSAGES)
    if len(ranking) < DEPTH and len(result.hits) == top_k < same_candidates:
        top_k = same_candidates
        result = await _retrieve(index, query, top_k)
        _append(ranking, result)
    while len(ranking) < DEPTH and len(result.hits) == top_k:
        top_k = PASSAGES
        result = await _retrieve(index, query, top_k, NotIn("document_id", tuple(ranking)))
        if not _append(ranking, result):
            break
    return tuple(ranking.values())[:DEPTH]


def _ignore(_phase: str, _done: int, _total: int) -> None: ...


def _append(ranking: dict[str, ScoredDocument], result: RetrievalResult) -> bool:
    """Add a result's new documents to a ranking, and return whether there were any."""
    before = len(ranking)
    for document in rank_documents(result.hits):
        ranking.setdefault(document.document_id, document)
    return len(ranking) > before


async def _retrieve(
    index: Index, query: str, top_k: int | None = None, condition: Filter | None = None
) -> RetrievalResult:
    result = await index.aretrieve(query, condition, top_k=top_k)
    if result.degraded:
        stage, reason = result.degraded[0].stage, result.degraded[0].reason
        msg = (
            f"the result of the query {query!r:.200} is degraded ({stage}: {reason}), so the figures would not be "
            "those of this configuration. Fix the cause and evaluate again"
        )
        raise SearchError(msg, {"query": query, "stage": stage, "reason": reason})
    return result


async def _fill(index: Index, collection: Collection, report: OnProgress) -> float:
    """Index the whole corpus and return how many seconds that took."""
    await _check_empty(index)
    total = collection.document_count
    started = time.perf_counter()
    await index.aadd_documents(collection.documents(), on_progress=lambda done: report("index", done, total))
    return time.perf_counter() - started


async def _check_empty(index: Index) -> None:
    try:
        held = await index.adescribe()
    except IndexNotFoundError:
        return
    if held.chunks or held.documents:
        msg = f"{held.location} holds {held.chunks} chunks already; evaluation needs an empty store"
        raise InvalidParameterError(msg)


async def _ask(
    index: Index, queries: Mapping[str, str], report: OnProgress
) -> tuple[dict[str, tuple[ScoredDocument, ...]], list[float]]:
    """Return the ranking of every query, and how many seconds each took with the configured ``top_k``."""
    rankings: dict[str, tuple[ScoredDocument, ...]] = {}
    latencies: list[float] = []
    for done, (query_id, query) in enumerate(queries.items(), start=1):
        started = time.perf_counter()
        result = await _retrieve(index, query)
        latencies.append(time.perf_counter() - started)
        rankings[query_id] = await rank_deeply(index, query, result)
        report("query", done, len(queries))
    return rankings, latencies


def _judged(
    collection: Collection,
    rankings: Mapping[str, Sequence[ScoredDocument]],
    latencies: Sequence[float],
    index_seconds: float,
    index_bytes: int | None,
) -> EvaluationReport:
    import numpy as np  # noqa: PLC0415 - not needed to import this module

    p50, p95 = np.percentile(np.array(latencies) * 1000, (50, 95), method="inverted_cdf")
    measures = measure(collection.judgements, rankings)
    return EvaluationReport(
        queries=len(rankings),
        ndcg_at_10=measures.ndcg_at_10,
        recall_at_10=measures.recall_at_10,
        recall_at_100=measures.recall_at_100,
        mrr_at_10=measures.mrr_at_10,
        latency_p50_ms=float(p50),
        latency_p95_ms=float(p95),
        index_seconds=index_seconds,
        index_bytes=index_bytes,
        ndcg_by_query=measures.ndcg_by_query,
    )


def _size_of(folder: Path) -> int | None:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) or None


def _check_output(run_file: Path | None) -> None:
    """Raise now what would otherwise be raised after all the work is done."""
    load_library()
    if run_file is not None and not run_file.parent.is_dir():
        msg = f"{run_file} cannot be written: there is no folder {run_file.parent}"
        raise InvalidParameterError(msg)
