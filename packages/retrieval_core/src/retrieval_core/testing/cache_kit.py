"""The conformance tests of result caches, for pytest.

Subclass :class:`CacheConformance` in a test module, and say how to open a cache::

    class TestMyCache(CacheConformance):
        async def open_cache(self):
            return MyCache(ttl_seconds=300)

Each test opens caches on a new event loop and closes them there. They must keep results for at least a minute,
and have room for a hundred. Needed besides the library: pytest and hypothesis.
"""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.testing.blocking import blocking_calls_fail
from retrieval_core.types import (
    Chunk,
    Degradation,
    DroppedPassage,
    EvaluationScores,
    Evidence,
    FailedAttempt,
    Hit,
    Origin,
    PageSpan,
    Relevance,
    RetrievalResult,
    RewriteResult,
    Scores,
    Span,
    StageRecord,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core.ports import ResultCache

HOSTILE_KEYS = (
    "",
    " ",
    "a" * 10_000,
    "*",
    "?",
    "key\r\nFLUSHALL\r\n",
    "nul\x00inside",
    "../../etc/passwd",
    "{a}",
    "'; DROP TABLE results; --",
    "\ufffd",
    "日本語 🙂",
    "A",
    "a",
)
"""Keys with a meaning to Redis, SQL, paths or templates, and such as are easily confused."""

_TEXTS = st.text() | st.sampled_from(HOSTILE_KEYS)


def a_result(text: str = "Turn the key.", number: int = 0, query: str = "How?") -> RetrievalResult:
    """Return a result in which every field has a value, made of a text and a number."""
    chunk = Chunk(
        id=f"guide.pdf#{number}",
        document_id="guide.pdf",
        text=text,
        chunk_index=number,
        total_chunks=number + 1,
        page_span=PageSpan(3, 4),
        section_path=("Setup", text),
        span=Span(10, 23),
        parent_id="guide.pdf@2",
        row_range=(1, 2),
        item_range=(3, 3),
        lines=(40, 42),
        title=text,
        source="docs/guide.pdf",
        timestamp=datetime(2024, 5, 1, 12, 30, 1, 5, tzinfo=UTC),
        embedding_model="fake",
        metadata={"price": 9.5, "count": 1, "is": True, "none": None, text: [text, {"a": [1.0, 1]}]},
    )
    scores = Scores(0.5, 1, 12.5, 2, 0.25, -0.5, 0.125, 0.75, 0.1 + 0.2)
    return RetrievalResult(
        query=query,
        hits=(
            Hit(
                chunk,
                0.1 + 0.2,
                scores,
                "bears on it",
                Evidence(answers=True, text="it does", is_quoted=True),
                found_by=(Origin("sub-question", text),),
                source_index="guides",
                excerpts=(Span(0, 4),),
            ),
            Hit(replace(chunk, id="other"), -1.0, Scores()),
        ),
        formatted_context=f"{text}\n{text}",
        metadata={"mode": "hybrid", "count": number, "filter": {"$eq": [text, 1.0]}},
        latency_ms=1.25,
        degraded=(Degradation("rerank", text),),
        trace=(
            StageRecord(
                *("embed", 1.5, 1, 2, text, 3, text, Usage(4, 5), 1, (DroppedPassage(text, 0.5, text),)),
                started_ms=0.5,
                failed=(FailedAttempt(0.5, 1.0, text),),
            ),
            StageRecord("fuse", 0.0),
        ),
        rewrites=(RewriteResult(query, text, 1, text, 0.5), RewriteResult(query, text, 2, "")),
        evaluation=EvaluationScores(0.5, 0.25, {"context_precision": text}, Usage(3, 4)),
        relevance=Relevance(
            0.125,
            is_unlikely=True,
            unknown=(text,),
            missing_names=(text,),
            is_of_another_language=True,
            explanation=text,
            coverage=0.5,
            cosine=0.75,
            margin=0.25,
        ),
    )


def _on_a_cache(test: Callable[[Any, Any], Awaitable[None]]) -> Callable[[Any], None]:
    """Make a test of a coroutine method: :meth:`CacheConformance.run` gives it a cache."""

    @wraps(test)
    def run(self: CacheConformance) -> None:
        self.run(partial(test, self))

    del run.__wrapped__  # pytest would take the test's own arguments for names of fixtures
    return run


class CacheConformance:
    """The promises of :class:`~retrieval_core.ports.ResultCache`, one test each."""

    async def open_cache(self) -> ResultCache:
        """Return a cache, empty or shared with those that this test opened before."""
        raise NotImplementedError

    def run(self, test: Callable[[Any], Awaitable[None]]) -> None:
        """Run a test with a cleared cache, on a new event loop, and close the cache."""

        async def main() -> None:
            async with AsyncExitStack() as stack:
                cache = await self.open_cache()
                stack.push_async_callback(cache.aclose)
                await cache.clear()
                await test(cache)

        asyncio.run(main())

    @_on_a_cache
    async def test_nothing_is_there_at_first(self, cache: ResultCache) -> None:
        """A key that nothing was kept for has no result."""
        assert await cache.get("key") is None

    @_on_a_cache
    async def test_a_result_comes_back_as_it_was(self, cache: ResultCache) -> None:
        """Every field of every value comes back equal and of the same type, again and again."""
        result = a_result()
        await cache.set("key", result)
        for _ in range(3):
            assert_same(await cache.get("key"), result)

    @_on_a_cache
    async def test_where_a_result_came_from_is_not_touched(self, cache: ResultCache) -> None:
        """The cache leaves ``from_cache`` as it was put in; the pipeline sets it."""
        for told in (False, True):
            await cache.set("key", replace(a_result(), from_cache=told))
            kept = await cache.get("key")
            assert kept is not None
            assert kept.from_cache is told

    @_on_a_cache
    async def test_a_later_result_replaces_the_earlier_one(self, cache: ResultCache) -> None:
        """A key has the result that was put in last."""
        await cache.set("key", a_result("first"))
        await cache.set("key", a_result("second"))
        assert_same(await cache.get("key"), a_result("second"))

    @_on_a_cache
    async def test_keys_are_told_apart(self, cache: ResultCache) -> None:
        """Keys are exact: nothing in them is a pattern, a command or a path, and no two are one."""
        for number, key in enumerate(HOSTILE_KEYS):
            await cache.set(key, a_result(number=number))
        for number, key in enumerate(HOSTILE_KEYS):
            assert_same(await cache.get(key), a_result(number=number))
        assert await cache.get("key") is None

    @_on_a_cache
    async def test_clear_forgets_everything(self, cache: ResultCache) -> None:
        """After a clear no key has a result, and new ones can be kept."""
        await cache.clear()
        for key in HOSTILE_KEYS:
            await cache.set(key, a_result())
        await cache.clear()
        for key in HOSTILE_KEYS:
            assert await cache.get(key) is None
        await cache.set("key", a_result("new"))
        assert_same(await cache.get("key"), a_result("new"))

    @_on_a_cache
    async def test_a_large_result(self, cache: ResultCache) -> None:
        """A result with some hundred kilobytes of text is kept like any other."""
        await cache.set("key", a_result("word " * 20_000))
        assert_same(await cache.get("key"), a_result("word " * 20_000))

    @_on_a_cache
    async def test_an_empty_result(self, cache: ResultCache) -> None:
        """A result without hits is a result, not a miss."""
        result = RetrievalResult("", (), "", {}, 0.0)
        await cache.set("key", result)
        assert_same(await cache.get("key"), result)

    @_on_a_cache
    async def test_calls_at_the_same_time_do_not_mix(self, cache: ResultCache) -> None:
        """Many calls under way at once each get what belongs to their key."""
        results = {f"key {number}": a_result(number=number) for number in range(50)}
        await asyncio.gather(*(cache.set(key, result) for key, result in results.items()))
        found = await asyncio.gather(*map(cache.get, results))
        for result, expected in zip(found, results.values(), strict=True):
            assert_same(result, expected)

    @_on_a_cache
    async def test_what_is_kept_cannot_be_changed_from_outside(self, cache: ResultCache) -> None:
        """Lists that somebody put into a result against its types, and changes later, do not reach what is kept."""
        path: Any = ["Setup"]
        hits: Any = [Hit(Chunk("a", "d", "text", section_path=path), 1.0, Scores())]
        await cache.set("key", RetrievalResult("q", hits, "text", {}, 0.0))
        path.append("changed")
        hits.clear()
        for _ in range(2):
            kept = await cache.get("key")
            assert kept is not None
            assert kept.hits == (Hit(Chunk("a", "d", "text", section_path=("Setup",)), 1.0, Scores()),)

    @_on_a_cache
    async def test_any_text_comes_back(self, cache: ResultCache) -> None:
        """Any text comes back as it was, and can be a key."""
        for text in await asyncio.to_thread(_examples):
            result = a_result(text, query=text)
            await cache.set(text, result)
            assert_same(await cache.get(text), result)

    def test_the_event_loop_is_not_blocked(self) -> None:
        """No call that blocks is made on the event loop; checked where BlockBuster is installed."""

        async def test(cache: ResultCache) -> None:
            await cache.set("key", a_result())
            await cache.get("key")
            await cache.clear()

        with blocking_calls_fail():
            self.run(test)

    @_on_a_cache
    async def test_closing_twice(self, cache: ResultCache) -> None:
        """A cache may be closed again, and without having been used."""
        await cache.aclose()
        await cache.aclose()

    def test_several_event_loops(self) -> None:
        """One cache can be used from one event loop after the other."""
        caches: list[ResultCache] = []

        async def use() -> None:
            cache = caches[0] if caches else await self.open_cache()
            caches[:] = [cache]
            await cache.set("key", a_result())
            assert_same(await cache.get("key"), a_result())
            await cache.aclose()

        asyncio.run(use())
        asyncio.run(use())


def assert_same(left: Any, right: Any) -> None:
    """Assert that two values are equal all the way down, with the same types: ``1`` is neither ``1.0`` nor ``True``."""
    assert type(left) is type(right)
    if is_dataclass(left):
        for field in fields(left):
            assert_same(getattr(left, field.name), getattr(right, field.name))
    elif isinstance(left, dict):
        one, other = cast("dict[Any, Any]", left), cast("dict[Any, Any]", right)
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(left, (tuple, list)):
        for one, other in zip(cast("list[Any]", left), cast("list[Any]", right), strict=True):
            assert_same(one, other)
    elif isinstance(left, datetime):
        assert (left.isoformat(), left.fold, str(left.tzinfo)) == (right.isoformat(), right.fold, str(right.tzinfo))
    elif isinstance(left, float):
        assert left.hex() == right.hex()  # so that "not a number" is the same as itself, and 0.0 is not -0.0
    else:
        assert left == right


def _examples() -> list[str]:
    found: list[str] = []

    @settings(max_examples=100, database=None, deadline=None)
    @given(_TEXTS)
    def collect(text: str) -> None:
        found.append(text)

    collect()
    return found


__all__ = ["HOSTILE_KEYS", "CacheConformance", "a_result", "assert_same"]
