"""Neighbouring words of a question that the passages write as one."""

from __future__ import annotations

import asyncio
from string import ascii_lowercase
from typing import TYPE_CHECKING

import pytest

from retrieval_core.adapters.stores.compounds import MOST_REPEATS, MOST_TERMS, limited, word_query
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite.store import SqliteStore
from retrieval_core.testing.store_kit.base import DIMENSION, EMBEDDER_ID, by_text, chunk, put
from retrieval_core.text.analysis import Analyzer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from retrieval_core.ports import Store

ANALYZER = Analyzer()
PASSAGES = ["rollback now", "rollback later", "roll back", "roll on", "back then"]


def count_passages(terms: Sequence[str], limit: int | None) -> int:
    texts = [set(ANALYZER.terms(text)) for text in PASSAGES]
    return sum(set(terms) <= text for text in texts[:limit])


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


def test_what_the_passages_write_as_one_is_searched_for_in_both_forms_and_not_by_its_parts() -> None:
    query = word_query(ANALYZER, "Roll back quickly", count_passages)
    assert query.terms == ("quick", "rollback")
    assert query.pairs == (("roll", "back"),)


def test_what_the_passages_write_apart_as_often_stays_apart() -> None:
    as_often = word_query(ANALYZER, "roll back", lambda _terms, _limit: 2)
    assert as_often.terms == ("roll", "back")
    assert as_often.pairs == ()


def test_a_word_belongs_to_one_compound_only() -> None:
    query = word_query(ANALYZER, "roll back roll back", lambda terms, _limit: 3 - len(terms))
    assert query.terms == ("rollback", "rollback")
    assert query.pairs == (("roll", "back"),) * 2


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
def test_stores_find_both_forms_and_nothing_that_has_one_part_only(
    open_store: Callable[[Path], Store], tmp_path: Path
) -> None:
    async def run() -> list[str]:
        store = open_store(tmp_path)
        for position, text in enumerate(PASSAGES):
            await put(store, chunk(str(position), text, document=str(position)))
        found = await by_text(store, "roll back")
        await store.aclose()
        return found

    assert sorted(asyncio.run(run())) == ["0", "1", "2"]


@pytest.mark.parametrize("open_store", [open_memory, open_sqlite])
def test_stores_search_for_the_first_terms_of_a_long_question(
    open_store: Callable[[Path], Store], tmp_path: Path
) -> None:
    words = [f"z{first}{second}k" for first in "aeiou" for second in ascii_lowercase][: MOST_TERMS + 1]

    async def run() -> list[str]:
        store = open_store(tmp_path)
        for position in (0, MOST_TERMS - 1, MOST_TERMS):
            await put(store, chunk(str(position), words[position], document=str(position)))
        found = await by_text(store, " ".join(words))
        await store.aclose()
        return found

    assert sorted(asyncio.run(run())) == ["0", str(MOST_TERMS - 1)]
