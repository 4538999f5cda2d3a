"""What is loaded behind the model, and how failures are explained."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp import Client
from retrieval_core import RetrievalConfig
from retrieval_core.errors import IndexFormatError
from retrieval_core.service.redaction import redactor
from retrieval_core.service.served import WARM_UP
from retrieval_core.service.service_context import ServiceContext
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core_mcp import ServerSettings, create_server, serve_indexes
from retrieval_core_mcp.advice import advice_on


class StoppedClock(FakeClock):
    """A clock on which no sleep ends, so that nothing is loaded by a search of the server's own."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


class Held:
    """A server whose model is held back by a gate, and whose clock is not the system's."""

    def __init__(
        self,
        config: RetrievalConfig,
        kind: type[FakeEmbedder] = FakeEmbedder,
        clock: FakeClock | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock or FakeClock()
        self.embedder = kind()
        given: dict[str, Any] = {"tools": ("all",), "structured": True, **settings}
        self.settings = ServerSettings(retrieval=config, **given)
        self.indexes = serve_indexes(self.settings, embedder=self.embedder, clock=self.clock)
        self.server = create_server(self.settings, self.indexes)


def test_what_the_first_search_loads_is_loaded_after_the_model(config: RetrievalConfig) -> None:
    """By a search of its own."""

    async def conversation() -> list[str]:
        held = Held(config)
        async with Client(held.server) as client:
            await client.list_tools()
            warming = held.indexes.named(None)._warming
            assert warming is not None
            await warming
            return held.embedder.queries

    assert asyncio.run(conversation()) == [WARM_UP, WARM_UP]


class Loaded(FakeEmbedder):
    """An embedder whose model is in memory from the beginning."""

    is_loaded = True


class Unsure(FakeEmbedder):
    """An embedder of somebody else, with a method of that name."""

    def is_loaded(self) -> bool:
        return False


@pytest.mark.parametrize(("kind", "first"), [(Loaded, "the moon"), (Unsure, WARM_UP)])
def test_a_search_waits_for_no_other_text_if_the_model_is_loaded(
    config: RetrievalConfig, kind: type[FakeEmbedder], first: str
) -> None:
    """An embedder embeds something at the start, unless it says that it is loaded."""

    async def conversation() -> str:
        held = Held(config, kind, StoppedClock())
        async with Client(held.server) as client:
            answer: Any = await client.call_tool("search", {"query": "the moon"})
            assert answer.structured_content["degraded"] == []
        return held.embedder.queries[0]

    assert asyncio.run(conversation()) == first


@pytest.mark.parametrize("error", [IndexFormatError("/a/b.db is damaged"), RuntimeError("/a/b.db"), OSError("/a/b")])
def test_failures_are_explained_without_places(error: Exception, config: RetrievalConfig) -> None:
    """What went wrong in detail is in the log alone."""
    text = advice_on(
        error, ServiceContext(serve_indexes(ServerSettings(retrieval=config, tools=("all",), structured=True)))
    )
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
    assert redactor([RetrievalConfig()])(text) == expected
