"""Holding the sentences of an answer against its passages, all of them and several calls at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retrieval_core.errors import MalformedAnswerError
from retrieval_core.pipeline.answer.attribution import plain
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.types import Quote, SentenceCheck, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import Verdicts, Verified, Verifier
    from retrieval_core.run.runner import Run
    from retrieval_core.types import AnswerSentence, ContextPack

_AT_A_TIME = 4


@dataclass(frozen=True, slots=True)
class Checked:
    """The sentences of an answer, those that were looked at with their check."""

    sentences: tuple[AnswerSentence, ...]
    failures: tuple[Failed, ...] = ()

    @property
    def checks(self) -> tuple[SentenceCheck, ...]:
        """The checks, in the order of the sentences."""
        return tuple(sentence.check for sentence in self.sentences if sentence.check is not None)


async def verify(
    run: Run, verifier: Verifier, query: str, sentences: Sequence[AnswerSentence], pack: ContextPack
) -> Checked:
    """Have every sentence that says something, and has no verdict yet, held against the passages.

    Args:
        run: Makes the calls.
        verifier: Judges.
        query: The question.
        sentences: All of the answer's.
        pack: What it was written from.

    Returns:
        All sentences; those of a call that failed have no check.
    """
    quoted = [(passage.citation.number, quote) for passage in pack.passages for quote in passage.citation.quotes]
    numbers = [number for number, each in enumerate(sentences) if each.says_something and each.check is None]
    if not quoted or not numbers:
        return Checked(tuple(sentences))
    texts = [quote.text for _, quote in quoted]
    size = verifier.batch_size
    if type(size) is not int or size < 1:
        problem = f"the verifier cannot be used: its batch_size must be a whole number of at least 1, got {size!r:.40}"
        return Checked(tuple(sentences), (Failed("verify_answer", MalformedAnswerError(problem)),))
    batches = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    free = asyncio.Semaphore(_AT_A_TIME)

    async def judge(batch: Sequence[int]) -> Ok[Verdicts] | Failed:
        claims = [plain(sentences[number].text) for number in batch]
        async with free:
            return await run.call("verify_answer", verifier.verify, query, claims, texts)

    outcomes = await asyncio.gather(*map(judge, batches))
    checked = list(sentences)
    for batch, outcome in zip(batches, outcomes, strict=True):
        if isinstance(outcome, Failed):
            continue
        for number, verified in zip(batch, outcome.value.verdicts, strict=True):
            checked[number] = replace(checked[number], check=_check(number, verified, quoted))
    return Checked(tuple(checked), tuple(outcome for outcome in outcomes if isinstance(outcome, Failed)))


def _check(number: int, verified: Verified, quoted: Sequence[tuple[int, Quote]]) -> SentenceCheck:
    if verified.passage is None:
        return SentenceCheck(number, "not_found", reason=verified.reason)
    passage, quote = quoted[verified.passage]
    start = quote.text.index(verified.quote)
    span = None
    if quote.span is not None:
        span = Span(quote.span.start + start, quote.span.start + start + len(verified.quote))
    return SentenceCheck(number, verified.verdict, passage, Quote(verified.quote, span), verified.reason)
