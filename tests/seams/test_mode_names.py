"""``keyword`` and ``vector`` are names of the modes ``lexical`` and ``dense``, wherever a mode is given."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Document, load_config, open_index
from retrieval_core.errors import InvalidParameterError
from retrieval_core.testing.fakes import FakeEmbedder
from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.types import SearchMode

NAMES: dict[SearchMode, str] = {"keyword": "lexical", "vector": "dense", "lexical": "lexical", "dense": "dense"}
FAKE = "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder"


@pytest.fixture
def index_file(tmp_path: Path) -> Path:
    """Return an index of one document."""
    path = tmp_path / "index.db"
    with open_index(path, embedder=FakeEmbedder()) as index:
        index.add_documents([Document("moon.md", "The moon is far.", source="moon.md", content_hash="")])
    return path


@pytest.mark.parametrize(("name", "mode"), NAMES.items())
def test_in_python(index_file: Path, name: SearchMode, mode: str) -> None:
    """``mode=`` takes both names, and the result has the main one."""
    with open_index(index_file, embedder=FakeEmbedder()) as index:
        result = index.retrieve("moon", mode=name)
        assert (result.metadata["mode"], [hit.chunk.document_id for hit in result.hits]) == (mode, ["moon.md"])


@pytest.mark.parametrize(("name", "mode"), NAMES.items())
def test_in_settings(name: str, mode: str) -> None:
    """Settings have the main name, whatever was given."""
    assert load_config(overrides={"search.mode": name}).search.mode == mode
    assert load_config(environment={"RETRIEVAL_SEARCH__MODE": name}).search.mode == mode


def test_another_name_is_refused(index_file: Path) -> None:
    """The error has all names."""
    with open_index(index_file, embedder=FakeEmbedder()) as index, pytest.raises(InvalidParameterError) as refused:
        index.retrieve("moon", mode="fuzzy")  # pyright: ignore[reportArgumentType]
    assert str(refused.value) == "mode must be hybrid, vector (dense) or keyword (lexical), got 'fuzzy'"


@pytest.mark.parametrize(("name", "mode"), NAMES.items())
def test_on_the_command_line(index_file: Path, name: str, mode: str) -> None:
    """``--mode`` takes both names."""
    command = [*RETRIEVAL, "search", "moon", "--mode", name, "--json", "--index", str(index_file), "--set", FAKE]
    ended = subprocess.run(
        command, cwd=index_file.parent, env=with_our_modules(), capture_output=True, text=True, check=True
    )
    assert json.loads(ended.stdout)["metadata"]["mode"] == mode


def test_over_mcp(index_file: Path) -> None:
    """The tool ``search`` takes both names."""
    pytest.importorskip("retrieval_core_mcp", reason="needs retrieval-core-mcp")
    from mcp import Client
    from retrieval_core_mcp import ServerSettings, create_server

    settings = ServerSettings(
        retrieval=load_config(overrides={"index": str(index_file), "embedder.kind": FAKE[14:]}),
        tools=("all",),
        structured=True,
    )

    async def conversation() -> None:
        async with Client(create_server(settings)) as client:
            for name in NAMES:
                answer: Any = await client.call_tool("search", {"query": "moon", "mode": name})
                assert not answer.is_error, answer
                assert answer.structured_content["results"][0]["id"].startswith("moon.md")

    asyncio.run(conversation())


def test_over_http(index_file: Path) -> None:
    """A search takes both names."""
    pytest.importorskip("retrieval_core_mcp", reason="needs retrieval-core-mcp[http]")
    from support.http_service import opened, serving

    async def conversation() -> None:
        async with serving({"docs": opened(index_file)}) as service:
            for name in NAMES:
                given = {"query_text": "moon", "mode": name}
                answer = await service.ask("POST", "/v1/search", json=given)
                assert answer.status_code == 200, answer.text
                assert answer.json()["results"][0]["text"] == "The moon is far."

    asyncio.run(conversation())
