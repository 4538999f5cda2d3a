"""From passages to an answer: abstain, write or extract, name sources, verify; and what stands in when that fails."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from retrieval_core.config import AnswerConfig
from retrieval_core.errors import MalformedAnswerError, SearchError
from retrieval_core.pipeline.answer import AnswerOutcome
from retrieval_core.pipeline.answer.attribution import AttributionIndex, confidence_in, plain, with_support
from retrieval_core.pipeline.answer.extract import extract
from retrieval_core.pipeline.answer.writing import (
    UNAVAILABLE,
    AnswerDraft,
    answer_request,
    request_without_documents,
    write,
)
from retrieval_core.pipeline.lifecycle import close_with
from retrieval_core.ports import LLM, Reranker, Verifier
from retrieval_core.ports.plugin import as_optional
from retrieval_core.run.outcomes import Failed, Ok, in_batches, is_callers_fault
from retrieval_core.run.threads import PoolClosedError
from retrieval_core.text.analysis import Analyzer
from retrieval_core.text.markers import MISSING
from retrieval_core.types import (
    Answer,
    AnswerChunk,
    AnswerDone,
    AnswerFailed,
    AnswerSentence,
    Degradation,
    Fallback,
    Quote,
    Relevance,
    RetrievalDone,
    SentenceCheck,
    SentenceCited,
    SentenceVerified,
    Span,
)
from retrieval_core.types.results import name_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from retrieval_core.pipeline.answer import AnswerEvidence, EvidenceSearch, Question
    from retrieval_core.ports import Verdicts, Verified
    from retrieval_core.run.runner import Run
    from retrieval_core.types import AnswerEvent, AnswerKind, Confidence, ContextPack, FallbackStep, RetrievalResult

SEARCH_SHARE = 0.5
"""The part of the time that is left which each search may take, so that there is time to answer."""
NOT_ANSWERED = "So the question is not answered."
"""Follows the name of an identifier that no chunk contains."""
NOT_VERIFIED = "not_verified: there is no verifier. Set llm.kind or answer.verifier."
"""The reason of the degradation if an answer is to be verified and there is no verifier."""
WRITING_SHARE = 0.9
"""The part of the deadline by which an answer must be written, so that its end is told in time."""


@dataclass(frozen=True, slots=True)
class Made:
    """What there is of an answer.

    Attributes:
        failed: Why it is not complete.
    """

    text: str = ""
    sentences: tuple[AnswerSentence, ...] = ()
    kind: AnswerKind = "without_documents"
    pack: ContextPack | None = None
    confidence: Confidence | None = None
    failed: Failed | None = None

    def drafted(self, draft: AnswerDraft, kind: AnswerKind) -> Made:
        """Return it with the text and the sentences of a draft."""
        return replace(self, text=draft.text, sentences=tuple(draft.sentences), kind=kind)


@dataclass(slots=True)
class _Told:
    """What was told of an answer so far.

    Attributes:
        searched: How many of the run's records belong to the search, and so are in the pack.
        result: Of the search, once it worked.
    """

    emit: Callable[[AnswerEvent], None]
    fallbacks: list[Fallback] = field(default_factory=list["Fallback"])
    failures: list[Failed] = field(default_factory=list["Failed"])
    searched: int = 0
    result: RetrievalResult | None = None

    def fall_back(self, step: FallbackStep, failed: Failed) -> None:
        """Tell that something stands in for what failed."""
        self.failures.append(failed)
        self.fallbacks.append(Fallback(step, f"{failed.stage}: {failed.reason}"))
        self.emit(self.fallbacks[-1])


class AnswerWriter:
    """Answers questions from the passages that were found for them.

    Without a language model an answer is made of the passages' own sentences. With one, it is written from them,
    streams, and each sentence is traced to the words that it rests on.

    Args:
        llm: Writes answers.
        verifier: Holds them against the passages.
        scorer: Chooses the quotes of an answer that is not written; without one, words do.
        analyzer: Turns text into terms; English by default.
        config: The settings.

    It owns what it was given: :meth:`aclose` closes whatever can be closed.

    Raises:
        InvalidParameterError: Something given is not what it should be.
    """

    def __init__(
        self,
        llm: LLM | None = None,
        *,
        verifier: Verifier | None = None,
        scorer: Reranker | None = None,
        analyzer: Analyzer | None = None,
        config: AnswerConfig | None = None,
    ) -> None:
        self.llm = as_optional(llm, LLM, "llm")
        self.verifier = as_optional(verifier, Verifier)
        self.scorer = as_optional(scorer, Reranker, "scorer")
        self.config = config or AnswerConfig()
        self._analyzer = analyzer or Analyzer()

    async def answer(
        self,
        run: Run,
        question: Question,
        searches: Sequence[EvidenceSearch],
        emit: Callable[[AnswerEvent], None],
    ) -> AnswerOutcome:
        """Answer a question, and tell what happens as it happens; the last event is ``done``.

        Args:
            run: Makes the calls.
            question: What to answer.
            searches: Where the passages are from: each stands in for those before it.
            emit: Takes the events, in order.

        Raises:
            RetrievalError: The search is set up or asked wrongly; or, where the question is strict, it failed.
        """
        told = _Told(emit)
        found = await self._find(run, question, searches, told)
        if isinstance(found, Failed):
            return self._end(run, question, await self._without_documents(run, question, found, told), told)
        evidence = found.value
        pack = evidence.pack
        told.searched, told.result = len(run.records), evidence.result
        query = str(evidence.result.metadata.get("query_searched") or question.text)
        relevance = evidence.result.relevance or Relevance()
        confidence = confidence_in(relevance)
        emit(RetrievalDone(pack, confidence))
        grounded = Made(pack=pack, confidence=confidence)
        if not pack.passages or (self.config.abstain_below and relevance.is_unanswerable):
            return self._end(run, question, self._abstained(grounded, told, relevance), told)
        if self.llm is None:
            return self._end(run, question, await self._extracted(run, query, evidence, grounded, told), told)
        request = answer_request(
            question.text,
            question.history,
            pack,
            prompt=question.prompt or self.config.prompt,
            max_tokens=self.config.max_tokens,
        )
        # In a thread, since all words of the passages are looked at.
        draft = AnswerDraft(await asyncio.to_thread(AttributionIndex, pack.passages, self._analyzer), emit)
        failed = await write(run.until(WRITING_SHARE), self.llm, request, draft)
        if failed is None:
            made = grounded.drafted(draft, "abstained" if _admits(draft.text) else "written")
            if made.kind == "written":
                made = await self._verified(run, query, evidence, made, told, has_verifier=question.verify)
        elif draft.has_begun or question.strict or is_callers_fault(failed.error):
            made = replace(grounded.drafted(draft, "written"), failed=failed)
        else:
            told.fall_back("extracted", failed)
            made = await self._extracted(run, query, evidence, grounded, told)
        return self._end(run, question, made, told)

    async def _find(
        self, run: Run, question: Question, searches: Sequence[EvidenceSearch], told: _Told
    ) -> Ok[AnswerEvidence] | Failed:
        """Return what the first search that works finds; the failure of the last one where none does."""
        failed = Failed("search", SearchError("there is nothing to search"))
        for search in searches:
            if search.step is not None:
                told.fall_back(search.step, failed)
            found = await run.settle("search", search.find, run.afresh(SEARCH_SHARE))
            if isinstance(found, Failed):
                if question.strict or is_callers_fault(found.error) or isinstance(found.error, PoolClosedError):
                    raise found.error
                failed = found
            elif (error := found.value.result.metadata.get("error")) is not None:
                failed = Failed("search", SearchError(str(error)))
            else:
                return found
        return failed

    def _abstained(self, grounded: Made, told: _Told, relevance: Relevance) -> Made:
        """Say that there is no answer, or which identifiers are unknown."""
        text = MISSING
        if relevance.unknown:
            text = f"{name_unknown(relevance.unknown)} {NOT_ANSWERED}"
        sentence = AnswerSentence(Span(0, len(text)), text, says_something=False)
        told.emit(AnswerChunk(text))
        told.emit(SentenceCited(0, sentence))
        return replace(grounded, text=text, sentences=(sentence,), kind="abstained")

    def _draft_without_sources(self, told: _Told) -> AnswerDraft:
        return AnswerDraft(AttributionIndex((), self._analyzer), told.emit)

    async def _without_documents(self, run: Run, question: Question, failed: Failed, told: _Told) -> Made:
        """Answer in general, where that is wanted and something can, and say so."""
        if self.llm is None or not self.config.without_documents:
            told.emit(RetrievalDone(None))
            return Made(failed=failed)
        told.fall_back("without_documents", failed)
        told.emit(RetrievalDone(None))
        draft = self._draft_without_sources(told)
        request = request_without_documents(question.text, question.history, max_tokens=self.config.max_tokens)
        failed_too = await write(run.until(WRITING_SHARE), self.llm, request, draft, first=UNAVAILABLE)
        return replace(Made().drafted(draft, "without_documents"), failed=failed_too)

    async def _extracted(self, run: Run, query: str, evidence: AnswerEvidence, grounded: Made, told: _Told) -> Made:
        """Answer with the passages' own words."""
        extracted = await extract(run, self.scorer, query, evidence.pack, self._analyzer)
        told.failures.extend(extracted.failures)
        if not extracted.text:
            return self._abstained(grounded, told, Relevance())
        end = 0
        for index, sentence in enumerate(extracted.sentences):
            told.emit(AnswerChunk(extracted.text[end : sentence.span.end]))
            told.emit(SentenceCited(index, sentence))
            end = sentence.span.end
        return replace(grounded, text=extracted.text, sentences=extracted.sentences, kind="extracted")

    async def _verified(
        self, run: Run, query: str, evidence: AnswerEvidence, made: Made, told: _Told, *, has_verifier: bool
    ) -> Made:
        checked = Checked(made.sentences)
        if has_verifier and self.verifier is not None:
            checked = await verify(run, self.verifier, query, made.sentences, evidence.pack)
        for check in checked.checks:
            told.emit(SentenceVerified(check))
        told.failures.extend(checked.failures)
        return replace(made, sentences=checked.sentences)

    def _end(self, run: Run, question: Question, made: Made, told: _Told) -> AnswerOutcome:
        failed, pack, confidence = made.failed, made.pack, made.confidence
        if confidence is not None and confidence.value and made.kind != "extracted":
            # What was not answered is nothing to rely on.
            confidence = with_support(confidence, () if made.kind == "abstained" else made.sentences)
        degraded = _degraded(pack, told.failures if failed is None else (*told.failures, failed))
        if question.verify and self.verifier is None and made.kind in {"written", "extracted"}:
            degraded += (Degradation("verify_answer", NOT_VERIFIED),)
        answer = Answer(
            query=question.text,
            text=made.text,
            kind=made.kind,
            sentences=made.sentences,
            pack=pack,
            confidence=confidence,
            fallbacks=tuple(told.fallbacks),
            error=None if failed is None else f"{failed.stage}: {failed.reason}",
            degraded=degraded,
            stages=run.records[told.searched :],
            latency_ms=run.elapsed_ms,
        )
        if failed is not None:
            told.emit(AnswerFailed(failed.stage, type(failed.error).__name__, failed.reason))
        told.emit(AnswerDone(answer))
        return AnswerOutcome(answer, failed, told.result)

    async def aclose(self) -> None:
        """Close what it was given and can be closed. Closing twice is fine."""
        async with AsyncExitStack() as stack:  # whatever fails, the rest is closed too
            close_with(stack, (self.llm, self.scorer, self.verifier))


