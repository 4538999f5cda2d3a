"""The contract as a document: valid, kept, and never narrowed."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from pydantic.json_schema import models_json_schema

from retrieval_core_mcp.http.routes import ROWS
from support.http_service import document
from support.openapi_changes import broken

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.http_service import Served, Service

KEPT = Path(__file__).parents[3] / "packages/mcp_server/openapi.json"
REFRESH = (
    "python -c 'import json; from retrieval_core_mcp.http.openapi import document; "
    "print(json.dumps(document(), indent=1))' > packages/mcp_server/openapi.json"
)


def test_it_is_served_and_valid(served: Served) -> None:
    validator = pytest.importorskip("openapi_spec_validator", reason="needs openapi-spec-validator")

    async def check(service: Service) -> None:
        answer = await service.ask("GET", "/openapi.json")
        assert answer.json() == document()
        assert answer.json()["openapi"].startswith("3.1.")
        assert answer.json()["info"]["version"] == "1.0"
        validator.validate(answer.json())

    served(check)


def test_nothing_of_what_was_published_is_broken() -> None:
    """A change that breaks clients needs another version; the kept document is that of version 1.0."""
    kept = json.loads(KEPT.read_text("utf-8"))
    assert broken(kept, document()) == []
    assert kept == document(), f"what was added has to be kept too: {REFRESH}"


def test_no_two_models_have_the_same_name() -> None:
    """A schema is named after its class alone, so that a second class of that name would replace the first one's."""
    rows = [model for row in ROWS for model in (row.request, row.response, row.unready) if model is not None]
    _, schemas = models_json_schema([(model, "validation") for model in rows])
    assert [name for name in schemas["$defs"] if "__" in name] == [], "give one of the classes another name"


def _search(of: dict[str, Any]) -> dict[str, Any]:
    return of["components"]["schemas"]["SearchQuery"]


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a field of a request": (lambda of: _search(of)["properties"].pop("top_k"), ".top_k is removed"),
    "a field of an answer": (
        lambda of: of["components"]["schemas"]["ChunkMetadata"]["properties"].pop("url"),
        ".metadata.url is removed",
    ),
    "a type": (lambda of: _search(of)["properties"]["top_k"].update(type="string"), ".top_k is retyped"),
    "an optional field": (lambda of: _search(of)["required"].append("top_k"), ".top_k is made required"),
    "a bound above": (lambda of: _search(of)["properties"]["top_k"].update(maximum=100), "narrowed: maximum 100"),
    "a bound below": (lambda of: _search(of)["properties"]["top_k"].update(minimum=2), "narrowed: minimum 2"),
    "a length": (
        lambda of: _search(of)["properties"]["query_text"].update(maxLength=99),
        "narrowed: maxLength 99",
    ),
    "a pattern": (lambda of: _search(of)["properties"]["query_text"].update(pattern="a"), "narrowed: pattern a"),
    "a value": (
        lambda of: of["components"]["schemas"]["RetrievalResponse"]["properties"]["status"].update(enum=["success"]),
        "error is no value any more",
    ),
    "a path": (lambda of: of["paths"].pop("/v1/indexes"), "GET /v1/indexes is removed"),
    "a method": (lambda of: of["paths"]["/v1/documents"].pop("delete"), "DELETE /v1/documents is removed"),
    "a parameter": (
        lambda of: of["paths"]["/v1/chunks/{chunk_id}"]["get"]["parameters"].pop(),
        "the parameter index is removed",
    ),
    "a status": (lambda of: of["paths"]["/v1/search"]["post"]["responses"].pop("503"), "the answer 503 is removed"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_kind_of_break_is_noticed(change: str) -> None:
    new = deepcopy(document())
    apply, told = CHANGES[change]
    apply(new)
    assert any(told in problem for problem in broken(document(), new))


def test_what_is_added_breaks_nothing() -> None:
    new = deepcopy(document())
    _search(new)["properties"]["new"] = {"type": "string"}
    _search(new)["properties"]["top_k"]["maximum"] = 2000
    new["paths"]["/v1/new"] = new["paths"]["/v1/search"]
    assert broken(document(), new) == []
