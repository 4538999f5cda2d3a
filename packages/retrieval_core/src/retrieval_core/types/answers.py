"""Answers with their sentences and sources, and the events of a streaming answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.types.escapes import Display

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.types.context import Citation, ContextPack, Quote
    from retrieval_core.types.documents import Span
    from retrieval_core.types.results import Degradation, StageRecord, Usage

AnswerKind: TypeAlias = Literal["written", "extracted", "abstained", "without_documents"]
"""``written`` by a language model from the context; ``extracted`` sentences of the documents; ``abstained``, since no
chunk is relevant; or ``without_documents``, written by a language model because nothing could be searched."""
Verdict: TypeAlias = Literal["supported", "contradicted", "not_found"]
"""The context says the same as a sentence; the opposite, or another figure; or nothing about it."""
AttributionProblem: TypeAlias = Literal["unknown", "unsupported", "contradicted"]
"""The context has no passage of that number; the passage doesn't contain the statement; or it contradicts it."""
FallbackStep: TypeAlias = Literal["dense", "without_documents", "extracted"]
"""The fallback: vector search only; an answer without documents; or sentences of the documents."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """One source of a sentence: a ``[n]`` in the answer, or a source found for a sentence without markers.

    Attributes:
        number: Number of the passage in the context.
        marker: Position of ``[n]`` in the answer's text; ``None`` for a source that was found.
        citation: Citation of the passage, with the quotes that support the sentence; ``None`` if there are none.
        problem: Why ``citation`` is ``None``.
    """

    number: int
    marker: Span | None
    citation: Citation | None = None
    problem: AttributionProblem | None = None


@dataclass(frozen=True, slots=True)
class SentenceCheck:
    """A verdict on a sentence: of the verifier, or ``contradicted`` because of its negations or figures.

    Attributes:
        sentence: Index of the sentence in the answer, from 0.
        verdict: ``supported``, ``contradicted`` or ``not_found``.
        passage: Number of the passage that decides; ``None`` for ``not_found``.
        quote: The words that decide; ``None`` for ``not_found``.
        reason: One sentence for people.
    """

    sentence: int
    verdict: Verdict
    passage: int | None = None
    quote: Quote | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AnswerSentence:
    """A sentence of an answer, or a similar unit: a table row, a list item, a code block.

    Attributes:
        span: Position in the answer's text, with its markers.
        text: The text of the sentence.
        says_something: Whether it needs a source. Headings, introductions of lists, and the statement that the
            documents don't contain the answer need none.
        attributions: The sources, in the order of the markers.
        check: The verdict on the sentence. Without a verifier, ``contradicted`` or ``None``.
    """

    span: Span
    text: str
    says_something: bool = True
    attributions: tuple[Attribution, ...] = ()
    check: SentenceCheck | None = None

    @property
    def has_source(self) -> bool:
        """Whether a passage contains a quote that supports it."""
        return any(attribution.citation is not None for attribution in self.attributions)

    @property
    def needs_source(self) -> bool:
        """Whether it needs a source and has none."""
        return self.says_something and not self.has_source


@dataclass(frozen=True, slots=True)
class Confidence:
    """How reliable an answer is.

    Attributes:
        value: 0 to 1: for a written answer ``retrieval`` times ``support``, for extracted sentences ``retrieval``, and
            0 if there is no answer.
        retrieval: Probability that the context answers the question: :attr:`Relevance.value`.
        support: Share of the sentences of a written answer that are supported. Without a verifier, a sentence counts if
            it has a source and doesn't contradict it. ``None`` for other answers.
        explanation: How it was computed, for people.
    """

    value: float
    retrieval: float
    support: float | None = None
    explanation: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Answer(Display):
    """An answer to a question, with its sources.

    Attributes:
        query: The question as it was passed.
        text: The answer; if ``error`` is set, the part that is complete.
        kind: ``written``, ``extracted``, ``abstained`` or ``without_documents``.
        sentences: The sentences with their sources, in order.
        pack: The context that it is based on; ``None`` if nothing could be searched.
        confidence: How reliable the answer is; ``None`` if unknown.
        fallbacks: Steps that failed and what replaced them, in order.
        error: Why the answer is incomplete; ``None`` if it is complete.
        degraded: Everything that failed or was skipped, including the search.
        stages: One record per stage after the search, in the order they ended.
        latency_ms: Duration in milliseconds.
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
        """One citation per passage that supports a sentence, ordered by number, with all its quotes."""
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
        """Why the context may not answer the question; ``None`` if nothing indicates it."""
        return None if self.pack is None else self.pack.note

    @property
    def unsupported(self) -> tuple[AnswerSentence, ...]:
        """The sentences that need a source and have none."""
        return tuple(sentence for sentence in self.sentences if sentence.needs_source)

    @property
    def usage(self) -> Usage | None:
        """Tokens of the models that wrote the answer, without the search; ``None`` if no model counts them."""
        usages = [record.usage for record in self.stages if record.usage is not None]
        return None if not usages else sum(usages[1:], start=usages[0])

    def _facts(self) -> Mapping[str, object]:
        return {
            "query": self.query,
            "kind": self.kind,
            "text": self.text,
            "confidence": None if self.confidence is None else self.confidence.value,
            "sources": len(self.sources),
            "note": self.note,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class RetrievalDone:
    """The search has finished. This event comes once, before any text."""

    pack: ContextPack | None
    confidence: Confidence | None = None
    type: Literal["retrieval_done"] = field(default="retrieval_done", init=False)


@dataclass(frozen=True, slots=True)
class Fallback:
    """A step failed, and a fallback replaces it."""

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
        index: Index of the sentence in the answer, from 0.
        sentence: The sentence.
    """

    index: int
    sentence: AnswerSentence
    type: Literal["citation"] = field(default="citation", init=False)


@dataclass(frozen=True, slots=True)
class SentenceVerified:
    """A sentence of the answer was checked against the context."""

    check: SentenceCheck
    type: Literal["verification"] = field(default="verification", init=False)


@dataclass(frozen=True, slots=True)
class AnswerFailed:
    """The answer could not be completed; :class:`AnswerDone` follows with the part that is complete.

    Attributes:
        stage: The stage that failed.
        error: Name of the error class.
        reason: One line for people.
    """

    stage: str
    error: str
    reason: str
    type: Literal["error"] = field(default="error", init=False)


@dataclass(frozen=True, slots=True)
class AnswerDone:
    """The last event of every stream: the whole answer with its sources."""

    answer: Answer
    type: Literal["done"] = field(default="done", init=False)


AnswerEvent: TypeAlias = (
    RetrievalDone | Fallback | AnswerChunk | SentenceCited | SentenceVerified | AnswerFailed | AnswerDone
)
"""The events of a streaming answer: fallbacks, then ``retrieval_done``. Text, sentences and further fallbacks follow,
then verifications. An error comes last but one, and ``done`` comes last, once."""
