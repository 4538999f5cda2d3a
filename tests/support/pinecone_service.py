"""A Pinecone index for tests, as Pinecone's API reference (2025-10) describes it.

It keeps to what is documented and refuses all else, and takes nothing from the library that it tests: filters are
evaluated by Pinecone's documentation of its filter language. Writes can be read at once; Pinecone's own take a moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from support.wire_server import Request, Response

Test: TypeAlias = "Callable[[Mapping[str, Any]], bool]"

KEY = "pc-test-key-0123456789"

MOST_METADATA = 40_960
MOST_BODY = 2 * 1024 * 1024
MOST_RECORDS = 1_000
MOST_TOP_K = 10_000
MOST_PAGE = 100  # the default; a larger maximum is not documented
MOST_ANSWER = 4 * 1024 * 1024
MOST_IN = 10_000
MOST_SPARSE = 1_000
MOST_ADDRESS = 8_192


class _RefusedError(Exception):
    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Stored:
    """A record as it is kept: 32-bit values, numbers of the metadata as 64-bit floats."""

    values: np.ndarray
    metadata: dict[str, Any]
    sparse: dict[int, float] = field(default_factory=dict[int, float])


class PineconeService:
    """One index.

    Args:
        negations_match_absent: Whether ``$ne`` and ``$nin`` match where the field is absent. The documentation does not
            say, and Pinecone has done both.
    """

    def __init__(self, dimension: int, metric: str = "cosine", *, negations_match_absent: bool = False) -> None:
        self.dimension = dimension
        self.metric = metric
        self.negations_match_absent = negations_match_absent
        self.namespaces: dict[str, dict[str, Stored]] = {}

    def __call__(self, request: Request) -> Response:
        """Answer a request."""
        routes: dict[tuple[str, str], Callable[[Any], Any]] = {
            ("POST", "/vectors/upsert"): self._upsert,
            ("POST", "/query"): self._query,
            ("POST", "/vectors/fetch_by_metadata"): self._fetch_by_metadata,
            ("POST", "/vectors/delete"): self._delete,
            ("POST", "/describe_index_stats"): self._stats,
        }
        try:
            if request.headers.get("api-key") != KEY:
                return Response(401, b"Invalid API Key", {"Content-Type": "text/plain"})
            _need(bool(request.headers.get("x-pinecone-api-version")), "no API version")
            _need(
                len(request.body) <= MOST_BODY, f"Request size exceeds the maximum supported size of {MOST_BODY} bytes"
            )
            if request.method == "GET":
                _need(request.path in {"/vectors/fetch", "/describe_index_stats"}, "no such route")
                return Response(
                    body=self._fetch(request.query) if request.path == "/vectors/fetch" else self._stats({})
                )
            _need((request.method, request.path) in routes, "no such route")
            return Response(body=routes[request.method, request.path](request.json()))
        except _RefusedError as refusal:
            return Response(refusal.status, {"code": 3, "message": str(refusal), "details": []})

    def records(self, namespace: str = "") -> dict[str, Stored]:
        """Return what a namespace holds."""
        return self.namespaces.get("" if namespace == "__default__" else namespace, {})

    def put(self, record_id: str, values: Any, metadata: Mapping[str, Any], namespace: str = "") -> None:
        """Write a record as another program would."""
        self._upsert(
            {"vectors": [{"id": record_id, "values": list(values), "metadata": dict(metadata)}], "namespace": namespace}
        )

    def _upsert(self, body: dict[str, Any]) -> Any:
        _only(body, "vectors", "namespace")
        vectors = body["vectors"]
        if not 0 < len(vectors) <= MOST_RECORDS:
            raise _RefusedError(f"an upsert takes 1 to {MOST_RECORDS} vectors")
        checked = {vector["id"]: self._checked(vector) for vector in vectors}
        self.namespaces.setdefault(body.get("namespace", ""), {}).update(checked)
        return {"upsertedCount": len(vectors)}

    def _checked(self, vector: dict[str, Any]) -> Stored:
        _only(vector, "id", "values", "sparseValues", "metadata")
        name, values = vector["id"], vector["values"]
        if not (isinstance(name, str) and 1 <= len(name) <= 512 and name.isascii() and "\0" not in name):
            raise _RefusedError("Vector ID must be 1 to 512 ASCII characters")
        if len(values) != self.dimension:
            raise _RefusedError(
                f"Vector dimension {len(values)} does not match the dimension of the index {self.dimension}"
            )
        if not any(values):
            raise _RefusedError("Dense vectors must contain at least one non-zero value")
        sparse = vector.get("sparseValues", {"indices": [], "values": []})
        return Stored(
            np.array(values, dtype=np.float32), _checked_metadata(vector.get("metadata", {})), _checked_sparse(sparse)
        )

    def _query(self, body: dict[str, Any]) -> Any:
        _only(body, "topK", "includeValues", "includeMetadata", "namespace", "vector", "filter", "sparseVector")
        if not (isinstance(body["topK"], int) and 1 <= body["topK"] <= MOST_TOP_K):
            raise _RefusedError(f"topK must be between 1 and {MOST_TOP_K}")
        query = np.array(body["vector"], dtype=np.float64)
        if query.shape != (self.dimension,):
            raise _RefusedError(
                f"Query vector dimension {query.size} does not match that of the index {self.dimension}"
            )
        sparse = _checked_sparse(body["sparseVector"]) if "sparseVector" in body else {}
        if sparse and self.metric != "dotproduct":
            raise _RefusedError("Index configuration does not support sparse values")
        test = self._filter(body["filter"]) if "filter" in body else _anything
        # The last written come first among equals: the reference promises no order.
        found = [
            (name, item)
            for name, item in reversed(self.records(body.get("namespace", "")).items())
            if test(item.metadata)
        ]
        scored = [(self._score(query, sparse, item), name, item) for name, item in found]
        scored.sort(key=lambda entry: entry[0], reverse=self.metric != "euclidean")
        matches: list[dict[str, Any]] = []
        for score, name, item in scored[: body["topK"]]:
            match: dict[str, Any] = {
                "id": name,
                "score": score,
                "values": item.values.tolist() if body.get("includeValues") else [],
            }
            if body.get("includeMetadata"):
                match["metadata"] = item.metadata
            matches.append(match)
        answer: dict[str, Any] = {"matches": matches, "namespace": body.get("namespace", ""), "usage": {"readUnits": 1}}
        if len(json.dumps(answer)) > MOST_ANSWER:
            raise _RefusedError("the result is larger than 4 MB; choose a lower topK")
        return answer

    def _score(self, query: np.ndarray, sparse: Mapping[int, float], item: Stored) -> float:
        values = item.values.astype(np.float64)
        if self.metric == "euclidean":
            return float(((query - values) ** 2).sum())
        product = float(query @ values)
        if self.metric == "cosine":
            length = float(np.linalg.norm(query) * np.linalg.norm(values))
            return float(np.float32(product / length)) if length else 0.0
        product += sum(weight * item.sparse.get(index, 0.0) for index, weight in sparse.items())
        return float(np.float32(product))

    def _fetch(self, query: dict[str, list[str]]) -> Any:
        ids = query.get("ids", [])
        if not 0 < len(ids) <= MOST_RECORDS:
            raise _RefusedError(f"a fetch takes 1 to {MOST_RECORDS} ids")
        if sum(len(name) + 5 for name in ids) > MOST_ADDRESS:
            raise _RefusedError("URI Too Long", 414)
        namespace = query.get("namespace", [""])[0]
        records = self.records(namespace)
        return {
            "vectors": {name: _shown(name, records[name]) for name in ids if name in records},
            "namespace": namespace,
        }

    def _fetch_by_metadata(self, body: dict[str, Any]) -> Any:
        _only(body, "filter", "namespace", "limit", "paginationToken")
        limit = body.get("limit", 100)
        _need(1 <= limit <= MOST_PAGE, f"limit must be between 1 and {MOST_PAGE}")
        test = self._filter(body["filter"])
        found = [(name, item) for name, item in self.records(body.get("namespace", "")).items() if test(item.metadata)]
        start = int(body.get("paginationToken", "0"))
        answer: dict[str, Any] = {
            "vectors": {name: _shown(name, item) for name, item in found[start : start + limit]},
            "namespace": body.get("namespace", ""),
        }
        if start + limit < len(found):
            answer["pagination"] = {"next": str(start + limit)}
        return answer

    def _delete(self, body: dict[str, Any]) -> Any:
        _only(body, "ids", "namespace", "filter", "deleteAll")
        namespace = body.get("namespace") or ""
        if namespace not in self.namespaces:
            raise _RefusedError("Namespace not found", 404)
        if "filter" in body:
            _need("ids" not in body and "deleteAll" not in body, "a delete takes ids, a filter or deleteAll")
            test = self._filter(body["filter"])
            records = self.namespaces[namespace]
            self.namespaces[namespace] = {name: item for name, item in records.items() if not test(item.metadata)}
            return {}
        if "ids" not in body or not 0 < len(body["ids"]) <= MOST_RECORDS:
            raise _RefusedError(f"a delete takes 1 to {MOST_RECORDS} ids")
        for name in body["ids"]:
            self.namespaces[namespace].pop(name, None)
        return {}

    def _stats(self, body: dict[str, Any]) -> Any:
        _only(body)
        counts = {name or "__default__": len(records) for name, records in self.namespaces.items() if records}
        return {
            "namespaces": {name: {"vectorCount": count} for name, count in counts.items()},
            "dimension": self.dimension,
            "indexFullness": 0.0,
            "totalVectorCount": sum(counts.values()),
            "metric": self.metric,
            "vectorType": "dense",
        }

    def _filter(self, expression: Any) -> Test:
        return filter_test(expression, negations_match_absent=self.negations_match_absent)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise _RefusedError(message)


def filter_test(expression: Any, *, negations_match_absent: bool = False) -> Test:
    """Return what tells whether metadata passes a filter; refuses what the documentation does not allow."""
    if not isinstance(expression, dict):
        raise _RefusedError(f"a filter must be an object, got {expression!r:.80}")
    tests: list[Test] = []
    for name, operand in cast("dict[str, Any]", expression).items():
        if name in {"$and", "$or"}:
            if not isinstance(operand, list) or not operand:
                raise _RefusedError(f"{name} takes a list of filters that is not empty")
            parts = [
                filter_test(part, negations_match_absent=negations_match_absent) for part in cast("list[Any]", operand)
            ]
            tests.append(_every(parts) if name == "$and" else _some(parts))
        elif not name or name.startswith("$"):
            raise _RefusedError(f"unknown operator or empty name {name!r}")
        else:
            operations = cast("dict[str, Any]", operand) if isinstance(operand, dict) else {"$eq": operand}
            if not operations:
                raise _RefusedError(f"no operator for {name!r:.80}")
            for operator, value in operations.items():
                _check_operand(operator, value)
                tests.append(partial(_passes, name, operator, value, negations_match_absent))
    return _every(tests)


def _every(tests: list[Test]) -> Test:
    return lambda metadata: all(test(metadata) for test in tests)


def _some(tests: list[Test]) -> Test:
    return lambda metadata: any(test(metadata) for test in tests)


def _passes(name: str, operator: str, value: Any, absent: bool, metadata: Mapping[str, Any]) -> bool:
    return _holds(operator, metadata.get(name), value, absent=absent)


def _check_operand(operator: str, value: Any) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match operator:
        case "$eq" | "$ne":
            fine = isinstance(value, (str, bool)) or is_number
        case "$gt" | "$gte" | "$lt" | "$lte":
            fine = is_number
        case "$in" | "$nin":
            items = cast("list[Any]", value) if isinstance(value, list) else []
            kinds = {str if isinstance(item, str) else bool if isinstance(item, bool) else float for item in items}
            fine = 0 < len(items) <= MOST_IN and kinds in ({str}, {float})
        case "$exists":
            fine = isinstance(value, bool)
        case _:
            raise _RefusedError(f"{operator} is not a valid operator")
    if not fine:
        raise _RefusedError(f"the {operator} operator does not take {value!r:.80}")


def _holds(operator: str, stored: Any, value: Any, *, absent: bool) -> bool:
    if operator == "$exists":
        return (stored is not None) is value
    if stored is None:
        return absent and operator in {"$ne", "$nin"}
    several = cast("list[Any]", stored) if isinstance(stored, list) else [stored]
    if operator in {"$eq", "$ne", "$in", "$nin"}:
        wanted = [value] if operator in {"$eq", "$ne"} else value
        return any(_equal(item, one) for item in several for one in wanted) is (operator in {"$eq", "$in"})
    if isinstance(stored, (list, str, bool)):
        return False
    compared = {"$gt": stored > value, "$gte": stored >= value, "$lt": stored < value, "$lte": stored <= value}
    return compared[operator]


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return isinstance(left, str) == isinstance(right, str) and left == right


def _anything(_metadata: Mapping[str, Any]) -> bool:
    return True


def _checked_metadata(metadata: Any) -> dict[str, Any]:
    size = len(json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MOST_METADATA:
        raise _RefusedError(
            f"Metadata size is {size} bytes, which exceeds the limit of {MOST_METADATA} bytes per vector"
        )
    checked: dict[str, Any] = {}
    for name, value in metadata.items():
        if not name or name.startswith("$"):
            raise _RefusedError(f"Metadata keys must not be empty or begin with $, got {name!r:.80}")
        items = cast("list[Any]", value) if isinstance(value, list) else [0]
        if isinstance(value, (str, bool)) or all(isinstance(item, str) for item in items):
            checked[name] = value
        elif isinstance(value, (int, float)):
            checked[name] = float(value)
        else:
            raise _RefusedError(
                f"Metadata value must be a string, number, boolean or list of strings, got {value!r:.80}"
            )
    return checked


def _checked_sparse(sparse: dict[str, list[Any]]) -> dict[int, float]:
    indices, values = sparse["indices"], sparse["values"]
    if len(indices) != len(values) or len(set(indices)) != len(indices) or len(indices) > MOST_SPARSE:
        raise _RefusedError(f"sparse values are one for each index, no index twice, at most {MOST_SPARSE}")
    if not all(isinstance(index, int) and 0 <= index < 2**32 for index in indices) or 0 in values:
        raise _RefusedError("sparse indices are unsigned 32-bit integers and values are not zero")
    return dict(zip(indices, (float(np.float32(value)) for value in values), strict=True))


def _shown(name: str, item: Stored) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": name, "values": item.values.tolist(), "metadata": item.metadata}
    if item.sparse:
        shown["sparseValues"] = {"indices": list(item.sparse), "values": list(item.sparse.values())}
    return shown


def _only(body: Mapping[str, Any], *names: str) -> None:
    if unknown := set(body) - set(names):
        raise _RefusedError(f"unknown parameters {sorted(unknown)}")
