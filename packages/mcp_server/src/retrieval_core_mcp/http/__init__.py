"""The service over HTTP: search, contexts, answers and integrity under ``/v1``, and the MCP endpoint ``/mcp``."""
