"""Check quotes and stored chunks against the documents."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from retrieval_core.errors import NotFoundError, NotPermittedError
from retrieval_core.service.reading import ChunkRequest, Id, ReadRequest, read, read_cited
from retrieval_core.service.service_context import WHOLE, IndexName, Range, ServiceModel
from retrieval_core.text.quotes import find_quote
from retrieval_core.types.documents import lines_of
from retrieval_core.types.integrity import IntegrityVerdict  # noqa: TC001 - pydantic reads annotations

if TYPE_CHECKING:
    from retrieval_core.service.reading import ReadResponse
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.text.quotes import QuoteMatch
    from retrieval_core.types import ChunkValidation
    from retrieval_core.types.integrity import SourceDifference

LONGEST_QUOTE = 10_000
LONGEST_ECHO = 400
"""Characters of a chunk that are returned if it doesn't contain the quote."""
MARK = " […]"
"""Marks a cut."""


class QuoteRequest(ServiceModel):
    """A quote, and the chunk, lines or document that should contain it."""

    id: Annotated[Id, Field(description="ID of a search result or document, or path:120-160")]
    index: IndexName = None
    quote: Annotated[str, Field(min_length=1, max_length=LONGEST_QUOTE, description="The quoted words")]


class QuoteResponse(ServiceModel):
    """Whether a quote is in a chunk or its document."""

    verdict: Annotated[
        Literal["exact", "equivalent", "not_found"],
        Field(description="equivalent: the same words in other typography or markup, or with marked omissions"),
    ]
    where: Annotated[
        Literal["passage", "document"] | None,
        Field(description="passage: in the chunk or lines; document: only elsewhere in its document"),
    ] = None
    text: Annotated[
        str | None,
        Field(description="The words as they are written there; the start of the text if it doesn't contain them"),
    ] = None
    offset: Annotated[int | None, Field(description="Start of the words in the chunk or document, in code points")] = (
        None
    )
    location: Annotated[str | None, Field(description="Path with the lines of the words: guide.md:120-121")] = None
    lines: Annotated[Range | None, Field(description="First and last line of the words, from 1")] = None
    is_cited: Annotated[bool, Field(description="Whether the named chunk, lines or document contain it")] = False
    file_changed: Annotated[bool, Field(description="Whether the file was changed after it was indexed")]


@dataclass(frozen=True, slots=True)
class ValidatedChunk:
    """A stored chunk compared with its document.

    Attributes:
        file_changed: Whether the file was changed after it was indexed. False if there is no file, or no longer.
    """

    validation: ChunkValidation
    file_changed: bool


class IntegrityRequest(ServiceModel):
    """A request to compare an index with its files."""

    sample: Annotated[int | None, Field(ge=1, description="Random documents to compare. Default: all"), WHOLE] = None
    seed: Annotated[int | None, Field(description="Draws the same sample again. Default: another one"), WHOLE] = None
    repair: Annotated[bool, Field(description="Whether to repair the differences, then compare again")] = False
    index: IndexName = None


class DifferingDocument(ServiceModel):
    """A document that differs from its file, or can't be read from the index."""

    source: str | None
    document_id: str | None
    first_difference: Annotated[
        int | None, Field(description="Offset of the first byte that differs; not set unless two texts differ")
    ] = None
    stored_bytes: Annotated[int | None, Field(description="Length of the stored text")] = None
    original_bytes: Annotated[int | None, Field(description="Length of the original text")] = None
    details: Annotated[str, Field(description="The differences, for people")]


class DifferingChunk(DifferingDocument):
    """A chunk that differs from its original, is missing or is one too many."""

    chunk_id: str


class IntegrityResponse(ServiceModel):
    """The differences between an index and its files, without the texts."""

    verdict: IntegrityVerdict
    documents: Annotated[int, Field(description="Number of documents compared")]
    chunks: Annotated[int, Field(description="Number of chunks compared")]
    unverifiable: Annotated[int, Field(description="Number of chunks with neither a stored text nor a readable file")]
    unsealed: Annotated[int, Field(description="Number of chunks without checksums, from an older version")]
    mismatches: tuple[DifferingChunk, ...]
    differences: tuple[DifferingDocument, ...]
    absent_sources: Annotated[tuple[str, ...], Field(description="Files that no longer exist")]
    repaired: Annotated[tuple[str, ...], Field(description="IDs of the documents that were repaired")]
    seconds: float


