"""An index of phone reviews as a shop's own program filled it, behind a second model of Pinecone's data plane.

It was written from Pinecone's OpenAPI description (2025-10) and its guide to filters by someone who had not written the
store, and shares nothing with ``pinecone_service.py``: what both agree on is not one misreading made twice. Answers are
as sparse as that description allows: fields that it does not require are left out where they hold their default.
"""

from __future__ import annotations

import json
import operator
from typing import TYPE_CHECKING, Any, cast

from support.wire_server import Response

if TYPE_CHECKING:
    from support.wire_server import Request

KEY = "pc-reviews-key"
LARGEST_ANSWER = 4_000_000
_COMPARE: dict[str, Any] = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}


class BadRequestError(Exception):
    """What Pinecone answers with status 400."""


class ReviewIndex:
    """Namespaces with records, each a vector and metadata.

    Attributes:
        bodies: The bodies of all queries, in order.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.namespaces: dict[str, dict[str, tuple[list[float], dict[str, Any]]]] = {}
        self.bodies: list[dict[str, Any]] = []
        self.most_bytes = LARGEST_ANSWER

    def put(self, namespace: str, name: str, vector: list[float], **metadata: Any) -> None:
        """Keep a record, its whole numbers as floats."""
        kept = {key: float(value) if type(value) is int else value for key, value in metadata.items()}
        self.namespaces.setdefault(namespace, {})[name] = (vector, kept)

    def __call__(self, request: Request) -> Response:  # noqa: PLR0911 - one for each route
        """Answer a request."""
        if request.headers.get("api-key") != KEY:
            return Response(401, {"error": {"code": "UNAUTHENTICATED", "message": "Invalid API key"}, "status": 401})
        try:
            match request.method, request.path:
                case "POST", "/query":
                    return self._sized(self._query(request.json()))
                case "GET", "/vectors/fetch":
                    namespace = request.query.get("namespace", [""])[0]
                    kept = self.namespaces.get(namespace, {})
                    found = {name: self._whole(name, *kept[name]) for name in request.query["ids"] if name in kept}
                    return self._sized({"vectors": found, "namespace": namespace})
                case "POST", "/vectors/fetch_by_metadata":
                    return self._sized(self._page(request.json()))
                case _, "/describe_index_stats":
                    counts = {name: {"vectorCount": len(kept)} for name, kept in self.namespaces.items()}
                    return Response(body={"dimension": self.dimension, "namespaces": counts, "metric": "cosine"})
                case _:
                    return Response(404, {"code": 5, "message": "Not Found", "details": []})
        except BadRequestError as error:
            return Response(400, {"code": 3, "message": str(error), "details": []})

    def _sized(self, body: dict[str, Any]) -> Response:
        if len(json.dumps(body)) > self.most_bytes:
            raise BadRequestError("Response size exceeds the limit of 4 MB")
        return Response(body=body)

    def _query(self, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        if not 1 <= body["topK"] <= 10_000:
            raise BadRequestError("top_k must be between 1 and 10000")
        if len(body["vector"]) != self.dimension:
            raise BadRequestError("Vector dimension does not match the dimension of the index")
        kept = self.namespaces.get(body.get("namespace", ""), {})
        scored = [
            (_cosine(body["vector"], vector), name, metadata)
            for name, (vector, metadata) in kept.items()
            if passes(metadata, body.get("filter") or {})
        ]
        scored.sort(key=lambda entry: -entry[0])
        matches: list[dict[str, Any]] = []
        for score, name, metadata in scored[: body["topK"]]:
            match: dict[str, Any] = {"id": name, "score": score}
            if body.get("includeMetadata") and metadata:
                match["metadata"] = metadata
            matches.append(match)
        return {"matches": matches} if matches else {}

    def _page(self, body: dict[str, Any]) -> dict[str, Any]:
        kept = self.namespaces.get(body.get("namespace", ""), {})
        found = [name for name, (_, metadata) in kept.items() if passes(metadata, body["filter"])]
        start, limit = int(body.get("paginationToken") or 0), min(body.get("limit", 100), 7)
        page: dict[str, Any] = {
            "vectors": {name: self._whole(name, *kept[name]) for name in found[start : start + limit]}
        }
        return page if start + limit >= len(found) else {**page, "pagination": {"next": str(start + limit)}}

    def _whole(self, name: str, vector: list[float], metadata: dict[str, Any]) -> dict[str, Any]:
        return {"id": name, "values": vector, **({"metadata": metadata} if metadata else {})}


def passes(metadata: dict[str, Any], condition: Any) -> bool:
    """Whether metadata pass a filter, read as MongoDB's language, of which Pinecone's is a subset."""
    if not isinstance(condition, dict):
        raise BadRequestError("illegal filter")
    return all(_one(metadata, key, value) for key, value in cast("dict[str, Any]", condition).items())


def _one(metadata: dict[str, Any], key: str, value: Any) -> bool:
    if key in {"$and", "$or"}:
        if not isinstance(value, list) or not value:
            raise BadRequestError(f"{key} needs a list")
        outcomes = [passes(metadata, part) for part in cast("list[Any]", value)]
        return all(outcomes) if key == "$and" else any(outcomes)
    if key.startswith("$"):
        raise BadRequestError(f"{key} is not a valid operator")
    asked: dict[str, Any] = cast("dict[str, Any]", value) if isinstance(value, dict) else {"$eq": value}
    return all(_holds(metadata.get(key), name, operand) for name, operand in asked.items())


def _holds(stored: Any, name: str, operand: Any) -> bool:
    items: list[Any] = cast("list[Any]", stored) if isinstance(stored, list) else [] if stored is None else [stored]
    several: list[Any] = cast("list[Any]", operand) if isinstance(operand, list) else []
    is_scalar = isinstance(operand, (str, int, float))
    if name == "$exists" and isinstance(operand, bool):
        return bool(items) is operand
    if name in {"$eq", "$ne"} and is_scalar:
        return any(_same(item, operand) for item in items) is (name == "$eq")
    if name in {"$in", "$nin"} and several and not any(isinstance(item, bool) for item in several):
        return any(_same(item, one) for item in items for one in several) is (name == "$in")
    if name in _COMPARE and is_scalar and not isinstance(operand, (str, bool)):
        return isinstance(stored, float) and bool(_COMPARE[name](stored, operand))
    raise BadRequestError(f"the {name} operator does not take {operand!r}")


def _same(stored: Any, asked: Any) -> bool:
    def kind(value: object) -> int:
        return 0 if isinstance(value, bool) else 1 if isinstance(value, str) else 2

    return kind(stored) == kind(asked) and bool(stored == asked)


def _cosine(left: list[float], right: list[float]) -> float:
    length = (sum(x * x for x in left) * sum(x * x for x in right)) ** 0.5
    return sum(x * y for x, y in zip(left, right, strict=True)) / length if length else 0.0
