"""The tool ``answer``: an answer with a quote for each sentence, written by a language model or extracted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from retrieval_core_mcp.fitting import clean, in_one_line, largest, shorten
from retrieval_core_mcp.tools.names import LONGEST_NAME
from retrieval_core_mcp.tools.tool import DeclaredTool, QuestionArguments, Sized, StructuredContent, ToolAnswer
from retrieval_core_mcp.tools.wording import degraded_lines

if TYPE_CHECKING:
    from retrieval_core.types import Answer, Citation
    from retrieval_core_mcp.tools.tool import ToolCall

_KINDS = {
    "written": "Written by a language model from the passages.",
    "extracted": "Extracted: these are the passages' own sentences; no language model wrote them.",
    "abstained": "Not answered.",
    "without_documents": "Written by a language model without any document: nothing could be searched.",
}


class AnswerArguments(Sized, QuestionArguments):
    """Arguments of the tool answer."""


class AnswerSource(StructuredContent):
    """What sentences of the answer rest on."""

    number: int
    ids: list[str]
    citation: str
    quotes: list[str]


class AnswerAnswer(StructuredContent):
    """An answer with its sources."""

    text: str
    kind: str = Field(description="written, extracted, abstained or without_documents")
    confidence: float | None = None
    sources: list[AnswerSource]
    unsupported: list[str]
    contradicted: list[str]
    degraded: list[str]
    note: str | None = None


async def run(call: ToolCall) -> ToolAnswer:
    """Answer a question."""
    given: AnswerArguments = call.given
    found = await call.library.answer(given.query, given.filters, condition=call.condition)
    degraded = degraded_lines(found.degraded, call.scrub, call.limit)
    if found.error is not None:
        degraded.append(f"answer: {in_one_line(call.scrub(found.error), call.limit // 20)}")
    return answer_of(found, degraded, call.limit)


def answer_of(found: Answer, degraded: list[str], limit: int) -> ToolAnswer:
    """Return an answer as a tool's; its quotes are cut where both do not fit, and then its end.

    Args:
        degraded: A line for each stage that did not work as configured.
        limit: Both forms stay below this many characters of JSON, at least 1,000.
    """
    confidence = None if found.confidence is None else round(found.confidence.value, 2)
    note = in_one_line(found.note or "", limit // 5) or None
    checks = [sentence.check for sentence in found.sentences if sentence.check is not None]
    unsupported = [sentence.text for sentence in found.unsupported if sentence.check is None]
    contradicted = [found.sentences[check.sentence].text for check in checks if check.verdict == "contradicted"]

    def attempt(size: int, quoted: int, sources: int) -> ToolAnswer:
        answer = AnswerAnswer(
            text=shorten(clean(found.text), size),
            kind=found.kind,
            confidence=confidence,
            sources=[_source(citation, quoted) for citation in found.sources[:sources]],
            unsupported=[shorten(clean(text), 200) for text in unsupported[:sources]],
            contradicted=[shorten(clean(text), 200) for text in contradicted[:sources]],
            degraded=degraded,
            note=note,
        )
        return ToolAnswer(answer.model_dump(mode="json", exclude_none=True), _as_text(answer))

    every = len(found.sources)
    whole = max(5, len(found.text))
    if (quoted := largest(lambda size: attempt(whole, size, every).fits(limit), 40, limit)) is not None:
        return attempt(whole, quoted, every)
    for sources in (every, 5, 1, 0):
        if (size := largest(lambda size, of=sources: attempt(size, 40, of).fits(limit), 100, whole)) is not None:
            return attempt(size, 40, sources)
    return attempt(5, 40, 0)


def _source(citation: Citation, quoted: int) -> AnswerSource:
    from retrieval_core.types import format_citation  # noqa: PLC0415 - the handshake does not wait for it

    return AnswerSource(
        number=citation.number,
        ids=[clean(name) for name in citation.chunk_ids[:5]],
        citation=in_one_line(format_citation(citation), LONGEST_NAME),
        quotes=[shorten(clean(quote.text), quoted) for quote in citation.quotes[:5]],
    )


def _as_text(answer: AnswerAnswer) -> str:
    from retrieval_core.types.escapes import escape_text  # noqa: PLC0415 - the handshake does not wait for it

    lines = [_KINDS[answer.kind]]
    lines += [answer.note] if answer.note else []
    lines += [f"Note: {line}" for line in answer.degraded]
    lines += [f"Note: the documents contradict this sentence: {escape_text(text)}" for text in answer.contradicted]
    lines.append(answer.text)
    lines += [
        f"[{source.number}] {source.citation} (id: {', '.join(source.ids)})\n"
        + "\n".join(f"“{escape_text(quote)}”" for quote in source.quotes)
        for source in answer.sources
    ]
    return "\n\n".join(lines)


TOOL = DeclaredTool(
    "answer",
    "Answer a question",
    "Answer a question from the documents, with a quote behind each sentence. If the documents don't contain the "
    "answer, it says so. kind is extracted, or written if a language model wrote it.",
    AnswerArguments,
    AnswerAnswer,
    run,
)