async def check_integrity(context: ServiceContext, request: IntegrityRequest) -> IntegrityResponse:
    """Check a whole index for damage, and compare it with its files.

    Raises:
        NotPermittedError: The caller sees only some of the documents, or may only read and wants a repair.
        RetrievalError: As :meth:`retrieval_core.Index.acheck_integrity`.
    """
    if context.tenant is not None:
        msg = "a caller who sees only some of the documents can't check the whole index"
        raise NotPermittedError(msg)
    if request.repair:
        context.check_writing()
    index = await context.index(request.index).index()
    report = await index.acheck_integrity(sample=request.sample, seed=request.seed, repair=request.repair)
    chunks = [
        DifferingChunk(chunk_id=each.chunk_id, **_difference(context, each, each.mismatch_details or ""))
        for each in report.mismatches
    ]
    documents = [DifferingDocument(**_difference(context, each, each.problem)) for each in report.differences]
    return IntegrityResponse(
        verdict=report.verdict,
        documents=report.documents,
        chunks=report.chunks,
        unverifiable=report.unverifiable,
        unsealed=report.unsealed,
        mismatches=tuple(chunks),
        differences=tuple(documents),
        absent_sources=tuple(map(context.redact, report.absent_sources)),
        repaired=report.repaired,
        seconds=round(report.seconds, 3),
    )


async def verify_quote(context: ServiceContext, request: QuoteRequest) -> QuoteResponse:
    """Check whether a chunk or its document contains a quote.

    Raises:
        NotFoundError: There is no such chunk or document that the caller may see.
        StoreError: The index can't be read.
    """
    try:
        entry = await read(context, ReadRequest(id=request.id, index=request.index))
    except NotFoundError as error:
        raise NotFoundError("Chunk", request.id, error.reason) from None
    chunk, is_part = entry.of_document, entry.is_part
    changed = chunk is not None and chunk.id in await context.changed_since(request.index, (chunk,))
    if (found := await _find(request.quote, entry)) is not None:
        where = "passage" if is_part else "document"
        return _response(found, entry, where, is_cited=True, changed=changed)
    if is_part:
        with suppress(NotFoundError):
            document = await read(context, ReadRequest(id=entry.document_id, index=request.index))
            if (found := await _find(request.quote, document)) is not None:
                return _response(found, document, "document", changed=changed)
    text = entry.text if len(entry.text) <= LONGEST_ECHO else f"{entry.text[: LONGEST_ECHO - len(MARK)].rstrip()}{MARK}"
    return QuoteResponse(verdict="not_found", text=text, file_changed=changed)


async def validate_chunk(context: ServiceContext, request: ChunkRequest) -> ValidatedChunk:
    """Compare a stored chunk with its document, byte by byte, and its file with the state that was indexed.

    Of a section, all chunks are compared.

    Raises:
        NotFoundError: There is no such chunk that the caller may see.
        RetrievalError: As :meth:`retrieval_core.Index.avalidate`.
    """
    chunk = await read_cited(context, request)
    validation = await (await context.index(request.index).index()).avalidate(chunk.id)
    if validation is None:
        raise NotFoundError("Chunk", request.id)
    return ValidatedChunk(validation, bool(await context.changed_since(request.index, (chunk,))))


def _difference(context: ServiceContext, found: ChunkValidation | SourceDifference, details: str) -> dict[str, Any]:
    parted = found.difference
    return {
        "source": found.source,
        "document_id": found.document_id,
        "first_difference": parted and parted.first,
        "stored_bytes": parted and parted.stored_bytes,
        "original_bytes": parted and parted.original_bytes,
        "details": context.redact(details),
    }


async def _find(quote: str, entry: ReadResponse) -> QuoteMatch | None:
    return await asyncio.to_thread(find_quote, quote, entry.text)  # a document may be long


def _response(
    found: QuoteMatch,
    entry: ReadResponse,
    where: Literal["passage", "document"],
    *,
    changed: bool,
    is_cited: bool = False,
) -> QuoteResponse:
    lines = lines_of(entry.text, found.spans[0].start, found.spans[-1].end, entry.lines)
    return QuoteResponse(
        verdict=found.verdict,
        where=where,
        text=found.words_of(entry.text),
        offset=found.spans[0].start,
        location=replace(entry, lines=lines).location,
        lines=lines,
        is_cited=is_cited,
        file_changed=changed,
    )
