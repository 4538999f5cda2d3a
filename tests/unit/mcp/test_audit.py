"""The audit log."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")


from retrieval_core import Chunk, RetrievalConfig
from retrieval_core.config import EmbedderConfig
from retrieval_core_mcp.http.audit import audit_log
from retrieval_core_mcp.http.serve import serve_http
from retrieval_core_mcp.http.settings import HttpSettings
from retrieval_core_mcp.settings import ServerSettings
from support.http_service import hashed, opened, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from support.http_service import Service


def served(tmp_path: Path, test: Callable[[Service], Awaitable[None]], **given: Any) -> None:
    async def run() -> None:
        index = opened(tmp_path / "index.db")
        await index.aadd([Chunk("a", "a", "A ferry.")])
        async with serving({"index": index}, **given) as service:
            await test(service)

    asyncio.run(run())


def test_what_is_written_down_has_no_contents(tmp_path: Path) -> None:
    """Who, when, which route or tool, how it ended; no question, filter, id or passage."""

    async def check(service: Service) -> None:
        secret = "swordfish"
        asked = {"query_text": secret, "filters": {"kind": secret}}
        await service.ask("POST", "/v1/search", "a", json=asked, headers={"x-request-id": "r1"})
        await service.ask("GET", f"/v1/chunks/{secret}", "a")
        await service.ask("GET", "/v1/indexes", "wrong")
        await service.ask("GET", f"/{secret}")
        accept = {"accept": "application/json, text/event-stream"}
        for method, params in (
            ("tools/call", {"name": "search", "arguments": {"query": secret}}),
            ("resources/read", {"uri": f"chunk://index/{secret}"}),
        ):
            call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            await service.ask("POST", "/mcp", "a", json=call, headers=accept)

    log = tmp_path / "audit.jsonl"
    with audit_log(str(log)):
        served(tmp_path, check, tokens=(hashed("a", "acme"),))
    text = log.read_text()
    assert "swordfish" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    told = [(line["method"], line.get("route"), line.get("mcp"), line["status"]) for line in lines]
    assert told == [
        ("POST", "/v1/search", None, 200),
        ("GET", "/v1/chunks/{chunk_id:path}", None, 404),
        ("GET", None, None, 401),
        ("GET", None, None, 401),
        ("POST", "/mcp", "tools/call search", 200),
        ("POST", "/mcp", "resources/read", 200),
    ]
    assert (lines[0]["request_id"], lines[0]["tenant"], lines[0]["index"]) == ("r1", "acme", "index")
    assert lines[0]["caller"] == hashed("a").removeprefix("sha256:")[:12]
    assert "caller" not in lines[2]
    assert all(line["milliseconds"] >= 0 and line["time"].endswith("+00:00") for line in lines)


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The service does not start without it."""
    place = tmp_path / "none" / "audit.jsonl"
    config = RetrievalConfig(index=str(tmp_path / "index.db"), embedder=EmbedderConfig(kind="none"))
    own = ServerSettings(retrieval=config, http=HttpSettings(port=0, audit_log=str(place)))
    assert serve_http(own, (), "warning") == 1
    assert f"the audit log cannot be written to {place} (No such file or directory)" in capsys.readouterr().err
