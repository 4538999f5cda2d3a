"""The port for verifiers, which check the sentences of an answer against its passages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Usage, Verdict


@dataclass(frozen=True, slots=True)
class Verified:
    """The verdict on one sentence.

    Attributes:
        passage: Index of the passage that decides, from 0; ``None`` for ``not_found``.
        quote: That passage's own words; empty for ``not_found``.
        reason: One sentence for people; may be empty.
    """

    verdict: Verdict
    passage: int | None = None
    quote: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One verdict for each sentence, in their order."""

    verdicts: tuple[Verified, ...]
    usage: Usage | None = None


class Verifier(Protocol):
    """Verify the sentences of an answer against passages."""

    @property
    def id(self) -> str:
        """Names method, model and settings: two verifiers with the same id judge alike."""
        ...

    @property
    def batch_size(self) -> int:
        """The most sentences of one call, at least 1."""
        ...

    async def verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:
        """Check sentences of an answer against passages.

        Args:
            query: The question that was answered.
            sentences: At most :attr:`batch_size`, without the marks of their citations.
            passages: At least one; each sentence may rest on any of them.

        Raises:
            ServiceError: The provider failed, or gave no verdict on one of the sentences.
        """
        ...
