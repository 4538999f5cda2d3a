"""Receive files from clients into a separate folder, from which the service indexes them."""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import ExitStack, aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import EmbeddingError
from retrieval_core.ingest.readers import supported_suffixes
from retrieval_core.service.uploads import FOLDER, ingest_upload, uploads_folder
from retrieval_core_mcp.fitting import in_one_line
from retrieval_core_mcp.http.admission import Places, ending
from retrieval_core_mcp.http.bodies import check_kind
from retrieval_core_mcp.http.envelope import RequestError
from retrieval_core_mcp.http.problems import refused
from retrieval_core_mcp.http.receiving import read_parts
from retrieval_core_mcp.http.streaming import EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping
    from pathlib import Path

    from starlette.requests import Request

    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.service.uploads import UploadRequest
    from retrieval_core_mcp.http.envelope import Call
    from retrieval_core_mcp.http.settings import HttpSettings

KIND = "application/octet-stream"
"""The media type of a body that is a file."""
_PIECE = 1 << 20
"""Bytes written at a time."""


class Files:
    """Receives files for indexes."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        # The other places are for those who ask; of a file that has no place, nothing is read.
        message = "too many files are on their way into the indexes; send this one in a moment"
        self._places = Places(max(1, settings.max_requests // 2), message, {"connection": "close"})

    def accepted(self) -> dict[str, Any]:
        """Return what is taken, as the contract has it."""
        return {"suffixes": sorted(supported_suffixes()), "max_bytes": self._settings.max_file_bytes}

    async def take(self, request: Request, call: Call, context: ServiceContext, upload: UploadRequest) -> EventStream:
        """Receive a file, and return the events of its way into an index.

        A file of this name replaces the former one; if it can't be read, that stays as it was.

        Raises:
            RequestError: The body can't be taken, or there is no place for it.
        """
        check_kind(request, KIND)
        incoming = uploads_folder(context, upload.index) / f".{secrets.token_hex(8)}"
        place = ExitStack()
        place.enter_context(self._places.held(call.share))
        try:
            with _refusing_disk_errors():
                await asyncio.to_thread(_create, incoming, upload.name)
            size = await self._receive(request, incoming)
        except BaseException:
            place.close()
            await asyncio.to_thread(_remove, incoming)
            raise

        def failed(error: BaseException) -> Mapping[str, Any]:
            if isinstance(error, EmbeddingError):
                reason = f"its chunks could not be embedded: {context.redact(str(error))}"
            elif isinstance(error, asyncio.CancelledError):
                reason = ending().messages[0]
            else:
                reason = refused(error, call, context).messages[0]
            return {"type": "failed", "name": upload.name, "reason": reason}

        events = _events(context, upload, incoming, size, place)
        first = await anext(events)  # so that they have begun, and forget the file though nobody takes any of them
        return EventStream(first, events, failed)

    async def _receive(self, request: Request, place: Path) -> int:
        """Write a body to a file, and return its length."""
        waiting, size = bytearray(), 0
        declared = request.headers.get("content-length")
        async for part in read_parts(request.receive, declared, self._settings.max_file_bytes):
            waiting += part
            size += len(part)
            if len(waiting) >= _PIECE:
                with _refusing_disk_errors():
                    await asyncio.to_thread(_append, place, bytes(waiting))
                waiting.clear()
        if not size:
            raise RequestError(400, "the file is empty")
        with _refusing_disk_errors():
            await asyncio.to_thread(_append, place, bytes(waiting))
        return size


async def _events(
    context: ServiceContext, upload: UploadRequest, incoming: Path, size: int, place: ExitStack
) -> AsyncGenerator[Mapping[str, Any]]:
    try:
        yield {"type": "received", "name": upload.name, "source": f"{FOLDER}/{upload.name}", "bytes": size}
        async with aclosing(ingest_upload(context, upload, incoming)) as events:
            async for event in events:
                yield event
    finally:
        place.close()
        await asyncio.shield(asyncio.to_thread(_remove, incoming))


@contextmanager
def _refusing_disk_errors() -> Generator[None]:
    """Turn an error of the disk into a :class:`RequestError` that says why no file can be kept."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        msg = f"the service cannot keep files: its folder {FOLDER} cannot be written ({reason})"
        raise RequestError(501, msg) from error


def _create(place: Path, name: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.with_name(name).is_dir():
        raise RequestError(400, f"name must not be that of a folder, got {in_one_line(name, 80)}")
    place.touch(exist_ok=False)


def _append(place: Path, content: bytes) -> None:
    with place.open("r+b") as file:  # a file that was removed meanwhile, since its request was broken off, stays so
        file.seek(0, os.SEEK_END)
        file.write(content)


def _remove(place: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):  # it was moved to its place, or never was there
        place.unlink()
