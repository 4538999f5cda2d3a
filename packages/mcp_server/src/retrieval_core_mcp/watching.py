"""Index folders at the start, and what changes in them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from anyio import to_thread

from retrieval_core.adapters.stores.first_run import make_folder
from retrieval_core.cli.watching import Changes, find_changed, follow_folders
from retrieval_core.errors import IndexBusyError
from retrieval_core.index.settings import base_folder
from retrieval_core.run.file_lock import one_writer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from retrieval_core.service.served import ServedIndex

logger = logging.getLogger(__name__)


TURN_SECONDS = 1.0
"""Seconds between two attempts to become the server that indexes, if another one on the same folder is."""


async def follow(served: ServedIndex, changed: Callable[[], Awaitable[None]], *, only_once: bool = False) -> None:
    """Index the folders of an index, and again after each change there, until this is cancelled.

    Of several servers with one index, one indexes at a time. If its process ends, another one takes over. A run that
    fails is logged and made again with the next change. A folder that is missing is logged once, and once more when it
    is back.

    Args:
        changed: Called after each run.
        only_once: Whether changes are not waited for.

    Raises:
        OSError: A folder can't be watched, or the folder of the index can't be written to.
    """
    stop = Event()
    roots = await asyncio.to_thread(lambda: served.roots)
    place = Path(served.config.index)
    async with _turn(place.with_name(f"{place.name}-lock")):
        if only_once:
            await _bring_in_step(served, Changes(roots, None))
            await changed()
            return
        is_in_step = True
        seen = follow_folders(roots, place, logger.warning, stop)
        try:
            while (changes := await to_thread.run_sync(next, seen, None, abandon_on_cancel=True)) is not None:
                is_in_step = await _bring_in_step(served, changes if is_in_step else changes._replace(paths=None))
                await changed()
        finally:
            stop.set()


@asynccontextmanager
async def _turn(lock: Path) -> AsyncGenerator[None]:
    """Wait until no other process holds a lock, and hold it."""
    await asyncio.to_thread(make_folder, lock.parent)
    with ExitStack() as held:
        while True:
            try:
                await asyncio.to_thread(held.enter_context, one_writer(lock, 0))
                break
            except IndexBusyError:
                await asyncio.sleep(TURN_SECONDS)
        yield


async def _bring_in_step(served: ServedIndex, changes: Changes) -> bool:
    """Index what has changed, and return whether that was possible."""
    try:
        index = await served.index()
        paths = await find_changed(changes, index.store, base_folder(Path(served.config.index)))
        if not paths:
            return True
        report = await index.aingest(paths)
    except Exception:
        logger.exception("the folders could not be indexed")
        return False
    else:
        logger.info("indexed: %d added, %d updated, %d removed", report.added, report.updated, report.removed)
        return True
