"""Search the text of an index for a pattern, for a caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from retrieval_core.pipeline.grep import MOST_CONTEXT, MOST_LINES
from retrieval_core.service.service_context import WHOLE, IndexName, Range, ServiceModel
from retrieval_core.service.tenancy import narrow, without_counts
from retrieval_core.text.patterns import LONGEST_PATTERN
from retrieval_core.types.grep import GrepOutput  # noqa: TC001 - pydantic reads annotations

if TYPE_CHECKING:
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.types.grep import GrepDocument

LONGEST_PATH = 2_000


class GrepRequest(ServiceModel):
    """A pattern to search the text of all documents for, line by line."""

    pattern: Annotated[str, Field(min_length=1, max_length=LONGEST_PATTERN, description="Regular expression (RE2)")]
    path: Annotated[
        str | None, Field(max_length=LONGEST_PATH, description="Glob or part of a path. Default: all documents")
    ] = None
    filters: Annotated[dict[str, Any] | None, Field(description='Filter, such as {"year": {"$gte": 2020}}')] = None
    index: IndexName = None
    literal: Annotated[bool, Field(description="Whether the pattern is text without special characters")] = False
    ignore_case: Annotated[
        bool | None, Field(description="Default: if the pattern has no uppercase letter (smart case)")
    ] = None
    word: Annotated[bool, Field(description="Whether only whole words match")] = False
    context: Annotated[int, Field(ge=0, le=MOST_CONTEXT, description="Lines before and after each match"), WHOLE] = 0
    output: Annotated[
        GrepOutput, Field(description="Matching lines, only the documents, or the documents with counts")
    ] = "lines"
    limit: Annotated[
        int, Field(ge=1, le=MOST_LINES, description="Most matching lines, or documents without lines"), WHOLE
    ] = 100
    cursor: Annotated[
        str | None, Field(min_length=1, description="next_cursor of the previous page. Default: the first page")
    ] = None


class MatchedLine(ServiceModel):
    """A line of a document."""

    number: Annotated[int, Field(description="Line of the file, or of the indexed text of PDF and Office files")]
    text: Annotated[str, Field(description="The line; long lines are cut around the match")]
    is_match: Annotated[bool, Field(description="false for lines around a match")] = True
    page_span: Annotated[Range | None, Field(description="First and last page of its chunk")] = None


class MatchedDocument(ServiceModel):
    """A document with lines that match."""

    id: str
    source: str | None = None
    lines: Annotated[tuple[MatchedLine, ...], Field(description="Matching lines and those around them, in order")] = ()
    count: Annotated[int | None, Field(description="Number of matching lines, for counts")] = None


class GrepResponse(ServiceModel):
    """One page of the lines that match, ordered by document ID."""

    documents: tuple[MatchedDocument, ...]
    timed_out: Annotated[
        bool, Field(description="Whether the search ended after a second, before everything was searched")
    ] = False
    next_cursor: Annotated[str | None, Field(description="Cursor of the next page; not set on the last one")] = None
    incomplete: Annotated[
        str | None, Field(description="How many files can be found so far, while a new index is being built")
    ] = None


async def grep(context: ServiceContext, request: GrepRequest) -> GrepResponse:
    """Return one page of the lines that match a pattern. Text that the caller may not see is not searched.

    Raises:
        NotFoundError: There is no index of that name.
        InvalidParameterError: The pattern is invalid, or the cursor is not one of grep.
        RetrievalError: As :meth:`retrieval_core.Index.agrep`.
    """
    index = await context.index(request.index).index()
    result = await index.agrep(
        request.pattern,
        request.path,
        narrow(request.filters, context.tenant),
        literal=request.literal,
        ignore_case=request.ignore_case,
        word=request.word,
        context=request.context,
        output=request.output,
        limit=request.limit,
        cursor=request.cursor,
    )
    progress = await index.progress_note()
    return GrepResponse(
        documents=tuple(map(_shown, result.documents)),
        timed_out=result.timed_out,
        next_cursor=result.next_cursor,
        incomplete=None if progress is None else without_counts(context, progress.reason),
    )


def _shown(document: GrepDocument) -> MatchedDocument:
    lines = tuple(
        MatchedLine(
            number=line.number,
            text=line.text,
            is_match=line.is_match,
            page_span=None if line.page_span is None else (line.page_span.first, line.page_span.last),
        )
        for line in document.lines
    )
    return MatchedDocument(id=document.id, source=document.source, lines=lines, count=document.count)
