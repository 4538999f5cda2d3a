"""Pages of grep: however often its time runs out, together they are the result of one page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("re2", reason="the extra grep")

from retrieval_core import Chunk, Document, load_config, open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.run.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from retrieval_core import Index
    from retrieval_core.types import GrepResult


Lines: TypeAlias = "dict[int, tuple[str, bool]]"
EVERY_CHECK = [HealthCheck(check) for check in HealthCheck]


class RationedClock(SystemClock):
    """A clock on which a second is over once it was asked so often.

    Attributes:
        left: How often it may still be asked.
    """

    def __init__(self) -> None:
        self.left = 10**9

    def now(self) -> float:  # type: ignore[override] - the system's is a function of the class
        """Return the time."""
        self.left -= 1
        return 0.0 if self.left >= 0 else 1.0


@pytest.fixture(scope="module")
def clock() -> Iterator[RationedClock]:
    """Have all indexes use this clock, and look at it after every few bytes."""
    clock = RationedClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("retrieval_core.pipeline.lifecycle.SystemClock", lambda: clock)
        patch.setattr("retrieval_core.pipeline.grep._SLICE", 8)
        yield clock


def opened() -> Index:
    return open_index(config=load_config(overrides={"embedder.kind": "none", "store.kind": "memory"}))


def contents(result: GrepResult) -> dict[str, tuple[int | None, Lines]]:
    """Return the count of each document, and its lines with whether they match."""
    return {
        each.id: (each.count, {line.number: (line.text, line.is_match) for line in each.lines})
        for each in result.documents
    }


def joined(pages: list[GrepResult]) -> dict[str, tuple[int | None, Lines]]:
    """Return what several pages contain. A line around a match of one page may be a match on another."""
    whole: dict[str, tuple[int | None, Lines]] = {}
    for page in pages:
        for name, (count, found) in contents(page).items():
            assert found or name not in whole
            _, lines = whole.setdefault(name, (count, {}))
            for number, (text, is_match) in found.items():
                _, was_match = lines.get(number, (text, False))
                assert not (is_match and was_match)
                lines[number] = text, is_match or was_match
    return whole


lines = st.sampled_from(["a", "ab", "b", "", "a b", "é a", "x\u2028a", "longer line with a", "\t"])
texts = st.lists(lines, max_size=12).flatmap(
    lambda each: st.sampled_from(["\n", "\r\n"]).map(lambda end: end.join(each))
)


@settings(deadline=None, suppress_health_check=EVERY_CHECK)
@given(
    documents=st.lists(texts, min_size=1, max_size=10),
    chunks=st.lists(st.tuples(st.sampled_from("xy"), lines.filter(str.strip)), max_size=6),
    asked=st.fixed_dictionaries(
        {
            "pattern": st.sampled_from(["a", "^$", "b|é", ".", "zzz"]),
            "context": st.integers(0, 2),
            "output": st.sampled_from(["lines", "files", "counts"]),
            "filters": st.sampled_from([None, {"team": "x"}]),
            "path": st.sampled_from([None, "*d?", "own"]),
        }
    ),
    limit=st.integers(1, 4),
    rations=st.lists(st.integers(0, 40), min_size=1, max_size=4),
)
def test_pages_together_are_the_result_of_one_page(  # noqa: PLR0917 - Hypothesis gives names
    clock: RationedClock,
    documents: list[str],
    chunks: list[tuple[str, str]],
    asked: Mapping[str, Any],
    limit: int,
    rations: list[int],
) -> None:
    clock.left = 10**9
    with opened() as index:
        index.add_documents(
            [Document(f"d{at}", text, metadata={"team": "xy"[at % 2]}) for at, text in enumerate(documents)]
        )
        index.add(
            [Chunk(f"own#{at}", "own", text, at, metadata={"team": team}) for at, (team, text) in enumerate(chunks)]
        )
        whole = index.grep(**asked, limit=1000)
        assert (whole.next_cursor, whole.timed_out) == (None, False)
        pages: list[GrepResult] = []
        while not pages or pages[-1].next_cursor is not None:
            clock.left = rations[len(pages) % len(rations)]
            pages.append(index.grep(**asked, limit=limit, cursor=pages[-1].next_cursor if pages else None))
            assert len(pages) < 1000
            assert pages[-1].next_cursor is not None or not pages[-1].timed_out
        assert joined(pages) == contents(whole)


def test_a_cancelled_search_leaves_an_index_that_works() -> None:
    class SlowStore(MemoryStore):
        """A store that waits while it is read."""

        started = asyncio.Event()

        async def _fetch(self, request: Any) -> Any:
            self.started.set()
            await asyncio.Event().wait()

    async def check() -> None:
        store = MemoryStore()
        async with open_index(store=store, config=load_config(overrides={"embedder.kind": "none"})) as index:
            await index.aadd_documents([Document("a", "a valve")])
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(MemoryStore, "_fetch", SlowStore._fetch)
                patch.setattr(MemoryStore, "started", SlowStore.started, raising=False)
                task = asyncio.create_task(index.agrep("valve"))
                await SlowStore.started.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert [each.id for each in (await index.agrep("valve")).documents] == ["a"]

    asyncio.run(check())
