"""Texts that are no Unicode are repaired before they are sent."""

from __future__ import annotations

import asyncio
import io
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from anyio import wrap_file

from retrieval_core import Chunk, Hit, RetrievalConfig, RetrievalResult, Scores
from retrieval_core.types import Degradation
from retrieval_core_mcp import ServerSettings, create_server, serve_indexes, serve_stdio

if TYPE_CHECKING:
    from retrieval_core import Index
    from retrieval_core.ports import FetchRequest


class Odd:
    """An index with half of a surrogate pair in every text, as somebody else's store may have it."""

    embedder = None

    def __init__(self, config: RetrievalConfig) -> None:
        self.config = config
        self.store = self

    async def aretrieve(self, query: str, *_args: Any, **_options: Any) -> RetrievalResult:
        chunk = Chunk("a", "d\ud800", "moon \ud800", source="\ud800", section_path=("\ud800",), title="\udfff")
        hits = (Hit(chunk, 1.0, Scores()), Hit(Chunk("\ud800", "d", "unreachable"), 0.5, Scores()))
        return RetrievalResult(query, hits, "", {}, 1.0, degraded=(Degradation("\ud800", "\ud800"),))

    async def fetch(self, request: FetchRequest) -> Any:
        fields = {"b\ud800": 1, "c": "\ud800", "e": ["\ud800"]}
        found = SimpleNamespace(
            id="a", text="moon \ud800", title="\ud800", source="\ud800", timestamp=None, metadata=fields
        )
        return SimpleNamespace(chunks={}, sections={}, documents={"a": found})

    async def aedited_since(self, _chunks: object) -> frozenset[str]:
        return frozenset()

    async def aload(self) -> None:
        """There is nothing to load."""

    async def aclose(self) -> None:
        """There is nothing to close."""


def test_text_that_is_no_unicode_is_mended(config: RetrievalConfig) -> None:
    """What JSON in UTF-8 cannot express is replaced."""
    settings = ServerSettings(retrieval=config, tools=("all",), structured=True)

    def odd(**_given: object) -> Index:
        return cast("Index", Odd(config))

    indexes = serve_indexes(settings, open_index=odd)
    calls = [("search", {"query": "moon"}), ("fetch", {"id": "a"})]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    messages = [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}]
    for name, arguments in calls:
        params = {"name": name, "arguments": arguments}
        messages.append({"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params})
    source, output = io.StringIO("".join(f"{json.dumps(message)}\n" for message in messages)), io.StringIO()
    asyncio.run(serve_stdio(create_server(settings, indexes), wrap_file(source), wrap_file(output)))
    answers = {answer["id"]: answer.get("result") for answer in map(json.loads, output.getvalue().splitlines())}
    found = answers["search"]["structuredContent"]
    assert found["results"][0]["text"] == "moon \ufffd"
    assert [hit["id"] for hit in found["results"]] == ["a", "\ufffd"]
    read = answers["fetch"]["structuredContent"]
    assert (read["text"], read["title"], read["metadata"]) == (
        "moon \ufffd", "\ufffd", {"source": "\ufffd", "c": "\ufffd"},
    )  # fmt: skip
