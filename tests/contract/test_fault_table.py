"""The failure contract, cell by cell: ``pytest -s`` prints the table of what happened."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("openai", reason="the extra 'openai' is not installed")
pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from retrieval_core.errors import EmbeddingError, RetrievalError
from retrieval_core.testing.clock import FakeClock
from support.fault_stages import DEADLINE, HAS_REDIS, MAX_RETRIES, SECRETS, STAGES, opened
from support.fault_table import FAULTS, QUESTION, Cell, all_cells, expected, needs_redis, rendered, run_cell, typed
from support.plugins import approx
from support.wire_server import Hang

# A stage that is not left in time fails its test after so many seconds instead of hanging.
PATIENCE = 30.0

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest.mark import ParameterSet


def cells() -> Iterator[ParameterSet]:
    for stage, fault in all_cells():
        skip = pytest.mark.skipif(needs_redis(stage) and not HAS_REDIS, reason="no redis-server, or no extra 'redis'")
        yield pytest.param(stage, fault, id=f"{stage}-{fault}", marks=skip)


def stages() -> Iterator[ParameterSet]:
    for stage in STAGES:
        skip = pytest.mark.skipif(needs_redis(stage) and not HAS_REDIS, reason="no redis-server, or no extra 'redis'")
        yield pytest.param(stage, marks=skip)


@pytest.fixture(scope="module")
def table() -> Iterator[list[Cell]]:
    """Collect the cells, and print them in the end."""
    seen: list[Cell] = []
    yield seen
    sys.stdout.write(f"\n{rendered(seen)}")


@pytest.mark.parametrize(("stage", "fault"), [*cells()])
def test_a_cell(table: list[Cell], stage: str, fault: str) -> None:
    """Each fault in each stage comes to what the contract says, after as many attempts as can help and no more."""
    cell = run_cell(stage, fault)
    table.append(cell)
    assert cell.error is None or isinstance(cell.error, RetrievalError), cell.said
    outcome, attempts, entries = expected(STAGES[stage], fault)
    assert (cell.outcome, cell.attempts, cell.entries) == (outcome, attempts, entries), cell.said
    assert attempts <= MAX_RETRIES + 1
    assert cell.error is None or typed(cell), cell.said
    if STAGES[stage].is_retried:
        assert len(cell.waits) == attempts - 1
    assert all(wait >= FAULTS[fault].waits and (wait == 0) == FAULTS[fault].at_once for wait in cell.waits)
    assert not any(secret in cell.said for secret in SECRETS)
    if cell.result is not None:
        assert ("error" in cell.result.metadata) == (outcome == "empty")
        assert all(item.reason for item in cell.result.degraded)


@pytest.mark.parametrize("name", [*stages()])
def test_no_answer_on_a_clock_moved_by_hand(name: str) -> None:
    """A stage without an answer is left, its connection closed, when its part of the time is over and not before."""
    stage, clock = STAGES[name], FakeClock()
    part = stage.share * DEADLINE

    async def main() -> None:
        async with opened(stage, clock) as (pipeline, provider):
            await pipeline.aretrieve("telescope")
            await provider.spoil(Hang(), path=stage.path, once=False)
            before = provider.asked()
            task = asyncio.create_task(pipeline.aretrieve(QUESTION))
            await provider.has_been_asked(before)
            clock.advance(0.99 * part)
            for _ in range(50):
                await asyncio.sleep(0)
            assert not task.done()
            clock.advance(0.02 * part)
            done, _ = await asyncio.wait((task,), timeout=PATIENCE)
            if not done:
                clock.advance(1)
            assert done, "it went on after its part of the deadline"
            if stage.lost == "raises":
                with pytest.raises(EmbeddingError, match="deadline_seconds"):
                    await task
            else:
                result = await task
                assert result.latency_ms == approx(1010 * part)
                assert result.degraded[0].stage == stage.entries[0]
                assert "deadline_seconds" in result.degraded[0].reason
            await provider.has_been_left()

    asyncio.run(main())
