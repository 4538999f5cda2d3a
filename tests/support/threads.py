"""Threads that a test's subject began."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


def left_running(before: AbstractSet[threading.Thread], patience: float = 5) -> set[threading.Thread]:
    """Return the threads that were begun since and do not end, once all have ended or patience has.

    They are not joined: one that is listed may not have started yet.
    """
    end = time.monotonic() + patience
    while (running := set(threading.enumerate()) - before) and time.monotonic() < end:
        time.sleep(0.001)
    return running
