"""The loop and the socket that the service runs with."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from typing import Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
pytest.importorskip("tokenizers", reason="contexts are counted in tokens: pip install 'retrieval-core[local]'")


from retrieval_core_mcp.command import serve
from retrieval_core_mcp.http.serve import _listening as listen
from retrieval_core_mcp.http.settings import HttpSettings

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM"), pytest.mark.slow]


def test_garbage_is_collected_while_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is switched off for the imports alone: else a service grows with each request."""
    seen: list[bool] = []

    def note(*_arguments: Any, **_options: Any) -> int:
        seen.append(gc.isenabled())
        return 0

    monkeypatch.setattr("retrieval_core_mcp.http.serve.serve_http", note)
    try:
        with pytest.raises(SystemExit, match="0"):
            serve(["--http"])
    finally:
        gc.unfreeze()
    assert seen == [True]


def test_answers_are_sent_at_once() -> None:
    """Connections are made without Nagle's algorithm, with which each answer waits for the client's system."""

    async def accepted() -> int:
        connected: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            connected.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen(HttpSettings(port=0)) as listening:
            async with await asyncio.start_server(note, sock=listening):
                _, writer = await asyncio.open_connection(*listening.getsockname())
                writer.close()
                return await connected

    assert asyncio.run(accepted())
