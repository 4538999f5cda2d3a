"""Measures of rankings as the literature reports them, and rankings as TREC runs.

=========== ========================================================================================================
nDCG@10     ``DCG / ideal DCG`` over the first ten documents, where ``DCG = sum of grade / log2(rank + 1)``: the gain is
            the grade itself, as in trec_eval and BEIR, not ``2 ** grade - 1``; grades below 0 count as 0
recall@100  share of the relevant documents (grade 1 or more) that is among the first hundred; recall@10 likewise
MRR@10      ``1 / rank`` of the first relevant document, 0 if it is not among the first ten
=========== ========================================================================================================

Each is the mean over all judged queries. A query that found nothing counts as 0, and so does one of whose documents
none is relevant, as in trec_eval.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from retrieval_core.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from retrieval_core.types import Hit

DEPTH = 100
"""The length of the longest ranking that is measured."""


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
