"""Resources, prompts, completions, subscriptions and progress, as the protocol library's own client sees them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp.shared.exceptions import MCPError
from mcp.types import PromptReference, ResourceTemplateReference

from mcp import Client
from retrieval_core import Chunk, Document, RetrievalConfig, open_index
from retrieval_core.config import EmbedderConfig
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core_mcp import ServerSettings, create_server, serve_indexes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

MODES: list[Literal["auto", "legacy"]] = ["auto", "legacy"]
PAGE, MOST_FOLLOWED = 50, 1_000
"""Resources in a part of the list, and addresses that can be followed at a time."""
FAKE = EmbedderConfig(kind="retrieval_core.testing.fakes:FakeEmbedder")


@pytest.fixture(params=MODES)
def talk(request: pytest.FixtureRequest, config: RetrievalConfig) -> Any:
    """Return a function that runs a conversation with a server."""

    def run(conversation: Callable[[Client], Awaitable[Any]], own: RetrievalConfig = config, **options: Any) -> Any:
        async def connected() -> Any:
            settings = ServerSettings(retrieval=own, tools=("all",), structured=True)
            server = create_server(settings, serve_indexes(settings, [f"notes={own.index}"]))
            async with Client(server, mode=request.param, **options) as client:
                return await conversation(client)

        return asyncio.run(connected())

    return run


def test_documents_and_passages_are_read(talk: Any) -> None:
    """By the addresses that the templates describe; another one is told as the protocol says."""

    async def conversation(client: Client) -> None:
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == ["document://{index}/{id}", "chunk://{index}/{id}"]
        document: Any = (await client.read_resource("document://notes/moon.md")).contents[0]
        assert document.text == "The moon is 384,400 km away from the earth. It has no air."
        assert document.mime_type == "text/markdown"
        passage: Any = (await client.read_resource("chunk://notes/sea.md%231")).contents[0]
        assert "tells of the sea" in passage.text
        for uri in ("document://notes/venus.md", "chunk://notes/moon.md", "document://other/moon.md", "x://y/z"):
            with pytest.raises(MCPError) as raised:
                await client.read_resource(uri)
            assert raised.value.error.code == -32602
            assert raised.value.error.data == {"uri": uri}

    talk(conversation)


def test_documents_are_listed_in_parts(talk: Any, tmp_path: Path) -> None:
    """Each once, in order, whatever the parts."""
    config = RetrievalConfig(index=str(tmp_path / "many.db"), embedder=FAKE)
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(2 * PAGE + 10):
        (folder / f"n{number:03}.md").write_text(f"Note {number}.\n")
    with open_index(config=config) as index:
        index.ingest(folder)

    async def conversation(client: Client) -> list[str]:
        found: list[str] = []
        cursor: str | None = None
        while True:
            part = await client.list_resources(cursor=cursor)
            assert len(part.resources) <= PAGE
            found += [resource.uri for resource in part.resources]
            if (cursor := part.next_cursor) is None:
                with pytest.raises(MCPError, match="the cursor is none"):
                    await client.list_resources(cursor="nonsense")
                return found

    assert talk(conversation, config) == [f"document://notes/many%2Fn{number:03}.md" for number in range(2 * PAGE + 10)]


def test_without_an_index_there_is_nothing_to_list(talk: Any, tmp_path: Path) -> None:
    """It is no error: the index may come later."""
    config = RetrievalConfig(index=str(tmp_path / "none.db"), embedder=FAKE)

    async def conversation(client: Client) -> Any:
        with pytest.raises(MCPError, match="There is no index yet"):
            await client.read_resource("document://notes/a.md")
        return (await client.list_resources()).resources

    assert talk(conversation, config) == []


def test_prompts_take_arguments(talk: Any) -> None:
    """They name the tools, and hold what was given as it is; what is missing or unknown is told."""

    async def conversation(client: Client) -> None:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert set(prompts) == {"answer_with_citations", "compare", "find_contradictions"}
        arguments = {argument.name: argument.required for argument in prompts["compare"].arguments or ()}
        assert arguments == {"first": True, "second": True, "field": False, "value": False}
        got = await client.get_prompt(
            "compare", {"first": "{second} {where}", "second": "b", "field": "x", "value": "y"}
        )
        text: Any = got.messages[0].content
        assert "1. {second} {where}\n2. b\n" in text.text
        assert "with a filter on x for the value y" in text.text
        for name, given, problem in (
            ("compare", {"first": "a"}, "the argument second is missing"),
            ("compare", {"first": "a", "second": "b", "third": "c"}, "there is no argument 'third'"),
            ("compere", {}, "there are answer_with_citations"),
            ("find_contradictions", {"topic": "x" * 20_000}, "more than 10,000 characters"),
        ):
            with pytest.raises(MCPError, match=problem):
                await client.get_prompt(name, given)

    talk(conversation)


def test_arguments_are_completed(talk: Any, tmp_path: Path) -> None:
    """Indexes, fields, values of a field, and documents; nothing for what is free text."""
    config = RetrievalConfig(index=str(tmp_path / "shop.db"), embedder=FAKE)
    with open_index(config=config) as index:
        index.add(
            [
                Chunk(f"c{at}", f"d{at}", f"phone {at}", metadata={"colour": colour, "maker": "Nokia"})
                for at, colour in enumerate(("red", "green", "grey"))
            ]
        )
    prompt, template = PromptReference(name="compare"), ResourceTemplateReference(uri="document://{index}/{id}")

    async def conversation(client: Client) -> None:
        async def values(ref: Any, name: str, begin: str, **given: str) -> list[str]:
            argument = {"name": name, "value": begin}
            return (await client.complete(ref, argument, context_arguments=given)).completion.values

        assert await values(prompt, "index", "N") == ["notes"]
        assert await values(prompt, "field", "CO") == ["colour"]
        assert await values(prompt, "value", "gr", field="colour") == ["green", "grey"]
        assert await values(prompt, "value", "", field="maker") == ["Nokia"]
        assert await values(prompt, "first", "a") == []
        assert await values(template, "index", "") == ["notes"]
        assert await values(template, "id", "d", index="notes") == ["d0", "d1", "d2"]
        assert await values(template, "id", "zz") == []

    talk(conversation, config)


def test_progress_is_told_stage_by_stage(talk: Any) -> None:
    """With growing numbers and the names of the stages, before the answer."""
    told: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async def conversation(client: Client) -> Any:
        await client.call_tool("search", {"query": "the moon"}, progress_callback=note)
        assert {"dense", "lexical"} <= {message for _, message in told}
        assert [progress for progress, _ in told] == sorted({progress for progress, _ in told})
        seen = len(told)
        await client.call_tool("search", {"query": "the sun"})
        assert len(told) == seen

    talk(conversation)


class Followed:
    """A server whose clock is ours, over an index that others write to."""

    def __init__(self, path: Path) -> None:
        self.config = RetrievalConfig(index=str(path), embedder=FAKE)
        self.clock = FakeClock()
        self.write("a.md", "first")
        self.write("b.md", "other")
        settings = ServerSettings(retrieval=self.config, tools=("all",), structured=True)
        self.server = create_server(settings, serve_indexes(settings, [f"notes={path}"]), clock=self.clock)

    def write(self, name: str, text: str) -> None:
        with open_index(config=self.config, embedder=FakeEmbedder()) as index:
            index.add_documents([Document(name, text, source=name, content_hash="")])

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the clock run until something has come about."""
        for _ in range(20_000):
            if condition():
                return
            self.clock.advance(0.5)
            await asyncio.sleep(0.001)
        msg = "it has not come about"
        raise AssertionError(msg)


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
def test_a_subscriber_is_told_of_a_change(tmp_path: Path) -> None:
    """By another process, of the document that it follows and of no other; not any more when it has had enough."""
    followed = Followed(tmp_path / "index.db")
    told: list[str] = []

    async def note(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            told.append(str(message.params.uri))

    async def conversation() -> None:
        async with Client(followed.server, mode="legacy", message_handler=note) as client:
            await client.subscribe_resource("document://notes/a.md")  # pyright: ignore[reportDeprecated]
            with pytest.raises(MCPError):
                await client.subscribe_resource("nothing")  # pyright: ignore[reportDeprecated]
            await asyncio.to_thread(followed.write, "b.md", "changed")
            await asyncio.to_thread(followed.write, "a.md", "second")
            await followed.until(lambda: bool(told))
            assert told == ["document://notes/a.md"]
            await client.unsubscribe_resource("document://notes/a.md")  # pyright: ignore[reportDeprecated]
            await client.subscribe_resource("document://notes/b.md")  # pyright: ignore[reportDeprecated]
            await asyncio.to_thread(followed.write, "a.md", "third")
            await asyncio.to_thread(followed.write, "b.md", "changed again")
            await followed.until(lambda: len(told) > 1)
            assert told == ["document://notes/a.md", "document://notes/b.md"]

    asyncio.run(conversation())


def test_more_than_can_be_followed_is_refused(tmp_path: Path) -> None:
    """And leaves nothing behind: what was refused does not count for those who come later."""
    followed = Followed(tmp_path / "index.db")
    many = [f"document://notes/{number}" for number in range(MOST_FOLLOWED + 1)]

    async def conversation() -> None:
        async with Client(followed.server) as client:
            for _ in range(2):
                with pytest.raises(MCPError, match="no more than 1,000"):
                    async with client.listen(resource_subscriptions=many):
                        pass
            async with client.listen(resource_subscriptions=many[:10]) as stream:
                assert stream.honored.resource_subscriptions == many[:10]

    asyncio.run(conversation())


def test_a_stream_is_told_of_a_change(tmp_path: Path) -> None:
    """In the protocol of 2026: of a document, and of the list."""
    followed = Followed(tmp_path / "index.db")

    async def conversation() -> None:
        async with Client(followed.server) as client:
            told: list[Any] = []
            async with client.listen(
                resource_subscriptions=["document://notes/a.md"], resources_list_changed=True
            ) as stream:

                async def read() -> None:
                    async for event in stream:  # it goes on until it is cancelled
                        told.append(event)  # noqa: PERF401

                reading = asyncio.create_task(read())
                await asyncio.to_thread(followed.write, "a.md", "second")
                await followed.until(lambda: bool(told))
                await asyncio.to_thread(followed.write, "c.md", "new")
                await followed.until(lambda: len(told) > 1)
                reading.cancel()
            assert [type(event).__name__ for event in told] == ["ResourceUpdated", "ResourcesListChanged"]
            assert told[0].uri == "document://notes/a.md"

    asyncio.run(conversation())
