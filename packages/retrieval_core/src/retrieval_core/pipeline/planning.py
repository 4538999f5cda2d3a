"""From settings and arguments to what one query asks of the stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from retrieval_core.errors import InvalidParameterError
from retrieval_core.filter_syntax import parse_filter
from retrieval_core.filters import Filter, MetadataFilter
from retrieval_core.stages.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.rounds import Parts
    from retrieval_core.ports import Side, Store
    from retrieval_core.types import SearchMode

    Filters: TypeAlias = Filter | MetadataFilter | Mapping[str, Any] | None

MAX_TOP_K = 1000


def make_plan(
    parts: Parts, config: RetrievalConfig, filters: Filters, top_k: int | None, mode: SearchMode | None
) -> Plan:
    """Put settings and a caller's arguments together.

    Raises:
        FilterError: The filter is not well formed.
        InvalidParameterError: An argument is outside its range, or asks for what store or embedder cannot do.
    """
    settings = config.search
    sides = _sides_of(parts.store)
    wanted = settings.mode if mode is None else mode
    top_k = settings.top_k if top_k is None else top_k
    if wanted not in ("hybrid", "dense", "lexical"):
        msg = f"mode must be hybrid, dense or lexical, got {wanted!r:.80}"
        raise InvalidParameterError(msg)
    if type(top_k) is not int or not 1 <= top_k <= MAX_TOP_K:
        msg = f"top_k must be a whole number between 1 and {MAX_TOP_K}, got {top_k!r:.80}"
        raise InvalidParameterError(msg)
    if wanted != "lexical" and parts.embedder is None:
        msg = f"mode {wanted!r} needs an embedder and there is none; use mode 'lexical', or configure embedder.kind"
        raise InvalidParameterError(msg)
    if wanted == "lexical" and "lexical" not in sides:
        msg = "this store cannot be searched by words; use mode 'dense'"
        raise InvalidParameterError(msg)
    if wanted == "hybrid" and "lexical" not in sides:
        wanted = "dense"  # the result's metadata says so
    # Diverse passages are chosen before they are reranked: more of them would be those that had been passed over.
    reranked = config.reranker.candidates if parts.rerankers and settings.search_type != "mmr" else 0
    fetch_k = max(settings.fetch_k, top_k) if settings.search_type == "mmr" else None
    return Plan(
        mode=wanted,
        has_words="lexical" in sides,
        top_k=top_k,
        candidates=max(settings.candidates, top_k, reranked, fetch_k or 0),
        condition=_condition(filters),
        fusion=settings.fusion,
        dense_weight=settings.dense_weight,
        score_threshold=settings.score_threshold,
        on_unscored=settings.on_unscored,
        fetch_k=fetch_k,
        lambda_mult=settings.lambda_mult,
        reranked=reranked,
    )


def _sides_of(store: Store) -> frozenset[Side]:
    """Return the ways in which a store can be searched; one that does not say has both."""
    return getattr(store, "sides", frozenset({"dense", "lexical"}))


def _condition(filters: Filters) -> Filter | None:
    """Return the filter that a caller means; an empty object, as programs build it, means none."""
    if filters is None or isinstance(filters, Filter):
        return filters
    if isinstance(filters, MetadataFilter):
        return filters.as_filter()
    return None if filters == {} else parse_filter(filters)
