"""Reading what an index holds, by the contract: the list of its documents, and each of them in parts."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core_mcp.http.envelope import RequestError
from retrieval_core_mcp.http.indexes import utc

if TYPE_CHECKING:
    from retrieval_core.types import Chunk
    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.contents import FieldContents
    from retrieval_core_mcp.documents import PlacedChunk
    from retrieval_core_mcp.http.indexes import ServedIndex

MOST_DOCUMENTS = 1_000
"""Documents in a part of the list."""
MOST_CHARACTERS = 200_000
"""Characters in a part of a document."""
LARGEST_OFFSET = 2**31 - 1


async def list_documents(
    served: ServedIndex, condition: Filter | None, cursor: str | None, limit: int, name: str | None = None
) -> dict[str, Any]:
    """Return a part of the documents that a caller may see, in the order of their ids.

    Args:
        name: What their ids have to contain, in upper or lower case, their accents composed or not.
        cursor: Of the part before: the id of its last document, so that no document is passed over or told twice
            because others come and go. ``None`` to begin.

    Raises:
        RetrievalError: The index cannot be read.
    """
    ids = await served.library.documents(condition)
    if name:
        wanted = _folded(name)
        ids = [each for each in ids if wanted in _folded(each)]
    begin = 0 if cursor is None else bisect_right(ids, cursor)
    shown = ids[begin : begin + limit]
    ranges = tuple(ChunkRange(name, 0, 0) for name in shown)
    found = await served.index.store.fetch(FetchRequest(ranges=ranges, filter=condition))
    first = {chunk.document_id: chunk for chunk in found.chunks.values()}
    told: dict[str, Any] = {"documents": [_listed(name, first.get(name)) for name in shown]}
    if name:
        told["total"] = len(ids)
    elif condition is None:
        told["total"] = (await served.index.adescribe()).documents
    if begin + limit < len(ids):
        told["next_cursor"] = shown[-1]
    return told


def _folded(text: str) -> str:
    return normalize("NFC", text.casefold())


def _listed(document_id: str, first: Chunk | None) -> dict[str, Any]:
    """Return what a document's first passage tells of it."""
    if first is None:
        return {"id": document_id}
    known = {"title": first.title, "source": first.source, "chunks": first.total_chunks}
    return {"id": document_id, **{name: value for name, value in known.items() if value is not None}}


async def read_document(
    served: ServedIndex, condition: Filter | None, document_id: str, offset: int, limit: int
) -> dict[str, Any]:
    """Return a part of a document, with the passages that lie in it or reach into it.

    Raises:
        RequestError: There is no such document for the caller.
        RetrievalError: The index cannot be read.
    """
    document = await served.library.document(document_id, condition)
    if document is None:
        raise RequestError(404, f"Document {document_id} not found")
    end = offset + limit
    known = {
        "title": document.title,
        "source": document.source,
        "timestamp": None if document.timestamp is None else utc(document.timestamp),
        "last_page": max((each.chunk.page_span.last for each in document.chunks if each.chunk.page_span), default=None),
    }
    return {
        "id": document.id,
        **{name: value for name, value in known.items() if value is not None},
        "metadata": document.metadata,
        "text": document.text[offset:end],
        "offset": offset,
        "length": len(document.text),
        "chunks": [_placed(each) for each in document.chunks if each.start < end and each.end > offset],
    }


async def fields_of(served: ServedIndex, condition: Filter | None) -> dict[str, Any]:
    """Return by which fields an index can be filtered, as far as a caller may see it.

    Raises:
        RetrievalError: The index cannot be read.
    """
    contents = await served.library.describe(condition)
    moments = {"indexed_first": contents.indexed_first, "indexed_last": contents.indexed_last}
    return {
        "fields": [_field(field) for field in contents.fields],
        "sampled": contents.sampled,
        "modes": contents.modes,
        **{name: utc(moment) for name, moment in moments.items() if moment is not None},
    }


def _field(field: FieldContents) -> dict[str, Any]:
    known = {"count": field.passages, "min": field.least, "max": field.most}
    return {
        "name": field.name,
        "types": field.types,
        "examples": field.examples,
        **{name: value for name, value in known.items() if value is not None},
    }


def _placed(placed: PlacedChunk) -> dict[str, Any]:
    chunk = placed.chunk
    told: dict[str, Any] = {
        "id": chunk.id,
        "start": placed.start,
        "end": placed.end,
        "section_path": chunk.section_path,
    }
    if chunk.page_span is not None:
        told["page_span"] = [chunk.page_span.first, chunk.page_span.last]
    return told
