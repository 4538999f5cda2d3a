from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core import parse_filter
from retrieval_core.types import Chunk
from retrieval_core.types.filters import chunk_fields, matches
from support.pipelines import TroubledStore, a_pipeline, filled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.types import RetrievalResult, SearchMode

WORDS = ("red", "green", "blue", "phone", "camera", "battery")
MODES: tuple[SearchMode, ...] = ("hybrid", "dense", "lexical")

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
modes = st.sampled_from(MODES)
maybe_number = st.none() | st.integers(0, 5)


@st.composite
def collections(draw: st.DrawFn) -> tuple[Chunk, ...]:
    def metadata() -> dict[str, Any]:
        values = {name: draw(maybe_number) for name in ("price", "rating")}
        return {name: value for name, value in values.items() if value is not None}

    written = draw(st.lists(texts, min_size=1, max_size=8))
    return tuple(Chunk(f"c{number}", "d", text, number, metadata=metadata()) for number, text in enumerate(written))


@st.composite
def settings_of_search(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "search__fusion": draw(st.sampled_from(["zscore", "rrf", "minmax", "dbsf"])),
        "search__dense_weight": draw(st.sampled_from([0.0, 0.6, 1.0])),
        "search__search_type": draw(st.sampled_from(["similarity", "mmr"])),
        "search__lambda_mult": draw(st.sampled_from([0.0, 0.7, 1.0])),
        "search__candidates": draw(st.sampled_from([1, 3, 200])),
        "search__top_k": 1,  # what the tests ask for instead may be more than mmr can choose from
        "search__fetch_k": draw(st.sampled_from([1, 4, 20])),
        "search__score_threshold": draw(st.sampled_from([None, 0.0, 0.3, 0.7, 1.0])),
    }


def ask(
    chunks: tuple[Chunk, ...],
    query: str,
    settings: dict[str, Any],
    *,
    top_k: int,
    mode: SearchMode,
    filters: Mapping[str, Any] | None = None,
) -> RetrievalResult:
    store = TroubledStore(brings_chunks=len(chunks) % 2 == 0)
    filled(store, chunks)
    return asyncio.run(a_pipeline(store, **settings).aretrieve(query, filters, top_k=top_k, mode=mode))


@pytest.mark.property("data-retrieval-pipeline", 4)
@given(chunks=collections(), query=texts, settings=settings_of_search(), top_k=st.integers(1, 10), mode=modes)
def test_search_result_constraints(
    chunks: tuple[Chunk, ...], query: str, settings: dict[str, Any], *, top_k: int, mode: SearchMode
) -> None:
    """At most ``top_k`` documents, none twice, none below the threshold, best first, with a score for each.

    Fails with ``pool[: plan.top_k]`` in ``stages/select.py`` changed to ``plan.top_k + 1``, and with the threshold
    there lowered by 0.2.
    """
    result = ask(chunks, query, settings, top_k=top_k, mode=mode)
    assert len(result.hits) <= top_k
    assert len(result.documents) == len(result.scores) == len(result.hits)
    assert len({hit.id for hit in result.hits}) == len(result.hits)
    assert result.degraded == ()
    assert [hit.score for hit in result.hits] == sorted((hit.score for hit in result.hits), reverse=True)
    for score in result.scores:
        assert score is None or 0 <= score <= 1
        if settings["search__score_threshold"] is not None:
            assert score is not None
            assert score >= settings["search__score_threshold"]


@pytest.mark.property("data-retrieval-pipeline", 9)
@given(chunks=collections(), query=texts, settings=settings_of_search(), mode=modes)
def test_retrieval_result_structure(
    chunks: tuple[Chunk, ...], query: str, settings: dict[str, Any], mode: SearchMode
) -> None:
    """A result holds the query, documents as they were stored, the context, scores, facts about the run, its time.

    Fails with hits whose score is 0 left out of ``RetrievalResult.scores``.
    """
    result = ask(chunks, query, settings, top_k=5, mode=mode)
    assert result.query == query
    assert all(document in chunks for document in result.documents)
    assert all(hit.chunk.text in result.formatted_context for hit in result.hits)
    assert len(result.scores) == len(result.documents)
    assert result.metadata["mode"] == mode
    assert result.metadata["query_normalized"] == query
    assert result.latency_ms >= 0


@pytest.mark.property("data-retrieval-pipeline", 5)
@given(
    chunks=collections(),
    query=texts,
    settings=settings_of_search(),
    bounds=st.tuples(maybe_number, maybe_number, maybe_number),
    mode=modes,
)
def test_metadata_filter_enforcement(
    chunks: tuple[Chunk, ...],
    query: str,
    settings: dict[str, Any],
    *,
    bounds: tuple[int | None, int | None, int | None],
    mode: SearchMode,
) -> None:
    """Every document lies within the bounds on price and rating, and all that do can be found.

    Fails with the dense search's ``filter=plan.condition`` in ``stages/search.py`` changed to ``None``.
    """
    min_price, max_price, min_rating = bounds
    price = {name: value for name, value in (("$gte", min_price), ("$lte", max_price)) if value is not None}
    wanted: dict[str, Any] = {"price": price} if price else {}
    if min_rating is not None:
        wanted["rating"] = {"$gte": min_rating}
    result = ask(chunks, query, settings, top_k=10, mode=mode, filters=wanted or None)
    for document in result.documents:
        metadata = cast("dict[str, int]", document.metadata)
        assert min_price is None or metadata["price"] >= min_price
        assert max_price is None or metadata["price"] <= max_price
        assert min_rating is None or metadata["rating"] >= min_rating
    if mode == "dense" and settings["search__score_threshold"] in {None, 0.0} and settings["search__candidates"] >= 10:
        condition = parse_filter(wanted) if wanted else None
        expected = [chunk.id for chunk in chunks if matches(condition, chunk_fields(chunk))]
        assert sorted(document.id for document in result.documents) == expected
