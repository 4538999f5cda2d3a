"""The terms of a query, with neighbouring words that the chunks write as one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.query_terms import MOST_REPEATS, limited, query_terms
from retrieval_core.adapters.stores.sqlite.store import SqliteStore
from retrieval_core.testing.store_kit.base import DIMENSION, EMBEDDER_ID, by_text, chunk, put
from retrieval_core.text.analysis import Analyzer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from retrieval_core.ports import Store

ANALYZER = Analyzer()
PASSAGES = ["rollback now", "rollback later", "roll back", "moved back", "back then"]


def count_chunks(term: str) -> int:
    return sum(term in ANALYZER.terms(text) for text in PASSAGES)


@pytest.mark.parametrize(
    ("question", "compounds"),
    [
        ("how to roll back", ["rollback"]),
        ("log in, or sign up", ["login", "signup"]),
        ("roll-back of an e-mail", []),
        ("vitamin c of 3 pears", []),
        ("the app", []),
        ("東京 大学", []),
        ("x" * 300 + " " + "y" * 300, ["x" * 255]),
    ],
)
def test_two_words_with_white_space_between_may_be_one(question: str, compounds: list[str]) -> None:
    assert [compound.joined for compound in ANALYZER.open_compounds(question)] == compounds


def test_a_word_that_more_chunks_contain_than_one_of_its_parts_counts_twice() -> None:
    terms = query_terms(ANALYZER, "Roll back quickly", count_chunks)
    assert terms == ["rollback", "rollback", "roll", "back", "quick"]


def test_a_word_that_no_more_chunks_contain_is_not_searched_for() -> None:
    assert query_terms(ANALYZER, "roll back", lambda _: 2) == ["roll", "back"]
    assert query_terms(ANALYZER, "back then", count_chunks) == ["back"]


def test_repeats_of_a_term_count_up_to_a_limit() -> None:
    assert limited("a" * 20 + "b") == ["a"] * MOST_REPEATS + ["b"]


def test_a_question_is_highlighted_where_a_passage_writes_it_as_one() -> None:
    (span,) = ANALYZER.highlight_spans("roll back", "Do a rollback.")
    assert "Do a rollback."[span.start : span.end] == "rollback"


def open_memory(_: Path) -> Store:
    return MemoryStore(embedder_id=EMBEDDER_ID, dimension=DIMENSION)


def open_sqlite(folder: Path) -> Store:
    return SqliteStore(folder / "index.db", embedder_id=EMBEDDER_ID, dimension=DIMENSION)


@pytest.mark.parametrize("open_store", [open_memory, open_sqlite])
def test_stores_find_both_forms(open_store: Callable[[Path], Store], tmp_path: Path) -> None:
    async def run() -> list[str]:
        store = open_store(tmp_path)
        for position, text in enumerate(PASSAGES):
            await put(store, chunk(str(position), text, document=str(position)))
        found = await by_text(store, "roll back")
        await store.aclose()
        return found

    assert set(asyncio.run(run())[:3]) == {"0", "1", "2"}
