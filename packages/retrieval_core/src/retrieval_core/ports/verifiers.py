"""Holding the sentences of an answer against the passages that it was written from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Usage, Verdict


@dataclass(frozen=True, slots=True)
class Verified:
    """What the passages say of one sentence.

    Attributes:
        passage: The place of the passage that tells among those given, from 0; ``None`` for ``not_found``.
        quote: The words of that passage, exactly as they stand there; empty for ``not_found``.
        reason: One sentence for people; may be empty.
    """

    verdict: Verdict
    passage: int | None = None
    quote: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One verdict for each sentence, in their order, and what they cost."""

    verdicts: tuple[Verified, ...]
    usage: Usage | None = None


class Verifier(Protocol):
    """Tells whether passages support what an answer says."""

    @property
    def id(self) -> str:
        """Names method, model and settings: two verifiers with the same id judge alike."""
        ...

    @property
    def batch_size(self) -> int:
        """The most sentences of one call, at least 1."""
        ...

    async def verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:
        """Hold sentences of an answer against passages.

        Args:
            query: The question that was answered.
            sentences: At most :attr:`batch_size`, without the marks of their citations.
            passages: At least one; each sentence may rest on any of them.

        Raises:
            ServiceError: The provider failed, or gave no verdict on one of the sentences.
        """
        ...
