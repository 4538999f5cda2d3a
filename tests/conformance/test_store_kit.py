"""The kit itself: it accepts stores that can do less and say so, and catches those that do wrong."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from blockbuster import BlockingError

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import NotYetEmbeddedError, UnsupportedFilterError
from retrieval_core.ports import Candidate, Change, Fetched, FetchRequest, SearchRequest, StoreInfo
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID, StoreConformance
from retrieval_core.testing.store_kit.base import StoreTestBase
from retrieval_core.types.filters import Filter, operators_of

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import Store


class Limited(MemoryStore):
    """Searches one side only, knows two operators, and has no generation and no manifest."""

    side = "lexical"
    operators = frozenset({"$eq", "$not"})

    async def describe(self) -> StoreInfo:
        info = await super().describe()
        sides = info.sides & {self.side}
        return replace(info, sides=sides, filter_operators=self.operators, generation=None, manifest=None)

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        self.check_filter(request.filter)
        return await super().search(request)

    async def fetch(self, request: FetchRequest) -> Fetched:
        self.check_filter(request.filter)
        return await super().fetch(request)

    async def count_chunks(self, condition: Filter) -> int:
        self.check_filter(condition)
        return await super().count_chunks(condition)

    def check_filter(self, condition: Filter | None) -> None:
        if condition is not None and not operators_of(condition) <= self.operators:
            raise UnsupportedFilterError("not here")


class LimitedToVectors(Limited):
    side = "dense"
    operators = frozenset({"$eq"})


class TestWordsOnly(StoreConformance):
    async def open_store(self, folder: Path) -> Store:
        return Limited(embedder_id=EMBEDDER_ID, dimension=DIMENSION)


class TestVectorsOnly(StoreConformance):
    async def open_store(self, folder: Path) -> Store:
        return LimitedToVectors(embedder_id=EMBEDDER_ID, dimension=DIMENSION)


class ForgetsTies(MemoryStore):
    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        found = reversed(await super().search(replace(request, limit=1000)))
        return tuple(sorted(found, key=lambda item: -item.score)[: request.limit])


class FiltersAfterTheLimit(MemoryStore):
    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        everything = await super().search(replace(request, limit=1000))
        best = {item.chunk_id for item in await super().search(replace(request, filter=None))}
        return tuple(item for item in everything if item.chunk_id in best)


class IgnoresFiltersOfFetch(MemoryStore):
    async def fetch(self, request: FetchRequest) -> Fetched:
        return await super().fetch(replace(request, filter=None))


class AppliesHalf(MemoryStore):
    async def upsert(self, change: Change) -> None:
        await super().upsert(replace(change, chunks=(), vectors=None))
        await super().upsert(change)


class SearchesForStopWords(MemoryStore):
    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        found = list(await super().search(request))
        for word in (request.text or "").split():
            more = await super().search(replace(request, text=word))
            found += [item for item in more if item.chunk_id not in {each.chunk_id for each in found}]
        return tuple(sorted(found, key=lambda item: (-item.score, item.chunk_id)))


class Blocks(MemoryStore):
    async def upsert(self, change: Change) -> None:
        time.sleep(0.001)  # noqa: ASYNC251 - it is what the test is about
        await super().upsert(change)


class SkipsOperators(Limited):
    def check_filter(self, condition: Filter | None) -> None:
        """Say nothing."""


class CountsEverything(MemoryStore):
    async def count_chunks(self, condition: Filter) -> int:
        return (await super().describe()).chunks


class CountsWhatIsGone(MemoryStore):
    most = 0

    async def count_chunks(self, condition: Filter) -> int:
        self.most = max(self.most, await super().count_chunks(condition))
        return self.most


class HidesWhatIsMissing(MemoryStore):
    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        try:
            return await super().search(request)
        except NotYetEmbeddedError as error:
            return error.found


class AddsToAnyText(MemoryStore):
    async def add_vectors(self, change: Change) -> int:
        ids = tuple(each.id for each in change.chunks)
        kept = (await self.fetch(FetchRequest(chunk_ids=ids))).chunks
        return await super().add_vectors(replace(change, chunks=tuple(kept.get(e.id, e) for e in change.chunks)))


class TellsNoVersionOfVectors(MemoryStore):
    async def version(self) -> str | None:
        info = await self.describe()
        return f"{info.documents} {info.chunks}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (HidesWhatIsMissing, "test_words_are_found_before_the_vectors_come"),
        (HidesWhatIsMissing, "test_a_search_whose_chunks_all_have_vectors_is_complete"),
        (AddsToAnyText, "test_what_does_not_wait_is_passed_over"),
        (TellsNoVersionOfVectors, "test_adding_vectors_is_a_write"),
        (ForgetsTies, "test_equal_cosines_are_ordered_by_id"),
        (ForgetsTies, "test_equal_scores_are_ordered_by_id"),
        (FiltersAfterTheLimit, "test_filters_apply_before_the_limit"),
        (IgnoresFiltersOfFetch, "test_the_filter_guards_everything"),
        (AppliesHalf, "test_a_change_that_fails_changes_nothing"),
        (SearchesForStopWords, "test_stop_words_of_a_query_are_not_searched"),
        (SkipsOperators, "test_operators_that_are_not_declared_are_refused"),
        (SkipsOperators, "test_operators_that_are_not_declared_are_not_counted"),
        (CountsEverything, "test_counts_change_with_each_write"),
        (CountsEverything, "test_counts_agree_with_the_oracle"),
        (CountsWhatIsGone, "test_counts_change_with_each_write"),
    ],
)
def test_the_kit_catches(tmp_path: Path, broken: type[MemoryStore], test: str) -> None:
    class Tests(StoreConformance):
        async def open_store(self, folder: Path) -> Store:
            return broken(embedder_id=EMBEDDER_ID, dimension=DIMENSION)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(Tests(), test)(tmp_path)


def test_a_store_that_blocks_the_event_loop_fails_with_advice(tmp_path: Path) -> None:
    class Tests(StoreConformance):
        async def open_store(self, folder: Path) -> Store:
            return Blocks(embedder_id=EMBEDDER_ID, dimension=DIMENSION)

    with pytest.raises(BlockingError) as raised:
        Tests().test_scores_stay_in_range(tmp_path)
    assert "await asyncio.to_thread(" in "".join(raised.value.__notes__)


def test_a_kit_without_a_store_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        StoreConformance().test_a_store_can_be_closed_unused(tmp_path)
    assert issubclass(StoreConformance, StoreTestBase)
