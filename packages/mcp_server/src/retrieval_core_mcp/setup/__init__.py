"""Adding the server to the assistants on a machine: ``retrieval-mcp setup``."""
