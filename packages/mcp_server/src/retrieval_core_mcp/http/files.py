"""Files that clients send: kept in a folder of their own, and indexed from there."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from retrieval_core.errors import EmbeddingError
from retrieval_core.index.settings import base_folder
from retrieval_core.ingest.readers import supported_suffixes
from retrieval_core_mcp.fitting import in_one_line
from retrieval_core_mcp.http.admission import Shares, ending
from retrieval_core_mcp.http.bodies import check_kind, read_parts
from retrieval_core_mcp.http.envelope import RequestError
from retrieval_core_mcp.http.problems import refused, shown
from retrieval_core_mcp.http.streaming import EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping

    from starlette.requests import Request

    from retrieval_core import Index
    from retrieval_core.ingest.report import IndexProgress, IndexReport
    from retrieval_core_mcp.http.envelope import Call
    from retrieval_core_mcp.http.indexes import ServedIndex
    from retrieval_core_mcp.http.settings import HttpSettings

FOLDER = "uploads"
"""Where files are kept, in the folder that the names of the index are relative to."""
KIND = "application/octet-stream"
"""The media type of a body that is a file."""
LONGEST_NAME = 200
"""Characters."""
_MOST_BYTES = 250
"""Of a name, as UTF-8: what file systems allow, less a little."""
_PIECE = 1 << 20
"""Bytes written at a time."""
NAME = r"^[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*$"
"""What a name is, in the syntax that JSON schemas have too: no hidden file, and no way out of its folder."""
_NAME = re.compile(NAME)


class Files:
    """Takes files for indexes, one after the other into each folder, which indexes may have in common."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._turns: dict[Path, asyncio.Lock] = {}
        # The other places are for those who ask; of a file that has no place, nothing is read.
        self._places = Shares(max(1, settings.max_requests // 2), {"connection": "close"})

    def accepted(self) -> dict[str, Any]:
        """Return what is taken, as the contract has it."""
        return {"suffixes": sorted(supported_suffixes()), "max_bytes": self._settings.max_file_bytes}

    async def take(self, request: Request, call: Call, served: ServedIndex, name: str | None) -> EventStream:
        """Receive a file, and return the events of its way into an index.

        A file of this name replaces the former one; where it cannot be read, that stays as it was.

        Raises:
            RequestError: The name or the body cannot be taken, or there is no place for it.
        """
        name = checked_name(name)
        check_kind(request, KIND)
        folder = base_folder(Path(served.index.config.index)) / FOLDER
        incoming = folder / f".{secrets.token_hex(8)}"
        place = ExitStack()
        message = "too many files are on their way into the indexes; send this one in a moment"
        place.enter_context(self._places.held(call.share, message))
        try:
            with _refusing_disk_errors():
                await asyncio.to_thread(_create, incoming, name)
            size = await self._receive(request, incoming)
        except BaseException:
            place.close()
            await asyncio.to_thread(_remove, incoming)
            raise

        def failed(error: BaseException) -> Mapping[str, Any]:
            if isinstance(error, EmbeddingError):
                reason = f"its passages could not be embedded: {shown(str(error), served)}"
                return {"type": "failed", "name": name, "reason": reason}
            problem = ending() if isinstance(error, asyncio.CancelledError) else refused(error, served, call.request_id)  # pyright: ignore[reportArgumentType]
            return {"type": "failed", "name": name, "reason": problem.messages[0]}

        events = self._events(served, incoming, name, size, place)
        first = await anext(events)  # so that they have begun, and forget the file though nobody takes any of them
        return EventStream(first, events, failed)

    async def _receive(self, request: Request, place: Path) -> int:
        """Write a body to a file, and return its length."""
        waiting, size = bytearray(), 0
        async for part in read_parts(request, self._settings.max_file_bytes):
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
        self, served: ServedIndex, incoming: Path, name: str, size: int, place: ExitStack
    ) -> AsyncGenerator[Mapping[str, Any]]:
        try:
            yield {"type": "received", "name": name, "source": f"{FOLDER}/{name}", "bytes": size}
            async with self._turns.setdefault(incoming.parent, asyncio.Lock()):
                async for event in _indexed(served, incoming, name):
                    yield event
        finally:
            place.close()
            await asyncio.shield(asyncio.to_thread(_remove, incoming))


async def _indexed(served: ServedIndex, incoming: Path, name: str) -> AsyncGenerator[Mapping[str, Any]]:
    """Put a file into its place and index it; yield what happens."""
    place, former = incoming.with_name(name), incoming.with_name(f"{incoming.name}.former")
    steps: asyncio.Queue[IndexProgress | None] = asyncio.Queue()
    await asyncio.to_thread(_put, incoming, place, former)
    indexing = asyncio.ensure_future(served.index.aingest(place, steps.put_nowait, isolated=True))
    indexing.add_done_callback(lambda _: steps.put_nowait(None))
    passages, is_kept = 0, False
    try:
        while (step := await steps.get()) is not None:
            passages = step.chunks_done
            is_kept = is_kept or passages > 0
            if passages:
                yield _progress(step)
        report = indexing.result()
        is_kept = not report.failed and not report.empty
    finally:
        indexing.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await indexing
        await asyncio.shield(asyncio.to_thread(_settle, place, former, is_kept))
    if (report.failed and passages) or report.empty:
        await _undo(served.index, place, f"{FOLDER}/{name}")
    yield _ended(report, passages, name, served)


async def _undo(index: Index, place: Path, source: str) -> None:
    """Bring an index back to what is kept, after a file of which a part was indexed."""
    if await asyncio.to_thread(place.exists):
        await index.aingest(place, isolated=True)
    elif "documents_of" in index.store.capabilities:
        for document_id in await index.store.documents_of(source):
            await index.adelete(document_id)


def _progress(step: IndexProgress) -> Mapping[str, Any]:
    return {
        "type": "progress",
        "passages": step.chunks_done,
        "embedded": step.embedded,
        "to_embed": step.to_embed,
    }


def _ended(report: IndexReport, passages: int, name: str, served: ServedIndex) -> Mapping[str, Any]:
    if report.failed:
        return {"type": "failed", "name": name, "reason": shown(report.failed[0].error, served)}
    if report.empty:
        return {"type": "failed", "name": name, "reason": "it is empty"}
    counts = {each: getattr(report, each) for each in ("added", "updated", "unchanged", "removed")}
    notes = {"notes": [shown(note.message, served) for note in report.notes]} if report.notes else {}
    return {"type": "done", "name": name, "source": f"{FOLDER}/{name}", "passages": passages, **counts, **notes}


def checked_name(name: str | None) -> str:
    """Return the name of a file, composed: macOS decomposes letters with accents, other systems do not.

    Raises:
        RequestError: It is missing, or none that stays in its folder.
    """
    if name is None:
        raise RequestError(400, "name the file, as ?name=report.pdf")
    name = normalize("NFC", name)
    length = len(name.encode("utf-8", "replace"))
    if len(name) > LONGEST_NAME or length > _MOST_BYTES:
        raise RequestError(
            400,
            f"name must have at most {LONGEST_NAME} characters and {_MOST_BYTES} bytes in UTF-8, "
            f"got {len(name):,} and {length:,}",
        )
    if _NAME.fullmatch(name) is None:
        raise RequestError(
            400, f"name must be that of a file, without folders, and not begin with a dot, got {in_one_line(name, 80)}"
        )
    return name


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
        raise RequestError(400, f"name must be that of a file, and {in_one_line(name, 80)} is a folder")
    place.touch(exist_ok=False)


def _append(place: Path, content: bytes) -> None:
    with place.open("r+b") as file:  # a file that was removed meanwhile, since its request was broken off, stays so
        file.seek(0, os.SEEK_END)
        file.write(content)


def _remove(place: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):  # it was moved to its place, or never was there
        place.unlink()


def _put(incoming: Path, place: Path, former: Path) -> None:
    """Move a file to its place, and what was there aside."""
    with suppress(FileNotFoundError):
        place.replace(former)
    incoming.replace(place)


def _settle(place: Path, former: Path, is_kept: bool) -> None:
    """Forget the former file, or put it back."""
    if is_kept:
        former.unlink(missing_ok=True)
        return
    place.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        former.replace(place)
