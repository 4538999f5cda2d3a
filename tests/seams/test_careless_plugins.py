"""Plug-ins that change what they are given, block in ``aclose`` or raise endless messages: queries bear them all."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from retrieval_core import Chunk, RetrievalPipeline, load_config, open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.ports import RerankScores, ResultCache
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from retrieval_core import Index

pytestmark = pytest.mark.timeout(120)  # far more than any of them takes; only a hang exceeds it

TEXTS = ("The moon is bright.", "The sun is a star.", "Bread is baked for forty minutes.")


def opened(**plugins: Any) -> Index:
    """Return an index of three chunks in memory."""
    embedder = plugins.pop("embedder", None) or FakeEmbedder()
    config = load_config(overrides={"deadline_seconds": 10.0, "retry.base_delay": 0.0})
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    index = open_index(config=config, store=store, embedder=embedder, **plugins)
    index.add([Chunk(f"c{number}", "d", text) for number, text in enumerate(TEXTS)])
    return index


class Emptying:
    """A reranker that takes the passages out of its list one by one."""

    id = "emptying"
    batch_size = 50

    def __init__(self, *, fails_first: bool = False) -> None:
        self.seen: list[int] = []
        self._fails_first = fails_first

    def score(self, query: str, passages: list[str]) -> RerankScores:
        self.seen.append(len(passages))
        scores: list[float] = []
        while passages:
            scores.append(1.0 if "star" in passages.pop(0) else 0.1)
        if self._fails_first and len(self.seen) == 1:
            raise ConnectionError("try again")
        return RerankScores(tuple(scores))


class AppendingAndWrong(Emptying):
    """Answers with one score too many, for a passage that it appended itself."""

    def score(self, query: str, passages: list[str]) -> RerankScores:
        passages.append("mine")
        return RerankScores((0.5,) * len(passages))


def test_a_reranker_that_empties_its_list_is_used() -> None:
    """The scores belong to the passages that it got."""
    with opened(reranker=Emptying()) as index:
        result = index.retrieve("what is bright or a star")
    assert {hit.id: hit.scores.rerank for hit in result.hits}["c1"] == 1.0
    assert not result.degraded


def test_a_second_attempt_gets_all_passages_again() -> None:
    """The first attempt emptied only its own list."""
    reranker = Emptying(fails_first=True)
    with opened(reranker=reranker) as index:
        result = index.retrieve("what is bright or a star")
    assert len(reranker.seen) > 1
    assert len(set(reranker.seen)) == 1
    assert not result.degraded


def test_scores_for_passages_of_its_own_are_a_failure() -> None:
    """The order of the search stays, and the result names the reranker."""
    with opened(reranker=AppendingAndWrong()) as index:
        result = index.retrieve("what is bright or a star")
    assert result.hits
    assert [item.stage for item in result.degraded] == ["rerank"]


class LongWinded(FakeEmbedder):
    """Raises an error that quotes a whole document."""

    async def embed_query(self, text: str) -> Any:
        raise ValueError("so long " * 200_000)


def test_an_endless_message_is_shortened(caplog: pytest.LogCaptureFixture) -> None:
    """Results, traces and logs say what failed, and not everything that it said."""
    with caplog.at_level(logging.INFO), opened(embedder=LongWinded()) as index:
        result = index.retrieve("bright moon")
    assert result.hits
    assert "so long so long" in result.degraded[0].reason
    assert len(result.degraded[0].reason) < 5_000
    assert result.degraded[0].reason.endswith(" …")
    assert sum(len(record.error or "") for record in result.trace) < 20_000
    assert sum(len(line) for line in caplog.messages) < 20_000


class Lazy:
    """A value that is made when it is first looked at, which fails."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionError(f"{name}: the connection is gone")


class LazyReranker(Emptying):
    """Returns a value that cannot be looked at."""

    def score(self, query: str, passages: list[str]) -> Any:
        return Lazy()


def test_a_value_that_cannot_be_looked_at_is_a_failure() -> None:
    """As an answer of another shape."""
    with opened(reranker=LazyReranker()) as index:
        result = index.retrieve("what is bright or a star")
    assert result.hits
    assert [item.stage for item in result.degraded] == ["rerank"]


