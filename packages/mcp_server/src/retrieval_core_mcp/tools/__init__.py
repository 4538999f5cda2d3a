"""The tools of the MCP server: one module for each, and what they share."""
