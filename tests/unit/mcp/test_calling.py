"""The list of tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core_mcp import ServerSettings, create_server, serve_indexes
from retrieval_core_mcp.tools.calling import Tools

if TYPE_CHECKING:
    from retrieval_core import RetrievalConfig


def test_a_call_does_not_make_the_list(config: RetrievalConfig) -> None:
    """Over HTTP the protocol's library holds headers against a tool's arguments, which it is told without the list."""
    settings = ServerSettings(retrieval=config, tools=("all",), structured=True)
    server = create_server(settings)
    listed = {tool.name: tool.input_schema for tool in Tools(settings, serve_indexes(settings)).list()}
    assert server.get_tool_input_schema is not None
    assert {name: server.get_tool_input_schema(name) for name in [*listed, "nothing"]} == {**listed, "nothing": None}
