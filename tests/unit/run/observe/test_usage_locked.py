"""Totals whose file others write to, and one that holds a time which no calendar has."""

from __future__ import annotations

from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.errors import EmbeddingError, IndexFormatError
from retrieval_core.run.observe import UsageStats, read_totals, usage
from retrieval_core.run.observe.usage import BUSY_SECONDS, add_totals

if TYPE_CHECKING:
    from pathlib import Path


def fail(counting: UsageStats) -> None:
    with suppress(EmbeddingError), counting.query():
        raise EmbeddingError("no")


@pytest.mark.parametrize("since", [1e12, 1e17, 1e300, float("inf")])
def test_a_time_that_no_calendar_has_is_damage(tmp_path: Path, since: float) -> None:
    """Whatever the platform says of it."""
    path = tmp_path / "index.stats.db"
    add_totals(path, {("", "answered"): 1}, since=since)
    with pytest.raises(IndexFormatError, match="remove it"):
        read_totals(path)


def test_closing_waits_no_more_than_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for another process that writes to the file, and not for the thread that waits for one."""
    waits: list[float] = []
    begun, free, done = Event(), Event(), Event()

    def locked(*_: Any, seconds: float, **__: Any) -> None:
        waits.append(seconds)
        if seconds == BUSY_SECONDS:
            begun.set()
            free.wait(30)
            done.set()

    monkeypatch.setattr(usage, "add_totals", locked)
    monkeypatch.setattr(usage, "CLOSE_SECONDS", 0.001)
    counting = UsageStats(tmp_path / "index.stats.db", every=1000)
    fail(counting)
    waiting = Thread(target=counting.flush)
    waiting.start()
    assert begun.wait(30)
    counting.close()
    assert not done.is_set()
    free.set()
    waiting.join()
    fail(counting)
    counting.close()
    assert waits == [BUSY_SECONDS, 0.001]
