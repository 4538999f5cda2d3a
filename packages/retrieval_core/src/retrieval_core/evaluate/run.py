"""Evaluation of a configuration on a collection: index it, ask every query, measure the rankings."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from retrieval_core.errors import (
    IndexNotFoundError,
    InvalidParameterError,
    MissingExtraError,
    RetrievalError,
    SearchError,
)
from retrieval_core.evaluate.suite.results import FEWEST, paired_interval
from retrieval_core.index.open import open_index
from retrieval_core.types.filters import NotIn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.evaluate.beir import Collection
    from retrieval_core.index.index import Index
    from retrieval_core.ports import CataloguedStore, Embedder
    from retrieval_core.types import JSON, Hit, RetrievalResult
    from retrieval_core.types.filters import Filter

DEPTH = 100
"""The length of the longest ranking that is measured."""
PASSAGES = 2 * DEPTH
"""Passages asked for at a time to find :data:`DEPTH` documents: enough where documents are about two passages long."""

OnProgress: TypeAlias = "Callable[[str, int, int], None]"
"""Takes the phase, ``"index"`` or ``"query"``, and how many of its documents or queries are done, of how many."""


@dataclass(frozen=True, slots=True)
class ScoredDocument:
    """A document's place in a ranking: its score is that of its best chunk."""

    document_id: str
    score: float


@dataclass(frozen=True, slots=True)
class Measures:
    """Means over all judged queries, each in [0, 1]; see the module's documentation.

    Attributes:
        ndcg_by_query: nDCG@10 of each judged query, by its id.
    """

    ndcg_at_10: float
    recall_at_10: float
    recall_at_100: float
    mrr_at_10: float
    ndcg_by_query: Mapping[str, float] = field(repr=False)


def rank_documents(hits: Iterable[Hit]) -> tuple[ScoredDocument, ...]:
    """Return the documents of a result, each once, in the order of their best chunks."""
    best: dict[str, float] = {}
    for hit in hits:
        best.setdefault(hit.chunk.document_id, hit.score)
    return tuple(ScoredDocument(document_id, score) for document_id, score in best.items())


def measure(judgements: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Sequence[ScoredDocument]]) -> Measures:
    """Measure rankings against judgements.

    Args:
        judgements: Grades by query id and document id; documents without one count as irrelevant.
        rankings: By query id, best first; only their order counts.

    Raises:
        MissingExtraError: ``ir-measures`` is not installed.
    """
    library = load_library()
    ndcg, short_recall, recall, mrr = library.nDCG @ 10, library.R @ 10, library.R @ DEPTH, library.RR @ 10
    grades = {
        _token(query_id): {_token(document_id): max(grade, 0) for document_id, grade in documents.items()}
        for query_id, documents in judgements.items()
    }
    run = {
        _token(query_id): {_token(item.document_id): -float(rank) for rank, item in enumerate(ranking)}
        for query_id, ranking in rankings.items()
    }
    means, singles = library.calc([ndcg, short_recall, recall, mrr], grades, run)
    by_query = {single.query_id: float(single.value) for single in singles if single.measure == ndcg}
    return Measures(
        ndcg_at_10=float(means[ndcg]),
        recall_at_10=float(means[short_recall]),
        recall_at_100=float(means[recall]),
        mrr_at_10=float(means[mrr]),
        ndcg_by_query={query_id: by_query[_token(query_id)] for query_id in judgements},
    )


def write_run(path: Path, rankings: Mapping[str, Sequence[ScoredDocument]], tag: str = "retrieval-core") -> None:
    """Write rankings as a TREC run, ``query-id Q0 document-id rank score tag``, from which trec_eval gets our figures.

    In ids, white space, other unprintable characters and the percent sign are percent-encoded;
    :func:`urllib.parse.unquote` restores them. Readers of the format sort by score in single precision, and break ties
    differently. So a score that is not below the previous one is written as the next smaller float32.

    Raises:
        OSError: The file cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for query_id, ranking in rankings.items():
            for rank, (document_id, score) in enumerate(_falling(ranking), start=1):
                file.write(f"{_token(query_id)} Q0 {_token(document_id)} {rank} {score} {_token(tag)}\n")


def load_library() -> ModuleType:
    """Return the module ``ir_measures``.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import ir_measures  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError("evaluate", "measuring retrieval") from error
    return ir_measures


