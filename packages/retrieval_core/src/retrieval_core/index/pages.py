"""The pages that passages stand on, read from their files again."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError, UnreadableFileError

if TYPE_CHECKING:
    from retrieval_core.ingest.ingester import Ingester
    from retrieval_core.ingest.readers.pdf_places import PlaceOnPage
    from retrieval_core.types import Chunk


class Pages:
    """Reads the pages of passages from the files that these were indexed from, and from no other file."""

    def __init__(self, ingester: Ingester) -> None:
        self._ingester = ingester

    async def place(self, chunk: Chunk, page: int | None) -> PlaceOnPage:
        """Return where a passage stands on one of its pages; see :meth:`retrieval_core.Index.aplace_on_page`."""
        from retrieval_core.ingest.readers.pdf_places import place_on_page  # noqa: PLC0415 - for who asks for pages

        file, number = await self._file(chunk, page)
        return await asyncio.to_thread(place_on_page, file, Path(chunk.document_id), number, chunk.text)

    async def picture(self, chunk: Chunk, width: int, page: int | None) -> bytes:
        """Return the picture of that page; see :meth:`retrieval_core.Index.apicture_of_page`."""
        from retrieval_core.ingest.readers.pdf_places import picture_of_page  # noqa: PLC0415 - likewise

        file, number = await self._file(chunk, page)
        return await asyncio.to_thread(picture_of_page, file, Path(chunk.document_id), number, width)

    async def _file(self, chunk: Chunk, page: int | None) -> tuple[bytes, int]:
        """Return the file of a passage, and the number of the page that is asked for, or of its first one.

        Raises:
            InvalidParameterError: The passage is not on that page.
            UnreadableFileError: It is of no PDF, or of one that is gone or was changed.
        """
        source = chunk.source or chunk.document_id
        # A file that is one document gives it its name; what was added without a file may name any source.
        is_of_file = chunk.document_id == source and PurePath(source).suffix.lower() == ".pdf"
        state = (await self._ingester.store.sources()).get(source) if is_of_file and chunk.page_span else None
        if state is None or chunk.page_span is None:
            raise UnreadableFileError(source, "the passage is of no page of a PDF file that was indexed")
        first, last = chunk.page_span.first, chunk.page_span.last
        if page is not None and not first <= page <= last:
            msg = f"page must be one of the passage, from {first} to {last}, got {page}"
            raise InvalidParameterError(msg)
        return await self._ingester.read_unchanged(state), page or first
