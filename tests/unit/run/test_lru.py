from __future__ import annotations

import threading
from collections import OrderedDict
from math import nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.stages.embed import EmbeddingCache
from retrieval_core.run.caching import CacheEntry, CacheStatistics, LruCache
from retrieval_core.testing.clock import FakeClock
from support.examples import times


def make(max_size: int = 3, ttl: float | None = 10) -> tuple[LruCache[str, int], FakeClock]:
    clock = FakeClock()
    return LruCache(max_size, ttl, clock.now), clock


def test_an_entry_is_gone_when_it_has_the_age() -> None:
    """Just before it is there, and asking for it makes it no younger; putting it in again does."""
    cache, clock = make(ttl=10)
    cache.set("a", 1)
    clock.advance(9.5)
    assert cache.get("a") == 1
    clock.advance(0.5)
    assert cache.entry("a") is None
    assert len(cache) == 1
    assert cache.get("a") is None
    assert len(cache) == 0
    cache.set("a", 2)
    clock.advance(5)
    cache.set("a", 3)
    clock.advance(9)
    assert cache.get("a") == 3
    assert cache.statistics() == CacheStatistics(hits=2, misses=1, evictions=0, size=1)


def test_what_is_known_of_an_entry() -> None:
    """Its age and its hits can be read without being a hit; both begin anew when it is replaced."""
    cache, clock = make()
    clock.advance(2)
    cache.set("a", 1)
    clock.advance(1)
    cache.get("a")
    cache.get("a")
    assert cache.entry("a") == cache.entry("a") == CacheEntry(1, 2, 2)
    cache.set("a", 7)
    assert cache.entry("a") == CacheEntry(7, 3, 0)
    assert cache.entry("b") is None
    assert cache.statistics().misses == 0


@pytest.mark.parametrize(("size", "ttl"), [(0, 1), (-1, 1), (2.5, 1), (True, 1), (1, 0), (1, -1), (1, nan)])
def test_impossible_settings(size: Any, ttl: float) -> None:
    """A cache without room, or without time, is refused."""
    with pytest.raises(InvalidParameterError, match="must be"):
        LruCache(size, ttl, FakeClock().now)


steps = st.lists(
    st.tuples(st.sampled_from(["get", "set", "wait", "clear"]), st.integers(0, 5)),
    max_size=60,
)


@settings(max_examples=times(200))
@given(steps=steps, size=st.integers(1, 4), ttl=st.none() | st.integers(1, 8))
def test_it_behaves_like_its_description(steps: list[tuple[str, int]], size: int, ttl: int | None) -> None:
    """After any steps it holds what a plain list of entries, searched from end to end, would hold."""
    clock = FakeClock()
    cache: LruCache[int, int] = LruCache(size, ttl, clock.now)
    model: OrderedDict[int, tuple[int, float]] = OrderedDict()
    counted = dict.fromkeys(("hits", "misses", "evictions"), 0)
    for number, (step, key) in enumerate(steps):
        if step == "wait":
            clock.advance(key)
        elif step == "clear" and key == 0:
            cache.clear()
            model.clear()
        elif step == "set":
            cache.set(key, number)
            model.pop(key, None)
            if len(model) == size:
                model.popitem(last=False)
                counted["evictions"] += 1
            model[key] = (number, clock.now())
        elif step == "get":
            value, at = model.get(key, (None, 0.0))
            if value is not None and ttl is not None and clock.now() - at >= ttl:
                del model[key]
                value = None
            if value is not None:
                model.move_to_end(key)
            counted["misses" if value is None else "hits"] += 1
            assert cache.get(key) == value
        assert len(cache) == len(model) <= size
    assert cache.statistics() == CacheStatistics(**counted, size=len(model))


def test_several_threads() -> None:
    """Used from several threads at once it never holds too much, loses no count and raises nothing."""
    cache: LruCache[int, int] = LruCache(8, 1.0, iter(range(10**9)).__next__)
    errors: list[BaseException] = []
    rounds = 2000

    def use(start: int) -> None:
        try:
            for number in range(rounds):
                cache.set((start + number) % 20, number)
                cache.get((start * 7 + number) % 20)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=use, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(cache) <= 8
    assert cache.statistics().hits + cache.statistics().misses == 4 * rounds


class TestEmbeddings:
    """Vectors of questions."""

    def test_a_vector_comes_back_as_it_was(self) -> None:
        """Whatever happens to the array that was given, and whatever is tried with the one that comes out."""
        cache = EmbeddingCache(10, FakeClock().now)
        given_vector: Any = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)
        returned = cache.set("\ud800", given_vector[1])
        given_vector[:] = 0
        kept: Any = cache.get("\ud800")
        for vector in (returned, kept):
            with pytest.raises(ValueError, match="read-only"):
                vector[0] = 9
            with pytest.raises(ValueError, match="WRITEABLE"):
                vector.setflags(write=True)
        np.testing.assert_array_equal(kept, [4, 5, 6])
        assert kept.dtype == np.float32
