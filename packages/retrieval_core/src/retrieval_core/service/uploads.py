"""Index files that callers upload."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from unicodedata import normalize

from pydantic import AfterValidator, Field

from retrieval_core.index.settings import base_folder
from retrieval_core.service.service_context import IndexName, ServiceModel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from retrieval_core.index.index import Index
    from retrieval_core.ingest.report import IndexProgress, IndexReport
    from retrieval_core.service.service_context import ServiceContext

FOLDER = "uploads"
"""Folder of the files, in the folder that the names of an index are relative to."""
LONGEST_NAME = 200
"""Characters."""
MOST_BYTES = 250
"""Bytes of a name in UTF-8: the limit of file systems, less a little."""
NAME = r"^[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*$"
"""A name, in the syntax that JSON schemas have too: no hidden file, and no way out of its folder."""
_LONGEST_SHOWN = 80


def _check_name(name: str) -> str:
    """Return a name, composed: macOS decomposes letters with accents, other systems do not."""
    name = normalize("NFC", name)
    length = len(name.encode("utf-8", "replace"))
    if len(name) > LONGEST_NAME or length > MOST_BYTES:
        msg = (
            f"must have at most {LONGEST_NAME} characters and {MOST_BYTES} bytes in UTF-8, "
            f"got {len(name):,} and {length:,}"
        )
        raise ValueError(msg)
    if re.fullmatch(NAME, name) is None:
        msg = f"must be a file name without folders that doesn't begin with a dot, got {name!r:.{_LONGEST_SHOWN}}"
        raise ValueError(msg)
    return name


class UploadRequest(ServiceModel):
    """A file to upload. If it can be read, it replaces an earlier file of the same name."""

    name: Annotated[
        str,
        Field(
            description="File name without folders; its suffix is its type",
            json_schema_extra={"maxLength": LONGEST_NAME, "pattern": NAME},
        ),
        AfterValidator(_check_name),
    ]
    index: IndexName = None


def uploads_folder(context: ServiceContext, name: str | None) -> Path:
    """Return the folder of uploaded files of an index. It need not exist yet.

    Raises:
        NotPermittedError: The caller may not write.
        NotFoundError: There is no index of that name.
    """
    context.check_writing()
    return base_folder(Path(context.index(name).config.index)) / FOLDER


async def ingest_upload(
    context: ServiceContext, request: UploadRequest, incoming: Path
) -> AsyncGenerator[Mapping[str, Any]]:
    """Move a file to its place, index it, and yield events: ``progress`` after each write, last ``done`` or ``failed``.

    If the file can't be read, an earlier file of the same name stays, with its chunks.

    Args:
        incoming: The whole file, in the folder of :func:`uploads_folder`.

    Raises:
        NotPermittedError: The caller may not write.
        NotFoundError: There is no index of that name.
        RetrievalError: As :meth:`retrieval_core.Index.aingest`.
    """
    context.check_writing()
    index = await context.index(request.index).index()
    async with context.indexes.turn(incoming.parent):
        async for event in _events(context, index, incoming, request.name):
            yield event


async def _events(
    context: ServiceContext, index: Index, incoming: Path, name: str
) -> AsyncGenerator[Mapping[str, Any]]:
    place, former = incoming.with_name(name), incoming.with_name(f"{incoming.name}.former")
    steps: asyncio.Queue[IndexProgress | None] = asyncio.Queue()
    await asyncio.to_thread(_put, incoming, place, former)
    indexing = asyncio.ensure_future(index.aingest(place, steps.put_nowait, isolated=True))
    indexing.add_done_callback(lambda _: steps.put_nowait(None))
    chunks, is_kept = 0, False
    try:
        while (step := await steps.get()) is not None:
            chunks = step.chunks_done
            is_kept = is_kept or chunks > 0
            if chunks:
                yield {"type": "progress", "passages": chunks, "embedded": step.embedded, "to_embed": step.to_embed}
        report = indexing.result()
        is_kept = not report.failed and not report.empty
    finally:
        indexing.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await indexing
        await asyncio.shield(asyncio.to_thread(_settle, place, former, is_kept))
    if (report.failed and chunks) or report.empty:
        await _undo(index, place, f"{FOLDER}/{name}")
    yield _last_event(context, report, chunks, name)


async def _undo(index: Index, place: Path, source: str) -> None:
    """Bring an index back to what is kept, after a file of which a part was indexed."""
    if await asyncio.to_thread(place.exists):
        await index.aingest(place, isolated=True)
    elif "documents_of" in index.store.capabilities:
        for document_id in await index.store.documents_of(source):
            await index.adelete(document_id)


def _last_event(context: ServiceContext, report: IndexReport, chunks: int, name: str) -> Mapping[str, Any]:
    if report.failed:
        return {"type": "failed", "name": name, "reason": context.redact(report.failed[0].error)}
    if report.empty:
        return {"type": "failed", "name": name, "reason": "it is empty"}
    counts = {each: getattr(report, each) for each in ("added", "updated", "unchanged", "removed")}
    notes = {"notes": [context.redact(note.message) for note in report.notes]} if report.notes else {}
    return {"type": "done", "name": name, "source": f"{FOLDER}/{name}", "passages": chunks, **counts, **notes}


def _put(incoming: Path, place: Path, former: Path) -> None:
    """Move a file to its place, and the former one aside."""
    with suppress(FileNotFoundError):
        place.replace(former)
    incoming.replace(place)


def _settle(place: Path, former: Path, is_kept: bool) -> None:
    """Remove the former file, or put it back."""
    if is_kept:
        former.unlink(missing_ok=True)
        return
    place.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        former.replace(place)
