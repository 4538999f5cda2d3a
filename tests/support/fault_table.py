"""Every fault of a provider in every stage that leaves the process: what becomes of a query, after how many attempts.

``python tests/support/fault_table.py`` prints the table.

Each query has 200 ms. They begin, in real time, when a request was taken that is never answered; until then, and after
that, the clock stands still, so that no outcome depends on how busy the machine is. Waits between attempts are skipped.
The milliseconds of the table are real, though, from the question to the result.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, cast

if not __package__:  # run by itself
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from retrieval_core.errors import DimensionMismatchError, EmbeddingError, ServiceError
from support.fault_providers import Refused
from support.fault_stages import DEADLINE, HAS_REDIS, MAX_RETRIES, STAGES, Stage, opened
from support.wire_server import BrokenJSON, Changed, EmptyBody, Fault, Hang, ResetMidBody, Status

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator

    from retrieval_core.types import RetrievalResult

QUESTION = "roll back an application"
WARM_UP = "telescope"
WRONG_DIMENSION = "wrong dimension"


@dataclass(frozen=True, slots=True)
class Case:
    """A fault, and what the failure contract says of it.

    Attributes:
        fault: ``None`` where it depends on the stage.
        attempts: How often a stage that is retried asks.
        outcome: ``ok``, ``raises``, or ``lost`` for what each stage says itself.
        waits: The least wait before each further attempt, in seconds.
        at_once: Whether there is no wait at all.
    """

    fault: Fault | Refused | None
    attempts: int
    outcome: str = "lost"
    once: bool = False
    waits: float = 0.0
    at_once: bool = False


FAULTS = {
    "connection refused": Case(Refused(), MAX_RETRIES + 1),
    "reset mid-body": Case(ResetMidBody(), MAX_RETRIES + 1),
    "no answer in time": Case(Hang(), 1),
    "401": Case(Status(401), 1, "raises"),
    "404": Case(Status(404), 1, "raises"),
    "429, Retry-After 0.01": Case(Status(429, retry_after=0.01), MAX_RETRIES + 1, waits=0.01),
    "429, Retry-After 60": Case(Status(429, retry_after=60), 1),
    "500 once": Case(Status(500), 2, "ok", once=True),
    "500 for ever": Case(Status(500), MAX_RETRIES + 1),
    "broken JSON": Case(BrokenJSON(), MAX_RETRIES + 1, at_once=True),
    "empty body": Case(EmptyBody(), MAX_RETRIES + 1, at_once=True),
    WRONG_DIMENSION: Case(None, 1, "raises"),
}
OF_REDIS = ("connection refused", "reset mid-body", "no answer in time")


@dataclass(frozen=True, slots=True)
class Cell:
    """What became of one query.

    Attributes:
        attempts: Requests of the stage that arrived; where the connection was refused, connections that were tried.
        waits: Seconds that were to pass before each further attempt.
    """

    stage: str
    fault: str
    attempts: int
    waits: tuple[float, ...]
    milliseconds: float
    result: RetrievalResult | None
    error: Exception | None

    @property
    def outcome(self) -> str:
        if self.result is None:
            return "raises"
        if not self.result.degraded:
            return "ok"
        return "degraded" if self.result.hits else "empty"

    @property
    def entries(self) -> tuple[str, ...]:
        """The stages that were done without."""
        return tuple(item.stage for item in self.result.degraded) if self.result is not None else ()

    @property
    def said(self) -> str:
        """What a user reads."""
        if self.result is not None:
            return "; ".join(f"{item.stage}: {item.reason}" for item in self.result.degraded)
        return f"{type(self.error).__name__}: {self.error}"


class HeldClock:
    """A clock that stands still until it is told to run, and again once something ran out of time.

    Attributes:
        slept: The seconds of each sleep, none of which took any time.
    """

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._now = 0.0
        self._running_since: float | None = None
        self._open: dict[asyncio.Timeout, float] = {}

    def begin(self) -> None:
        self._running_since = monotonic()
        for scope, end in self._open.items():
            scope.reschedule(asyncio.get_running_loop().time() + end - self._now)

    def now(self) -> float:
        return self._now if self._running_since is None else self._now + monotonic() - self._running_since

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncGenerator[None]:
        async with asyncio.timeout(None) as scope:
            if seconds is None:
                yield
                return
            end = self._open[scope] = self.now() + seconds
            if self._running_since is not None:
                scope.reschedule(asyncio.get_running_loop().time() + seconds)
            try:
                yield
            finally:
                del self._open[scope]
                if scope.expired():
                    self._now, self._running_since = end, None

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the connections that are tried, by port: what is refused never arrives anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.connects: Counter[int] = Counter()

    async def sock_connect(self, sock: Any, address: Any) -> None:
        self.connects[cast("tuple[str, int]", address)[1]] += 1
        await super().sock_connect(sock, address)


def faults_of(stage: Stage) -> Iterator[str]:
    """Yield the faults that a stage can meet."""
    if stage.service is None:
        yield from OF_REDIS
        return
    for name in FAULTS:
        if name != WRONG_DIMENSION or stage.wrong_dimension is not None:
            yield name


def all_cells() -> Iterator[tuple[str, str]]:
    """Yield stage and fault of every cell."""
    for stage in STAGES.values():
        for fault in faults_of(stage):
            yield stage.name, fault


def needs_redis(stage: str) -> bool:
    return STAGES[stage].service is None


def expected(stage: Stage, fault: str) -> tuple[str, int, tuple[str, ...]]:
    """Return outcome, attempts and degraded stages as the failure contract has them."""
    case = FAULTS[fault]
    outcome = stage.lost if case.outcome == "lost" else case.outcome
    entries = stage.entries if outcome in {"degraded", "empty"} else ()
    return outcome, case.attempts if stage.is_retried else 1, entries


def run_cell(stage: str, fault: str) -> Cell:
    """Ask one question while a stage's provider has a fault. An error that is not foreseen is part of the cell too."""
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(_run_cell(STAGES[stage], fault, FAULTS[fault]))