def _degraded(pack: ContextPack | None, failures: Iterable[Failed]) -> tuple[Degradation, ...]:
    known = () if pack is None else pack.degraded
    return tuple(dict.fromkeys((*known, *(Degradation(failed.stage, failed.reason) for failed in failures))))


def _admits(text: str) -> bool:
    """Whether an answer says nothing but that the passages do not tell."""
    return plain(text).strip(" .*_\"'\n").casefold() == MISSING.rstrip(".").casefold()


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

    async def judge(batch: Sequence[int]) -> Ok[Verdicts] | Failed:
        claims = [plain(sentences[number].text) for number in batch]
        return await run.call("verify_answer", verifier.verify, query, claims, texts)

    checked = list(sentences)
    failures: list[Failed] = []
    for batch, outcome in await in_batches(judge, numbers, size):
        if isinstance(outcome, Failed):
            failures.append(outcome)
            continue
        for number, verified in zip(batch, outcome.value.verdicts, strict=True):
            checked[number] = replace(checked[number], check=_check(number, verified, quoted))
    return Checked(tuple(checked), tuple(failures))


def _check(number: int, verified: Verified, quoted: Sequence[tuple[int, Quote]]) -> SentenceCheck:
    if verified.passage is None:
        return SentenceCheck(number, "not_found", reason=verified.reason)
    passage, quote = quoted[verified.passage]
    start = quote.text.index(verified.quote)
    decisive = quote.part(start, start + len(verified.quote))
    return SentenceCheck(number, verified.verdict, passage, decisive, verified.reason)
