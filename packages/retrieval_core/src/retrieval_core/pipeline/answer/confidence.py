"""How far an answer can be relied on: whether the passages are on its subject, and whether they support the answer.

The chance that the passages are on the question's subject is a logistic curve of two signals:

- the best cosine of question and passage among the first hits, where the embedder is :data:`CALIBRATED_EMBEDDER`;
  cosines of another model mean something else and are not looked at;
- the part of the question's content words that the first three hits hold, each by its title, headings and text.

The curves are regressions on questions of five collections, each asked of its own index and of the others', see
``benchmarks/abstention.py``, which prints them again, and ``docs/confidence.md`` for what they are worth.

That the subject occurs does not mean that the answer does. Where an answer consists of quotes, a cross-encoder has read
them with the question, and the chance that they answer is another such curve, of its best score and of the words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, tanh
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from retrieval_core.types import Confidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import AnswerSentence, Hit

Kind: TypeAlias = Literal["hybrid", "dense", "lexical"]
"""Which sides the hits come from, as their ranks tell."""

CALIBRATED_EMBEDDER: Final = "bge-small-en-v1.5-int8@4d60820e6ba7"
"""The id of the default embedder, whose cosines the curves were fitted to."""
CALIBRATED_SCORER: Final = "ms-marco-MiniLM-L-12-v2-int8@9448390627e3"
"""The id of the local cross-encoder, whose scores the curve of quotes was fitted to."""
DEPTH: Final = 10
"""Hits whose cosine counts: it does not matter in which order they come, so that a reranker changes nothing."""
RANK_WEIGHTS: Final = (3, 2, 1)
"""What the words of the first three hits count. The first alone says less (it is not always the best); with equal
weights, a small index whose second and third hit are about something else would be taken for one without an answer."""
_NAMED: Final = 5
"""Missing words that an explanation names."""
_PROBE: Final = "xqzj"
"""A word of no language, beside which stop words are no terms of a question."""


@dataclass(frozen=True, slots=True)
class Signals:
    """What the confidence in passages is computed from.

    Attributes:
        cosine: The best among the first hits, in [0, 1]; ``None`` where there is none, or it is not of the embedder
            that the curves are for.
        coverage: In [0, 1], the part of the question's content words that the first hits hold; ``None`` for a question
            of stop words alone.
        missing: Content words that none of these hits holds, as they are written in the question.
    """

    kind: Kind
    cosine: float | None
    coverage: float | None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """A chance as a logistic function of two signals.

    Attributes:
        most: What it comes near to, in [0, 1]: the part of the questions of a collection's own that had a relevant
            passage among the first ten. However well the passages fit, no more is claimed.
        start: The height of the curve, in log odds, where both signals are 0.
        cosine: What a cosine of 1 adds to it, never negative; 0 for a curve without.
        coverage: What all words add to it, likewise.
    """

    most: float
    start: float
    cosine: float = 0.0
    coverage: float = 0.0

    def chance(self, signals: Signals) -> float:
        """Return a chance in [0, 1], which never falls as a signal rises."""
        height = self.start + self.cosine * (signals.cosine or 0.0) + self.coverage * (signals.coverage or 0.0)
        return self.most * (0.5 + 0.5 * tanh(height / 2))  # the logistic function, for heights of any size


BY_BOTH: Final[Mapping[Kind, Curve]] = {
    "hybrid": Curve(0.89, -18.2, cosine=21.0, coverage=9.2),
    "dense": Curve(0.79, -12.6, cosine=13.8, coverage=12.1),
}
"""With cosines of :data:`CALIBRATED_EMBEDDER`. A search by words is better at finding these words, found or not, so
that the same coverage says less of its hits."""
BY_WORDS: Final[Mapping[Kind, Curve]] = {
    "hybrid": Curve(0.89, -4.9, coverage=10.8),
    "dense": Curve(0.79, -4.3, coverage=14.2),
    "lexical": Curve(0.82, -5.3, coverage=10.0),
}
"""Without such cosines."""
OF_QUOTES: Final = (-3.9, 0.54, 4.8)
"""A constant, and what the log odds of the best score and all words add."""
LEAST_CHANCE: Final = 0.25
"""Quotes that are less likely to answer are none. Of the questions that the curve was fitted to, any bound from .1 to
.4 refuses the same 3 of 66 that are answered; this is the middle. Of questions on other documentation it refuses 3 of
80 and 24 of 150 that are answered, and 38 of 80 and 115 of 150 that are not."""
BY_COSINE: Final = Curve(0.89, -12.5, cosine=19.5)
"""For a question of stop words alone."""


def retrieval_confidence(
    question: str, hits: Sequence[Hit], *, embedder_id: str | None, analyzer: Analyzer
) -> Confidence | None:
    """Return how likely the passages are on the question's subject.

    Args:
        question: As it was searched for.
        hits: Best first.
        embedder_id: Of the index; ``None`` where it has none, or several.
        analyzer: Splits the words of question and passages; the index's own.

    Returns:
        0 where nothing was found. ``None`` where there is nothing to tell by: the question consists of stop words, and
        the hits have no cosine of :data:`CALIBRATED_EMBEDDER`.
    """
    if not hits:
        return Confidence(0.0, 0.0, explanation="Nothing was found.")
    signals = signals_of(question, hits, embedder_id=embedder_id, analyzer=analyzer)
    curve = curve_for(signals)
    if curve is None:
        return None
    value = curve.chance(signals)
    told = " ".join(_explained(question, signals, min(len(RANK_WEIGHTS), len(hits))))
    return Confidence(value, value, explanation=told)


def with_quotes(confidence: Confidence, score: float | None, coverage: float | None) -> Confidence:
    """Return the confidence in an answer of quotes: the chance that they answer the question.

    Args:
        confidence: In the passages.
        score: What :data:`CALIBRATED_SCORER` gave the best block, in [0, 1]; ``None`` where nothing judged that, so
            that there is no more to say than of the passages.
        coverage: As in :class:`Signals`.
    """
    if score is None:
        told = "Whether the quotes answer the question was not judged."
        return replace(confidence, explanation=f"{confidence.explanation} {told}".strip())
    bounded = min(max(score, 1e-9), 1 - 1e-9)
    start, by_score, by_words = OF_QUOTES
    height = start + by_score * log(bounded / (1 - bounded)) + by_words * (1.0 if coverage is None else coverage)
    chance = 0.5 + 0.5 * tanh(height / 2)
    told = f"The cross-encoder gives the best of them {score:.2g}."
    return replace(confidence, value=chance, support=chance, explanation=f"{confidence.explanation} {told}".strip())


def with_support(confidence: Confidence, sentences: Sequence[AnswerSentence]) -> Confidence:
    """Return the confidence in an answer: that in its passages, times the part of it that they support.

    Where sentences were verified, those count that are said to be supported; one that is contradicted, not found or was
    not looked at does not. Otherwise those count that have a source.

    Args:
        confidence: In the passages.
        sentences: All of the answer's; only those that say something count. Where none does, nothing is supported.
    """
    telling = [sentence for sentence in sentences if sentence.says_something]
    if not telling:
        return _times(confidence, 0.0, "Nothing was answered.")
    verdicts = [sentence.check.verdict for sentence in telling if sentence.check is not None]
    count = _counted(len(telling), "sentence")
    if not verdicts:
        sourced = sum(sentence.has_source for sentence in telling)
        return _times(
            confidence,
            sourced / len(telling),
            f"{sourced} of {count} of the answer {'has' if len(telling) == 1 else 'have'} a source.",
        )
    supported = verdicts.count("supported")
    parts = [f"The passages support {supported} of {count} of the answer"]
    parts += [f"contradict {wrong}"] if (wrong := verdicts.count("contradicted")) else []
    told = f"{' and '.join(parts)}."
    if missed := len(telling) - len(verdicts):
        told += f" {_counted(missed, 'sentence')} could not be verified."
    return _times(confidence, supported / len(telling), told)


def _times(confidence: Confidence, support: float, told: str) -> Confidence:
    return replace(
        confidence,
        value=min(1.0, max(0.0, confidence.retrieval * support)),
        support=support,
        explanation=f"{confidence.explanation} {told}".strip(),
    )


def signals_of(question: str, hits: Sequence[Hit], *, embedder_id: str | None, analyzer: Analyzer) -> Signals:
    """Return what can be told of hits, at least one; see :func:`retrieval_confidence`."""
    by_meaning = [hit.scores.dense for hit in hits[:DEPTH] if hit.scores.dense is not None]
    has_words = any(hit.scores.lexical_rank is not None for hit in hits)
    kind: Kind = "lexical" if not by_meaning else "hybrid" if has_words else "dense"
    cosine = max(by_meaning) if by_meaning and embedder_id == CALIBRATED_EMBEDDER else None
    wanted = _content_terms(question, analyzer)
    if not wanted:
        return Signals(kind, cosine, None)
    held = [wanted.intersection(analyzer.terms(hit.chunk.indexed_text)) for hit in hits[: len(RANK_WEIGHTS)]]
    weights = RANK_WEIGHTS[: len(held)]
    found = sum(weight * len(terms) for weight, terms in zip(weights, held, strict=True))
    missing = _words(question, wanted.difference(*held), analyzer)
    return Signals(kind, cosine, found / (len(wanted) * sum(weights)), missing)


def curve_for(signals: Signals) -> Curve | None:
    """Return the curve for the signals that there are; ``None`` where there are none."""
    if signals.cosine is None:
        return None if signals.coverage is None else BY_WORDS[signals.kind]
    return BY_COSINE if signals.coverage is None else BY_BOTH[signals.kind]


def _content_terms(question: str, analyzer: Analyzer) -> frozenset[str]:
    """Return the terms of the question's single words, without stop words; none where there are only these."""
    # A full stop between words keeps neighbours from becoming terms of several words, which would count words twice.
    terms = analyzer.query_terms(" . ".join((*question.split(), _PROBE)))
    return frozenset(term for term in terms if not term.startswith("_")) - {*analyzer.query_terms(_PROBE)}


