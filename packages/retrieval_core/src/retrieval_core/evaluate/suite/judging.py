"""Judging what a question found against what its case expects."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING
from unicodedata import category, east_asian_width, normalize

from retrieval_core.errors import (
    ExpectationError,
    MissingDocumentError,
    PerformanceError,
    RelevanceError,
    RetrievalError,
    SearchError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from retrieval_core.evaluate.suite.cases import Case, Expected
    from retrieval_core.types import Chunk, Hit

FIRST = 5
"""How far down recall is looked at first, as the specification's success criterion does."""


def folded(text: str) -> str:
    """Return text as it is compared: in composed Unicode, without case, and with single spaces."""
    return " ".join(normalize("NFC", normalize("NFC", text).casefold()).split())


def has_keyword(text: str, keyword: str) -> bool:
    """Whether a text holds a keyword as whole words; both :func:`folded`.

    Where a keyword begins or ends with a wide letter, as Chinese and Japanese have them, it may lie within others:
    there is no space between words.
    """
    begin = text.find(keyword)
    while begin >= 0:
        end = begin + len(keyword)
        before, after = text[begin - 1 : begin], text[end : end + 1]
        if not (_same_word(before, keyword[0]) or _same_word(keyword[-1], after)):
            return True
        begin = text.find(keyword, begin + 1)
    return False


def _same_word(left: str, right: str) -> bool:
    return _in_word(left) and _in_word(right) and "W" not in {east_asian_width(left), east_asian_width(right)}


def _in_word(character: str) -> bool:
    return bool(character) and (character.isalnum() or character == "_" or category(character).startswith("M"))


class Texts:
    """The passages found, each folded once."""

    def __init__(self, hits: Sequence[Hit]) -> None:
        self.hits = hits
        self._folded = [folded(hit.chunk.text) for hit in hits]

    def rank_of(self, kind: str, wanted: str) -> int | None:
        """Return the first rank of a document, chunk or phrase, from 1; a document may be named by a chunk's id."""
        phrase = folded(wanted) if kind == "phrase" else ""
        for rank, (hit, text) in enumerate(zip(self.hits, self._folded, strict=True), 1):
            chunk = hit.chunk
            if phrase in text if kind == "phrase" else wanted in _ids(chunk, kind):
                return rank
        return None

    def has_keyword(self, keyword: str) -> bool:
        """Whether any passage holds a keyword."""
        wanted = folded(keyword)
        return any(has_keyword(text, wanted) for text in self._folded)


def _ids(chunk: Chunk, kind: str) -> tuple[str, ...]:
    return (chunk.id,) if kind == "chunk" else (chunk.document_id, chunk.id)


def ranks_of(expected: Expected, texts: Texts) -> dict[str, int | None]:
    """Return the first rank of each thing expected, as ``kind:text``."""
    return {f"{kind}:{text}": texts.rank_of(kind, text) for kind, text, _ in expected.items()}


def measures_of(expected: Expected, ranks: Mapping[str, int | None], top_k: int) -> dict[str, float]:
    """Return how well the expected was found; empty where no document, chunk or phrase is expected.

    ``recall`` is the share of the expected that was found, and with ``matches: any`` 1 where one of them was.
    ``ndcg@10`` takes the rank of each passage or document as its place, with linear gain.
    """
    grades = [grade for _, _, grade in expected.items()]
    if not grades:
        return {}
    found = [ranks[f"{kind}:{text}"] for kind, text, _ in expected.items()]

    def recall(depth: int) -> float:
        shares = [rank is not None and rank <= depth for rank in found]
        return float(any(shares)) if expected.matches == "any" else sum(shares) / len(shares)

    gained = sum(grade / log2(rank + 1) for grade, rank in zip(grades, found, strict=True) if rank and rank <= 10)
    best = sum(grade / log2(rank + 1) for rank, grade in enumerate(sorted(grades, reverse=True)[:10], 1))
    first = min((rank for rank in found if rank), default=None)
    return {
        f"recall@{FIRST}": recall(FIRST),
        "recall@k": recall(top_k),
        "ndcg@10": min(1.0, gained / best),  # several things may be expected of one passage, and share its place
        "mrr": 0.0 if first is None else 1 / first,
    }


