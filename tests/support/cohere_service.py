"""Cohere's rerank and embed endpoints as its API reference describes them, for the real SDK to talk to.

It shares no code with the adapters, and refuses what the reference does not allow, as the vendor does. It refuses blank
texts to rerank and empty ones to embed too, of which the reference says nothing. Its tokens are words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from retrieval_core.testing.fakes import FakeEmbedder, word_overlap
from support.wire_server import Response

if TYPE_CHECKING:
    from retrieval_core.types import Vector
    from support.wire_server import Request

KEY = "co-test-0123456789"
MODELS = frozenset({"rerank-v3.5", "rerank-v4.0-fast", "rerank-v4.0-pro"})
FIELDS = frozenset({"model", "query", "documents", "top_n", "max_tokens_per_doc", "relevant_spans", "priority"})
MOST_DOCUMENTS = 10_000
EMBEDDING_FIELDS = frozenset(
    {
        *("model", "input_type", "texts", "images", "inputs", "max_tokens"),
        *("output_dimension", "embedding_types", "truncate", "priority"),
    }
)
INPUT_TYPES = frozenset({"search_document", "search_query", "classification", "clustering", "image"})
EMBEDDING_TYPES = frozenset({"float", "int8", "uint8", "binary", "ubinary", "base64"})
MOST_TEXTS = 96


class Model(NamedTuple):
    """An embedding model: the dimensions that may be asked for, its own first, and how many tokens it reads."""

    dimensions: tuple[int, ...]
    max_tokens: int


EMBEDDING_MODELS = {
    "embed-v5.0-pro": Model((2048, 1536, 1024, 768, 512, 256), 128_000),
    "embed-v5.0-fast": Model((2048, 1536, 1024, 768, 512, 256), 128_000),
    "embed-v4.0": Model((1536, 1024, 512, 256), 128_000),
    "embed-english-v3.0": Model((1024,), 512),
    "embed-english-light-v3.0": Model((384,), 512),
    "embed-multilingual-v3.0": Model((1024,), 512),
    "embed-multilingual-light-v3.0": Model((384,), 512),
}


def error(status: int, message: str) -> Response:
    """Return an error as the vendor writes it."""
    return Response(status, {"id": "5c9a", "message": message})


def vector_of(text: str, input_type: str, dimension: int) -> Vector:
    """Return the vector that the service gives a text; it has in it what the text was said to be."""
    return FakeEmbedder(dimension).vector(f"{input_type} {text}")


@dataclass
class CohereService:
    """Answers requests for ``/v2/rerank`` and ``/v2/embed``.

    A score is the share of the question's words in a document.

    Attributes:
        key: What clients must authorise themselves with; ``None`` for anything, as on servers of one's own.
        dimensions: Further embedding models, by their dimension.
    """

    key: str | None = KEY
    dimensions: dict[str, int] = field(default_factory=dict[str, int])

    def __call__(self, request: Request) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key is not None and given != self.key:
            return error(401, f"invalid api token {given}")
        if (request.method, request.path) == ("POST", "/v2/rerank"):
            asked = request.json()
            problem = self._problem_of(asked)
            return error(*problem) if problem else self._scores(asked)
        if (request.method, request.path) == ("POST", "/v2/embed"):
            asked = request.json()
            problem = self._problem_of_embedding(asked)
            return error(*problem) if problem else self._embeddings(asked)
        return error(404, f"no such endpoint: {request.method} {request.path}")

    def _problem_of(self, asked: dict[str, Any]) -> tuple[int, str] | None:
        if unknown := asked.keys() - FIELDS:
            return 422, f"unknown fields: {', '.join(sorted(unknown))}"
        if self.key is not None and asked.get("model") not in MODELS:
            return _no_model(asked)
        problem = _problem_of_texts(asked.get("query"), asked.get("documents"))
        return (400, f"invalid request: {problem}") if problem else None

    def _problem_of_embedding(self, asked: dict[str, Any]) -> tuple[int, str] | None:
        if unknown := asked.keys() - EMBEDDING_FIELDS:
            return 422, f"unknown fields: {', '.join(sorted(unknown))}"
        model = self._model(asked)
        if model is None:
            return _no_model(asked)
        problem = _problem_of_options(asked, model.dimensions) or _problem_of_inputs(asked, model.max_tokens)
        return (400, f"invalid request: {problem}") if problem else None

    def _model(self, asked: dict[str, Any]) -> Model | None:
        name = asked.get("model", "")
        return Model((self.dimensions[name],), 512) if name in self.dimensions else EMBEDDING_MODELS.get(name)

    def _embeddings(self, asked: dict[str, Any]) -> Response:
        model = cast("Model", self._model(asked))
        dimension = asked.get("output_dimension", model.dimensions[0])
        read = [_kept(text, model.max_tokens, asked.get("truncate", "END")) for text in asked["texts"]]
        vectors = [[float(number) for number in vector_of(text, asked["input_type"], dimension)] for text in read]
        meta = {
            "api_version": {"version": "2"},
            "billed_units": {"input_tokens": sum(len(text.split()) for text in read)},
        }
        embeddings = {"float": vectors}
        body = {"id": "da6e531f", "response_type": "embeddings_by_type", "embeddings": embeddings}
        return Response(body={**body, "texts": asked["texts"], "meta": meta})

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


def _no_model(asked: dict[str, Any]) -> tuple[int, str]:
    return 404, f"model '{asked.get('model')}' not found, make sure the correct model ID was used"


def _problem_of_inputs(asked: dict[str, Any], most_tokens: int) -> str | None:
    texts: Any = asked.get("texts")
    if not isinstance(texts, list) or {"images", "inputs"} & asked.keys():
        return "valid texts must be provided, and nothing beside them"
    given = [text for text in cast("list[object]", texts) if isinstance(text, str) and text]
    if len(given) != len(cast("list[object]", texts)):
        return "a text must not be empty"
    if not 1 <= len(given) <= MOST_TEXTS:
        return f"the number of texts must be from 1 to {MOST_TEXTS}"
    if asked.get("truncate") == "NONE" and any(len(text.split()) > most_tokens for text in given):
        return f"too many tokens: a text must not be longer than {most_tokens} tokens"
    return None


def _problem_of_options(asked: dict[str, Any], dimensions: tuple[int, ...]) -> str | None:
    if asked.get("input_type") not in INPUT_TYPES:
        return "a valid input_type is required"
    if asked.get("truncate", "END") not in {"NONE", "START", "END"}:
        return "truncate must be one of NONE, START, END"
    if (types := asked.get("embedding_types", ["float"])) != ["float"]:
        return "this fake makes floats alone" if EMBEDDING_TYPES.issuperset(types) else "invalid embedding_types"
    if "output_dimension" in asked and (len(dimensions) == 1 or asked["output_dimension"] not in dimensions):
        return f"output_dimension {asked['output_dimension']} is not supported by this model"
    return None


def _kept(text: str, most: int, truncate: str) -> str:
    """Return what the model reads of a text: all of it, or so many words of its beginning or end."""
    words = text.split()
    if len(words) <= most:
        return text
    return " ".join(words[-most:] if truncate == "START" else words[:most])
