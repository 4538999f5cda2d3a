"""What a LanceDB store does in the background, its lock, and its views."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from retrieval_core.adapters.stores.lancedb import LanceDBStore, records, session
from retrieval_core.errors import (
    IndexBusyError,
    InvalidParameterError,
)
from retrieval_core.run.file_lock import one_writer
from retrieval_core.testing.store_kit.base import by_text, chunk, put
from support.lancedb_stores import run, store_at

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(find_spec("lancedb") is None, reason="the extra 'lancedb' is not installed")


def test_many_writes_bring_the_indexes_up_to_date_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many writes it happens in the background; all that was written is found afterwards."""
    monkeypatch.setattr(session, "SWEEP_WRITES", 3)
    swept: list[None] = []
    sweep = session.LanceDBSession._sweep

    def counted(self: session.LanceDBSession) -> None:
        sweep(self)
        swept.append(None)

    monkeypatch.setattr(session.LanceDBSession, "_sweep", counted)

    async def test(store: LanceDBStore) -> None:
        for row in range(10):
            await put(store, chunk(f"c{row}", "word", f"d{row}"))
        assert await by_text(store, "word") == [f"c{row}" for row in range(10)]

    run(tmp_path / "index", test)
    assert swept


def test_what_is_new_is_indexed_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing brings the indexes up to date where much was written since the last time, and leaves little as it is."""
    monkeypatch.setattr(session, "SWEEP_WRITES", 3)
    monkeypatch.setattr(session, "SWEEP_ROWS", 20)

    async def test(store: LanceDBStore, last: int) -> None:
        for row in range(3):
            await put(store, chunk(f"c{row}", "word", f"d{row}"))
        opened = store._current()
        assert opened._sweeping is not None
        opened._sweeping.result()
        assert opened._rows == 0
        await put(store, *(chunk(f"l{row}", "word", f"l{row}") for row in range(last)))
        await store.aclose()
        assert opened._rows == (0 if last > 1 else 1)

    run(tmp_path / "much", lambda store: test(store, 2))
    run(tmp_path / "little", lambda store: test(store, 1))


def test_a_fault_of_the_background_is_logged_and_hurts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Writes and searches go on when the indexes cannot be brought up to date."""
    monkeypatch.setattr(session, "SWEEP_WRITES", 1)

    def broken(_self: session.LanceDBSession) -> None:
        msg = "no room"
        raise OSError(msg)

    monkeypatch.setattr(session.LanceDBSession, "_sweep", broken)

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("a", "word"))
        await put(store, chunk("b", "word"))
        assert await by_text(store, "word") == ["a", "b"]

    with caplog.at_level(logging.WARNING, "retrieval_core"):
        run(tmp_path / "index", test)
    assert "could not be brought up to date" in caplog.text


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    """While another writer holds the lock, a write fails after its patience; reading goes on."""

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("a", "word"))
        with one_writer(tmp_path / "index" / "text_pages.lock", 0):
            with pytest.raises(IndexBusyError, match="writing"):
                await put(store, chunk("b", "word"))
            assert await by_text(store, "word") == ["a"]
        await put(store, chunk("b", "word"))

    run(tmp_path / "index", test, busy_timeout=0)
    with pytest.raises(InvalidParameterError, match="busy_timeout"):
        store_at(tmp_path, busy_timeout=-1)


def test_a_read_that_came_too_late_is_made_again(tmp_path: Path) -> None:
    """Where another thread has read a later version, the newest one is taken."""

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("a"))
        calls: list[int] = []

        def late(found: records.View) -> int:
            calls.append(found.version)
            if len(calls) < 3:
                raise records.StaleViewError
            return len(calls)

        assert await store._current().read(late) == 3

    run(tmp_path / "index", test)
