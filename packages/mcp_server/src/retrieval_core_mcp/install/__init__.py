"""Adding the server to the configuration of an assistant: ``retrieval-mcp install``."""
