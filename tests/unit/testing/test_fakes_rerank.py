"""The stand-ins do what their documentation says, for tests rely on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import InvalidParameterError, ServiceConnectionError
from retrieval_core.ports import Rewritten
from retrieval_core.testing.fakes import FakeRelevanceFilter, FakeReranker, FakeRewriter, word_overlap
from retrieval_core.types import Chunk, Judgement, Usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CHUNK = Chunk(id="d#0", document_id="d", text="Red apples fall.")


@pytest.mark.parametrize(
    ("query", "passage", "score"),
    [
        ("red apples", "Red apples fall.", 1),
        ("red red pears", "red", 0.5),
        ("pears", "red", 0),
        ("", "red", 0),
        ("?", "?", 0),
    ],
)
def test_word_overlap(query: str, passage: str, score: float) -> None:
    """The score is the share of the question's different words."""
    assert word_overlap(query, passage) == score


def test_reranker() -> None:
    """Scores are those given by text, else the overlap; calls are recorded."""
    fake = FakeReranker({"given": 0.25})
    found = asyncio.run(fake.score("red apples", ["given", "a red one"]))
    assert found.scores == (0.25, 0.5)
    assert found.usage == Usage(input_tokens=4)
    assert fake.calls == [("red apples", ("given", "a red one"))]


def test_relevance_filter() -> None:
    """Judgements are those given by id, else by half of the question's words; calls are recorded."""
    given = Judgement(False, 0.1, "given")
    fake = FakeRelevanceFilter({"x": given}, batch_size=3)
    other = Chunk(id="x", document_id="d", text="red apples")
    found = asyncio.run(fake.judge("red pears", [CHUNK, other]))
    assert found.judgements == (Judgement(True, 0.5, "50% of the question's words"), given)
    assert found.usage == Usage(input_tokens=5)
    assert fake.calls == [("red pears", ("d#0", "x"))]
    assert fake.batch_size == 3


def test_rewriter() -> None:
    """Answers come from the script in order, or from a function; a script that is over is an error."""
    whole = Rewritten("second", "because", Usage(1, 2))
    fake = FakeRewriter(["first", whole, ServiceConnectionError("gone")])
    assert asyncio.run(fake.rewrite("q", "c")) == Rewritten("first", "scripted")
    assert asyncio.run(fake.rewrite("q", "")) == whole
    with pytest.raises(ServiceConnectionError, match="gone"):
        asyncio.run(fake.rewrite("q", ""))
    with pytest.raises(AssertionError, match="got 4 requests"):
        asyncio.run(fake.rewrite("q", ""))
    assert fake.calls[0] == ("q", "c")
    assert asyncio.run(FakeRewriter(lambda query, context: query + context).rewrite("a", "b")).query == "ab"


Fakes = FakeReranker | FakeRelevanceFilter | FakeRewriter
CALLS: list[tuple[Callable[[], Fakes], Callable[[Fakes], Awaitable[object]]]] = [
    (FakeReranker, lambda fake: fake.score("q", ["p"]) if isinstance(fake, FakeReranker) else _never()),
    (FakeRelevanceFilter, lambda fake: fake.judge("q", [CHUNK]) if isinstance(fake, FakeRelevanceFilter) else _never()),
    (
        lambda: FakeRewriter(["x"] * 3),
        lambda fake: fake.rewrite("q", "") if isinstance(fake, FakeRewriter) else _never(),
    ),
]


def _never() -> Awaitable[object]:
    raise AssertionError


@pytest.mark.parametrize(("make", "call"), CALLS)
def test_failure_and_gate(make: Callable[[], Fakes], call: Callable[[Fakes], Awaitable[object]]) -> None:
    """A gate holds calls until it is set, a failure is raised after it, and both can be taken away."""
    fake = make()

    async def main() -> None:
        fake.gate = asyncio.Event()
        calls = [asyncio.ensure_future(call(fake)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert fake.running == 2
        assert not any(one.done() for one in calls)
        fake.gate.set()
        await asyncio.gather(*calls)
        fake.failure = ServiceConnectionError("gone")
        with pytest.raises(ServiceConnectionError, match="gone"):
            await call(fake)
        fake.failure = None
        await call(fake)

    asyncio.run(main())
    assert (fake.running, fake.most_running) == (0, 2)
    assert fake.id.startswith("fake-")


@pytest.mark.parametrize("make", [FakeReranker, FakeRelevanceFilter])
def test_the_batch_size_is_checked(make: Callable[..., object]) -> None:
    """A call takes at least one passage."""
    with pytest.raises(InvalidParameterError, match="batch_size must be a whole number of at least 1, got 0"):
        make(batch_size=0)
