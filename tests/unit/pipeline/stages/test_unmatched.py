"""Why a filter lets nothing pass: only what is certain is told, and whatever goes wrong changes nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import ServiceConnectionError, StoreError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.stages.search import SearchResults
from retrieval_core.pipeline.stages.unmatched import MOST_FIELDS, MOST_PATHS, examine_filter
from retrieval_core.ports import Candidate, Change, FieldInfo
from retrieval_core.run.runner import Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing import filter_strategies
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk, Query
from retrieval_core.types.filters import And, Eq, Exists, Or, chunk_fields, matches
from retrieval_core.types.filters.syntax import parse_filter
from support.examples import times
from support.pipelines import PHONES, TroubledStore, a_pipeline, filled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from retrieval_core.types.filters import Filter

QUERY = Query("phone", "phone")
NOTHING = SearchResults(QUERY, dense=(), lexical=())
FIELDS = {
    "price": FieldInfo(50, {"text": 50}),
    "Product Name": FieldInfo(50, {"text": 50}),
    "rating": FieldInfo(1, {"number": 1}),
    "tags": FieldInfo(40, {"list of text": 40}),
    "mixed": FieldInfo(1200, {"number": 1000, "text": 200}),
    "sale": FieldInfo(2, {"boolean": 2}),
    "specs": FieldInfo(3, {"object": 3}),
    "specs.ram": FieldInfo(3, {"number": 3}),
    "when": FieldInfo(3, {"date": 3}),
    "source": FieldInfo(50, {"text": 50}),
}


class Catalogue:
    """A store that says what it was told to say of its fields."""

    def __init__(self, answer: object = FIELDS) -> None:
        self.answer = answer
        self.asked = 0

    async def fields(self, limit: int) -> Mapping[str, FieldInfo]:
        self.asked += 1
        assert limit == MOST_PATHS
        if isinstance(self.answer, Exception):
            raise self.answer
        return cast("Any", self.answer)


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool("test", threads=1)
    yield pool
    pool.close()


def told(pool: ThreadPool, condition: Any, store: Any = None, found: SearchResults = NOTHING) -> str | None:
    parsed = parse_filter(cast("Any", condition)) if isinstance(condition, dict) else condition
    run = Run(pool, seconds=10)
    return asyncio.run(examine_filter(run, cast("Any", store or Catalogue()), parsed, found=found)).note


ALL_FIELDS = "Fields: price, Product Name, rating, tags, mixed, sale, specs, specs.ram, when, source"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("prise", "; did you mean 'price'?"),
        ("Price", "; did you mean 'price'?"),
        ("product_name", "; did you mean 'Product Name'?"),
        ("spec.ram", "; did you mean 'specs.ram'?"),
        ("ram", "."),
    ],
)
def test_a_name_that_no_passage_has(pool: ThreadPool, name: str, advice: str) -> None:
    """It is told with the likeliest one, where there is one, and with those that there are."""
    expected = f"Nothing passes the filter: no passage has a field '{name}'{advice} {ALL_FIELDS}"
    for operand in (1, "a", {"$lte": 1}, {"$in": [1]}, {"$contains": 1}, {"$text": "a"}, {"$exists": True}):
        assert told(pool, {name: operand}) == expected


@pytest.mark.parametrize(
    ("condition", "types", "operand"),
    [
        ({"price": {"$lte": 150}}, "text in all 50 passages that have it", "$lte 150 compares numbers"),
        (
            {"price": {"$contains": 1}},
            "text in all 50 passages that have it",
            "$contains 1 looks into lists of numbers",
        ),
        ({"rating": "5"}, "a number in the only passage that has it", '$eq "5" looks for text'),
        ({"rating": {"$gte": "5"}}, "a number in the only passage that has it", '$gte "5" compares text'),
        (
            {"rating": {"$in": [*"abcd"]}},
            "a number in the only passage that has it",
            '$in ["a", "b", "c", …] looks for text',
        ),
        (
            {"mixed": True},
            "a number in 1,000 and text in 200 of the passages that have it",
            "$eq true looks for booleans",
        ),
        (
            {"sale": {"$in": [1, "y"]}},
            "a boolean in all 2 passages that have it",
            '$in [1, "y"] looks for text or numbers',
        ),
        ({"tags": {"$gt": 1}}, "a list of text in all 40 passages that have it", "$gt 1 compares numbers"),
        ({"specs": {"$text": "8"}}, "an object in all 3 passages that have it", '$text "8" looks into text'),
        ({"specs.ram": {"$glob": "8*"}}, "a number in all 3 passages that have it", '$glob "8*" looks into text'),
    ],
)
def test_a_value_of_another_type(pool: ThreadPool, condition: dict[str, Any], types: str, operand: str) -> None:
    """Both types are told, and how many passages have the field's."""
    (name,) = condition
    assert told(pool, condition) == f"Nothing passes the filter: '{name}' is {types}, and {operand}"


