"""All tools. A new one is a module in this folder and an entry here."""

from __future__ import annotations

from retrieval_core.service.contents import IndexesRequest, list_fields
from retrieval_core.service.explaining import explain
from retrieval_core.service.reading import read, read_neighbors
from retrieval_core.service.searching import answer, pack_context
from retrieval_core.service.writing import ingest
from retrieval_core_mcp.tools.answering import AnswerAnswer, AnswerArguments, ContextArguments, PackedContext
from retrieval_core_mcp.tools.checking import CitationAnswer, CitationArguments, check_quote
from retrieval_core_mcp.tools.explaining import ExplainAnswer, ExplainArguments
from retrieval_core_mcp.tools.indexes import DescribeAnswer, DescribeArguments, ListAnswer, list_indexes
from retrieval_core_mcp.tools.reading import FetchAnswer, FetchArguments, NeighborsAnswer, NeighborsArguments
from retrieval_core_mcp.tools.search import SearchAnswer, SearchArguments, find
from retrieval_core_mcp.tools.tool import DeclaredTool
from retrieval_core_mcp.tools.writing import (
    IndexArguments,
    IndexedAnswer,
    RemoveArguments,
    RemovedDocument,
    remove_document,
)

TOOLS = (
    DeclaredTool(
        "search",
        "Search the documents",
        "Search the indexed documents for passages that answer a question, {how}. Returns passages with their sources, "
        "best first. {when} Ask in plain language.",
        SearchArguments,
        ("query", "filters", "max_characters", "top_k", "mode", "cursor"),
        find,
        SearchAnswer,
    ),
    DeclaredTool(
        "fetch",
        "Read a passage or document",
        "Read one chunk or one whole document by its id. A long text comes in parts: pass next_offset as offset to "
        "read the next part.",
        FetchArguments,
        ("id", "max_characters", "offset", "around"),
        read,
        FetchAnswer,
    ),
    DeclaredTool(
        "retrieve_context",
        "Get context within a token budget",
        "Get the passages that answer a question, with the text around them, as one text of at most max_tokens with "
        "numbered sources; for writing an answer from them.",
        ContextArguments,
        ("query", "filters", "max_tokens"),
        pack_context,
        PackedContext,
    ),
    DeclaredTool(
        "get_neighbors",
        "Read the passages around a result",
        "Read the passages before and after a search result in its document.",
        NeighborsArguments,
        ("id", "max_characters", "before", "after"),
        read_neighbors,
        NeighborsAnswer,
    ),
    DeclaredTool(
        "explain",
        "Explain a search",
        "Explain a search: the scores of each stage and, given an id, why that passage was found or not. For "
        "debugging.",
        ExplainArguments,
        ("query", "filters", "max_characters", "id", "top_k", "mode"),
        explain,
        ExplainAnswer,
    ),
    DeclaredTool(
        "list_indexes",
        "List the indexes",
        "List what can be searched here, and how much each index holds.",
        IndexesRequest,
        (),
        list_indexes,
        ListAnswer,
    ),
    DeclaredTool(
        "describe_index",
        "Describe an index",
        "Describe an index: its documents, and the fields that filters can name, with types, examples and ranges.",
        DescribeArguments,
        ("max_characters",),
        list_fields,
        DescribeAnswer,
    ),
    DeclaredTool(
        "verify_citation",
        "Check a quote",
        "Check whether a passage or its document contains a quote, and if its file was changed since.",
        CitationArguments,
        ("id", "quote"),
        check_quote,
        CitationAnswer,
    ),
    DeclaredTool(
        "answer",
        "Answer a question",
        "Answer a question from the documents, with a quote behind each sentence. If the documents don't contain the "
        "answer, it says so. kind is extracted, or written if a language model wrote it.",
        AnswerArguments,
        ("query", "filters", "max_characters"),
        answer,
        AnswerAnswer,
    ),
    DeclaredTool(
        "index_path",
        "Index a file or folder",
        "Bring the index in step with a file or folder on the server's machine: new, changed and removed files.",
        IndexArguments,
        ("path",),
        ingest,
        IndexedAnswer,
        writes=True,
    ),
    DeclaredTool(
        "remove_document",
        "Remove a document",
        "Remove a document from the index; its file stays.",
        RemoveArguments,
        ("id",),
        remove_document,
        RemovedDocument,
        writes=True,
    ),
)
"""In the order of the list. In a description, ``{how}`` and ``{when}`` depend on the server's settings."""
