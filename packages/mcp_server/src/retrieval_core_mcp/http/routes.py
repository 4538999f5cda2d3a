"""The table of routes: each row is a path, the models of its request and response, and the function that answers."""

from __future__ import annotations

from retrieval_core.compat.service import CollectionInfo, RetrievalResponse, SearchQuery
from retrieval_core.service import checking, contents, grep, outline, passages, reading, uploads, writing
from retrieval_core_mcp.http import answers, contract, endpoints, search
from retrieval_core_mcp.http.arguments import AnswerQuery, ContextQuery, ExplainQuery
from retrieval_core_mcp.http.files import KIND
from retrieval_core_mcp.http.handling import EVENTS, Row

_QUERY = {"query_text": "How do I set up a vector database?"}
_NEW_DOCUMENT = {"id": "setup.md", "text": "To set up a vector database, first install it."}
_CHUNK = {"id": "chunk_id"}
_INDEX = {"index": "name"}
_PDF = {"chunk_id": "guide.pdf#0", "page": 1}
ROWS = (
    Row(
        method="POST", path="/v1/search", name="search", summary="Search, and list the most similar chunks first",
        request=SearchQuery, body="all", response=RetrievalResponse, function=search.search,
        examples={"body": {**_QUERY, "top_k": 10, "similarity_threshold": 0.7}},
    ),
    Row(
        method="POST", path="/v1/context", name="context", summary="Search, and pack the results for a language model",
        request=ContextQuery, body="all", response=answers.ContextAnswer, function=search.pack_context,
        examples={"body": {**_QUERY, "max_tokens": 2000}},
    ),
    Row(
        method="POST", path="/v1/grep", name="grep", summary="Search the text of all documents for a pattern",
        request=grep.GrepRequest, body="all", response=grep.GrepResponse, function=grep.grep,
        examples={"body": {"pattern": "vector database|VectorStore", "path": "docs/*.md", "context": 2}},
    ),
    Row(
        method="POST", path="/v1/explain", name="explain", summary="Explain the results of a search",
        request=ExplainQuery, body="all", response=answers.ExplainAnswer, function=search.explain,
        examples={"body": {**_QUERY, "top_k": 3}},
    ),
    Row(
        method="POST", path="/v1/answer", name="answer", summary="Answer a question, as server-sent events",
        request=AnswerQuery, body="all", endpoint=endpoints.answer, media=EVENTS,
        done="Events: the results, the answer bit by bit, last done; error if it fails.", examples={"body": _QUERY},
    ),
    Row(
        method="POST", path="/v1/chunks/{chunk_id:path}/validate", name="validate_chunk", names=_CHUNK,
        summary="Compare a stored chunk with its document and its file",
        request=reading.ChunkRequest, response=answers.ValidationAnswer, function=contract.validate_chunk,
    ),
    Row(
        method="POST", path="/v1/chunks/{chunk_id:path}/quote", name="check_quote", names=_CHUNK,
        summary="Look for a quote in a chunk and its document", body=("quote",),
        request=checking.QuoteRequest, response=checking.QuoteResponse, function=checking.verify_quote,
        examples={"body": {"quote": "The moon has no air."}},
    ),
    Row(
        method="GET", path="/v1/chunks/{chunk_id:path}/page", name="get_page", names=_CHUNK,
        summary="Find a chunk of a PDF, or a quote in it, on one of its pages",
        request=reading.PlaceRequest, response=reading.PageResponse, function=reading.read_page, examples=_PDF,
    ),
    Row(
        method="GET", path="/v1/chunks/{chunk_id:path}/page.png", name="get_page_picture", names=_CHUNK,
        summary="Show the page of a chunk of a PDF",
        request=reading.PictureRequest, function=reading.read_picture, media="image/png", examples=_PDF,
    ),
    Row(
        method="GET", path="/v1/chunks/{chunk_id:path}", name="get_chunk", summary="Read a chunk", names=_CHUNK,
        request=reading.ChunkRequest, response=answers.ChunkAnswer, function=contract.read_chunk,
    ),
    Row(
        method="GET", path="/v1/indexes", name="list_indexes", summary="List the indexes",
        response=answers.IndexesAnswer, endpoint=endpoints.list_indexes,
    ),
    Row(
        method="GET", path="/v1/indexes/{name}", name="get_index", summary="Describe an index", names=_INDEX,
        request=contents.IndexRequest, response=CollectionInfo, function=contract.describe_index,
    ),
    Row(
        method="GET", path="/v1/indexes/{name}/fields", name="list_fields", names=_INDEX,
        summary="List the fields that filters can name",
        request=contents.IndexRequest, response=contents.FieldsResponse, function=contents.list_fields,
    ),
    Row(
        method="GET", path="/v1/documents", name="list_documents", summary="List the documents, in pages",
        request=contents.DocumentsRequest, response=contents.DocumentsResponse, function=contents.list_documents,
    ),
    Row(
        method="POST", path="/v1/documents", name="write_documents", summary="Write documents, with --allow-writes",
        request=writing.WriteRequest, body="all", response=writing.WriteResponse, function=writing.write_documents,
        writes=True, examples={"body": {"documents": [_NEW_DOCUMENT]}},
    ),
    Row(
        method="DELETE", path="/v1/documents", name="remove_documents", summary="Remove documents, with --allow-writes",
        request=writing.RemoveRequest, names={"ids": "id"}, response=writing.RemoveResponse, function=writing.remove,
        writes=True,
    ),
    Row(
        method="GET", path="/v1/documents/{document_id:path}", name="get_document", names={"id": "document_id"},
        summary="Read a document, in parts",
        request=reading.DocumentRequest, response=reading.DocumentResponse, function=reading.read_document,
    ),
    Row(
        method="GET", path="/v1/outline", name="get_outline", names={"id": "path"},
        summary="List the sections of a document, with their lines",
        request=outline.OutlineRequest, response=outline.OutlineResponse, function=outline.outline,
    ),
    Row(
        method="GET", path="/v1/passages", name="get_passages", names={"ids": "id"},
        summary="Read several chunks, documents and lines",
        request=passages.PassagesRequest, response=passages.PassagesResponse, function=passages.read_passages,
    ),
    Row(
        method="POST", path="/v1/files", name="index_file", writes=True, takes=KIND, media=EVENTS,
        summary="Index a file, as server-sent events, with --allow-writes",
        request=uploads.UploadRequest, endpoint=endpoints.index_file, examples={"name": "notes.md"},
        done="Events: received, progress after each write, last done or failed, which has the reason.",
    ),
    Row(
        method="GET", path="/v1/suite-report", name="suite_report", summary="Report the last run of a test suite",
        response=answers.SuiteReportAnswer, endpoint=endpoints.suite_report,
    ),
    Row(
        method="GET", path="/healthz", name="healthz", summary="Report whether the process is running",
        response=answers.Health, endpoint=endpoints.health,
    ),
    Row(
        method="GET", path="/readyz", name="readyz", summary="Report whether every index can be searched",
        response=answers.Readiness, endpoint=endpoints.readiness, unready=answers.Readiness,
    ),
    Row(
        method="GET", path="/metrics", name="metrics", summary="Counters for Prometheus",
        endpoint=endpoints.metrics, media="text/plain",
    ),
    Row(method="GET", path="/openapi.json", name="openapi", summary="This document", endpoint=endpoints.openapi),
)  # fmt: skip
"""A path that begins like another one comes after it."""