def _falling(ranking: Sequence[ScoredDocument]) -> Iterator[tuple[str, str]]:
    """Yield document ids with scores, as text, that fall strictly in single precision."""
    import numpy as np  # noqa: PLC0415 - not needed to import this module

    lowest = np.float32(np.inf)
    for item in ranking:
        lowest = min(np.float32(item.score), np.nextafter(lowest, np.float32(-np.inf)))
        yield item.document_id, str(lowest)


def _token(text: str) -> str:
    """Return text as one word of a TREC file."""
    return "".join(
        quote(character, safe="", errors="surrogatepass")
        if character in " %" or not character.isprintable()
        else character
        for character in text
    )


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The measures of one evaluation; see :mod:`retrieval_core.evaluate.run`.

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


@dataclass(frozen=True, slots=True)
class Compared:
    """One configuration beside the first one.

    Attributes:
        difference: nDCG@10 less that of the first configuration; ``None`` for the first itself.
        low: Lower bound of the difference, with ``high``: a paired bootstrap interval of 95 % over the queries.
            ``None`` if there are too few queries.
    """

    name: str
    report: EvaluationReport
    difference: float | None = None
    low: float | None = None
    high: float | None = None

    def to_json(self) -> dict[str, JSON]:
        """Return the measures of :meth:`EvaluationReport.to_json`, with the name and the difference."""
        interval: list[JSON] | None = None if self.low is None else [self.low, self.high]
        return {
            "name": self.name,
            **self.report.to_json(),
            "difference": None if self.difference is None else {"ndcg@10": self.difference, "interval": interval},
        }


@dataclass(frozen=True, slots=True)
class SettingsComparison:
    """Several configurations on one collection, in the order they were given.

    Attributes:
        failed: Why the others could not be evaluated, by name.
    """

    compared: tuple[Compared, ...]
    failed: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_json(self) -> dict[str, JSON]:
        """Return what was measured, a document for each configuration, and what failed."""
        return {"compared": [each.to_json() for each in self.compared], "failed": {**self.failed}}


async def compare_settings(
    collection: Collection,
    configs: Mapping[str, RetrievalConfig],
    *,
    limit: int | None = None,
    on_progress: OnProgress | None = None,
    seed: int = 0,
) -> SettingsComparison:
    """Evaluate configurations one after the other, each on a separate index, and compare them with the first.

    Finished measurements are kept if a later one fails.

    Args:
        configs: By name, at least one.
        limit: As of :func:`evaluate`.
        on_progress: As of :func:`evaluate`; what is done begins with the name.
        seed: Of the bootstrap.

    Raises:
        InvalidParameterError: There are no configurations.
        RetrievalError: As of :func:`evaluate`, for the first one.
    """
    if not configs:
        msg = "there is nothing to compare: no configuration was given"
        raise InvalidParameterError(msg)
    reports: dict[str, EvaluationReport] = {}
    failed: dict[str, str] = {}
    for name, config in configs.items():

        def report(phase: str, done: int, total: int, name: str = name) -> None:
            if on_progress is not None:
                on_progress(f"{name}: {phase}", done, total)

        try:
            reports[name] = await evaluate(collection, config, limit=limit, on_progress=report)
        except RetrievalError as error:
            if not reports:
                raise
            failed[name] = str(error)
    (first_name, first), *others = reports.items()
    compared = (Compared(first_name, first), *(_beside(first, name, other, seed) for name, other in others))
    return SettingsComparison(compared, failed)


def _beside(first: EvaluationReport, name: str, other: EvaluationReport, seed: int) -> Compared:
    import numpy as np  # noqa: PLC0415 - not needed to import this module

    gains = [other.ndcg_by_query[query_id] - before for query_id, before in first.ndcg_by_query.items()]
    low, high = paired_interval(np.array(gains), seed) if len(gains) >= FEWEST else (None, None)
    return Compared(name, other, other.ndcg_at_10 - first.ndcg_at_10, low, high)
