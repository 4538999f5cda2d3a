"""The specification's response, made of a result."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from retrieval_core.compat.pipeline import DocumentScore, RetrievalResponse
from retrieval_core.errors import ServiceError
from retrieval_core.types import EvaluationScores
from support.pipelines import TroubledStore, a_pipeline

if TYPE_CHECKING:
    from retrieval_core.types import RetrievalResult, SearchMode

QUESTION = "roll back an application to an earlier revision"


def asked(mode: SearchMode = "hybrid", **settings: Any) -> RetrievalResult:
    return asyncio.run(a_pipeline(**settings).aretrieve(QUESTION, {"brand": "Acme"}, mode=mode))


def test_everything_of_a_result_is_there() -> None:
    """Passages, scores, context, facts and times arrive, and survive the wire."""
    result = asked(search__top_k=2)
    before = datetime.now(UTC)
    response = RetrievalResponse.from_result(result)
    assert before <= response.timestamp <= datetime.now(UTC)
    again = RetrievalResponse.model_validate_json(response.model_dump_json())
    assert again == response
    assert [item.content for item in again.documents] == [chunk.text for chunk in result.documents]
    assert tuple(item.score for item in again.documents) == result.scores
    assert again.documents[0].metadata == {"price": 0, "brand": "Acme"}
    assert again.metadata.filters_applied == {"brand": {"$eq": "Acme"}}
    assert again.metadata.documents_after_compression == 2
    assert (again.metadata.cache_hit, again.evaluation) == (False, None)
    assert again.formatted_context == result.formatted_context


def test_what_is_not_known_is_null() -> None:
    """A passage without a vector has no similarity, and a score that cannot be computed none either."""
    result = replace(asked("lexical"), evaluation=EvaluationScores(0.5, None), from_cache=True)
    written = json.loads(RetrievalResponse.from_result(result).model_dump_json())
    assert {item["score"] for item in written["documents"]} == {None}
    assert written["evaluation"] == {"context_precision": 0.5, "response_relevancy": None}
    assert written["metadata"]["cache_hit"] is True


def test_an_outage_does_not_look_like_nothing_found() -> None:
    """The error of a search that failed is carried over the wire; where nothing failed there is none."""
    store = TroubledStore()
    store.failures = {"dense": ServiceError("connection refused"), "lexical": ServiceError("connection refused")}
    failed = asyncio.run(a_pipeline(store).aretrieve(QUESTION))
    written = json.loads(RetrievalResponse.from_result(failed).model_dump_json())
    assert written["documents"] == []
    assert "connection refused" in written["metadata"]["error"]
    assert RetrievalResponse.from_result(asked()).metadata.error is None


def test_a_similarity_lies_between_0_and_1() -> None:
    """The schema says so, and holds it."""
    with pytest.raises(ValidationError):
        DocumentScore(content="a", metadata={}, score=1.5)