def test_filters_that_are_joined(pool: ThreadPool) -> None:
    """Of several that must pass one is enough; of alternatives none may pass, and a few are told."""
    price = "'price' is text in all 50 passages that have it, and $eq 5 looks for numbers"
    absent = f"no passage has a field 'x1'. {ALL_FIELDS}"
    assert told(pool, {"tags": "a", "$and": [{"price": 5}]}) == f"Nothing passes the filter: {price}"
    assert told(pool, {"$or": [{"x1": 1}, {"price": 5}]}) == f"Nothing passes the filter: {absent}; {price}"
    many = told(pool, {"$or": [{f"x{number}": 1} for number in range(9)]}) or ""
    assert many.count("no passage has a field") == 3


@pytest.mark.parametrize(
    "condition",
    [
        {"price": "1"},
        {"price": {"$text": "1"}},
        {"mixed": {"$lte": 150}},
        {"tags": "c"},
        {"tags": {"$contains": "c"}},
        {"prise": {"$ne": 1}},
        {"prise": {"$nin": [1]}},
        {"prise": {"$exists": False}},
        {"$not": {"prise": 1}},
        {"price": {"$exists": True}},
        {"price": {"$in": []}},
        {"when": {"$gt": 1}},
        {"$or": [{"prise": 1}, {"rating": 1}]},
        Or(()),
        And(()),
    ],
)
def test_what_is_not_certain_is_not_told(pool: ThreadPool, condition: Any) -> None:
    """The values may be others, the field may be absent where that passes, and a store may have types of its own."""
    assert told(pool, condition) is None


@pytest.mark.parametrize(
    "found",
    [
        SearchResults(QUERY, dense=None, lexical=None),
        SearchResults(QUERY, dense=(), lexical=(Candidate("a", 1),)),
        SearchResults(QUERY, dense=(Candidate("a", 1),), lexical=()),
    ],
)
def test_the_store_is_not_asked_without_need(pool: ThreadPool, found: SearchResults) -> None:
    """Where nothing was searched, or something was found, and the field is one that every chunk may have."""
    store = Catalogue()
    assert told(pool, Eq("source", "x"), store, found) is None
    assert store.asked == 0
    assert told(pool, Eq("prise", 1), store, SearchResults(QUERY, dense=None, lexical=())) is not None
    assert store.asked == 1


@pytest.mark.parametrize(
    "answer",
    [
        ServiceConnectionError("gone"),
        StoreError("broken"),
        RuntimeError("a bug"),
        {},
        None,
        "fields",
        ["price"],
        {"price": "text"},
        {1: FieldInfo(1, {"text": 1})},
        {"price": FieldInfo(cast("Any", "many"), {"text": 1})},
        {"price": FieldInfo(1, cast("Any", ["text"]))},
        {"price": FieldInfo(1, cast("Any", {"text": "1"}))},
    ],
)
def test_a_useless_answer_is_none(pool: ThreadPool, answer: object) -> None:
    """A store that fails, has no fields, or answers something else, leaves everything as it was."""
    assert told(pool, {"prise": 1}, Catalogue(answer)) is None
    assert told(pool, {"price": 1}, Catalogue(answer)) is None


def test_a_cut_catalogue_proves_no_absence(pool: ThreadPool) -> None:
    """The field may be among those that were left out; a wrong type is certain all the same."""
    full = {f"f{number}": FieldInfo(1, {"text": 1}) for number in range(MOST_FIELDS)}
    assert told(pool, {"g": 1}, Catalogue(full)) is None
    assert told(pool, {"f1": 1}, Catalogue(full)) is not None
    del full["f0"]
    assert "and 187 more" in (told(pool, {"g": 1}, Catalogue(full)) or "")


