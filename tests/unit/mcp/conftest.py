"""An index with a fake embedder, and servers and services on it."""

from support.http_served import served
from support.mcp_server import config, config_file, index_file, library, start

__all__ = ["config", "config_file", "index_file", "library", "served", "start"]
