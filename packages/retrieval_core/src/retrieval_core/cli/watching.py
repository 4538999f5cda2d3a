"""Waiting for files to change, for ``retrieval index --watch``."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core.errors import MissingExtraError
from retrieval_core.ingest.gitignore import FILE_NAME
from retrieval_core.ingest.readers import supported_suffixes

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

PAUSE_MS = 200
"""What changes without such a pause in between is one change, but for at most :data:`LONGEST_MS`."""
LONGEST_MS = 2000
IDLE_MS = 500
"""How long the first wait takes, after which changes are seen, and how often nothing is done after it."""


def matters(path: Path, is_gone: bool, folders: Sequence[Path], index: Path) -> bool:
    """Whether a change may be one of the index: a file that would be read, or a folder.

    Of what is gone nobody can tell which of the two it was. Nor does what is written for the index itself matter, or
    each run would be the reason for the next.
    """
    below = next((path.relative_to(folder).parts for folder in folders if path.is_relative_to(folder)), ())
    is_hidden = any(part.startswith(".") and part != FILE_NAME for part in below)
    if is_hidden or path.is_relative_to(index) or path.name.startswith(f"{index.name}-"):
        return False
    return is_gone or path.name == FILE_NAME or path.suffix.lower() in supported_suffixes() or path.is_dir()


def changes(folders: Sequence[Path], index: Path) -> Generator[None]:
    """Yield once as soon as changes are seen, and then after each change of a file that may be for the index.

    What changes while the caller is busy is one change afterwards.

    Args:
        folders: Watched with all that is below them.
        index: Where the index is; what is written there is no change.

    Raises:
        MissingExtraError: watchfiles is not installed.
        OSError: A folder cannot be watched, or is gone.
    """
    try:
        from watchfiles import Change, watch  # noqa: PLC0415 - the extra 'watch'
    except ImportError as error:
        raise MissingExtraError("watch", "retrieval index --watch") from error

    roots = [folder.resolve() for folder in folders]
    index = index.resolve()
    seen = watch(
        *roots,
        watch_filter=lambda change, name: matters(Path(name), change is Change.deleted, roots, index),
        step=PAUSE_MS,
        debounce=LONGEST_MS,
        rust_timeout=IDLE_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    next(seen)
    yield
    for change in seen:
        for root in roots:
            if not root.is_dir():
                raise FileNotFoundError(errno.ENOENT, "the folder that was watched is gone", str(root))
        if change:
            yield
