"""A server on a folder: it makes the index itself, and answers from what is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp import Client
from retrieval_core.errors import ConfigurationError
from retrieval_core.run.file_lock import one_writer
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core_mcp import create_server, serve_indexes
from retrieval_core_mcp.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two documents and no index."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/moon.md").write_text("The moon is 384,400 km away.")
    (tmp_path / "notes/sun.md").write_text("The sun is a star.")
    return tmp_path / "notes"


def converse(folder: Path, talk: Callable[[Client, FakeEmbedder], Awaitable[None]]) -> None:
    """Start a server on a folder, and talk to it."""
    settings = read_settings(folder=str(folder))

    async def conversation() -> None:
        embedder = FakeEmbedder()
        server = create_server(settings, serve_indexes(settings, embedder=embedder))
        async with Client(server) as client:
            await talk(client, embedder)

    asyncio.run(conversation())


async def search(client: Client, query: str) -> Any:
    return await client.call_tool("search", {"query": query})


def test_the_first_search_finds_documents_of_an_index_that_was_not_there(folder: Path) -> None:
    """It is made in ``.retrieval``, which Git ignores. A second start uses it: nothing is embedded again."""

    async def first(client: Client, embedder: FakeEmbedder) -> None:
        answer = await search(client, "how far is the moon")
        assert not answer.is_error
        assert "384,400" in answer.content[0].text
        assert embedder.batches

    async def second(client: Client, embedder: FakeEmbedder) -> None:
        answer = await search(client, "how far is the moon")
        assert "384,400" in answer.content[0].text
        assert not embedder.batches

    converse(folder, first)
    assert (folder / ".retrieval/.gitignore").read_text() == "*\n"
    assert not (folder / ".retrieval/index.db-progress").exists()
    converse(folder, second)


def test_while_another_server_indexes_this_one_says_so(folder: Path) -> None:
    """Two servers on one folder take turns. The second one indexes when the first one has ended."""
    place = folder / ".retrieval"
    place.mkdir()

    async def talk(client: Client, embedder: FakeEmbedder) -> None:
        with one_writer(place / "index.db-lock", 0), pytest.MonkeyPatch.context() as patch:
            patch.setattr("retrieval_core_mcp.server.FIRST_DOCUMENTS_SECONDS", 0)
            patch.setattr("retrieval_core_mcp.watching.TURN_SECONDS", 0)
            answer = await search(client, "moon")
            assert answer.is_error
            assert answer.content[0].text.startswith("The index is being built: its files are being counted.")
        answer = await search(client, "how far is the moon")
        assert "384,400" in answer.content[0].text
        assert embedder.batches

    converse(folder, talk)


@pytest.mark.parametrize("place", ["missing", "~", "/"])
def test_a_folder_that_is_none_of_documents_is_refused(place: str) -> None:
    """Nobody has their whole home read by mistake."""
    with pytest.raises(ConfigurationError, match=r"no folder|more than a folder"):
        read_settings(folder=place)


def test_a_folder_has_its_own_index(folder: Path) -> None:
    """Another one can't be given."""
    with pytest.raises(ConfigurationError, match="a folder and an index"):
        read_settings("other.db", folder=str(folder))
