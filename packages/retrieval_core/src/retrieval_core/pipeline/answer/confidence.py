"""How far an answer can be relied on: the judgement of its passages, and how much of it they support."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.types import Confidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import AnswerSentence, Relevance


def confidence_in(relevance: Relevance) -> Confidence | None:
    """Return the confidence in the passages of a search; ``None`` if nothing indicates whether they answer."""
    if relevance.value is None:
        return None
    return Confidence(relevance.value, relevance.value, explanation=relevance.explanation)


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
    if verdicts.count("contradicted") == len(verdicts):  # which is found without a verifier, too
        sourced = sum(sentence.has_source for sentence in telling)
        told = f"{sourced} of {count} of the answer {'has' if len(telling) == 1 else 'have'} a source."
        if verdicts:
            told += f" The passages contradict {len(verdicts)}."
        return _times(confidence, sourced / len(telling), told)
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


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
