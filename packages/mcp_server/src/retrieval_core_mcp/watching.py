"""Following folders: what changes there is indexed, and those who listen are told."""

from __future__ import annotations

import asyncio
import errno
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core.cli.watching import IDLE_MS, LONGEST_MS, PAUSE_MS, matters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core_mcp.library import Library

logger = logging.getLogger(__name__)


async def follow(library: Library, changed: Callable[[], Awaitable[None]]) -> None:
    """Bring an index in step with its folders, and again after each change there, until this is cancelled.

    What cannot be indexed is logged, and tried again with the next change.

    Args:
        changed: Is called after each run.

    Raises:
        FileNotFoundError: A folder is not there.
    """
    from watchfiles import (  # noqa: PLC0415 - the extra 'watch'
        Change,
        awatch,  # pyright: ignore[reportUnknownVariableType] - of trio's events
    )

    roots, index = await asyncio.to_thread(_resolved, library)

    def is_ours(change: Change, name: str) -> bool:
        return matters(Path(name), change is Change.deleted, roots, index)

    seen = awatch(
        *roots,
        watch_filter=is_ours,
        step=PAUSE_MS,
        debounce=LONGEST_MS,
        rust_timeout=IDLE_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    is_first = True
    async for changes in seen:  # the first is none: changes are seen from then on
        if changes or is_first:
            await _bring_in_step(library, roots)
            await changed()
        is_first = False


def _resolved(library: Library) -> tuple[list[Path], Path]:
    roots = [root.resolve() for root in library.roots]
    for root in roots:
        if not root.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(root))
    return roots, Path(library.settings.retrieval.index).resolve()


async def _bring_in_step(library: Library, roots: list[Path]) -> None:
    try:
        report = await library.ingest(roots)
    except Exception:
        logger.exception("the folders could not be indexed")
    else:
        logger.info("indexed: %d added, %d updated, %d removed", report.added, report.updated, report.removed)
