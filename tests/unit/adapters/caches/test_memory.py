from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings

from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.errors import InvalidParameterError
from retrieval_core.run.caching import CacheStatistics
from retrieval_core.testing.cache_kit import a_result, assert_same
from retrieval_core.testing.clock import FakeClock
from retrieval_core.types import FrozenDict, Span
from support.examples import times
from support.results import results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from retrieval_core.types import RetrievalResult


def kept(cache: MemoryCache, result: RetrievalResult) -> RetrievalResult:
    async def main() -> RetrievalResult | None:
        await cache.set("key", result)
        return await cache.get("key")

    found = asyncio.run(main())
    assert found is not None
    return found


def everything_in(value: Any) -> Iterator[Any]:
    yield value
    inner: list[Any] = []
    if is_dataclass(value):
        inner = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, dict):
        inner = [*cast("dict[Any, Any]", value), *cast("dict[Any, Any]", value).values()]
    elif isinstance(value, (tuple, list)):
        inner = list(cast("list[Any]", value))
    for item in inner:
        yield from everything_in(item)


def changes_of(value: Any) -> list[Callable[[], object]]:
    """What a caller could try to do to a value."""
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        sets: list[Callable[[], object]] = [lambda name=name: setattr(value, name, None) for name in (*names, "new")]
        return sets + [lambda name=name: delattr(value, name) for name in names]
    if isinstance(value, (dict, list, tuple)):
        container = cast("Any", value)
        calls = {
            "clear": (), "pop": ("key",), "popitem": (), "setdefault": ("key", 1), "update": ({"key": 1},),
            "append": (1,), "extend": ([1],), "insert": (0, 1), "sort": (), "reverse": (), "remove": (1,),
        }  # fmt: skip
        known = [lambda name=name, given=given: getattr(container, name)(*given) for name, given in calls.items()]
        return [
            *known,
            lambda: container.__setitem__(next(iter(container), 0) if isinstance(value, dict) else 0, "changed"),
            lambda: container.__delitem__(next(iter(container), 0) if isinstance(value, dict) else 0),
            lambda: container.__ior__({"key": 1}),
        ]
    return []


@pytest.mark.property(feature="retrieval", number=10)
@settings(max_examples=times(100))
@given(results)
def test_nothing_done_to_a_result_reaches_the_cache(result: RetrievalResult) -> None:
    """Whatever is tried with a result that came out is refused, and the next one that comes out is what was put in."""
    before = deepcopy(result)
    cache = MemoryCache()
    found = kept(cache, result)
    for value in everything_in(found):
        for change in changes_of(value):
            with pytest.raises((FrozenInstanceError, TypeError, AttributeError)):
                change()
    assert_same(asyncio.run(cache.get("key")), before)


@settings(max_examples=times(100))
@given(results)
def test_what_comes_out_cannot_be_changed_at_all(result: RetrievalResult) -> None:
    """It consists of frozen records, tuples, frozen mappings and plain values only, so no copy is needed."""
    plain = (str, int, float, bool, datetime, type(None))
    for value in everything_in(kept(MemoryCache(), result)):
        if is_dataclass(value):
            assert cast("Any", type(value)).__dataclass_params__.frozen
        else:
            assert type(value) in (tuple, FrozenDict, *plain)


def test_a_hit_copies_nothing() -> None:
    """What could not be changed anyway is kept as it is, and comes out as the same object."""
    result = a_result()
    cache = MemoryCache()
    assert kept(cache, result) is result
    assert asyncio.run(cache.get("key")) is result


@pytest.mark.parametrize("where", ["result", "excerpts", "chunk", "frozen"])
def test_what_could_be_changed_is_sealed(where: str) -> None:
    """Lists, and mappings that only claim to be frozen, are replaced on the way in, wherever they are."""
    result, inside = a_result(), ["a", ["b"], {"c": ["d"]}]
    hit = result.hits[0]
    changed: dict[str, Any] = {
        "result": lambda: replace(result, metadata=FrozenDict({"list": inside})),
        "excerpts": lambda: replace(result, hits=(replace(hit, excerpts=cast("Any", [Span(0, 1)])),)),
        "chunk": lambda: replace(result, hits=(replace(hit, chunk=replace(hit.chunk, metadata=FrozenDict(a=inside))),)),
        "frozen": lambda: replace(result, metadata=FrozenDict(a=FrozenDict(b=FrozenDict(c=inside)))),
    }
    given_result = changed[where]()
    found = kept(MemoryCache(), given_result)
    assert not any(isinstance(value, list) or type(value) is dict for value in everything_in(found))
    assert any(isinstance(value, list) for value in everything_in(given_result))


def test_a_strange_value_is_refused() -> None:
    """What no type of the library names cannot be known to be unchangeable."""
    with pytest.raises(InvalidParameterError, match="holds a set"):
        kept(MemoryCache(), replace(a_result(), latency_ms=cast("Any", {1.0})))


def test_time_and_room() -> None:
    """A result is gone at the end of its time, or when others needed its place; all of it is counted."""

    async def main() -> None:
        clock = FakeClock()
        cache = MemoryCache(max_size=2, ttl_seconds=5, clock=clock)
        for name in "abc":
            await cache.set(name, a_result(name))
        assert await cache.get("a") is None
        assert await cache.get("b") == a_result("b")
        entry = cache.entry("b")
        assert entry is not None
        assert (entry.created_at, entry.hits) == (0, 1)
        clock.advance(5)
        assert await cache.get("b") is None
        assert cache.statistics() == CacheStatistics(hits=1, misses=2, evictions=1, size=1)
        assert len(cache) == 1

    asyncio.run(main())


def test_the_defaults() -> None:
    """A thousand results are kept, and impossible settings are refused."""

    async def main() -> None:
        cache = MemoryCache()
        for number in range(1001):
            await cache.set(str(number), a_result())
        assert len(cache) == 1000
        assert await cache.get("0") is None
        assert await cache.get("1") is not None

    asyncio.run(main())
    with pytest.raises(InvalidParameterError, match="max_size"):
        MemoryCache(max_size=0)
