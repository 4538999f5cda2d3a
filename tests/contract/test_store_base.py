"""What the base class of stores does for a store that defines the fewest methods."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, StoreError, UnsupportedError
from retrieval_core.ports import Change, Fetched, FetchRequest, SearchRequest, Store, StoreInfo, TermCounts
from retrieval_core.testing.store_kit.base import unit, units
from retrieval_core.types.filters import Eq

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from retrieval_core.ports import Candidate

VECTOR_AND_TEXT = SearchRequest(1, vector=unit(0), text="moon")
OPTIONAL: dict[str, Callable[[Store], Awaitable[object]]] = {
    "add_vectors": lambda store: store.add_vectors(Change((Chunk("a", "d", "text"),), units(1))),
    "count_chunks": lambda store: store.count_chunks(Eq("a", 1)),
    "count_terms": lambda store: store.count_terms(["moon"]),
    "describe_collection": lambda store: store.describe_collection(),
    "document_ids": lambda store: store.document_ids(),
    "documents_of": lambda store: store.documents_of("source"),
    "fields": lambda store: store.fields(10),
    "find_damage": lambda store: store.find_damage(),
    "optimize": lambda store: store.optimize(),
    "remember": lambda store: store.remember("settings"),
    "repair": lambda store: store.repair(),
    "sample_fields": lambda store: store.sample_fields(),
    "sample_records": lambda store: store.sample_records(),
    "search_both": lambda store: store.search_both(VECTOR_AND_TEXT),
    "sources": lambda store: store.sources(),
    "unembedded": lambda store: store.unembedded(),
    "version": lambda store: store.version(),
}
"""How each optional method is called."""
ALL: dict[str, Callable[[Store], Awaitable[object]]] = {
    **OPTIONAL,
    "describe": lambda store: store.describe(),
    "upsert": lambda store: store.upsert(Change()),
    "delete": lambda store: store.delete(["d"]),
    "search": lambda store: store.search(SearchRequest(1, text="moon")),
    "fetch": lambda store: store.fetch(FetchRequest(("a",))),
}
NOTHING: dict[str, object] = {
    "add_vectors": 0, "count_chunks": 0, "count_terms": TermCounts(0, {"moon": 0}), "delete": 0, "documents_of": {},
    "fields": {}, "optimize": None, "remember": None, "repair": None, "sources": {}, "unembedded": {}, "version": None,
}  # fmt: skip
"""What methods return if there is no index yet; the others raise."""


class Least(Store):
    """Answers nothing, or that there is no index yet."""

    exists = True

    async def _describe(self) -> StoreInfo:
        self._found()
        return StoreInfo("here", None, None, 0, 0, frozenset({"lexical"}), frozenset())

    async def _upsert(self, change: Change) -> None:
        self._found()

    async def _delete(self, document_ids: Sequence[str]) -> int:
        self._found()
        return 0

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        self._found()
        return ()

    async def _fetch(self, request: FetchRequest) -> Fetched:
        self._found()
        return Fetched()

    def _found(self) -> None:
        if not self.exists:
            raise IndexNotFoundError("there is none")


class Absent(Least):
    """Has every method, and no index."""

    exists = False


async def _absent(self: Absent, *_: Any) -> Any:
    raise IndexNotFoundError("there is none")


for name in OPTIONAL:
    setattr(Absent, f"_{name}", _absent)


@pytest.mark.parametrize("name", OPTIONAL)
def test_an_ability_that_a_store_lacks_is_named(name: str) -> None:
    """By its method, in the error and in what the store says of itself."""
    assert Least().capabilities == frozenset()
    with pytest.raises(UnsupportedError, match=rf"Least has no {name}\(\), see Store.capabilities"):
        asyncio.run(call(OPTIONAL[name], Least()))


@pytest.mark.parametrize("name", ALL)
def test_a_closed_store_says_so(name: str) -> None:
    """Whatever is asked of it, and before it is looked at."""

    async def test() -> None:
        store = Absent()
        await store.aclose()
        await store.aclose()
        with pytest.raises(StoreError, match=r"Absent: the index is closed; open it again$"):
            await ALL[name](store)

    asyncio.run(test())


@pytest.mark.parametrize("name", ALL)
def test_an_index_that_is_not_there_holds_nothing(name: str) -> None:
    """What reads a part of it returns nothing; what needs it says that there is none."""
    if name in NOTHING:
        assert asyncio.run(call(ALL[name], Absent())) == NOTHING[name]
    else:
        with pytest.raises(IndexNotFoundError):
            asyncio.run(call(ALL[name], Absent()))


@pytest.mark.parametrize("request_", [SearchRequest(1, vector=unit(0)), SearchRequest(1, text="moon")])
def test_hybrid_search_needs_both(request_: SearchRequest) -> None:
    """A vector and a text."""
    with pytest.raises(InvalidParameterError, match="needs a vector and a text"):
        asyncio.run(call(lambda store: store.search_both(request_), Absent()))


async def call(function: Callable[[Store], Awaitable[object]], store: Store) -> object:
    return await function(store)
