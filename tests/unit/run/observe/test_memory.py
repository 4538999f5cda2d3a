"""Memory of the process and of what is loaded; asking loads nothing."""

from __future__ import annotations

import asyncio
import logging
from mmap import mmap
from typing import TYPE_CHECKING

import pytest

from retrieval_core.run.observe import ComponentMemory, Measurable, memory, memory_of, monitor_memory_usage

if TYPE_CHECKING:
    from pathlib import Path


class Loaded:
    """A component that tells."""

    is_loaded = True
    loaded_bytes: int | None = 5 * 1024**2


class Lazy:
    """One that has loaded nothing, and has only one of several names."""

    is_loaded = False
    loaded_bytes: int | None = 0


def test_components_say_what_they_hold() -> None:
    """By role and class; who does not tell is not guessed at, and what is not there is left out."""
    usage = memory_of({"embedder": Loaded(), "reranker": [Lazy(), object()], "cache": None})
    assert usage.components == (
        ComponentMemory("embedder", "Loaded", is_loaded=True, bytes=5 * 1024**2),
        ComponentMemory("reranker", "Lazy", is_loaded=False, bytes=0),
        ComponentMemory("reranker", "object", is_loaded=None, bytes=None),
    )
    assert isinstance(Loaded(), Measurable)


def test_the_process_is_measured() -> None:
    """Linux tells without any package; what is used grows with what is allocated and touched."""
    before = memory.resident_bytes()
    assert before is not None
    assert before > 1024**2
    with mmap(-1, 64 * 1024**2) as held:  # memory that the process did not have before, whatever it has let go of
        held.write(b"x" * len(held))
        after = memory.resident_bytes()
    assert after is not None
    assert after - before > 32 * 1024**2


def test_psutil_tells_the_same() -> None:
    """It is asked where the system has no /proc."""
    psutil = pytest.importorskip("psutil")
    ours, theirs = memory.resident_bytes(), psutil.Process().memory_info().rss
    assert ours is not None
    assert abs(ours - theirs) < 64 * 1024**2


def test_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other way is taken, and where that is closed too, nothing is made up."""
    monkeypatch.setattr(memory, "_STATM", tmp_path / "statm")
    monkeypatch.setattr(memory, "_asked_of_psutil", lambda: 42)
    assert memory.resident_bytes() == 42
    (tmp_path / "statm").write_text("no numbers here")
    assert memory.resident_bytes() == 42
    monkeypatch.setattr(memory, "_asked_of_psutil", lambda: None)
    usage = memory_of({})
    assert (usage.rss, usage.is_high) == (None, False)


def test_without_psutil_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no requirement."""
    monkeypatch.setitem(__import__("sys").modules, "psutil", None)
    assert memory._asked_of_psutil() is None


def test_high_usage_is_a_warning_that_names_what_is_loaded(caplog: pytest.LogCaptureFixture) -> None:
    """Below the limit nothing is said; the process is measured either way, and nothing is freed."""
    with caplog.at_level(logging.WARNING, logger="retrieval_core"):
        assert not monitor_memory_usage({"embedder": Loaded()}).is_high
        assert not caplog.records
        assert monitor_memory_usage({"embedder": Loaded(), "store": Lazy()}, limit=1024).is_high
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "embedder Loaded (at least 5.0 MB)" in record.getMessage()
    assert "Lazy" not in record.getMessage()


def test_it_may_be_asked_on_an_event_loop() -> None:
    """It waits for nothing but the kernel."""

    async def ask() -> int | None:
        return (await asyncio.to_thread(memory_of, {})).rss

    assert asyncio.run(ask())
