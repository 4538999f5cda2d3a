"""The port for verifiers, which check the sentences of an answer against its passages."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ports.plugin import BatchPlugin, call_plugin, calls_plugin
from retrieval_core.types import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Verdict


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


class Verifier(BatchPlugin):
    """Verifies the sentences of an answer against chunks. Its :attr:`batch_size` counts sentences."""

    port_role = "the verifier"
    port_calls = ("verify",)

    @calls_plugin
    async def verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:
        """Check sentences of an answer against chunks.

        Args:
            query: The question that was answered.
            sentences: At most :attr:`batch_size`, without the marks of their citations.
            passages: At least one; each sentence may rest on any of them.

        Raises:
            ServiceError: The provider failed, or gave no verdict on one of the sentences.
        """
        count, texts = len(sentences), tuple(passages)
        answer = self._expect(await call_plugin(self._verify, query, sentences, passages), Verdicts)
        if not isinstance(answer.verdicts, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._refuse(f"its verdicts are {answer.verdicts!r:.80}, and no tuple")
        if not (answer.usage is None or isinstance(answer.usage, Usage)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._refuse(f"its usage is {answer.usage!r:.80}")
        if len(answer.verdicts) != count:
            raise self._refuse(f"it gave {len(answer.verdicts)} verdicts on {count} sentences")
        for verified in answer.verdicts:
            if (problem := _problem(verified, texts)) is not None:
                raise self._refuse(problem)
        return answer

    @abstractmethod
    async def _verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts: ...


def _problem(verified: Any, texts: Sequence[str]) -> str | None:
    """Return what is wrong with a verdict: it must name a chunk that contains its quote, or none."""
    if not isinstance(verified, Verified):
        return f"{verified!r:.80} is no verdict"
    verdict, passage, quote = cast("tuple[Any, Any, Any]", (verified.verdict, verified.passage, verified.quote))
    if not isinstance(verdict, str) or verdict not in {"supported", "contradicted", "not_found"}:
        return f"{verified!r:.80} is no verdict"
    if not (isinstance(quote, str) and isinstance(verified.reason, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return f"{verified!r:.200} has a quote or a reason that is no text"
    if verdict == "not_found":
        return None if passage is None else f"{verified!r:.200} names a passage for what no passage tells"
    if type(passage) is not int or not 0 <= passage < len(texts):
        return f"{verified!r:.200} names none of the {len(texts)} passages"
    return None if quote and quote in texts[passage] else f"the passage does not hold {quote!r:.200}"
