"""Cohere's rerank endpoint as its API reference describes it, for the real SDK to talk to.

It shares no code with the adapter, and refuses what the reference does not allow, as the vendor does. It refuses blank
texts too, of which the reference says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retrieval_core.testing.fakes_rerank import word_overlap
from support.wire_server import Response

if TYPE_CHECKING:
    from support.wire_server import Request

KEY = "co-test-0123456789"
MODELS = frozenset({"rerank-v3.5", "rerank-v4.0-fast", "rerank-v4.0-pro"})
FIELDS = frozenset({"model", "query", "documents", "top_n", "max_tokens_per_doc", "relevant_spans", "priority"})
MOST_DOCUMENTS = 10_000


def error(status: int, message: str) -> Response:
    """Return an error as the vendor writes it."""
    return Response(status, {"id": "5c9a", "message": message})


@dataclass
class CohereService:
    """Answers requests for ``/v2/rerank``; the score is the share of the question's words in a document.

    Attributes:
        key: What clients must authorise themselves with; ``None`` for anything, as on servers of one's own.
    """

    key: str | None = KEY

    def __call__(self, request: Request) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key is not None and given != self.key:
            return error(401, f"invalid api token {given}")
        if (request.method, request.path) != ("POST", "/v2/rerank"):
            return error(404, f"no such endpoint: {request.method} {request.path}")
        asked = request.json()
        problem = self._problem_of(asked)
        return error(*problem) if problem else self._scores(asked)

    def _problem_of(self, asked: dict[str, Any]) -> tuple[int, str] | None:
        if unknown := asked.keys() - FIELDS:
            return 422, f"unknown fields: {', '.join(sorted(unknown))}"
        if self.key is not None and asked.get("model") not in MODELS:
            return 404, f"model '{asked.get('model')}' not found, make sure the correct model ID was used"
        problem = _problem_of_texts(asked.get("query"), asked.get("documents"))
        return (400, f"invalid request: {problem}") if problem else None

    def _scores(self, asked: dict[str, Any]) -> Response:
        results = [
            {"index": index, "relevance_score": word_overlap(asked["query"], document)}
            for index, document in enumerate(asked["documents"])
        ]
        # The best come first, so the order is not that of the documents.
        results.sort(key=lambda result: result["relevance_score"], reverse=True)
        meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": -(-len(results) // 100)}}
        return Response(body={"id": "07734bd2", "results": results[: asked.get("top_n")], "meta": meta})


def _problem_of_texts(query: object, documents: Any) -> str | None:
    if not isinstance(query, str) or not query.strip():
        return "query must not be empty"
    if not documents:
        return "list of documents must not be empty"
    if len(documents) > MOST_DOCUMENTS:
        return f"too many documents, at most {MOST_DOCUMENTS}"
    if not all(isinstance(document, str) and document.strip() for document in documents):
        return "a document must not be empty"
    return None
