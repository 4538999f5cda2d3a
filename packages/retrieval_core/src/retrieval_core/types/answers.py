"""Answers, their sentences and sources, and the events of a stream of one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.types.display import Display

if TYPE_CHECKING:
    from retrieval_core.types.context import Citation, ContextPack, Quote
    from retrieval_core.types.documents import Span
    from retrieval_core.types.results import Degradation, StageRecord, Usage

AnswerKind: TypeAlias = Literal["written", "extracted", "abstained", "without_documents"]
"""Written by a language model from the passages; the passages' own best sentences; no answer, since no passage bears on
the question; or written by a language model without passages, because nothing could be searched."""
Verdict: TypeAlias = Literal["supported", "contradicted", "not_found"]
"""The passages say the same as a sentence; the opposite or another figure; or nothing of it."""
AttributionProblem: TypeAlias = Literal["unknown", "unsupported", "contradicted"]
"""The pack has no passage of that number; the passage contains nothing that the sentence could be from; or its words
contradict the sentence."""
FallbackStep: TypeAlias = Literal["dense", "without_documents", "extracted"]
"""The substitute: a dense search alone; an answer without documents; the passages' own sentences."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """One source of a sentence: a ``[n]`` of the answer, or one that was found for a sentence without markers.

    Attributes:
        number: The passage's number in its pack, as the answer gives it.
        marker: Where ``[n]`` stands in the answer's text; ``None`` for a source that was found.
        citation: The passage's citation, with only the quotes that the sentence can be from; ``None`` without any.
        problem: Why ``citation`` is ``None``.
    """

    number: int
    marker: Span | None
    citation: Citation | None = None
    problem: AttributionProblem | None = None


@dataclass(frozen=True, slots=True)
class SentenceCheck:
    """A verdict on a sentence of an answer: a verifier's, or ``contradicted`` by its negations and figures.

    Attributes:
        sentence: Index among the answer's sentences, from 0.
        passage: Number, in its pack, of the passage that decides; ``None`` for ``not_found``.
        quote: The passage's own words; ``None`` for ``not_found``.
        reason: One sentence for people.
    """

    sentence: int
    verdict: Verdict
    passage: int | None = None
    quote: Quote | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AnswerSentence:
    """A sentence of an answer, or a unit like one: a table row, a list item, a block of code.

    Attributes:
        span: Its place in the answer's text, markers included.
        text: The characters of ``span``.
        says_something: Whether it needs a source. Headings, introductions of a list, and the admission that the
            passages hold no answer, need none.
        attributions: Its sources, in the order of its markers.
        check: The verifier's, or that its source contradicts it, which is checked without one; else ``None``.
    """

    span: Span
    text: str
    says_something: bool = True
    attributions: tuple[Attribution, ...] = ()
    check: SentenceCheck | None = None

    @property
    def has_source(self) -> bool:
        """Whether a passage holds a quote that it can be from."""
        return any(attribution.citation is not None for attribution in self.attributions)

    @property
    def needs_source(self) -> bool:
        """Whether it says something and has no source."""
        return self.says_something and not self.has_source


@dataclass(frozen=True, slots=True)
class Confidence:
    """How far an answer can be relied on.

    Attributes:
        value: In [0, 1]. Of a written answer ``retrieval`` times ``support``, of quotes ``retrieval``; 0 if nothing was
            answered.
        retrieval: Probability that the passages answer the question: :attr:`Relevance.value`.
        support: Of a written answer, the share of the sentences that say something which a verifier found supported
            or, without a verifier, which have a source and do not contradict it. ``None`` before there is an answer,
            and of quotes.
        explanation: How it was computed, for people.
    """

    value: float
    retrieval: float
    support: float | None = None
    explanation: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Answer(Display):
    """An answer to a question, with everything it rests on.

    Attributes:
        query: As it was asked.
        text: The answer; with ``error``, as much of it as there is.
        sentences: Its sentences in order; together they are the text but for white space.
        pack: The passages it was written from; ``None`` where nothing could be searched.
        confidence: ``None`` where there is nothing to compute it from.
        fallbacks: Substitutes for failed steps, in order.
        error: Why the answer is incomplete; ``None`` where it is complete.
        degraded: Everything that did not work as configured, from the search on.
        stages: One record for each stage after those of the pack, in the order they ended; without a pack, of all.
    """

    query: str
    text: str
    kind: AnswerKind
    sentences: tuple[AnswerSentence, ...] = ()
    pack: ContextPack | None = None
    confidence: Confidence | None = None
    fallbacks: tuple[Fallback, ...] = ()
    error: str | None = None
    degraded: tuple[Degradation, ...] = ()
    stages: tuple[StageRecord, ...] = ()
    latency_ms: float = 0.0

    def __str__(self) -> str:
        return self.text

    @property
    def sources(self) -> tuple[Citation, ...]:
        """One citation for each passage that a sentence rests on, by its number, with the quotes of all sentences."""
        found: dict[int, Citation] = {}
        for sentence in self.sentences:
            for attribution in sentence.attributions:
                if (citation := attribution.citation) is None:
                    continue
                known = found.get(citation.number)
                quotes = citation.quotes if known is None else (*known.quotes, *citation.quotes)
                found[citation.number] = replace(citation, quotes=tuple(dict.fromkeys(quotes)))
        return tuple(found[number] for number in sorted(found))

    @property
    def note(self) -> str | None:
        """Why the passages may not answer the question, as :attr:`Relevance.note`; or ``None``."""
        return None if self.pack is None else self.pack.note

    @property
    def unsupported(self) -> tuple[AnswerSentence, ...]:
        """The sentences that say something and rest on no passage."""
        return tuple(sentence for sentence in self.sentences if sentence.needs_source)

    @property
    def usage(self) -> Usage | None:
        """Tokens of the models that wrote it, without the search; ``None`` where no model counts them."""
        usages = [record.usage for record in self.stages if record.usage is not None]
        return None if not usages else sum(usages[1:], start=usages[0])


@dataclass(frozen=True, slots=True)
class RetrievalDone:
    """The search is over; comes once, before any text."""

    pack: ContextPack | None
    confidence: Confidence | None = None
    type: Literal["retrieval_done"] = field(default="retrieval_done", init=False)


@dataclass(frozen=True, slots=True)
class Fallback:
    """A step failed, and a substitute takes its place from here on."""

    step: FallbackStep
    reason: str
    type: Literal["fallback"] = field(default="fallback", init=False)


@dataclass(frozen=True, slots=True)
class AnswerChunk:
    """The next piece of the answer's text; never empty."""

    content: str
    type: Literal["answer_chunk"] = field(default="answer_chunk", init=False)


