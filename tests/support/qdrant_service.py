"""A Qdrant server for tests: its REST protocol, over the local mode of Qdrant's client.

Every request and every answer is held against Qdrant's OpenAPI document. What the local mode lets pass and a server
does not is refused here: too large bodies, JSON nested too deeply, names that are taken. It takes nothing from the
library that it tests.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models

from support.qdrant_protocol import problem_of_request, problem_of_response, unknown_parameters
from support.wire_server import Response

if TYPE_CHECKING:
    from support.wire_server import Request

KEY = "qd-test-key-0123456789"
MOST_BODY = 32 * 1024 * 1024
MOST_LEVELS = 128

_PATH = re.compile(r"/collections/(?P<name>[^/]+)(?P<rest>/.*)?")


class _RefusedError(Exception):
    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class QdrantService:
    """One server.

    Args:
        key: That clients have to send; ``None`` to ask for none.

    Attributes:
        client: Holds the collections.
        updates: How many steps each change of points had.
        updates_left: How many more changes there is space for; ``None`` for any number.
    """

    def __init__(self, key: str | None = KEY) -> None:
        self.key = key
        self.client = QdrantClient(":memory:")
        self.updates: list[int] = []
        self.updates_left: int | None = None
        self.indexes: dict[str, dict[str, Any]] = {}

    def __call__(self, request: Request) -> Response:
        """Answer a request."""
        if self.key is not None and request.headers.get("api-key") != self.key:
            return Response(401, b"Must provide an API key or an Authorization bearer token", _TEXT)
        found = _PATH.fullmatch(request.path)
        if found is None:
            return Response(404, b"")
        method, path = request.method.lower(), "/collections/{collection_name}" + (found["rest"] or "")
        try:
            body = self._checked(request, method, path)
            result = self._routes()[method, path](found["name"], body)
            status, answer = 200, {"result": _as_json(result), "status": "ok", "time": 0.0}
        except (ValueError, _RefusedError) as error:  # pydantic's is a ValueError, and the local mode raises these
            status = getattr(error, "status", 404 if "not found" in str(error) else 400)
            answer = {"status": {"error": str(error)}, "time": 0.0}
        problem = problem_of_response(method, path, status, answer)
        assert problem is None, f"the service's own answer to {method} {path}: {problem}"
        return Response(status, answer)

    def _checked(self, request: Request, method: str, path: str) -> Any:
        if len(request.body) > MOST_BODY:
            msg = f"JSON payload ({len(request.body)} bytes) is larger than allowed (limit: {MOST_BODY} bytes)."
            raise _RefusedError(msg, 413)
        body = json.loads(request.body) if request.body else None
        if _levels(body) > MOST_LEVELS:
            msg = "Json deserialize error: recursion limit exceeded"
            raise _RefusedError(msg)
        unknown = unknown_parameters(method, path, set(request.query))
        problem = problem_of_request(method, path, body) or (f"parameters {unknown}" if unknown else None)
        if problem is not None:
            msg = f"Format error in JSON body: {problem}"
            raise _RefusedError(msg)
        return body

    def _routes(self) -> dict[tuple[str, str], Any]:
        at = "/collections/{collection_name}"
        return {
            ("get", at): self._describe,
            ("put", at): self._create,
            ("get", f"{at}/exists"): self._exists,
            ("put", f"{at}/index"): self._index,
            ("put", f"{at}/points"): self._upsert,
            ("post", f"{at}/points"): self._retrieve,
            ("post", f"{at}/points/scroll"): self._scroll,
            ("post", f"{at}/points/count"): self._count,
            ("post", f"{at}/points/query"): self._query,
            ("post", f"{at}/points/batch"): self._update,
        }

    def _describe(self, name: str, _body: Any) -> Any:
        info = self.client.get_collection(name)
        # In the local mode nothing counts as indexed.
        indexed = {"payload_schema": self.indexes.get(name, {}), "indexed_vectors_count": info.points_count}
        return info.model_copy(update=indexed)

    def _create(self, name: str, body: Any) -> bool:
        given = models.CreateCollection.model_validate(body)
        if self.client.collection_exists(name):
            msg = f"Wrong input: Collection `{name}` already exists!"
            raise _RefusedError(msg, 409)
        self.client.create_collection(
            name, vectors_config=given.vectors or {}, sparse_vectors_config=given.sparse_vectors or {}
        )
        self.indexes[name] = {}
        return True

    def _exists(self, name: str, _body: Any) -> Any:
        return {"exists": self.client.collection_exists(name)}

    def _index(self, name: str, body: Any) -> Any:
        given = models.CreateFieldIndex.model_validate(body)
        self.client.get_collection(name)
        schema = body["field_schema"]
        kind = models.PayloadSchemaType(schema if isinstance(schema, str) else schema["type"])
        self.indexes[name][given.field_name] = models.PayloadIndexInfo(data_type=kind, points=0)
        return _DONE

    def _upsert(self, name: str, body: Any) -> Any:
        self.client.upsert(name, models.PointsList.model_validate(body).points)
        return _DONE

    def _retrieve(self, name: str, body: Any) -> Any:
        given = models.PointRequest.model_validate(body)
        return self.client.retrieve(
            name,
            given.ids,
            with_payload=True if given.with_payload is None else given.with_payload,
            with_vectors=given.with_vector or False,
        )

    def _scroll(self, name: str, body: Any) -> Any:
        given = models.ScrollRequest.model_validate(body)
        points, following = self.client.scroll(
            name,
            scroll_filter=given.filter,
            limit=given.limit or 10,
            offset=given.offset,
            with_payload=True if given.with_payload is None else given.with_payload,
            with_vectors=given.with_vector or False,
        )
        return {"points": points, "next_page_offset": following}

    def _count(self, name: str, body: Any) -> Any:
        given = models.CountRequest.model_validate(body)
        return self.client.count(name, count_filter=given.filter, exact=given.exact is not False)

    def _query(self, name: str, body: Any) -> Any:
        given = models.QueryRequest.model_validate(body)
        query: Any = given.query
        return self.client.query_points(
            name,
            query=query.nearest if isinstance(query, models.NearestQuery) else query,
            using=given.using,
            query_filter=given.filter,
            limit=given.limit or 10,
            with_payload=given.with_payload or False,
            with_vectors=given.with_vector or False,
        )

    def _update(self, name: str, body: Any) -> Any:
        given = models.UpdateOperations.model_validate(body)
        self.client.get_collection(name)
        if self.updates_left == 0:
            msg = "no space left on device"
            raise _RefusedError(msg)
        self.updates_left = None if self.updates_left is None else self.updates_left - 1
        self.updates.append(len(given.operations))
        self.client.batch_update_points(name, given.operations)
        return [_DONE for _ in given.operations]


_TEXT = {"Content-Type": "text/plain"}
_DONE = {"operation_id": 0, "status": "completed"}


def _as_json(value: Any) -> Any:
    return TypeAdapter(Any).dump_python(value, mode="json", exclude_none=True)


def _levels(value: Any) -> int:
    levels, layer = 0, [value]
    while layer:
        inner: list[Any] = []
        for part in layer:
            inner += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        levels += 1
        layer = inner
    return levels