def test_names_and_values_are_data(pool: ThreadPool) -> None:
    """They are shortened, in one line, and cannot steer a terminal."""
    fields = {"a\x1b[31m\nb": FieldInfo(1, {"number": 1}), "c" * 500: FieldInfo(1, {"number": 1})}
    for condition in (Eq("x\x07\u202e" + "y" * 500, 1), Eq("a\x1b[31m\nb", "\x1b" + "z" * 500 + "\ud800")):
        note = told(pool, condition, Catalogue(fields)) or ""
        assert note.startswith("Nothing passes the filter: ")
        assert note.isprintable()
        assert len(note) < 400


@settings(max_examples=times(200), deadline=None)
@given(
    st.lists(filter_strategies.metadata(), min_size=1, max_size=4),
    st.lists(filter_strategies.filters(), min_size=1, max_size=6),
)
def test_what_is_told_is_true(metadata: list[dict[str, Any]], filters: list[Filter]) -> None:
    """Wherever a reason is told, no passage passes the filter, whatever the metadata."""
    chunks = tuple(
        Chunk(f"c{number}", "d", "t", title="t" if number else None, metadata=item)
        for number, item in enumerate(metadata)
    )

    async def check() -> None:
        store = MemoryStore()
        await store.upsert(Change(chunks))
        for condition in (*filters, Or(tuple(filters))):
            note = (await examine_filter(Run(pool), store, condition, found=NOTHING)).note
            if note is not None:
                assert not any(matches(condition, chunk_fields(chunk)) for chunk in chunks)

    pool = ThreadPool("test", threads=1)
    try:
        asyncio.run(check())
    finally:
        pool.close()


class FieldStore(TroubledStore):
    """A troubled store that tells its fields, as the memory store does."""

    async def fields(self, limit: int) -> Mapping[str, FieldInfo]:
        await self._serve("fields")
        return await self._inner.fields(limit)


def test_a_result_without_hits_has_the_note() -> None:
    """In its metadata, and asking is a record of the trace; a search that finds something asks nothing."""
    store = FieldStore()
    filled(store)
    pipeline = a_pipeline(store)
    result = asyncio.run(pipeline.aretrieve("history", {"prise": {"$lte": 150}}))
    assert "did you mean 'price'?" in str(result.metadata["note"])
    assert [record.stage for record in result.trace].count("fields") == 1
    (warning,) = result.degraded
    assert (result.hits, warning.stage) == ((), "filter")
    assert asyncio.run(pipeline.aretrieve("history", {"price": {"$lte": 150}})).hits
    assert store.calls["fields"] == 1
    assert "note" not in asyncio.run(pipeline.aretrieve("history", {"brand": "Nobody"})).metadata


def test_a_store_that_cannot_tell_its_fields_harms_no_query() -> None:
    """Neither an error nor a hanging call is more than a record; nothing is retried, and even ``strict`` raises not."""
    store = FieldStore()
    filled(store)
    store.failures["fields"] = ServiceConnectionError("gone")
    result = asyncio.run(a_pipeline(store, strict=True).aretrieve("history", {"prise": 1}))
    assert ("note" in result.metadata, result.degraded, store.calls["fields"]) == (False, (), 1)
    (record,) = (record for record in result.trace if record.stage == "fields")
    assert record.error == "gone"

    store.hanging.add("fields")
    clock = FakeClock()

    async def ask() -> Any:
        asked = asyncio.create_task(a_pipeline(store, clock=clock).aretrieve("history", {"prise": 1}))
        while store.calls["fields"] < 2:  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0)
        clock.advance(5)
        return await asked

    result = asyncio.run(ask())
    assert ("note" in result.metadata, result.degraded) == (False, ())


def test_that_fields_cannot_be_told_does_not_stop_searching() -> None:
    """Their circuit breaker is not the one of searches."""
    store = FieldStore()
    filled(store)
    store.failures["fields"] = ServiceConnectionError("gone")
    pipeline = a_pipeline(store, breaker__failures=2)
    for _ in range(4):
        assert not asyncio.run(pipeline.aretrieve("history", {"prise": 1})).degraded
    assert store.calls["fields"] == 2
    assert asyncio.run(pipeline.aretrieve("history", {"price": 0})).hits


def test_the_note_comes_from_the_cache_too() -> None:
    """The same question is answered with the same note."""
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    filled(store)
    with RetrievalPipeline(store, embedder, cache=MemoryCache()) as pipeline:
        first, second = (pipeline.retrieve("history", Exists("colour")) for _ in range(2))
    assert second.from_cache
    assert first.metadata["note"] == second.metadata["note"]
    assert len(PHONES) == 4
