"""Models that several indexes share: one call for the same question."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.errors import DeadlineExceededError, ServiceError
from retrieval_core.pipeline.federation.shared import SharedTransformer, shared, shared_transformer
from retrieval_core.ports import CountsTokens, Message, QueryContext, Transformed
from retrieval_core.run.sync import SingleFlight
from retrieval_core.testing.fakes import CountingFakeEmbedder, FakeEmbedder
from retrieval_core.testing.fakes_transform import FakeTransformer
from retrieval_core.types import Usage
from support.groups import Group

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core.types import Matrix


class TestSharedTransformer:
    """One call for the same question."""

    def test_callers_at_the_same_time_share_a_call(self) -> None:
        """Its usage is told to the first one; another question or another conversation is another call."""
        inner = FakeTransformer(Transformed(query="q", usage=Usage(input_tokens=3)))
        one = SharedTransformer(inner, 60)
        other = QueryContext((Message("user", "before"),))

        async def ask() -> list[Transformed | str]:
            return await asyncio.gather(*(one.transform("a", QueryContext()) for _ in range(3)))

        made = asyncio.run(ask())
        assert [answer.usage is not None for answer in made if isinstance(answer, Transformed)] == [True, False, False]
        assert {answer.query for answer in made if isinstance(answer, Transformed)} == {"q"}
        assert len(inner.asked) == 1
        asyncio.run(one.transform("a", other))
        asyncio.run(one.transform("b", other))
        assert len(inner.asked) == 3

    def test_a_long_conversation_is_kept_as_a_digest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What tells questions apart is short, also where they hold half a character."""
        keys: list[str] = []

        async def run(_: object, key: str, make: Callable[[], Awaitable[Any]]) -> Any:
            keys.append(key)
            return await make()

        monkeypatch.setattr(SingleFlight, "run", run)
        one = SharedTransformer(FakeTransformer(), 60)
        for said in ("before " * 10_000, "before\ud800"):
            asyncio.run(one.transform("a", QueryContext((Message("user", said),))))
        assert [len(key) for key in keys] == [64, 64]
        assert len(set(keys)) == 2

    def test_failures_and_unusable_answers_are_not_remembered(self) -> None:
        """The next call asks again."""
        inner = FakeTransformer(lambda *_: None)  # type: ignore[arg-type, return-value]
        one = SharedTransformer(inner, 60)
        assert [asyncio.run(one.transform("a", QueryContext())) for _ in range(2)] == [None, None]
        inner.failure = ServiceError("no")
        with pytest.raises(ServiceError):
            asyncio.run(one.transform("a", QueryContext()))
        assert len(inner.asked) == 3

    def test_what_cannot_be_shared_is_left_as_it_is(self) -> None:
        """One that knows more from time to time, and one that blocks a thread."""

        class Knowing(FakeTransformer):
            async def version(self) -> str:
                return "1"

        class Blocking:
            id = "blocking"

            def transform(self, query: str, context: QueryContext) -> str:
                return f"{query} {len(context.history)}"

        knowing, blocking = Knowing(), Blocking()
        assert shared_transformer(knowing, 60) is knowing
        assert shared_transformer(blocking, 60) is blocking  # type: ignore[arg-type, comparison-overlap]


def test_a_passage_alone_is_embedded_once_for_callers_at_the_same_time() -> None:
    """A later call embeds it again, as is needed to try an embedder."""
    embedder = FakeEmbedder()
    one = shared(embedder, 10)

    async def embed() -> list[Matrix]:
        return await asyncio.gather(*(one.embed_texts(["a passage"]) for _ in range(3)))

    assert [matrix.shape for matrix in asyncio.run(embed())] == [(1, 256)] * 3
    assert len(embedder.batches) == 1
    asyncio.run(embed())
    assert len(embedder.batches) == 2


def test_a_blocking_embedder_is_not_shared() -> None:
    """It runs in threads, which sharing would keep it from."""

    class Blocking(FakeEmbedder):
        def embed_query(self, text: str) -> Any:  # type: ignore[override]
            return self.vector(text)

    embedder = Blocking()
    assert shared(embedder, 10) is embedder
    assert Group(embedder).ask().degraded == ()


def test_a_shared_embedder_has_the_abilities_of_its_own() -> None:
    """It counts tokens if and only if the embedder does, and a failure is not remembered."""
    assert isinstance(shared(CountingFakeEmbedder(), 10), CountsTokens)
    assert not isinstance(shared(FakeEmbedder(), 10), CountsTokens)
    embedder = FakeEmbedder()
    embedder.failure = DeadlineExceededError("slow")
    one = shared(embedder, 10)
    with pytest.raises(DeadlineExceededError):
        asyncio.run(one.embed_query("a"))
    embedder.failure = None
    vector = asyncio.run(one.embed_query("a"))
    assert vector.shape == (256,)
    assert asyncio.run(one.embed_query("a")) is vector
    assert asyncio.run(one.embed_texts(["a", "b"])).shape == (2, 256)
