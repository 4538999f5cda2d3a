"""One service for the command line, the MCP tools and the HTTP endpoints: typed functions over served indexes.

Each function takes a :class:`~retrieval_core.service.service_context.ServiceContext` (who calls) and a request, and
returns a response. Only here are results limited to what a tenant may see, and paths and credentials removed.
"""
