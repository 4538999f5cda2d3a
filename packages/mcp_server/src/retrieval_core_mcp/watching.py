"""Follow folders: index what changes there, and tell those who listen."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from anyio import to_thread

from retrieval_core.cli.watching import follow_folders

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core.service.served import ServedIndex

logger = logging.getLogger(__name__)


async def follow(served: ServedIndex, changed: Callable[[], Awaitable[None]]) -> None:
    """Bring an index in step with its folders, and again after each change there, until this is cancelled.

    A run that fails is logged and made again with the next change. A folder that is missing is logged once, and once
    more when it is back.

    Args:
        changed: Called after each run.

    Raises:
        OSError: A folder can't be watched.
    """
    stop = Event()
    roots = await asyncio.to_thread(lambda: served.roots)
    seen = follow_folders(roots, Path(served.config.index), logger.warning, stop)
    try:
        while (folders := await to_thread.run_sync(next, seen, None, abandon_on_cancel=True)) is not None:
            await _bring_in_step(served, folders)
            await changed()
    finally:
        stop.set()


async def _bring_in_step(served: ServedIndex, folders: tuple[Path, ...]) -> None:
    try:
        report = await (await served.index()).aingest(folders)
    except Exception:
        logger.exception("the folders could not be indexed")
    else:
        logger.info("indexed: %d added, %d updated, %d removed", report.added, report.updated, report.removed)
