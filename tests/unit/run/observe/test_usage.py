"""Totals that outlive the process: exact with several processes, and never in a query's way."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.errors import EmbeddingError, IndexFormatError, StoreError
from retrieval_core.run.observe import Metrics, UsageStats, read_totals, reset_totals, totals_beside
from retrieval_core.run.observe.usage import APPLICATION_ID, add_totals, rows_of
from retrieval_core.types import Degradation, RetrievalResult, StageRecord, Usage
from support.examples import times
from support.plugins import approx

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.run.observe import Observer

WORKER = """
import sys
from retrieval_core.run.observe import UsageStats
from retrieval_core.types import Degradation, RetrievalResult, StageRecord

usage = UsageStats(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(200):
    with usage.query(), usage.span("embed") as span:
        span.end(StageRecord("embed", 2.0, attempts=2))
        usage.answered(RetrievalResult("q", (), "", {}, latency_ms=10.0, from_cache=number % 2 == 0))
    if number % 50 == 0:
        usage.flush()
"""
"""It does not close what it counts with: the end of the process does."""


def count(observer: Observer, queries: int = 1, **given: Any) -> None:
    for _ in range(queries):
        with observer.query(), observer.span("embed") as span:
            span.end(StageRecord("embed", 2.0, usage=Usage(3, 4)))
            observer.answered(RetrievalResult("secret words", (), "", {}, latency_ms=10.0, **given))


def fail(observer: Observer) -> None:
    with suppress(EmbeddingError), observer.query():
        raise EmbeddingError("no")


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (".retrieval/index.db", ".retrieval/index.stats.db"),
        ("notes", "notes.stats.db"),
        ("a/index.lancedb", "a/index.lancedb.stats.db"),
    ],
)
def test_the_file_lies_beside_the_index(index: str, expected: str) -> None:
    """An index file and an index folder of the same name have files of their own."""
    assert totals_beside(index).as_posix() == expected


def test_counts_outlive_what_counted_them(tmp_path: Path) -> None:
    """What is read is what was counted, added up over several lives; when it began is kept."""
    path = tmp_path / "index.stats.db"
    with UsageStats(path, now=lambda: 1000.0) as first:
        count(first, 3, from_cache=True)
        fail(first)
    with UsageStats(path, now=lambda: 2000.0) as second:
        count(second, 2, degraded=(Degradation("dense", "why"),))
    totals = read_totals(path)
    assert totals is not None
    assert totals.since == datetime.fromtimestamp(1000, UTC)
    seen = totals.counts
    assert (seen.queries, seen.answered, seen.failed, seen.cancelled, seen.in_progress) == (6, 5, 1, 0, 0)
    assert (seen.cache_hits, seen.degraded_queries, dict(seen.degraded)) == (3, 2, {"dense": 2})
    assert (seen.stages["embed"].calls, seen.stages["embed"].input_tokens, seen.stages["embed"].output_tokens) == (
        5,
        15,
        20,
    )
    assert (seen.seconds.count, seen.seconds.total_seconds) == (5, approx(0.05))
    assert set(seen.stages) == {"embed"}


def test_no_text_is_kept(tmp_path: Path) -> None:
    """Not of questions, and not of errors."""
    path = tmp_path / "index.stats.db"
    with UsageStats(path) as usage:
        count(usage)
    assert b"secret" not in path.read_bytes()


def test_flushing_again_adds_nothing(tmp_path: Path) -> None:
    """Only what is new is added, also after it was closed."""
    path = tmp_path / "index.stats.db"
    usage = UsageStats(path)
    count(usage)
    for _ in range(3):
        usage.flush()
    usage.close()
    usage.close()
    count(usage)
    usage.close()
    totals = read_totals(path)
    assert totals is not None
    assert totals.counts.answered == 2


def test_nothing_counted_makes_no_file(tmp_path: Path) -> None:
    """Opening is not asking."""
    with UsageStats(tmp_path / "index.stats.db"):
        pass
    assert list(tmp_path.iterdir()) == []
    assert read_totals(tmp_path / "index.stats.db") is None


def test_four_processes_add_to_one_file(tmp_path: Path) -> None:
    """They begin at once, on a file that is not there yet, and every count of each of them arrives."""
    path = tmp_path / "index.stats.db"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    totals = read_totals(path)
    assert totals is not None
    seen = totals.counts
    assert (seen.answered, seen.cache_hits, seen.stages["embed"].calls, seen.stages["embed"].attempts) == (
        800,
        400,
        800,
        1600,
    )
    assert seen.seconds.count == 800
    assert seen.seconds.total_seconds == approx(8.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_does_not_count_what_its_parent_counted(tmp_path: Path) -> None:
    """Each adds its own."""
    path = tmp_path / "index.stats.db"
    usage = UsageStats(path)
    count(usage, 3)
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            count(usage)
            usage.close()
        os._exit(0)
    os.waitpid(child, 0)
    usage.close()
    totals = read_totals(path)
    assert totals is not None
    assert totals.counts.answered == 4


def test_counts_are_added_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread does so while the process lives, without anyone closing anything."""
    path, added = tmp_path / "index.stats.db", Event()

    def tell(*given: Any, **named: Any) -> None:
        add_totals(*given, **named)
        added.set()

    monkeypatch.setattr("retrieval_core.run.observe.usage.add_totals", tell)
    usage = UsageStats(path, every=0.001)
    count(usage)
    assert added.wait(30)
    assert read_totals(path) is not None
    usage.close()


def test_an_event_loop_never_waits_for_the_file(tmp_path: Path) -> None:
    """Counting blocks nothing, the first time either; closing is done in a thread."""
    path = tmp_path / "index.stats.db"

    async def run() -> None:
        usage = UsageStats(path)
        count(usage, 3)
        await usage.aclose()

    asyncio.run(run())
    totals = read_totals(path)
    assert totals is not None
    assert totals.counts.answered == 3


def test_what_is_collected_on_an_event_loop_is_kept_without_waiting(tmp_path: Path) -> None:
    """A finalizer runs wherever the garbage collector does, and must not hold up that loop."""
    file = tmp_path / "usage.db"
    before = set(threading.enumerate())

    async def use() -> None:
        usage = UsageStats(file)
        count(usage, 3)
        del usage
        gc.collect()

    asyncio.run(use())
    for thread in set(threading.enumerate()) - before:
        if thread.name == "usage":
            thread.join(60)
    totals = read_totals(file)
    assert totals is not None
    assert totals.counts.answered == 3


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is told but a log that asks for details; nor is a folder made."""
    with caplog.at_level(logging.INFO, logger="retrieval_core"), UsageStats(tmp_path / "no/index.stats.db") as usage:
        count(usage)
    assert caplog.records == []
    with caplog.at_level(logging.DEBUG, logger="retrieval_core"), UsageStats(tmp_path / "no/index.stats.db") as usage:
        count(usage)
    assert "were not kept" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_failed_is_made_up_for(tmp_path: Path) -> None:
    """What could not be added once is added the next time, once."""
    folder = tmp_path / "later"
    usage = UsageStats(folder / "index.stats.db")
    count(usage)
    usage.flush()
    folder.mkdir()
    count(usage)
    usage.close()
    totals = read_totals(folder / "index.stats.db")
    assert totals is not None
    assert totals.counts.answered == 2


def garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 999)


def foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE totals (a, b, c)")


def newer(path: Path) -> None:
    add_totals(path, {("", "answered"): 1}, since=1.0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")


def with_text_in_it(path: Path) -> None:
    add_totals(path, {("", "answered"): 1}, since=1.0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE totals SET value = 'many' WHERE name = 'answered'")


@pytest.mark.parametrize(
    "damage",
    [garbage, foreign_database, newer, with_text_in_it],
)
def test_a_damaged_file_is_reported_and_left_alone(tmp_path: Path, damage: Any) -> None:
    """Reading says what to do; counting goes on without it, and neither changes a byte."""
    path = tmp_path / "index.stats.db"
    damage(path)
    before = path.read_bytes()
    with pytest.raises(IndexFormatError, match="remove it"):
        read_totals(path)
    if damage is not with_text_in_it:
        with pytest.raises(IndexFormatError, match="remove it"):
            reset_totals(path)
        with UsageStats(path) as usage:
            count(usage)
        assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_an_empty_file_is_as_good_as_none(tmp_path: Path) -> None:
    """Such as a process leaves that was killed while it made it."""
    path = tmp_path / "index.stats.db"
    assert reset_totals(path) is False
    path.touch()
    assert read_totals(path) is None
    assert reset_totals(path) is False
    with UsageStats(path) as usage:
        count(usage)
    assert read_totals(path) is not None


def test_a_folder_in_the_files_place_is_told(tmp_path: Path) -> None:
    """Nothing can be read or added there."""
    assert read_totals(tmp_path) is None
    with pytest.raises(StoreError):
        add_totals(tmp_path, {("", "answered"): 1}, since=1.0)


def test_resetting_begins_anew(tmp_path: Path) -> None:
    """Processes that go on counting add only what is new to them."""
    path = tmp_path / "index.stats.db"
    usage = UsageStats(path)
    count(usage, 3)
    usage.flush()
    assert reset_totals(path)
    assert not reset_totals(path)
    assert read_totals(path) is None
    count(usage)
    usage.close()
    totals = read_totals(path)
    assert totals is not None
    assert totals.counts.answered == 1


def test_limits_of_another_version_are_read(tmp_path: Path) -> None:
    """A limit between ours stands where it belongs, and no duration is lost."""
    path = tmp_path / "index.stats.db"
    add_totals(path, {("", "seconds up to 0.3"): 2, ("", "seconds up to inf"): 1, ("", "seconds"): 99.0}, since=1.0)
    totals = read_totals(path)
    assert totals is not None
    assert totals.counts.seconds.count == 3
    assert totals.counts.seconds.quantile(0.5) == approx(0.25 + 0.05 * 1.5 / 2)


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    """By the mark that SQLite has for that."""
    path = tmp_path / "index.stats.db"
    add_totals(path, {("", "answered"): 1}, since=1.0)
    assert int.from_bytes(path.read_bytes()[68:72]) == APPLICATION_ID


stories = st.lists(
    st.tuples(
        st.sampled_from(["answered", "failed", "flush", "new"]),
        st.booleans(),
        st.sampled_from(["embed", "dense", "a 'stage'"]),
        st.floats(0, 100_000),
    ),
    max_size=12,
)


@settings(max_examples=times(100))
@given(stories)
def test_the_totals_are_what_one_process_would_have_counted(
    tmp_path_factory: pytest.TempPathFactory, story: list[Any]
) -> None:
    """However often it is flushed, closed and opened anew."""
    path = tmp_path_factory.mktemp("usage") / "index.stats.db"
    oracle, usage = Metrics(), UsageStats(path)
    for what, cached, stage, milliseconds in story:
        if what == "flush":
            usage.flush()
        elif what == "new":
            usage.close()
            usage = UsageStats(path)
        else:
            for observer in (oracle, usage):
                with suppress(EmbeddingError), observer.query(), observer.span(stage) as span:
                    span.end(StageRecord(stage, milliseconds))
                    if what == "failed":
                        raise EmbeddingError("no")
                    observer.answered(RetrievalResult("q", (), "", {}, latency_ms=milliseconds, from_cache=cached))
    usage.close()
    totals, expected = read_totals(path), oracle.snapshot()
    assert (totals is None) is (expected.queries == 0)
    if totals is not None:
        read, told = rows_of(totals.counts), rows_of(expected)
        assert {name: approx(value) for name, value in told.items() if value} == {
            name: value for name, value in read.items() if value
        }