def _words(question: str, wanted: frozenset[str], analyzer: Analyzer) -> tuple[str, ...]:
    found = (question[term.span.start : term.span.end] for term in analyzer.spans(question) if term.text in wanted)
    return tuple(dict.fromkeys(found))


def _explained(question: str, signals: Signals, read: int) -> Iterator[str]:
    """Yield sentences on what the confidence rests on; ``read`` is how many hits were looked into for words."""
    if signals.cosine is not None:
        yield f"The best cosine of question and passage is {signals.cosine:.2f}."
    if signals.coverage is None:
        yield "The question has stop words alone, so that the words of the passages say nothing."
    else:
        first = "hit holds" if read == 1 else f"{read} hits hold"
        yield f"The first {first} {signals.coverage:.0%} of the question's content words."
    if signals.missing:
        rest = " …" if len(signals.missing) > _NAMED else "."
        yield f"Missing: {', '.join(signals.missing[:_NAMED])}{rest}"
    if signals.cosine is None:
        yield "There is no calibrated cosine, so the words alone count."
    if not _is_latin(question):
        yield "This was measured on English questions only."


def _is_latin(question: str) -> bool:
    """Whether most letters of a question are of the Latin script, as far as its first two blocks have them."""
    letters = [character for character in question if character.isalpha()]
    return 2 * sum(character < "\u0250" for character in letters) >= len(letters)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
