"""The verifier without a model."""

from __future__ import annotations

import asyncio

import pytest

from retrieval_core.errors import InvalidParameterError, ServiceConnectionError
from retrieval_core.ports import Verified
from retrieval_core.testing.fakes import FakeVerifier


def test_it_says_what_it_is_told() -> None:
    """Given verdicts come before those by words, and calls are kept."""
    told = Verified("contradicted", 0, "Water", "told")
    fake = FakeVerifier({"Fire is wet.": told})
    answer = asyncio.run(fake.verify("q", ["Fire is wet.", "water is wet", "ice"], ["Water is wet."]))
    assert answer.verdicts[0] == told
    assert answer.verdicts[1] == Verified("supported", 0, "Water is wet.", "the passage has all of its words")
    assert answer.verdicts[2].verdict == "not_found"
    assert answer.usage is not None
    assert answer.usage.input_tokens == 3
    assert fake.calls == [("q", ("Fire is wet.", "water is wet", "ice"), ("Water is wet.",))]


def test_it_fails_and_waits_as_it_is_set() -> None:
    """A failure that is set is raised, and a gate holds calls until it opens."""
    fake = FakeVerifier(batch_size=1)

    async def two_at_once() -> None:
        fake.gate = asyncio.Event()
        calls = [asyncio.create_task(fake.verify("q", ["a"], ["a"])) for _ in range(2)]
        await asyncio.sleep(0)
        assert fake.most_running == 2
        fake.gate.set()
        await asyncio.gather(*calls)

    asyncio.run(two_at_once())
    fake.gate = None
    fake.failure = ServiceConnectionError("down", "fake")
    with pytest.raises(ServiceConnectionError):
        asyncio.run(fake.verify("q", ["a"], ["a"]))


def test_a_batch_holds_something() -> None:
    """A batch of none is refused."""
    with pytest.raises(InvalidParameterError, match="batch_size must be a whole number of at least 1, got 0"):
        FakeVerifier(batch_size=0)
