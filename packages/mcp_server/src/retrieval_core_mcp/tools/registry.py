"""All tools. To add one, add an entry here, and a module in this folder if it needs its own arguments or answer.

Classes and functions are given as ``package.module:name``: no module is imported before its tool is listed or called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core_mcp.tools.tool import DeclaredTool

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL = "all"
"""In place of the names of tools: every tool."""
DEFAULT = ("search", "grep", "fetch", "list", "verify_citation")
"""The tools that clients get unless the settings name others. Their list and the server's instructions together have
at most 600 tokens of four characters: every conversation pays for them."""

TOOLS = (
    DeclaredTool(
        "search",
        "Search the documents",
        'Find passages that answer a question in any words. "A phrase" must occur, -word at the end must not; '
        "path:*.md, field:value filter. {about}",
        "retrieval_core_mcp.tools.search:SearchArguments",
        ("query", "queries", "filters", "detail", "cursor"),
        "retrieval_core_mcp.tools.search:find",
        "retrieval_core_mcp.tools.search:SearchAnswer",
        more_arguments=("intent", "top_k", "mode", "max_characters"),
    ),
    DeclaredTool(
        "grep",
        "Search for a pattern",
        "Find lines by regular expression: identifiers, messages, wording.",
        "retrieval_core_mcp.tools.grep:GrepArguments",
        ("pattern", "path", "context", "output", "cursor"),
        "retrieval_core.service.grep:grep",
        "retrieval_core_mcp.tools.grep:GrepAnswer",
        more_arguments=("literal", "filters", "ignore_case", "word", "limit", "max_characters"),
    ),
    DeclaredTool(
        "fetch",
        "Read a document",
        "Read a result's lines or whole documents.",
        "retrieval_core_mcp.tools.reading:FetchArguments",
        ("id", "offset"),
        "retrieval_core_mcp.tools.reading:fetch",
        "retrieval_core_mcp.tools.reading:FetchAnswer",
        more_arguments=("ids", "lines_around", "around", "max_characters"),
    ),
    DeclaredTool(
        "list",
        "List documents",
        "List a folder's documents or a document's sections. Without path: folders, fields, index state.",
        "retrieval_core_mcp.tools.listing:ListArguments",
        ("path", "cursor"),
        "retrieval_core_mcp.tools.listing:list_contents",
        "retrieval_core_mcp.tools.listing:ListAnswer",
        more_arguments=("max_characters",),
        needs_index=False,
    ),
    DeclaredTool(
        "verify_citation",
        "Check a quote",
        "Check that a document still contains a quote.",
        "retrieval_core_mcp.tools.checking:CitationArguments",
        ("id", "quote"),
        "retrieval_core_mcp.tools.checking:check_quote",
        "retrieval_core_mcp.tools.checking:CitationAnswer",
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
        "retrieval_core_mcp.tools.writing:RemovalAnswer",
        writes=True,
    ),
)
"""In the order of the list. In a description, ``{about}`` becomes the description of the documents."""


def choose_tools(names: Sequence[str], *, allow_writes: bool) -> Sequence[DeclaredTool]:
    """Return the tools that clients get.

    Args:
        names: Those that are chosen; none for the default.
        allow_writes: Whether those that write are among them.
    """
    named = frozenset(names or DEFAULT)
    return [
        tool
        for tool in TOOLS
        if (allow_writes or not tool.writes) and (ALL in named or tool.name in named or (tool.writes and not names))
    ]
