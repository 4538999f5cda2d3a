"""``explain`` over MCP and over HTTP reports the ranks of the search that was made, and no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

import httpx2
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from retrieval_core import Chunk, load_config, open_index
from support.http_process import http_process
from support.processes import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Generator

CHUNKS = 1_200
DEEPEST = 1_000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A service over chunks about the moon, the longer the further from it: chunk ``c0007`` is number 8."""
    folder = tmp_path_factory.mktemp("ranks")
    config = folder / "config.toml"
    config.write_text('[embedder]\nkind = "none"\n[search]\nmode = "lexical"\n')
    chunks = [Chunk(f"c{at:04}", "d", "moon " + "rock " * (at + 1), at) for at in range(CHUNKS)]
    with open_index(config=load_config(config, {"index": str(folder / "index.db")}, {})) as index:
        index.add(chunks)
    with http_process("--index", str(folder / "index.db"), "--config", str(config), *EVERYTHING) as running:
        yield running.url


def over_mcp(url: str, **arguments: Any) -> Any:
    async def call() -> Any:
        async with Client(streamable_http_client(f"{url}/mcp")) as client:
            return await client.call_tool("explain", {"query": "moon", "top_k": 5, **arguments})

    answer = asyncio.run(call())
    assert not answer.is_error, answer
    return answer.structured_content


def over_http(url: str, **arguments: Any) -> Any:
    answer = httpx2.post(f"{url}/v1/explain", json={"query_text": "moon", "top_k": 5, **arguments}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("place", [7, 150, 700])
def test_both_faces_give_the_rank_that_the_search_gives(url: str, place: int) -> None:
    """Of a chunk further down, also beyond the first hundred."""
    chunk = f"c{place:04}"
    told = over_mcp(url, id=chunk)
    assert (told["expected"]["rank"], told["expected"]["scores"]["bm25_rank"]) == (place + 1, place + 1)
    also = over_http(url, chunk_id=chunk)
    assert (also["expected"]["rank"], also["expected"]["scores"]["lexical_rank"]) == (place + 1, place + 1)
    assert told["why"] == also["why"]
    assert f"rank is {place + 1}," in told["why"]


@pytest.mark.slow
def test_a_chunk_beyond_all_that_was_searched_has_no_rank(url: str) -> None:
    """It has its own score, which does not depend on other chunks; nothing says how many come before it."""
    chunk = f"c{DEEPEST + 100:04}"
    told, also = over_mcp(url, id=chunk), over_http(url, chunk_id=chunk)
    assert told["why"] == also["why"]
    assert f"{DEEPEST:,}" in told["why"]
    assert "rank" not in told["expected"]
    assert set(told["expected"]["scores"]) == {"bm25"}
    assert "rank" not in also["expected"]
    assert set(also["expected"]["scores"]) == {"lexical"}
    last = over_http(url, top_k=DEEPEST)["results"][-1]["scores"]["lexical"]
    assert also["expected"]["scores"]["lexical"] < last
