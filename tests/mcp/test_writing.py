"""The tools that write, and folders that are followed."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp import Client
from retrieval_core import RetrievalConfig
from retrieval_core.config import EmbedderConfig
from retrieval_core_mcp import ServerSettings, create_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

FAKE = EmbedderConfig(kind="retrieval_core.testing.fakes:FakeEmbedder")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with two notes, beside one with a secret."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("The ferry leaves at nine.\n")
    (folder / "b.md").write_text("The ferry has a bar.\n")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret.md").write_text("The password is swordfish.\n")
    return folder


def settings_of(notes: Path, **given: Any) -> ServerSettings:
    config = RetrievalConfig(index=str(notes / ".retrieval" / "index.db"), embedder=FAKE)
    return ServerSettings.model_validate({"retrieval": config, "allow_writes": True, "structured": True, **given})


def talk(settings: ServerSettings, conversation: Callable[[Client], Awaitable[Any]]) -> Any:
    async def connected() -> Any:
        async with Client(create_server(settings)) as client:
            await client.list_tools()
            return await conversation(client)

    return asyncio.run(connected())


async def ids(client: Client, query: str) -> set[str]:
    found: Any = await client.call_tool("search", {"query": query, "mode": "lexical"})
    return set() if found.is_error else {hit["id"] for hit in found.structured_content["results"]}


def test_tools_that_write_are_there_where_they_may(notes: Path) -> None:
    """And say so: who reads only does not see them, and cannot call them. The list stays short."""

    async def conversation(client: Client) -> dict[str, Any]:
        return {tool.name: tool.annotations for tool in (await client.list_tools()).tools}

    tools = talk(settings_of(notes), conversation)
    for name in ("index_path", "remove_document"):
        hints = tools[name]
        assert (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint) == (False, True, False)
    assert len(tools) <= 7

    async def refused(client: Client) -> Any:
        assert "index_path" not in await conversation(client)
        return await client.call_tool("index_path", {"path": "."})

    answer = talk(settings_of(notes, allow_writes=False), refused)
    assert answer.is_error
    assert "doesn't offer the tool index_path" in answer.content[0].text


def test_a_folder_is_indexed_with_progress(notes: Path) -> None:
    """From nothing, and again after changes; what cannot be read is named."""
    (notes / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    told: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async def conversation(client: Client) -> None:
        first: Any = await client.call_tool("index_path", {"path": "."}, progress_callback=note)
        content = first.structured_content
        assert (content["added"], content["documents"], content["passages"]) == (2, 2, 2)
        assert [failed["path"] for failed in content["failed"]] == ["broken.pdf"]
        assert (3, 3, "3 of 3 files") in told
        assert all(total is not None and done <= total for done, total, _ in told)
        assert [done for done, *_ in told] == sorted({done for done, *_ in told})
        assert "2 added, 0 updated" in first.content[0].text
        assert await ids(client, "ferry") == {"a.md#0", "b.md#0"}
        (notes / "a.md").write_text("The ferry leaves at ten.\n")
        again: Any = await client.call_tool("index_path", {"path": "a.md"})
        assert (again.structured_content["updated"], again.structured_content["documents"]) == (1, 2)

    talk(settings_of(notes), conversation)


@pytest.mark.parametrize(
    "path", ["../private/secret.md", "/etc/passwd", "nothing.md", "\0", "x" * 300, "link.md", "circle"]
)
def test_nothing_else_is_indexed(notes: Path, path: str) -> None:
    """What lies elsewhere, by whatever way, is answered as what is not there; nothing of it is told."""
    if path in {"link.md", "circle"} and sys.platform == "win32":
        pytest.skip("links need rights there")
    if path == "link.md":
        (notes / path).symlink_to(notes.parent / "private" / "secret.md")
    if path == "circle":
        (notes / path).symlink_to(path)

    async def conversation(client: Client) -> None:
        answer: Any = await client.call_tool("index_path", {"path": path})
        assert answer.is_error
        assert answer.content[0].text.startswith("path: there is no file or folder")
        assert str(notes) not in answer.content[0].text
        await client.call_tool("index_path", {"path": "."})
        assert await ids(client, "swordfish") == set()

    talk(settings_of(notes), conversation)


def test_roots_are_the_folders_that_are_allowed(notes: Path) -> None:
    """Those that are set, in place of the index's own."""

    async def conversation(client: Client) -> None:
        inside: Any = await client.call_tool("index_path", {"path": "secret.md"})
        outside: Any = await client.call_tool("index_path", {"path": str(notes / "a.md")})
        assert (inside.is_error, outside.is_error) == (False, True)

    talk(settings_of(notes, roots=(notes.parent / "private",)), conversation)


def test_a_document_is_removed(notes: Path) -> None:
    """With its passages; one that there is not is told."""

    async def conversation(client: Client) -> None:
        await client.call_tool("index_path", {"path": "."})
        removed: Any = await client.call_tool("remove_document", {"id": "a.md"})
        assert removed.structured_content == {"removed_passages": 1}
        assert await ids(client, "ferry") == {"b.md#0"}
        again: Any = await client.call_tool("remove_document", {"id": "a.md"})
        assert "There is nothing with the id a.md." in again.content[0].text
        wrong: Any = await client.call_tool("remove_document", {"id": "b.md#0"})
        assert wrong.content[0].text == (
            "id: b.md#0 is a chunk, and remove_document takes the id of a document. That is b.md."
        )
        assert (notes / "a.md").exists()

    talk(settings_of(notes), conversation)


def test_a_folder_is_followed(notes: Path) -> None:
    """What is there is indexed, and what comes, changes and goes; those who listen are told."""

    async def conversation(client: Client) -> None:
        async def until(query: str, expected: set[str]) -> None:
            while await ids(client, query) != expected:  # noqa: ASYNC110 - what is waited for is another thread's
                await asyncio.sleep(0.05)

        async with asyncio.timeout(60):
            await until("ferry", {"a.md#0", "b.md#0"})
            async with client.listen(resources_list_changed=True) as stream:
                (notes / "c.md").write_text("The ferry is blue.\n")
                (notes / "a.md").unlink()
                await until("ferry", {"b.md#0", "c.md#0"})
                assert type(await anext(aiter(stream))).__name__ == "ResourcesListChanged"

    talk(settings_of(notes, watch=True, allow_writes=False), conversation)


def test_a_folder_that_is_not_there_is_logged(notes: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server goes on, and follows it as soon as it is there."""

    async def conversation(client: Client) -> None:
        async with asyncio.timeout(60):
            while "gone is not there; its documents stay" not in caplog.text:  # noqa: ASYNC110 - a log tells nobody
                await asyncio.sleep(0.01)
            assert (await client.list_tools()).tools
            (notes.parent / "private").rename(notes / "gone")
            while await ids(client, "swordfish") != {"gone/secret.md#0"}:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)

    talk(settings_of(notes, watch=True, roots=(notes / "gone",)), conversation)
