"""Check quotes and stored chunks against the documents."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from retrieval_core.errors import NotFoundError, RetrievalError
from retrieval_core.service.reading import ChunkRequest, ReadRequest, read, read_chunk
from retrieval_core.service.service_context import ServiceModel
from retrieval_core.text.quotes import find_quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.service.reading import ReadResponse
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.text.quotes import QuoteMatch
    from retrieval_core.types import Chunk, ChunkValidation

LONGEST_QUOTE = 10_000
LONGEST_ECHO = 400
"""Characters of a chunk that are returned if it doesn't contain the quote."""
MARK = " […]"
"""Marks a cut."""


class QuoteRequest(ChunkRequest):
    """A quote, and the chunk or document that should contain it."""

    quote: Annotated[str, Field(min_length=1, max_length=LONGEST_QUOTE, description="The quoted words")]


class QuoteResponse(ServiceModel):
    """Whether a quote is in a chunk or its document."""

    verdict: Annotated[
        Literal["exact", "equivalent", "not_found"],
        Field(description="equivalent: the same words in other typography or markup, or with marked omissions"),
    ]
    where: Annotated[
        Literal["passage", "document"] | None,
        Field(description="passage: in the chunk; document: only elsewhere in its document"),
    ] = None
    text: Annotated[
        str | None,
        Field(description="The words as they are written there; the start of the text if it doesn't contain them"),
    ] = None
    offset: Annotated[int | None, Field(description="Start of the words in the chunk or document, in code points")] = (
        None
    )
    file_changed: Annotated[bool, Field(description="Whether the file was changed after it was indexed")]


@dataclass(frozen=True, slots=True)
class ValidatedChunk:
    """A stored chunk compared with its document.

    Attributes:
        file_changed: Whether the file was changed after it was indexed. False if there is no file, or no longer.
    """

    validation: ChunkValidation
    file_changed: bool


async def verify_quote(context: ServiceContext, request: QuoteRequest) -> QuoteResponse:
    """Check whether a chunk or its document contains a quote.

    Raises:
        NotFoundError: There is no such chunk or document that the caller may see.
        StoreError: The index can't be read.
    """
    try:
        entry = await read(context, ReadRequest(id=request.id, index=request.index))
    except NotFoundError:
        raise NotFoundError("Chunk", request.id) from None
    chunk = entry.chunk
    changed = chunk is not None and chunk.id in await changed_since(context, request.index, (chunk,))
    if (found := await _find(request.quote, entry)) is not None:
        return _response(found, entry, "document" if chunk is None else "passage", changed=changed)
    if chunk is not None:
        with suppress(NotFoundError):
            document = await read(context, ReadRequest(id=chunk.document_id, index=request.index))
            if (found := await _find(request.quote, document)) is not None:
                return _response(found, document, "document", changed=changed)
    text = entry.text if len(entry.text) <= LONGEST_ECHO else f"{entry.text[: LONGEST_ECHO - len(MARK)].rstrip()}{MARK}"
    return QuoteResponse(verdict="not_found", text=text, file_changed=changed)


async def validate_chunk(context: ServiceContext, request: ChunkRequest) -> ValidatedChunk:
    """Compare a stored chunk with its document, byte by byte, and its file with the state that was indexed.

    Raises:
        NotFoundError: There is no such chunk that the caller may see.
        RetrievalError: As :meth:`retrieval_core.Index.avalidate`.
    """
    chunk = await read_chunk(context, request)
    validation = await (await context.index(request.index).index()).avalidate(chunk.id)
    if validation is None:
        raise NotFoundError("Chunk", request.id)
    return ValidatedChunk(validation, bool(await changed_since(context, request.index, (chunk,))))


async def changed_since(context: ServiceContext, name: str | None, chunks: Iterable[Chunk]) -> frozenset[str]:
    """Return the IDs of chunks whose files were changed after they were indexed; none if that is unknown."""
    index = await context.index(name).index()
    with suppress(RetrievalError):
        return await index.aedited_since(chunks)
    return frozenset()


async def _find(quote: str, entry: ReadResponse) -> QuoteMatch | None:
    return await asyncio.to_thread(find_quote, quote, entry.text)  # a document may be long


def _response(
    found: QuoteMatch, entry: ReadResponse, where: Literal["passage", "document"], *, changed: bool
) -> QuoteResponse:
    return QuoteResponse(
        verdict=found.verdict,
        where=where,
        text=found.words_of(entry.text),
        offset=found.spans[0].start,
        file_changed=changed,
    )
