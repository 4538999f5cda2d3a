"""Options of a query: a wrong name is found on every method, and synchronous methods follow their twins."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk, Index, open_index, open_indexes
from retrieval_core.config import load_config
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core import RetrievalResult


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with open_index(tmp_path / "notes.db", config=load_config("lexical")) as opened:
        opened.add([Chunk("moon-1", "moon", "The moon is 384,400 km away."), Chunk("sun-1", "sun", "The sun is far.")])
        yield opened


@pytest.mark.parametrize("name", ["retrieve", "context", "answer", "answer_stream"])
def test_an_unknown_option_names_the_closest_one(index: Index, name: str) -> None:
    """Nothing is searched: the error is a TypeError, as for every function of Python."""
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'topk'; did you mean 'top_k'\?"):
        getattr(index, name)("moon", topk=1)


def test_an_unknown_option_of_a_batch(index: Index) -> None:
    with pytest.raises(TypeError, match="did you mean 'use_cache'"):
        index.retrieve_many(["moon"], use_cahce=False)  # pyright: ignore[reportCallIssue]


def test_an_option_that_is_another_argument_already(index: Index, tmp_path: Path) -> None:
    """The history of a conversation, or the names of indexes, can't be given twice."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'history'"):
        index.answer_with_history("moon", [], history=[])
    with (
        open_indexes([tmp_path / "notes.db"], embedder=FakeEmbedder()) as indexes,
        pytest.raises(TypeError, match="unexpected keyword argument 'indexes'"),
    ):
        indexes.search_multiple_indexes("moon", ["notes"], indexes=["notes"])


def test_an_option_of_several_indexes(index: Index) -> None:
    with pytest.raises(TypeError, match="indexes: only several indexes have this option"):
        asyncio.run(index.acached_result("moon", indexes=["notes"]))


def test_none_is_the_default(index: Index) -> None:
    """An option that is ``None`` has its default, and an option's value is used."""
    assert len(index.retrieve("is", top_k=None, mode=None, history=None).hits) == 2
    assert len(index.retrieve("is", top_k=1).hits) == 1


def test_a_synchronous_method_calls_a_twin_that_a_subclass_overrides(tmp_path: Path) -> None:
    """Overriding the asynchronous method is enough."""

    class Shouting(Index):
        async def aretrieve(self, query: str, filters: Any = None, **options: Any) -> RetrievalResult:
            return await super().aretrieve(query.lower(), filters, **options)

    with open_index(tmp_path / "notes.db", config=load_config("lexical")) as opened:
        opened.add([Chunk("moon-1", "moon", "The moon is 384,400 km away.")])
        opened.__class__ = Shouting
        assert opened.retrieve("MOON").query == "moon"
