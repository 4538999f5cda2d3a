"""Why a search returns nothing, as clients read it: an empty index is no missing answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp import Client
from retrieval_core import Document, load_config, open_index
from retrieval_core_mcp import ServerSettings, create_server

if TYPE_CHECKING:
    from pathlib import Path


def test_an_empty_index_is_not_called_a_missing_answer(tmp_path: Path) -> None:
    """The first line says that the index is empty, and nothing about the documents."""
    config = load_config(overrides={"index": str(tmp_path / "empty.db"), "embedder.kind": "none"})
    with open_index(config=config) as index:
        index.add_documents([Document("moon", "The moon is far.")])
        index.delete(["moon"])

    async def first_line() -> str:
        async with Client(create_server(ServerSettings(retrieval=config))) as client:
            answer = await client.call_tool("search", {"query": "moon"})
            return answer.content[0].text.split("\n")[0]  # type: ignore[union-attr]

    assert asyncio.run(first_line()) == "The index is empty: it has no documents yet."
