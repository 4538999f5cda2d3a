"""The tool ``verify_citation``: whether a chunk or its document contains a quote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field

from retrieval_core.errors import NotFoundError
from retrieval_core.service.checking import LONGEST_ECHO, QuoteRequest, verify_quote
from retrieval_core.service.reading import ReadRequest, read
from retrieval_core_mcp.fitting import clean, shorten
from retrieval_core_mcp.tools.names import place_of
from retrieval_core_mcp.tools.tool import Id, ToolAnswer

if TYPE_CHECKING:
    from retrieval_core.service.checking import QuoteResponse
    from retrieval_core.service.reading import ReadResponse
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core_mcp.tools.tool import ToolCall


class CitationArguments(QuoteRequest):
    """Arguments of the tool verify_citation."""

    id: Annotated[Id, Field(description="path:lines")]


_TOLD: dict[tuple[str, str | None], str] = {
    ("exact", "passage"): "The quote is there, word for word.",
    ("exact", "document"): "The document contains the quote, word for word, but this chunk or these lines don't.",
    ("equivalent", "passage"): "The chunk contains the words of the quote, written like this:",
    (
        "equivalent",
        "document",
    ): "The document, but not this chunk, contains the words of the quote, written like this:",
    ("not_found", None): "Neither the chunk nor its document contains the quote. The chunk begins with:",
    ("gone", None): "There is nothing with this id.",
}


@dataclass(frozen=True, slots=True)
class CheckedQuote:
    """A quote compared with a chunk or document."""

    entry: ReadResponse
    quote: QuoteResponse


async def check_quote(context: ServiceContext, request: QuoteRequest) -> CheckedQuote | NotFoundError:
    """Return whether a chunk or its document contains a quote; an error if there is nothing of that name.

    Raises:
        StoreError: The index can't be read.
    """
    try:
        entry = await read(context, ReadRequest(id=request.id, index=request.index))
        return CheckedQuote(entry, await verify_quote(context, request))
    except NotFoundError as error:
        return error


class CitationAnswer(ToolAnswer):
    """Whether a quote is where it should be."""

    verdict: Literal["exact", "equivalent", "not_found", "gone"] = Field(
        description="equivalent: in other typography or markup, or with marked omissions; gone: no such chunk"
    )
    where: Literal["passage", "document"] | None = None
    file_changed: bool | None = None
    place: str | None = None
    text: str | None = Field(default=None, description="The words as they are written there")
    offset: int | None = None

    @classmethod
    def of(cls, response: CheckedQuote | NotFoundError, call: ToolCall) -> Self:
        """Return the verdict with the words that are there."""
        del call
        if isinstance(response, NotFoundError):
            return cls(verdict="gone", text=response.reason and str(response))
        entry, quote = response.entry, response.quote
        return cls(
            verdict=quote.verdict,
            where=quote.where,
            file_changed=None if entry.of_document is None else quote.file_changed,
            place=quote.location or (entry.location if entry.chunk is None else place_of(entry.chunk)),
            text=None if quote.text is None else shorten(clean(quote.text), LONGEST_ECHO),
            offset=quote.offset,
        )

    def render(self) -> str:
        """Return the verdict in a sentence, with the words."""
        lines = [_TOLD[self.verdict, self.where]]
        if self.file_changed:
            lines.append("The file was changed after it was indexed, and may contain something else now.")
        return "\n".join([*lines, *(part for part in (self.place, self.text) if part)])
