"""The tools ``answer`` and ``retrieve_context``: an answer with quotes, or chunks to write one from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field

from retrieval_core.service.searching import AnswerRequest, ContextRequest
from retrieval_core.service.service_context import WHOLE
from retrieval_core.types import format_citation
from retrieval_core.types.escapes import escape_text
from retrieval_core_mcp.fitting import clean, in_one_line, shorten
from retrieval_core_mcp.tools.fit import Shrink
from retrieval_core_mcp.tools.names import LONGEST_NAME
from retrieval_core_mcp.tools.signals import do_not_follow, signs_in
from retrieval_core_mcp.tools.tool import AnswerPart, QueryArguments, Sized, ToolAnswer
from retrieval_core_mcp.tools.wording import advice, degraded_lines

if TYPE_CHECKING:
    from retrieval_core.types import Answer, Citation, ContextPack, ContextPassage
    from retrieval_core_mcp.tools.tool import ToolCall

DEFAULT_TOKENS = 800
"""A token is about four characters, so that an answer is about as long as those of the other tools."""
MOST_TOKENS = 100_000
MOST_QUOTES = 5
_KINDS = {
    "written": "Written by a language model from the chunks.",
    "extracted": "Extracted: these are sentences of the documents; no language model wrote them.",
    "abstained": "Not answered.",
    "without_documents": "Written by a language model without any document: nothing could be searched.",
}


class AnswerArguments(QueryArguments, Sized, AnswerRequest):
    """Arguments of the tool answer."""


class AnswerSource(AnswerPart):
    """A source of the answer's sentences."""

    number: int
    ids: list[str]
    citation: str
    quotes: Annotated[list[str], Shrink(cut=True)]


class AnswerAnswer(ToolAnswer):
    """An answer with its sources."""

    text: Annotated[str, Shrink()]
    kind: str = Field(description="written, extracted, abstained or without_documents")
    confidence: float | None = None
    sources: Annotated[list[AnswerSource], Shrink()]
    unsupported: Annotated[list[str], Shrink()]
    contradicted: Annotated[list[str], Shrink()]
    degraded: list[str]
    note: str | None = None

    @classmethod
    def of(cls, response: Answer, call: ToolCall) -> Self:
        """Return the answer with its quotes."""
        checks = [sentence.check for sentence in response.sentences if sentence.check is not None]
        unsupported = [sentence.text for sentence in response.unsupported if sentence.check is None]
        contradicted = [response.sentences[each.sentence].text for each in checks if each.verdict == "contradicted"]
        degraded = degraded_lines(response.degraded, call.limit)
        if response.error is not None:
            degraded.append(f"answer: {in_one_line(response.error, call.limit // 20)}")
        return cls(
            text=clean(response.text),
            kind=response.kind,
            confidence=None if response.confidence is None else round(response.confidence.value, 2),
            sources=[_source(citation) for citation in response.sources],
            unsupported=[shorten(clean(text), LONGEST_NAME) for text in unsupported],
            contradicted=[shorten(clean(text), LONGEST_NAME) for text in contradicted],
            degraded=degraded,
            note=in_one_line(response.note or "", call.limit // 5) or None,
        )

    def render(self) -> str:
        """Return the kind of the answer, its notes, the text and the quotes."""
        is_said = self.kind == "abstained"  # by the text itself
        lines = [_KINDS[self.kind], *([self.note] if self.note and not is_said else [])]
        lines += [f"Note: {line}" for line in self.degraded]
        lines += [f"Note: the documents contradict this sentence: {escape_text(text)}" for text in self.contradicted]
        lines.append(self.text)
        for source in self.sources:
            quotes = [f"“{escape_text(quote)}”" for quote in source.quotes]
            lines.append("\n".join([f"[{source.number}] {source.citation} (id: {', '.join(source.ids)})", *quotes]))
        return "\n\n".join(lines)


def _source(citation: Citation) -> AnswerSource:
    return AnswerSource(
        **_numbered(citation, 5),
        quotes=[clean(quote.text) for quote in citation.quotes[:MOST_QUOTES]],
    )


class ContextArguments(QueryArguments, ContextRequest):
    """Arguments of the tool retrieve_context."""

    max_tokens: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride] - both are frozen
        int, Field(ge=50, le=MOST_TOKENS, description="Token budget"), WHOLE
    ] = DEFAULT_TOKENS


class ContextSource(AnswerPart):
    """The source of a part of the context."""

    number: int
    ids: list[str]
    citation: str
    signs: list[str] | None = None


class PackedContext(ToolAnswer):
    """Chunks as one text, each below a line with its number and source. Its length is that of ``max_tokens``."""

    context: str
    sources: list[ContextSource]
    tokens: int
    max_tokens: int
    dropped: int = Field(description="Chunks that didn't fit")
    degraded: list[str]
    note: str | None = None

    @classmethod
    def of(cls, response: ContextPack, call: ToolCall) -> Self:
        """Return the context with its sources."""
        note = response.note or (None if response.passages else advice(call.request.filters or {}))
        return cls(
            context=clean(response.context_pack),
            sources=[_context_source(passage) for passage in response.passages],
            tokens=response.token_count,
            max_tokens=response.max_tokens,
            dropped=sum(entry.outcome == "dropped" and entry.role == "primary" for entry in response.ledger),
            degraded=degraded_lines(response.degraded, call.limit),
            note=None if note is None else in_one_line(note, LONGEST_NAME * 2),
        )

    def render(self) -> str:
        """Return the notes and the context."""
        lines = [f"Note: {line}" for line in self.degraded]
        lines += [do_not_follow(f"chunk {each.number}", each.signs) for each in self.sources if each.signs]
        if self.context:
            return "\n\n".join([*([self.note] if self.note else []), *lines, self.context])
        is_whole = all(line.startswith("filter: ") for line in self.degraded)
        nothing = "Nothing was found." if is_whole else "The search was incomplete and has no results."
        return "\n\n".join([*lines, f"{nothing} {self.note}"])


def _context_source(passage: ContextPassage) -> ContextSource:
    return ContextSource(**_numbered(passage.citation, 10), signs=signs_in(passage.text) or None)


def _numbered(citation: Any, most_ids: int) -> dict[str, Any]:
    return {
        "number": citation.number,
        "ids": [clean(name) for name in citation.chunk_ids[:most_ids]],
        "citation": in_one_line(format_citation(citation), LONGEST_NAME),
    }