async def _run_cell(stage: Stage, name: str, case: Case) -> Cell:
    loop, clock = asyncio.get_running_loop(), HeldClock()
    assert isinstance(loop, CountingLoop)
    fault, path = case.fault, stage.path
    async with opened(stage, clock) as (pipeline, provider):
        if fault is None:
            assert stage.wrong_dimension is not None
            path, change = stage.wrong_dimension
            fault = Changed(change)
        if path == stage.path:  # connections are there, and the stage is known to work
            assert (await pipeline.aretrieve(WARM_UP)).degraded == ()
            assert provider.asked() > 0
        await provider.spoil(fault, path=path, once=case.once)
        before, connects, waits = provider.asked(), loop.connects[provider.port], len(clock.slept)
        result, error = None, None
        started = perf_counter()
        task = asyncio.create_task(pipeline.aretrieve(QUESTION))
        if isinstance(fault, Hang):
            held = asyncio.create_task(provider.has_been_asked(before))
            await asyncio.wait((task, held), return_when=asyncio.FIRST_COMPLETED)
            clock.begin()
            held.cancel()  # has no effect where it is done
        try:
            result = await task
        except Exception as caught:  # noqa: BLE001 - which errors there may be is what is tested
            error = caught
        milliseconds = (perf_counter() - started) * 1000
        refused = loop.connects[provider.port] - connects
        attempts = refused if isinstance(fault, Refused) else provider.asked() - before
        return Cell(stage.name, name, attempts, tuple(clock.slept[waits:]), milliseconds, result, error)


def typed(cell: Cell) -> bool:
    """Whether an error is the one that the failure contract names."""
    if cell.fault == WRONG_DIMENSION:
        return isinstance(cell.error, DimensionMismatchError)
    failure = cell.error
    if cell.stage.startswith("embed"):
        if not isinstance(failure, EmbeddingError) or failure.query != QUESTION:
            return False
        failure = failure.__cause__
    if cell.fault in {"401", "404"}:
        return isinstance(failure, ServiceError) and failure.status == int(cell.fault)
    return isinstance(failure, ServiceError)


def rendered(cells: Iterable[Cell]) -> str:
    """Return the table as text."""
    heads = ("stage", "fault", "outcome", "attempts", "ms", "degraded or raised")
    rows = [
        (cell.stage, cell.fault, cell.outcome, str(cell.attempts), f"{cell.milliseconds:.0f}", _short(cell.said))
        for cell in cells
    ]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    rule = tuple("-" * width for width in widths)
    lines = (
        "  ".join(part.rjust(width) if column in {3, 4} else part.ljust(width) for column, (part, width) in pairs)
        for pairs in (list(enumerate(zip(row, widths, strict=True))) for row in (heads, rule, *rows))
    )
    title = f"deadline {DEADLINE * 1000:.0f} ms, max_retries {MAX_RETRIES}"
    return "\n".join([title, *(line.rstrip() for line in lines)]) + "\n"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def main() -> None:
    """Print the table."""
    logging.getLogger("retrieval_core").addHandler(logging.NullHandler())
    cells = [run_cell(*cell) for cell in all_cells() if HAS_REDIS or not needs_redis(cell[0])]
    sys.stdout.write(rendered(cells))


if __name__ == "__main__":
    main()
