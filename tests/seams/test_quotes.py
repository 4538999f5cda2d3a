"""Quotes as people and models copy them are found, by every face alike; changed ones are not."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Document, load_config, open_index
from retrieval_core.types import Citation, Quote
from support.extras import needs_tokenizer
from support.processes import RETRIEVAL, with_our_modules
from support.quotes import CASES, EXACT, TEXT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quotes")
    (path / "config.toml").write_text('[embedder]\nkind = "retrieval_core.testing.fakes:FakeEmbedder"\n')
    with open_index(config=load_config(path / "config.toml", {"index": str(path / "index.db")}, {})) as index:
        index.add_documents([Document("ports.md", TEXT, source="ports.md", content_hash="")])
    return path


def test_python_says_the_same(folder: Path) -> None:
    """Of a citation that somebody made; ``matches`` stays what it was."""
    with open_index(config=load_config(folder / "config.toml", {"index": str(folder / "index.db")}, {})) as index:
        chunks = tuple(hit.id for hit in index.retrieve("port", top_k=10).hits)
        given = [Citation(number, "ports.md", chunks, (Quote(quote),)) for number, (quote, _) in enumerate(CASES, 1)]
        checks = index.verify(given)
    assert [(each.citation.quotes[0].text, each.verdict) for each in checks] == CASES
    assert all(each.matches or each.verdict != "exact" for each in checks)
    assert all(bool(each.found) == (each.verdict == "equivalent") for each in checks)


@needs_tokenizer
def test_the_command_line_says_the_same(folder: Path) -> None:
    """In the JSON of checked contexts."""
    command = [*RETRIEVAL, "context", "port", "--index", "index.db", "--config", "config.toml", "--json"]
    ended = subprocess.run(command, cwd=folder, env=with_our_modules(), capture_output=True, text=True, check=True)
    assert {check["verdict"] for check in json.loads(ended.stdout)["checks"]} == {"exact"}


def test_http_says_the_same(folder: Path) -> None:
    """Of each chunk of the document; one that is not there is 404."""
    pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
    import httpx2

    from support.http_process import http_process

    with http_process("--index", "index.db", "--config", "config.toml", folder=folder) as service:
        place = f"{service.url}/v1/chunks/ports.md%230/quote"
        told = [httpx2.post(place, json={"quote": quote}, timeout=60).json() for quote, _ in CASES]
        assert httpx2.post(place.replace("230", "2399"), json={"quote": "x"}, timeout=60).status_code == 404
    assert [(quote, each["verdict"]) for (quote, _), each in zip(CASES, told, strict=True)] == CASES
    assert told[len(EXACT)]["text"] == "run `ufw allow 22/tcp` first"


def test_mcp_says_the_same(folder: Path) -> None:
    """With the words as they are, and where they are."""
    pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
    from mcp.client.stdio import StdioServerParameters, stdio_client

    from mcp import Client
    from support.processes import MCP

    async def ask() -> list[Any]:
        given = ["--index", "index.db", "--config", "config.toml", "--structured"]
        server = StdioServerParameters(command=MCP[0], args=[*MCP[1:], *given], cwd=str(folder), env=with_our_modules())
        async with Client(stdio_client(server)) as client:
            return [await client.call_tool("verify_citation", {"id": "ports.md", "quote": quote}) for quote, _ in CASES]

    told = [answer.structured_content for answer in asyncio.run(ask())]
    assert [(quote, each["verdict"]) for (quote, _), each in zip(CASES, told, strict=True)] == CASES
    assert told[len(EXACT)]["text"] == "run `ufw allow 22/tcp` first"
    assert {each["where"] for each in told if "where" in each} == {"document"}
