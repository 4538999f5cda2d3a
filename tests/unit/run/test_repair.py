"""An answer that cannot be used is mended in one of the attempts that there are anyway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.errors import MalformedAnswerError, ServiceConnectionError, ServiceError
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.run.retry import CircuitBreakers, RetryPolicy, can_help
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator

DOWN = ServiceConnectionError("connection refused", "openai")
REFUSED = ServiceError("no key", "openai", status=401)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool("test-repair", threads=1)
    yield pool
    pool.close()


def malformed(number: int) -> MalformedAnswerError:
    return MalformedAnswerError(f"wrong {number}", "openai", answer=f"answer {number}")


class Model:
    """Raises one error after another, then answers; notes what was called with what."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    async def ask(self, *args: object) -> str:
        return self._next("ask", args)

    async def repair(self, *args: object) -> str:
        return self._next("repair", args)

    def ask_in_thread(self, *args: object) -> str:
        return self._next("ask", args)

    def repair_in_thread(self, *args: object) -> str:
        return self._next("repair", args)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def _next(self, name: str, args: tuple[object, ...]) -> str:
        self.calls.append((name, args))
        if self.errors:
            raise self.errors.pop(0)
        return name


def call(pool: ThreadPool, model: Model, retries: int, *, repairs: bool = True) -> tuple[Run, Any]:
    run = Run(pool, clock=FakeClock(), guard=Guard(RetryPolicy(retries)))
    part = run.repairing(model.repair if repairs else None)
    return run, asyncio.run(part.call("rerank", model.ask, "question", ["text"]))


@pytest.mark.parametrize(
    ("errors", "names", "outcome"),
    [
        ([], ["ask"], "ask"),
        ([DOWN], ["ask", "ask"], "ask"),
        ([DOWN, malformed(1)], ["ask", "ask", "repair"], "repair"),
        ([malformed(1), DOWN], ["ask", "repair", "ask"], "ask"),
        ([malformed(1), DOWN, malformed(2)], ["ask", "repair", "ask", "repair"], "repair"),
        ([malformed(1), DOWN, DOWN, malformed(2)], ["ask", "repair", "ask", "ask"], malformed(2)),
        ([malformed(1), REFUSED], ["ask", "repair"], REFUSED),
        ([REFUSED], ["ask"], REFUSED),
        ([malformed(1), RuntimeError("bug")], ["ask", "repair"], RuntimeError("bug")),
    ],
)
def test_what_is_called(pool: ThreadPool, errors: list[Exception], names: list[str], outcome: object) -> None:
    """Only an answer that was wrong is repaired; after a repair that failed in another way it is asked anew."""
    model = Model(*errors)
    _, found = call(pool, model, 3)
    assert model.names == names
    assert repr(found.error if isinstance(found, Failed) else found.value) == repr(outcome)


@given(
    codes=st.lists(st.sampled_from(["wrong", "down", "refused"]), max_size=6),
    retries=st.integers(0, 4),
    repairs=st.booleans(),
)
def test_repairs_change_no_count(pool: ThreadPool, codes: list[str], retries: int, *, repairs: bool) -> None:
    """With and without them there are as many attempts and waits, and each repair follows a wrong answer."""
    kinds = {"wrong": malformed(0), "down": DOWN, "refused": REFUSED}
    errors = [kinds[code] for code in codes]
    model = Model(*errors)
    run, _ = call(pool, model, retries, repairs=repairs)
    ends = next((number for number, error in enumerate(errors) if not can_help(error)), len(errors))
    assert len(model.calls) == run.records[0].attempts == min(ends, retries) + 1
    for number, name in enumerate(model.names):
        assert (name == "repair") is (repairs and number > 0 and codes[number - 1] == "wrong")


def test_the_run_itself_stays_as_it_was(pool: ThreadPool) -> None:
    """Repairs belong to the part of the run that was asked for, and no repair is a part that has none."""
    model = Model(malformed(1), malformed(2))
    run = Run(pool, clock=FakeClock(), guard=Guard(RetryPolicy(1)))
    part = run.repairing(model.repair).in_round(2)
    assert isinstance(asyncio.run(run.call("rerank", model.ask)), Failed)
    assert model.names == ["ask", "ask"]
    model.errors.append(malformed(3))
    assert asyncio.run(part.repairing(None).call("rerank", model.ask)) == Ok("ask")
    model.errors.append(malformed(4))
    assert asyncio.run(part.call("rerank", model.ask)) == Ok("repair")


def test_calls_at_the_same_time_repair_their_own(pool: ThreadPool) -> None:
    """Calls of one part know of their own wrong answers alone."""
    errors = {number: malformed(number) for number in range(5)}
    repaired: list[tuple[object, object]] = []

    async def ask(number: int) -> int:
        await asyncio.sleep(0)
        raise errors[number]

    async def repair(number: int, wrong: MalformedAnswerError) -> int:
        await asyncio.sleep(0)
        repaired.append((number, wrong))
        return number

    async def main() -> list[Ok[int] | Failed]:
        part = Run(pool, clock=FakeClock(), guard=Guard(RetryPolicy(1))).repairing(repair)
        return await asyncio.gather(*(part.call("rerank", ask, number) for number in errors))

    assert asyncio.run(main()) == [Ok(number) for number in errors]
    assert sorted(repaired, key=str) == sorted(errors.items(), key=str)


def test_functions_that_are_not_coroutines(pool: ThreadPool) -> None:
    """They are repaired in a thread as well."""
    model = Model(malformed(1))
    ask: Any = model.ask_in_thread
    repair: Any = model.repair_in_thread
    run = Run(pool, seconds=60, clock=FakeClock(), guard=Guard(RetryPolicy(1)))
    assert asyncio.run(run.repairing(repair).call("rerank", ask, 1)) == Ok("repair")
    assert model.names == ["ask", "repair"]


def test_a_call_that_was_repaired_is_no_failure_of_the_backend(pool: ThreadPool) -> None:
    """The circuit breaker counts calls, not attempts."""
    model = Model(malformed(1))
    guard = Guard(RetryPolicy(1), CircuitBreakers(failures=1, pause=30))
    run = Run(pool, clock=FakeClock(), guard=guard).on("llm").repairing(model.repair)
    assert asyncio.run(run.call("rerank", model.ask)) == Ok("repair")
    assert asyncio.run(run.call("rerank", model.ask)) == Ok("ask")
