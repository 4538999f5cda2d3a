"""A lock that one process at a time holds."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from retrieval_core.errors import IndexBusyError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

PAUSE = 0.02
"""Seconds between two tries."""


@contextmanager
def one_writer(path: Path, patience: float) -> Generator[None, None, None]:
    """Hold the lock of a file, which the system releases when the process ends, however that happens.

    Raises:
        IndexBusyError: Another writer held it for longer than ``patience`` seconds.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        end = time.monotonic() + patience
        while not _try_lock(handle):
            if time.monotonic() >= end:
                msg = f"{path.parent}: another process has been writing for {patience:g} s; try again later"
                raise IndexBusyError(msg)
            time.sleep(PAUSE)
        try:
            yield
        finally:
            _unlock(handle)
    finally:
        os.close(handle)


if sys.platform == "win32":  # pragma: no cover - not where the tests run
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
