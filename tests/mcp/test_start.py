"""What happens before everything is loaded, without an index, and when a request is given up."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import TYPE_CHECKING, Any, Literal

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp import Client
from retrieval_core import Chunk, RetrievalConfig, open_index
from retrieval_core.config import EmbedderConfig
from retrieval_core.errors import EmbeddingError, MissingExtraError
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core_mcp import ServerSettings, create_server, serve_indexes

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core import Index

MODES: list[Literal["auto", "legacy"]] = ["auto", "legacy"]


class Held:
    """A library whose model is held back by a gate, and whose clock stands still."""

    def __init__(self, config: RetrievalConfig, **settings: Any) -> None:
        self.clock = FakeClock()
        self.embedder = FakeEmbedder()
        given: dict[str, Any] = {"tools": ("all",), "structured": True, **settings}
        self.settings = ServerSettings(retrieval=config, **given)
        self.indexes = serve_indexes(self.settings, embedder=self.embedder, clock=self.clock)
        self.server = create_server(self.settings, self.indexes)

    async def until_asked(self) -> None:
        """Wait until the model is being loaded."""
        while not self.embedder.queries:  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0)


async def passing(clock: FakeClock, task: asyncio.Task[Any]) -> Any:
    """Let the clock run until a task is done."""
    while not task.done():
        await asyncio.sleep(0)
        clock.advance(0.25)
    return task.result()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("asked", [None, "dense", "hybrid"])
def test_a_search_before_the_model_is_by_words_and_says_so(
    config: RetrievalConfig, mode: Literal["auto", "legacy"], asked: str | None
) -> None:
    """After a second without the model, words have to do; with the model, the same search needs no notice."""

    async def conversation() -> None:
        held = Held(config)
        held.embedder.gate = asyncio.Event()
        async with Client(held.server, mode=mode) as client:
            arguments = {"query": "the moon", **({"mode": asked} if asked else {})}
            task = asyncio.create_task(client.call_tool("search", arguments))
            early: Any = await passing(held.clock, task)
            assert held.clock.now() >= 1
            assert not early.is_error
            assert early.structured_content["results"][0]["id"] == "moon.md#0"
            assert [line.partition(":")[0] for line in early.structured_content["degraded"]] == ["embed"]
            assert "still loading" in early.content[0].text
            assert "search again in a few seconds for hybrid search" in early.content[0].text
            held.embedder.gate.set()
            later: Any = await client.call_tool("search", arguments)
            assert later.structured_content["degraded"] == []
            assert "the moon" in held.embedder.queries

    asyncio.run(conversation())


def test_a_model_that_comes_within_the_second_is_waited_for(config: RetrievalConfig) -> None:
    """No time passes on the clock, so the search waits, and then is by meaning."""

    async def conversation() -> None:
        held = Held(config)
        gate = held.embedder.gate = asyncio.Event()
        async with Client(held.server) as client:
            task = asyncio.create_task(client.call_tool("search", {"query": "the moon"}))
            await held.until_asked()
            assert not task.done()
            gate.set()
            answer: Any = await task
            assert answer.structured_content["degraded"] == []

    asyncio.run(conversation())


def test_searches_by_words_and_reading_do_not_wait(config: RetrievalConfig) -> None:
    """What needs no model is answered at once, however long the model takes."""

    async def conversation() -> None:
        held = Held(config)
        held.embedder.gate = asyncio.Event()
        async with Client(held.server) as client:
            found: Any = await client.call_tool("search", {"query": "the moon", "mode": "lexical"})
            assert found.structured_content["degraded"] == []
            read: Any = await client.call_tool("fetch", {"id": "moon.md"})
            assert "384,400" in read.structured_content["text"]
            held.embedder.gate.set()

    asyncio.run(conversation())


def test_nothing_is_opened_before_the_first_answer(config: RetrievalConfig) -> None:
    """Loading begins behind the handshake, which it would only slow down."""
    opened = Event()

    def note(**given: Any) -> Index:
        opened.set()
        return open_index(**given)

    async def conversation() -> None:
        settings = ServerSettings(retrieval=config, tools=("all",), structured=True)
        server = create_server(settings, serve_indexes(settings, open_index=note))
        assert not opened.is_set()
        async with Client(server, mode="legacy"):
            await asyncio.to_thread(opened.wait, 30)
        assert opened.is_set()

    asyncio.run(conversation())


@pytest.mark.parametrize("mode", MODES)
def test_an_index_that_appears_later_is_found(tmp_path: Path, mode: Literal["auto", "legacy"]) -> None:
    """Without an index both tools say how to make one; once it is there, and grows, they find what is in it."""
    path = tmp_path / "later.db"
    config = RetrievalConfig(index=str(path), embedder=EmbedderConfig(kind="retrieval_core.testing.fakes:FakeEmbedder"))

    async def conversation() -> None:
        settings = ServerSettings(retrieval=config, tools=("all",), structured=True)
        async with Client(create_server(settings), mode=mode) as client:
            for tool, arguments in (("search", {"query": "a"}), ("fetch", {"id": "a"})):
                missing: Any = await client.call_tool(tool, arguments)
                assert missing.is_error
                assert missing.content[0].text.startswith("There is no index yet. Make one")
                assert str(tmp_path) not in missing.content[0].text
            for name in ("first", "second"):
                async with open_index(config=config) as index:
                    await index.aadd([Chunk(name, name, f"the {name} passage")])
                found: Any = await client.call_tool("search", {"query": f"the {name} passage", "top_k": 1})
                assert [hit["id"] for hit in found.structured_content["results"]] == [name]
                # It was added as a passage, so its document has no text of its own.
                read: Any = await client.call_tool("fetch", {"id": name})
                assert read.structured_content["text"] == f"the {name} passage"

    asyncio.run(conversation())


def test_a_document_without_its_text_is_put_together(tmp_path: Path) -> None:
    """Passages that were added one by one are read in their order."""
    config = RetrievalConfig(index=str(tmp_path / "i.db"), embedder=EmbedderConfig(kind="none"))

    async def conversation() -> None:
        async with open_index(config=config) as index:
            await index.aadd([Chunk("z", "d", "one", 0), Chunk("a", "d", "two", 1)])
        settings = ServerSettings(retrieval=config, tools=("all",), structured=True)
        async with Client(create_server(settings)) as client:
            read: Any = await client.call_tool("fetch", {"id": "d"})
            assert read.structured_content["text"] == "one\n\ntwo"
            no_model: Any = await client.call_tool("search", {"query": "one", "mode": "dense"})
            assert no_model.is_error
            assert "needs an embedder" in no_model.content[0].text

    asyncio.run(conversation())


@pytest.mark.parametrize("mode", MODES)
def test_a_request_that_is_given_up_stops_the_search(config: RetrievalConfig, mode: Literal["auto", "legacy"]) -> None:
    """Whoever asked does not wait any more, so nobody works on it any more."""

    async def conversation() -> None:
        held = Held(config)
        async with Client(held.server, mode=mode) as client:
            await client.call_tool("search", {"query": "warm"})
            held.embedder.gate = asyncio.Event()
            stopped = asyncio.Event()
            inner = held.embedder.embed_query

            async def watched(text: str) -> Any:
                try:
                    return await inner(text)
                except asyncio.CancelledError:
                    stopped.set()
                    raise

            held.embedder.embed_query = watched  # type: ignore[method-assign]
            task = asyncio.create_task(client.call_tool("search", {"query": "given up"}))
            while "given up" not in held.embedder.queries:  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait_for(stopped.wait(), 30)
            held.embedder.gate.set()
            answer: Any = await client.call_tool("search", {"query": "the moon"})
            assert not answer.is_error

    asyncio.run(conversation())


def test_a_model_that_fails_is_an_answer(config: RetrievalConfig) -> None:
    """The search is by words and says why; a path in the reason is left out."""

    async def conversation() -> None:
        held = Held(config)
        held.embedder.failure = EmbeddingError(f"/srv/models/model.onnx is broken, see {config.index}")
        async with Client(held.server) as client:
            answer: Any = await client.call_tool("search", {"query": "the moon"})
            assert not answer.is_error
            (notice,) = answer.structured_content["degraded"]
            assert notice == "embed: … is broken, see the index"

    asyncio.run(conversation())


def test_a_missing_extra_names_what_to_install(config: RetrievalConfig) -> None:
    """The client learns which extra is missing; the command with the folders of this machine is in the log."""
    missing = MissingExtraError("local", "The local embedding model")  # made as it is where a model loads: in a thread

    async def conversation() -> None:
        held = Held(config)
        held.embedder.failure = missing
        async with Client(held.server) as client:
            answer: Any = await client.call_tool("search", {"query": "the moon"})
            assert answer.is_error
            assert "the extra 'local'" in answer.content[0].text

    asyncio.run(conversation())
