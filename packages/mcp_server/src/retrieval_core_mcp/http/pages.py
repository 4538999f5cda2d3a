"""The page of a passage, by the contract: where it stands there, and the picture of it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import InvalidParameterError, UnreadableFileError
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.types.filters import chunk_fields, matches
from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from collections.abc import Generator

    from retrieval_core.types import Chunk
    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.http.indexes import ServedIndex

LAST_PAGE = 1_000_000
WIDEST = 2_000
"""Pixels of a picture."""
NARROWEST = 100


async def place_on_page(
    served: ServedIndex, condition: Filter | None, chunk_id: str, page: int | None
) -> dict[str, Any]:
    """Return where a passage stands on one of its pages, by default the first.

    Raises:
        RequestError: There is no such passage for the caller, or no page of it.
        RetrievalError: The index cannot be read.
    """
    chunk = await _with_page(served, condition, chunk_id)
    with _not_found():
        place = await served.index.aplace_on_page(chunk, page)
    return {
        "page": place.page,
        "pages": place.pages,
        "width": place.width,
        "height": place.height,
        "boxes": place.boxes,
    }


async def picture_of_page(
    served: ServedIndex, condition: Filter | None, chunk_id: str, width: int, page: int | None
) -> bytes:
    """Return the picture of that page, in PNG.

    Raises:
        RequestError: As there.
        RetrievalError: As there.
    """
    chunk = await _with_page(served, condition, chunk_id)
    with _not_found():
        return await served.index.apicture_of_page(chunk, width, page)


async def _with_page(served: ServedIndex, condition: Filter | None, chunk_id: str) -> Chunk:
    """Return a passage whose whole document its caller may see: the page shows what stands around it."""
    chunk = await served.chunk(chunk_id, condition)
    if condition is not None:
        whole = FetchRequest(ranges=(ChunkRange.whole(chunk.document_id),))
        others = (await served.index.store.fetch(whole)).chunks.values()
        if not all(matches(condition, chunk_fields(other)) for other in others):
            raise RequestError(404, "the page cannot be shown: this token may see a part of the document only")
    return chunk


@contextmanager
def _not_found() -> Generator[None]:
    try:
        yield
    except UnreadableFileError as error:
        raise RequestError(404, f"there is no page to show: {error.reason}") from None
    except InvalidParameterError as error:
        raise RequestError(404, f"there is no page to show: {error}") from None
