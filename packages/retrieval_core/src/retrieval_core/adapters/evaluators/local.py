"""Estimates of context precision and response relevancy from vectors, without a language model."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.errors import InvalidParameterError, UnsupportedError
from retrieval_core.ports import Embedder, Evaluator
from retrieval_core.ports.plugin import as_optional
from retrieval_core.types import EvaluationScores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Chunk, Vector

MOST_PASSAGES = 20
"""The lowest rank that is judged; passages below would hardly change the score."""
MOST_CHARACTERS = 4000
"""Code points of a text that are embedded; the default model reads less."""


def average_precision(verdicts: Sequence[bool]) -> float:
    """Return the mean, over the ranks of relevant passages, of the precision down to that rank.

    The formula of RAGAS' context precision: relevant passages that the list lacks do not count.

    Args:
        verdicts: Whether each passage is relevant, best first.

    Returns:
        In [0, 1]; 0 where none is relevant.
    """
    relevant = 0
    total = 0.0
    for rank, verdict in enumerate(verdicts, start=1):
        if verdict:
            relevant += 1
            total += relevant / rank
    return total / relevant if relevant else 0.0


def expected_average_precision(probabilities: Sequence[float]) -> float:
    """Return the expected value of :func:`average_precision` where passages are relevant with given probabilities.

    It is exact for independent passages: the numbers of relevant ones above and below a rank follow two Poisson
    binomial distributions.

    Args:
        probabilities: That each passage is relevant, best first. The work grows with the cube of their number.

    Returns:
        In [0, 1].
    """
    below = [np.ones(1)]
    for probability in reversed(probabilities):
        below.append(np.convolve(below[-1], (1 - probability, probability)))
    below.reverse()  # below[k] is the distribution of the relevant ones among probabilities[k:]
    above = np.ones(1)
    total = 0.0
    for rank, probability in enumerate(probabilities, start=1):
        count_above = np.arange(len(above))[:, None]
        count_below = np.arange(len(below[rank]))[None, :]
        share = (1 + count_above) / (1 + count_above + count_below)
        total += probability / rank * float(above @ share @ below[rank])
        above = np.convolve(above, (1 - probability, probability))
    return min(total, 1.0)


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic curve from the cosine of a passage and the question to the probability that it is relevant.

    Attributes:
        midpoint: The cosine with probability 0.5, in [-1, 1].
        slope: In units of 1/cosine, above 0.

    Raises:
        InvalidParameterError: A value is outside its range.
    """

    midpoint: float
    slope: float

    def __post_init__(self) -> None:
        if not -1 <= self.midpoint <= 1:
            msg = f"midpoint must be a cosine in [-1, 1], got {self.midpoint}"
            raise InvalidParameterError(msg)
        if not (isfinite(self.slope) and self.slope > 0):
            msg = f"slope must be a finite number above 0, got {self.slope}"
            raise InvalidParameterError(msg)

    def probabilities(self, cosines: Vector) -> list[float]:
        """Return the probability that each passage is relevant."""
        # The half angle's tangent is the logistic function, and overflows nowhere.
        return (0.5 + 0.5 * np.tanh((cosines - self.midpoint) * self.slope / 2)).tolist()


BGE_SMALL_EN = Calibration(midpoint=0.853, slope=19.4)
"""For bge-small-en-v1.5, both texts embedded as passages.

A logistic regression on the judgements of 80 questions of SciFact and Cranfield, 40 each, with the ten passages that
hybrid search found for each. ``docs/evaluation.md`` says what it is worth.
"""


class LocalEvaluator(Evaluator):
    """Estimates both scores from vectors; an :class:`~retrieval_core.ports.Evaluator`.

    ``context_precision`` is the expected average precision, by the probabilities that a :class:`Calibration` gives to
    the cosines of passages and question. (Verdicts at a fixed cosine would be in order, as results are, so that the
    score were 1 or 0 whatever was found.) The curve belongs to one model; without one there is no score.

    ``response_relevancy`` is the cosine of question and response, a negative one counting as 0. It measures whether
    they are about the same, not whether the answer is right or complete.

    The question, the first 20 passages with their headings and the response are embedded in one call, each cut after
    4000 code points, all as passages: the prefix that a model wants before a question is for searching.

    Args:
        embedder: Stays the caller's to close. Without one there are no scores.
        calibration: For this embedder; by default :data:`BGE_SMALL_EN` for bge-small-en-v1.5, and none for others.
    """

    def __init__(self, embedder: Embedder | None, *, calibration: Calibration | None = None) -> None:
        if calibration is None and embedder is not None and embedder.id.lower().startswith("bge-small-en-v1.5"):
            calibration = BGE_SMALL_EN
        self._embedder = as_optional(embedder, Embedder)
        self._calibration = calibration

    @property
    def id(self) -> str:
        """Names the embedder and the calibration."""
        if self._embedder is None:
            return "local-none"
        curve = self._calibration
        return f"local {self._embedder.id}" + (f" {curve.midpoint:g}/{curve.slope:g}" if curve is not None else "")

    async def probe(self) -> str:
        """Name the embedder.

        Raises:
            UnsupportedError: There is none, and so there are no scores.
        """
        if self._embedder is None:
            msg = "no scores without an embedder. Set embedder.kind."
            raise UnsupportedError(msg)
        return f"estimates with {self._embedder.id}; RAGAS scores need the extra 'ragas' and a language model"

    async def _evaluate(self, query: str, chunks: Sequence[Chunk], response: str) -> EvaluationScores:
        """Estimate both scores; ``methods`` says how, or why one is not computed.

        Raises:
            EmbeddingError: A text could not be embedded.
            ServiceError: The embedder's provider failed.
        """
        if self._embedder is None:
            reason = "not computed: there is no embedder"
            return EvaluationScores(methods={"context_precision": reason, "response_relevancy": reason})
        judged = [chunk.indexed_text[:MOST_CHARACTERS] for chunk in chunks[:MOST_PASSAGES]]
        judged = [text if text.strip() else "" for text in judged]
        if self._calibration is None:
            judged = []
        answer = response[:MOST_CHARACTERS].strip()
        texts = [query, *(text for text in (*judged, answer) if text)]
        cosines: Vector = np.zeros(0, dtype=np.float32)
        if len(texts) > 1:
            vectors = await self._embedder.embed_texts(texts)
            cosines = vectors[1:] @ vectors[0]
        precision = relevancy = None
        if self._calibration is not None and chunks:
            likely = iter(self._calibration.probabilities(cosines))
            precision = expected_average_precision([next(likely) if text else 0.0 for text in judged])
        if answer:
            relevancy = min(max(float(cosines[-1]), 0.0), 1.0)
        return EvaluationScores(precision, relevancy, self._methods(chunks, answer))

    def _methods(self, chunks: Sequence[Chunk], answer: str) -> dict[str, str]:
        assert self._embedder is not None  # noqa: S101 - the caller looked
        model = self._embedder.id
        if self._calibration is None:
            precision = f"not computed: nothing is known about cosines of {model}; give a Calibration"
        elif chunks:
            precision = f"local: expected average precision, from cosines of {model}"
        else:
            precision = "not computed: there are no passages"
        relevancy = f"local: cosine of question and response, by {model}" if answer else "not computed: no response"
        return {"context_precision": precision, "response_relevancy": relevancy}
