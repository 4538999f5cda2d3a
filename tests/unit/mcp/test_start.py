"""What is loaded behind the model, and how failures are explained."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp import Client
from retrieval_core import RetrievalConfig, open_index
from retrieval_core.errors import IndexFormatError
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core_mcp import Library, ServerSettings, create_server
from retrieval_core_mcp.explain import explain, scrub
from retrieval_core_mcp.library import WARM_UP, WARM_UP_AFTER

if TYPE_CHECKING:
    from retrieval_core import Index


class Held:
    """A library whose model is held back by a gate, and whose clock stands still."""

    def __init__(self, config: RetrievalConfig, **settings: Any) -> None:
        self.clock = FakeClock()
        self.embedder = FakeEmbedder()
        self.settings = ServerSettings(retrieval=config, **settings)
        self.library = Library(self.settings, open_index=self.open, clock=self.clock)
        self.server = create_server(self.settings, self.library)

    def open(self, config: RetrievalConfig) -> Index:
        return open_index(config=config, embedder=self.embedder)

    async def until_asked(self) -> None:
        """Wait until the model is being loaded."""
        while not self.embedder.queries:  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0)


def test_what_the_first_search_loads_is_loaded_behind_the_model(config: RetrievalConfig) -> None:
    """By a search of its own, once for a moment nobody has asked; none comes where somebody has."""

    async def conversation(*, asks: bool) -> list[str]:
        held = Held(config)
        async with Client(held.server) as client:
            if asks:
                await client.call_tool("search", {"query": "the moon"})
            await held.until_asked()
            warming = held.library._warming
            assert warming is not None
            while not warming.done():
                held.clock.advance(WARM_UP_AFTER)
                await asyncio.sleep(0)
            return held.embedder.queries

    assert asyncio.run(conversation(asks=False)) == [WARM_UP, WARM_UP]
    assert sorted(asyncio.run(conversation(asks=True))) == sorted([WARM_UP, "the moon"])


class Loaded(FakeEmbedder):
    """An embedder whose model is in memory from the beginning."""

    is_loaded = True


class Unsure(FakeEmbedder):
    """An embedder of somebody else, with a method of that name."""

    def is_loaded(self) -> bool:
        return False


@pytest.mark.parametrize(("kind", "queries"), [(Loaded, ["the moon"]), (Unsure, ["the moon", WARM_UP])])
def test_a_search_waits_for_no_other_text_where_the_model_is_loaded(
    config: RetrievalConfig, kind: type[FakeEmbedder], queries: list[str]
) -> None:
    """An embedder is asked to embed something at the start, unless it says that it is loaded."""

    async def conversation() -> list[str]:
        held = Held(config)
        held.embedder = kind()
        async with Client(held.server) as client:
            answer: Any = await client.call_tool("search", {"query": "the moon"})
            assert answer.structured_content["degraded"] == []
        return sorted(held.embedder.queries)

    assert asyncio.run(conversation()) == sorted(queries)


@pytest.mark.parametrize("error", [IndexFormatError("/a/b.db is damaged"), RuntimeError("/a/b.db"), OSError("/a/b")])
def test_failures_are_explained_without_places(error: Exception, config: RetrievalConfig) -> None:
    """What went wrong in detail is in the log alone."""
    text = explain(error, config)
    assert "/a/b" not in text
    assert "log" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/srv/me/x.db: busy", "…: busy"),
        (r"C:\Users\me\x.db is gone", "… is gone"),
        ("file:///var/x.db is gone", "… is gone"),
        ("read and/or write", "read and/or write"),
        ("retrieval-core[local]", "retrieval-core[local]"),
    ],
)
def test_paths_are_taken_out(text: str, expected: str) -> None:
    """Of both kinds of systems, but not every slash."""
    assert scrub(text, RetrievalConfig()) == expected