@dataclass(frozen=True, slots=True)
class SentenceCited:
    """A sentence of the answer is complete, with its sources.

    Attributes:
        index: Index among the answer's sentences, from 0.
    """

    index: int
    sentence: AnswerSentence
    type: Literal["citation"] = field(default="citation", init=False)


@dataclass(frozen=True, slots=True)
class SentenceVerified:
    """A sentence of the answer was checked against the passages."""

    check: SentenceCheck
    type: Literal["verification"] = field(default="verification", init=False)


@dataclass(frozen=True, slots=True)
class AnswerFailed:
    """The answer could not be completed; its part so far comes again with :class:`AnswerDone`.

    Attributes:
        stage: The stage that failed.
        error: The name of the error's class.
        reason: One line for people.
    """

    stage: str
    error: str
    reason: str
    type: Literal["error"] = field(default="error", init=False)


@dataclass(frozen=True, slots=True)
class AnswerDone:
    """The end of every stream: the whole answer with its sources."""

    answer: Answer
    type: Literal["done"] = field(default="done", init=False)


AnswerEvent: TypeAlias = (
    RetrievalDone | Fallback | AnswerChunk | SentenceCited | SentenceVerified | AnswerFailed | AnswerDone
)
"""The events of a stream, in this order: fallbacks, ``retrieval_done``, then pieces of the text, sentences and further
fallbacks, then verifications, an error if there was one, and ``done``, last and once."""