def judged(case: Case, texts: Texts, milliseconds: float) -> Iterator[RetrievalError]:
    """Yield what is wrong with what a question found, but for what only a look at the whole index can tell."""
    yield from _unsound(texts.hits)
    ranks = ranks_of(case.expect, texts)
    yield from _missing(case, ranks)
    for keyword in case.expect.keywords:
        if not texts.has_keyword(keyword):
            yield ExpectationError(f"no passage has the keyword {keyword!r}")
    for kind, text in case.forbid.items():
        if rank := texts.rank_of(kind, text):
            yield ExpectationError(f"the {kind} {text!r} must not be found, and is number {rank}")
    if case.relevance_threshold is not None:
        yield from _irrelevant(case, case.relevance_threshold, texts.hits)
    if case.latency_ms is not None and milliseconds > case.latency_ms:
        # How long is a field of the result, so that two runs say the same.
        yield PerformanceError(f"it took longer than the {case.latency_ms:g} ms that it may take")


def _unsound(hits: Sequence[Hit]) -> Iterator[SearchError]:
    """Yield what no passage that is found may be: without an id, a text or a place, or with an impossible score."""
    for rank, hit in enumerate(hits, 1):
        wrong = list(_wrong_with(hit.chunk))
        score = hit.scores.dense
        if score is not None and not 0 <= score <= 1:
            wrong.append(f"its similarity {score} is not in [0, 1]")
        if wrong:
            yield SearchError(f"passage {rank} ({hit.id!r:.100}) is not sound: {'; '.join(wrong)}")


def _wrong_with(chunk: Chunk) -> Iterator[str]:
    if not chunk.id.strip() or not chunk.document_id.strip():
        yield "its id or its document's is empty"
    if not chunk.text.strip():
        yield "content is empty"
    is_placed = {"chunk_index", "total_chunks"}.isdisjoint(chunk.missing_fields)
    if is_placed and not 0 <= chunk.chunk_index <= chunk.total_chunks:  # some programs count chunks from 1
        yield f"chunk_index {chunk.chunk_index} is not in the range of total_chunks {chunk.total_chunks}"


def _missing(case: Case, ranks: Mapping[str, int | None]) -> Iterator[MissingDocumentError]:
    absent = [name for name, rank in ranks.items() if rank is None]
    if case.expect.matches == "any" and len(absent) < len(ranks):
        return
    for name in absent:
        kind, _, text = name.partition(":")
        yield MissingDocumentError(f"the {kind} {text!r} is not among the first {case.top_k} passages")


def _best_similarities(hits: Sequence[Hit]) -> dict[str, float]:
    """Return the highest similarity of each document and chunk, by its id."""
    best: dict[str, float] = {}
    for hit in hits:
        if hit.scores.dense is not None:
            for name in _ids(hit.chunk, "document"):
                best[name] = max(best.get(name, 0.0), hit.scores.dense)
    return best


def _irrelevant(case: Case, threshold: float, hits: Sequence[Hit]) -> Iterator[RetrievalError]:
    """Yield documents whose best passage is below the threshold: the expected ones, or that of the best passage."""
    if not hits:
        if not case.expect.documents:  # that these were not found is told already
            yield RelevanceError(f"nothing was found, let alone with a similarity of {threshold:g}")
        return
    best = _best_similarities(hits)
    if not best:
        yield SearchError("relevance_threshold needs similarities, and this index has no vectors")
        return
    expected = [document for document in case.expect.documents if document in best]
    if expected:
        scores = {f"the best passage of {document!r}": best[document] for document in expected}
    else:
        scores = {"the best passage": max(best.values())}
    if case.expect.matches == "any" and any(score >= threshold for score in scores.values()):
        return
    for what, score in scores.items():
        if score < threshold:
            yield RelevanceError(f"{what} has the similarity {score:.3f}, below the threshold {threshold:g}")
