"""All tools. To add one, add an entry here, and a module in this folder if it needs its own arguments or answer.

Classes and functions are given as ``package.module:name``: no module is imported before its tool is listed or called.
"""

from __future__ import annotations

from retrieval_core_mcp.tools.tool import DeclaredTool

TOOLS = (
    DeclaredTool(
        "search",
        "Search the documents",
        "Search the indexed documents for chunks that answer a query, {how}. Returns chunks with their sources, best "
        "first. {when} Write the query in plain language.",
        "retrieval_core_mcp.tools.search:SearchArguments",
        ("query", "queries", "intent", "filters", "max_characters", "top_k", "mode", "cursor"),
        "retrieval_core_mcp.tools.search:find",
        "retrieval_core_mcp.tools.search:SearchAnswer",
    ),
    DeclaredTool(
        "grep",
        "Search for a pattern",
        "Find the lines of all documents that match a regular expression: identifiers, error messages, exact wording.",
        "retrieval_core_mcp.tools.grep:GrepArguments",
        ("pattern", "path", "literal", "context", "output", "cursor"),
        "retrieval_core.service.grep:grep",
        "retrieval_core_mcp.tools.grep:GrepAnswer",
    ),
    DeclaredTool(
        "fetch",
        "Read a chunk or document",
        "Read one chunk or one whole document by its id. A long text comes in parts: pass next_offset as offset to "
        "read the next part.",
        "retrieval_core_mcp.tools.reading:FetchArguments",
        ("id", "max_characters", "offset", "around"),
        "retrieval_core.service.reading:read",
        "retrieval_core_mcp.tools.reading:FetchAnswer",
    ),
    DeclaredTool(
        "retrieve_context",
        "Get context within a token budget",
        "Get the chunks that answer a query, as one text of at most max_tokens tokens. It has the text around them and "
        "numbered sources.",
        "retrieval_core_mcp.tools.answering:ContextArguments",
        ("query", "filters", "max_tokens"),
        "retrieval_core.service.searching:pack_context",
        "retrieval_core_mcp.tools.answering:PackedContext",
    ),
    DeclaredTool(
        "get_neighbors",
        "Read the chunks around a result",
        "Read the chunks before and after a search result in its document.",
        "retrieval_core_mcp.tools.reading:NeighborsArguments",
        ("id", "max_characters", "before", "after"),
        "retrieval_core.service.reading:read_neighbors",
        "retrieval_core_mcp.tools.reading:NeighborsAnswer",
    ),
    DeclaredTool(
        "explain",
        "Explain a search",
        "Explain a search: the scores of each stage and, given an id, why that chunk was found or not. For debugging.",
        "retrieval_core_mcp.tools.explaining:ExplainArguments",
        ("query", "filters", "max_characters", "id", "top_k", "mode"),
        "retrieval_core.service.explaining:explain",
        "retrieval_core_mcp.tools.explaining:ExplainedSearch",
    ),
    DeclaredTool(
        "list_indexes",
        "List the indexes",
        "List the indexes that you can search, with the number of documents and chunks in each.",
        "retrieval_core.service.contents:IndexesRequest",
        (),
        "retrieval_core_mcp.tools.indexes:list_indexes",
        "retrieval_core_mcp.tools.indexes:ListAnswer",
    ),
    DeclaredTool(
        "describe_index",
        "Describe an index",
        "Describe an index: its documents, and the fields that filters can name, with types, examples and ranges.",
        "retrieval_core_mcp.tools.indexes:DescribeArguments",
        ("max_characters",),
        "retrieval_core.service.contents:list_fields",
        "retrieval_core_mcp.tools.indexes:DescribeAnswer",
    ),
    DeclaredTool(
        "verify_citation",
        "Check a quote",
        "Check whether a chunk or its document contains a quote, and if its file was changed since.",
        "retrieval_core_mcp.tools.checking:CitationArguments",
        ("id", "quote"),
        "retrieval_core_mcp.tools.checking:check_quote",
        "retrieval_core_mcp.tools.checking:CitationAnswer",
    ),
    DeclaredTool(
        "answer",
        "Answer a question",
        "Answer a question from the documents, with a quote for each sentence. If the documents don't contain the "
        "answer, it says so. kind is extracted, or written if a language model wrote it.",
        "retrieval_core_mcp.tools.answering:AnswerArguments",
        ("query", "filters", "max_characters"),
        "retrieval_core.service.searching:answer",
        "retrieval_core_mcp.tools.answering:AnswerAnswer",
    ),
    DeclaredTool(
        "index_path",
        "Index a file or folder",
        "Update the index from a file or folder on the server's machine: new, changed and deleted files.",
        "retrieval_core_mcp.tools.writing:IndexArguments",
        ("path",),
        "retrieval_core.service.writing:ingest",
        "retrieval_core_mcp.tools.writing:IndexedAnswer",
        writes=True,
    ),
    DeclaredTool(
        "remove_document",
        "Remove a document",
        "Remove a document from the index; its file stays.",
        "retrieval_core_mcp.tools.writing:RemoveArguments",
        ("id",),
        "retrieval_core_mcp.tools.writing:remove_document",
        "retrieval_core_mcp.tools.writing:RemovedDocument",
        writes=True,
    ),
)
"""In the order of the list. In a description, ``{how}`` and ``{when}`` depend on the server's settings."""
