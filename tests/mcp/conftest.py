"""An index with a fake embedder, and servers on it."""

from support.mcp_server import config, config_file, index_file, library, start

__all__ = ["config", "config_file", "index_file", "library", "start"]
