"""Texts that are no Unicode are repaired before they are sent."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from anyio import wrap_file

from retrieval_core import Chunk, Hit, RetrievalConfig, RetrievalResult, Scores
from retrieval_core.types import Degradation
from retrieval_core_mcp import Library, ServerSettings, create_server, serve_stdio
from retrieval_core_mcp.library import Entry


class Odd(Library):
    """A library with half of a surrogate pair in every text, as a store of somebody else may have."""

    async def search(self, query: str, *_args: Any, **_kwargs: Any) -> RetrievalResult:
        chunk = Chunk("a", "d\ud800", "moon \ud800", source="\ud800", section_path=("\ud800",), title="\udfff")
        hits = (Hit(chunk, 1.0, Scores()), Hit(Chunk("\ud800", "d", "unreachable"), 0.5, Scores()))
        return RetrievalResult(query, hits, "", {}, 1.0, degraded=(Degradation("\ud800", "\ud800"),))

    async def fetch(self, entry_id: str, *_args: Any, **_kwargs: Any) -> Entry:
        return Entry(entry_id, "\ud800", "\ud800", "moon \ud800", {"b\ud800": 1, "c": "\ud800", "e": ["\ud800"]})


def test_text_that_is_no_unicode_is_mended(config: RetrievalConfig) -> None:
    """What JSON in UTF-8 cannot express is replaced."""
    settings = ServerSettings(retrieval=config)
    calls = [("search", {"query": "moon"}), ("fetch", {"id": "a"})]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    messages = [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}]
    for name, arguments in calls:
        params = {"name": name, "arguments": arguments}
        messages.append({"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params})
    source, output = io.StringIO("".join(f"{json.dumps(message)}\n" for message in messages)), io.StringIO()
    asyncio.run(serve_stdio(create_server(settings, Odd(settings)), wrap_file(source), wrap_file(output)))
    answers = {answer["id"]: answer.get("result") for answer in map(json.loads, output.getvalue().splitlines())}
    found = answers["search"]["structuredContent"]
    assert found["results"][0]["text"] == "moon \ufffd"
    assert [hit["id"] for hit in found["results"]] == ["a", "\ufffd"]
    read = answers["fetch"]["structuredContent"]
    assert (read["text"], read["title"], read["metadata"]) == ("moon \ufffd", "\ufffd", {"c": "\ufffd"})
