"""Evaluation of a configuration on a collection in BEIR's format: index it, ask every query, measure the rankings.

::

    corpus.jsonl      {"_id": "d1", "title": "…", "text": "…", "metadata": {…}}   title and metadata may be absent
    queries.jsonl     {"_id": "q1", "text": "…"}
    qrels/test.tsv    query-id  corpus-id  score                                  a header, then one judgement a line

Judgements may also be a TREC file, ``query-id iteration corpus-id grade`` without a header. Columns are separated by
tabs; where a line has none, by white space.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from retrieval_core.config.base import problems_of
from retrieval_core.errors import (
    IndexNotFoundError,
    InvalidParameterError,
    MissingExtraError,
    SearchError,
    UnreadableFileError,
    checked_count,
)
from retrieval_core.index.open import open_index
from retrieval_core.types import Document, FrozenDict, content_hash
from retrieval_core.types.filters import NotIn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Collection as SizedIterable
    from types import ModuleType

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.index.index import Index
    from retrieval_core.ports import Embedder, Store
    from retrieval_core.types import JSON, Hit, RetrievalResult
    from retrieval_core.types.filters import Filter

_HEADER = ("query-id", "corpus-id", "score")


@dataclass(frozen=True, slots=True)
class Collection:
    """A test collection; the corpus stays on disk.

    Attributes:
        corpus: The file of the documents.
        queries: Text by query id, in the order of their file; only those with a judgement.
        judgements: Grades by query id and document id; 0 and less is irrelevant, and more is better.
    """

    corpus: Path
    document_count: int
    queries: Mapping[str, str]
    judgements: Mapping[str, Mapping[str, int]]

    def documents(self) -> Iterator[Document]:
        """Read the documents from the corpus, one at a time; a document without text has its title as text.

        Raises:
            UnreadableFileError: The file cannot be read, or a line is broken.
        """
        for number, row in _rows(self.corpus):
            yield _document(self.corpus, number, row)

    def first(self, limit: int) -> Collection:
        """Return the collection with the first ``limit`` queries, and all documents.

        Raises:
            InvalidParameterError: ``limit`` is less than 1.
        """
        queries = FrozenDict(islice(self.queries.items(), checked_count(limit, "limit")))
        judgements = FrozenDict({query_id: self.judgements[query_id] for query_id in queries})
        return Collection(self.corpus, self.document_count, queries, judgements)


def load_collection(folder: str | Path, qrels: str | Path | None = None) -> Collection:
    """Read a collection and check it as a whole, before anything is indexed.

    Args:
        folder: Holds ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv``.
        qrels: Other judgements than ``qrels/test.tsv``.

    Raises:
        UnreadableFileError: A file is missing, a line is broken, an id occurs twice, or a judgement names an unknown
            query or document. The message has the file and the line.
    """
    folder = Path(folder)
    corpus, queries_file = folder / "corpus.jsonl", folder / "queries.jsonl"
    document_ids: set[str] = set()
    for number, row in _rows(corpus):
        document_ids.add(_unused(corpus, number, _document(corpus, number, row).id, document_ids))
    texts: dict[str, str] = {}
    for number, row in _rows(queries_file):
        if not row.text.strip():
            _refuse(queries_file, number, f"the query {row.id!r} has an empty text; give it one or leave it out")
        texts[_unused(queries_file, number, row.id, texts)] = row.text
    qrels_file = Path(qrels) if qrels is not None else folder / "qrels" / "test.tsv"
    judgements = _read_judgements(qrels_file, texts, document_ids)
    queries = {query_id: text for query_id, text in texts.items() if query_id in judgements}
    return Collection(
        corpus,
        len(document_ids),
        FrozenDict(queries),
        FrozenDict({query_id: FrozenDict(judgements[query_id]) for query_id in queries}),
    )


class _Row(BaseModel):
    """A line of the corpus or of the queries."""

    model_config = ConfigDict(strict=True)

    id: Annotated[str, Field(alias="_id", min_length=1)]
    text: str
    title: str | None = None
    metadata: dict[str, Any] | None = None

    @field_validator("id")
    @classmethod
    def _has_no_space_around(cls, value: str) -> str:
        if value != value.strip():
            msg = "it must not begin or end with white space"
            raise ValueError(msg)
        return value


def _rows(file: Path) -> Iterator[tuple[int, _Row]]:
    """Yield the rows of a file with their line numbers, without empty lines."""
    for number, line in _lines(file):
        try:
            yield number, _Row.model_validate_json(line)
        except ValidationError as error:
            _refuse(file, number, "; ".join(problems_of(error)))


def _document(file: Path, number: int, row: _Row) -> Document:
    text, title = (row.text, row.title) if row.text.strip() else (row.title or "", None)
    try:
        return Document(
            id=row.id,
            text=text,
            source=file.name,
            content_hash=content_hash(text),
            title=title or None,
            metadata=row.metadata or {},
        )
    except InvalidParameterError as error:
        _refuse(file, number, f"the metadata cannot be used: {error}")


def _read_judgements(
    file: Path, queries: SizedIterable[str], documents: SizedIterable[str]
) -> dict[str, dict[str, int]]:
    judgements: dict[str, dict[str, int]] = {}
    for number, line in _lines(file):
        columns = _columns(file, number, line)
        if number == 1 and columns == _HEADER:
            continue
        query_id, document_id, written = columns
        try:
            grade = int(written)
        except ValueError:
            _refuse(file, number, f"the grade must be a whole number, got {written!r:.80}")
        if query_id not in queries:
            _refuse(file, number, f"there is no query {query_id!r}; add it to queries.jsonl or leave the judgement out")
        if document_id not in documents:
            _refuse(
                file, number, f"there is no document {document_id!r}; add it to corpus.jsonl or leave the judgement out"
            )
        known = judgements.setdefault(query_id, {})
        if known.setdefault(document_id, grade) != grade:
            _refuse(
                file,
                number,
                f"query {query_id!r} and document {document_id!r} already have the grade {known[document_id]} and here "
                f"get {grade}; keep one of the two lines",
            )
    if not any(grade > 0 for grades in judgements.values() for grade in grades.values()):
        raise UnreadableFileError(str(file), "no document is judged relevant (a grade of 1 or more) to any query")
    return judgements


def _columns(file: Path, number: int, line: bytes) -> tuple[str, str, str]:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError:
        _refuse(file, number, "not UTF-8 text; convert the file to UTF-8")
    columns = [column.strip() for column in text.split("\t")] if "\t" in text else text.split()
    if len(columns) not in {3, 4}:
        form = "query-id, corpus-id and score, or query-id, iteration, corpus-id and grade"
        _refuse(file, number, f"expected {form}, got {text!r:.80}; separate ids that hold spaces with tabs")
    return columns[0], columns[-2], columns[-1]


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield number, line
    except FileNotFoundError as error:
        hint = "a collection is a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv"
        raise UnreadableFileError(str(file), f"there is no such file; {hint}") from error
    except OSError as error:
        raise UnreadableFileError(str(file), error.strerror or type(error).__name__) from error


def _unused(file: Path, number: int, identifier: str, taken: SizedIterable[str]) -> str:
    if identifier in taken:
        _refuse(file, number, f"the id {identifier!r} was there before; ids must be unique")
    return identifier


def _refuse(file: Path, number: int, reason: str) -> NoReturn:
    raise UnreadableFileError(str(file), f"line {number}: {reason}")


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
    store: Store | None = None,
    limit: int | None = None,
    on_progress: OnProgress | None = None,
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

    Raises:
        MissingExtraError: ``ir-measures`` is not installed.
        InvalidParameterError: ``limit`` is less than 1, or the store is not empty.
        SearchError: The result of a query was degraded, so that the figures would not be the configuration's.
        UnreadableFileError: The corpus has changed and cannot be read any more.
        RetrievalError: The index could not be built, or a query failed.
    """
    await asyncio.to_thread(load_library)  # now, and not after all the work is done
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
    result = await index.aretrieve(query, condition, top_k=top_k, syntax=False)
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
