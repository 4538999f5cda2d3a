"""The command ``retrieval-mcp``, to be called in this process, and what its installer knows of assistants."""

from __future__ import annotations

from retrieval_core_mcp.command import _options as read_options
from retrieval_core_mcp.command import serve
from retrieval_core_mcp.install.clients import CLIENTS, config_file

__all__ = ["CLIENTS", "config_file", "read_options", "serve"]
