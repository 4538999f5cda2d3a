"""A result as each caller asked for it."""

from __future__ import annotations

from dataclasses import fields, replace

from retrieval_core.pipeline.cache import cached_retrieval
from retrieval_core.types import (
    Chunk,
    Degradation,
    EvaluationScores,
    Hit,
    Query,
    RetrievalResult,
    RewriteResult,
    Scores,
    StageRecord,
)


def test_nothing_of_a_result_is_lost() -> None:
    """It is made anew field by field, so a field that is added has to be taken along."""
    hit = Hit(Chunk("c", "d", "text"), 1.0, Scores())
    kept = RetrievalResult(
        "as the first one asked",
        (hit,),
        "text",
        {"mode": "hybrid"},
        5.0,
        degraded=(Degradation("dense", "it is slow"),),
        trace=(StageRecord("embed", 1.0),),
        rewrites=(RewriteResult("as I ask", "again", 1, "too little was found"),),
        evaluation=EvaluationScores(context_precision=0.5),
    )
    trace = (StageRecord("cache", 0.1),)
    told = cached_retrieval._told(kept, Query("as I ask", "as i ask"), 2.0, from_cache=True, trace=trace)
    assert told == replace(kept, query="as I ask", latency_ms=2.0, from_cache=True, trace=trace)
    defaults = RetrievalResult("", (), "", {}, 0.0)
    same = {field.name for field in fields(kept) if getattr(kept, field.name) == getattr(defaults, field.name)}
    assert same == {"from_cache"}, "every other field differs from its default here, or its loss is not seen"
