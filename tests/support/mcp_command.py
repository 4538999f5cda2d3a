"""The command ``retrieval-mcp``, to be called in this process, and what its installer knows of assistants."""

from __future__ import annotations

from retrieval_core_mcp.command import _options as read_options
from retrieval_core_mcp.command import serve
from retrieval_core_mcp.setup.clients import CLIENTS, Machine

__all__ = ["CLIENTS", "Machine", "read_options", "serve"]