class Closing(Emptying):
    """A reranker with an ``aclose``, which is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.was_closed = False

    async def aclose(self) -> None:
        self.was_closed = True


class OrdinaryClose(Emptying):
    """Has an ordinary ``aclose``, which records whether it would block an event loop."""

    blocks: bool | None = None

    def aclose(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.blocks = False
        else:
            self.blocks = True


def test_an_ordinary_aclose_may_block() -> None:
    """It runs in a thread, as all ordinary methods of plug-ins do."""
    reranker = OrdinaryClose()
    opened(reranker=reranker).close()
    assert reranker.blocks is False


class EndsTheProcess(Emptying):
    """Calls ``sys.exit`` while it is closed."""

    async def aclose(self) -> None:
        raise SystemExit(9)


def test_an_aclose_that_ends_the_process_is_an_error() -> None:
    """The program goes on, and everything else is closed."""
    other = Closing()
    index = opened(reranker=[other, EndsTheProcess()])
    with pytest.raises(RuntimeError, match="tried to end the process"):
        index.close()
    assert other.was_closed


class Decorating:
    """Has attributes whose names mean something else in the library."""

    capabilities: Any = ("fast", "cheap")

    def __init__(self) -> None:
        self.wrapped = FakeEmbedder()
        self.id, self.dimension = self.wrapped.id, self.wrapped.dimension
        self.held = self.waits = "mine"

    async def embed_query(self, text: str) -> Any:
        return await self.wrapped.embed_query(text)

    async def embed_texts(self, texts: list[str]) -> Any:
        return await self.wrapped.embed_texts(texts)


def replaced() -> FakeEmbedder:
    """Return an embedder whose methods were replaced by functions on the instance, as tests of applications do."""
    embedder, real = FakeEmbedder(), FakeEmbedder()

    async def embed_query(text: str) -> Any:
        return (await real.embed_query(text)).tolist()

    def embed_texts(texts: list[str]) -> Any:
        return asyncio.run(real.embed_texts(texts)).tolist()

    vars(embedder).update(embed_query=embed_query, embed_texts=embed_texts)
    return embedder


def mocked() -> Mock:
    """Return an object that has every attribute, each of which can be called."""
    real = FakeEmbedder()
    mock = Mock(id=real.id, dimension=real.dimension)
    mock.embed_query.side_effect = real.embed_query
    mock.embed_texts.side_effect = real.embed_texts
    return mock


@pytest.mark.parametrize("embedder", [Decorating, replaced, mocked])
def test_attributes_that_mean_something_else_do_not_matter(embedder: Any) -> None:
    """Names such as ``wrapped``, methods replaced on the instance and mocks change no result."""
    with opened(embedder=embedder()) as index, opened() as usual:
        found, expected = index.retrieve("the moon"), usual.retrieve("the moon")
    assert [(hit.chunk.id, hit.score) for hit in found.hits] == [(hit.chunk.id, hit.score) for hit in expected.hits]
    assert found.degraded == ()


class OwnMeaning:
    """A store without the base class, whose attributes have other meanings."""

    waits = wrapped = 3

    def __init__(self) -> None:
        embedder = FakeEmbedder()
        self._store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)

    def capabilities(self) -> str:
        return "documents of all kinds"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_capabilities_that_mean_something_else_do_not_matter() -> None:
    """Then the methods of the store say what it can do, so that its results are cached."""
    embedder = FakeEmbedder()
    store: Any = OwnMeaning()
    with open_index(config=load_config(), embedder=embedder, store=store) as index:
        index.add([Chunk("c", "d", TEXTS[0])])
        assert [index.retrieve("the moon").from_cache for _ in range(2)] == [False, True]


class DictionaryCache:
    """A cache of ordinary functions, in the memory of the process."""

    id = "dictionary"
    in_process = True

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self.kept.get(key)

    def set(self, key: str, result: Any) -> None:
        self.kept[key] = result

    def clear(self) -> None:
        self.kept.clear()


class DerivedCache(ResultCache):
    """The same with the base class."""

    id = "derived"
    in_process = True

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def _get(self, key: str) -> Any:
        return self.kept.get(key)

    def _set(self, key: str, result: Any) -> Any:
        self.kept[key] = result

    def _clear(self) -> Any:
        self.kept.clear()


@pytest.mark.parametrize("cache", [DictionaryCache, DerivedCache])
def test_a_cache_of_ordinary_functions_in_the_process_is_used(cache: Any) -> None:
    """Its methods may be ordinary functions, as those of all plug-ins."""
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    with open_index(config=load_config(), embedder=embedder, store=store) as index:
        index.add([Chunk("c", "d", TEXTS[0])])
        with RetrievalPipeline(store, embedder, cache=cache()) as pipeline:
            assert [pipeline.retrieve("the moon").from_cache for _ in range(2)] == [False, True]
