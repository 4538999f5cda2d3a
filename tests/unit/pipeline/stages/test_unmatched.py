"""Unknown fields of a filter: only what is certain is told, and whatever goes wrong changes nothing."""

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
from retrieval_core.pipeline.stages.judge import MOST_PATHS, find_unknown_fields
from retrieval_core.ports import Change, FieldInfo, as_store
from retrieval_core.run.runner import Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing import filter_strategies
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from retrieval_core.types.filters import And, Eq, Exists, Or, chunk_fields, lookup, paths_of
from retrieval_core.types.filters.syntax import parse_filter
from support.examples import times
from support.pipelines import PHONES, TroubledStore, a_pipeline, filled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from retrieval_core.types import JSON
    from retrieval_core.types.filters import Filter

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

    describe = search = fetch = fields


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool("test", threads=1)
    yield pool
    pool.close()


def told(pool: ThreadPool, condition: Any, store: Any = None, seen: Iterable[Mapping[str, JSON]] = ()) -> str | None:
    parsed = parse_filter(cast("Any", condition)) if isinstance(condition, dict) else condition
    run = Run(pool, seconds=10)
    return asyncio.run(find_unknown_fields(run, as_store(store or Catalogue()), parsed, seen))


OWN = "; fields that need no metadata: chunk_index, document_id, id, page, parent_id, section, source, timestamp, title"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("prise", "; did you mean 'price'?"),
        ("Price", "; did you mean 'price'?"),
        ("product_name", "; did you mean 'Product Name'?"),
        ("spec.ram", "; did you mean 'specs.ram'?"),
        ("ram", OWN),
    ],
)
def test_a_field_that_no_chunk_has(pool: ThreadPool, name: str, advice: str) -> None:
    """It is named with the closest one, if there is one, whatever is asked of it."""
    for operand in (1, "a", {"$lte": 1}, {"$in": [1]}, {"$contains": 1}, {"$ne": "a"}, {"$exists": True}):
        assert told(pool, {name: operand}) == f"no chunk has a field '{name}'{advice}"


def test_several_unknown_fields(pool: ThreadPool) -> None:
    """Each is named, up to three, wherever it is in the filter."""
    both = "no chunk has a field 'prise'; did you mean 'price'?; no chunk has a field 'x1'" + OWN
    assert told(pool, {"$or": [{"x1": 1}, {"$not": {"prise": 5}}, {"price": 5}]}) == both
    many = told(pool, {"$or": [{f"x{number}": 1} for number in range(9)]}) or ""
    assert many.count("no chunk has a field") == 3


@pytest.mark.parametrize(
    "condition", [{"price": {"$lte": 150}}, {"tags": "c"}, {"source": 7}, {"$not": {"rating": 1}}, Or(()), And(())]
)
def test_known_fields_are_not_told(pool: ThreadPool, condition: Any) -> None:
    assert told(pool, condition) is None


def test_the_store_is_not_asked_without_need(pool: ThreadPool) -> None:
    """Only if the filter has a field that no result has, and that not every chunk may have."""
    store = Catalogue()
    assert told(pool, Eq("source", "x"), store) is None
    assert told(pool, Eq("prise", 1), store, [{"prise": 2}]) is None
    assert store.asked == 0
    assert told(pool, Eq("prise", 1), store, [{"price": 2}]) is not None
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
        {1: FieldInfo(1, {"text": 1})},
    ],
)
def test_a_useless_answer_is_none(pool: ThreadPool, answer: object) -> None:
    """A store that fails, has no fields, or answers something else, leaves everything as it was."""
    assert told(pool, {"prise": 1}, Catalogue(answer)) is None


def test_a_cut_catalogue_proves_no_absence(pool: ThreadPool) -> None:
    """The field may be among those that were left out."""
    full = {f"f{number}": FieldInfo(1, {"text": 1}) for number in range(MOST_PATHS)}
    assert told(pool, {"g": 1}, Catalogue(full)) is None
    del full["f0"]
    assert told(pool, {"g": 1}, Catalogue(full)) is not None


def test_names_are_data(pool: ThreadPool) -> None:
    """They are shortened, in one line, and cannot steer a terminal."""
    fields = {"a\x1b[31m\nb": FieldInfo(1, {"number": 1}), "c" * 500: FieldInfo(1, {"number": 1})}
    for condition in (Eq("x\x07\u202e" + "y" * 500, 1), Eq("a\x1b[31m\nbb", 1)):
        note = told(pool, condition, Catalogue(fields)) or ""
        assert note.startswith("no chunk has a field ")
        assert note.isprintable()
        assert len(note) < 200


@settings(max_examples=times(200), deadline=None)
@given(
    st.lists(filter_strategies.metadata(), min_size=1, max_size=4),
    st.lists(filter_strategies.filters(), min_size=1, max_size=6),
)
def test_what_is_told_is_true(metadata: list[dict[str, Any]], filters: list[Filter]) -> None:
    """A field that is called unknown is in no chunk, whatever the metadata."""
    chunks = tuple(Chunk(f"c{number}", "d", "t", metadata=item) for number, item in enumerate(metadata))

    async def check() -> None:
        store = MemoryStore()
        await store.upsert(Change(chunks))
        for condition in (*filters, Or(tuple(filters))):
            unknown = await find_unknown_fields(Run(pool), store, condition)
            for name in paths_of(condition):
                if any(lookup(chunk_fields(chunk), name) is not None for chunk in chunks):
                    assert unknown is None or f"a field '{name}'" not in unknown

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
