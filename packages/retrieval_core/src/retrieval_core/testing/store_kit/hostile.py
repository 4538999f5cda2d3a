"""Tests of hostile and malformed input."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from retrieval_core.ports import ChunkRange, FetchRequest, SearchRequest
from retrieval_core.testing.filter_strategies import HOSTILE_TEXTS
from retrieval_core.testing.store_kit.base import (
    StoreTestBase,
    by_text,
    by_vector,
    chunk,
    chunk_of,
    document,
    need,
    need_operators,
    on_new_store,
    put,
    unit,
)
from retrieval_core.types import Section, Span
from retrieval_core.types.filters import Eq, Text

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import Store
    from retrieval_core.types import Metadata

MEGABYTE = 1_000_000
SURROGATE, REPLACED = "lone \ud800 surrogate", "lone \ufffd surrogate"


class HostileInputTests(StoreTestBase):
    """Text is stored and compared as it is, and never interpreted."""

    @on_new_store()
    async def test_hostile_texts_are_stored_and_found(self, store: Store) -> None:
        """Quotes, operators, braces and control characters survive as ids, texts and values, and match themselves."""
        chunks = [
            chunk(f"{number}{text}", f"word {text}", text, title=text or None, metadata={"value": text, text: 1})
            for number, text in enumerate(HOSTILE_TEXTS)
        ]
        await put(store, *chunks, documents=tuple(document(text, text, source=text) for text in HOSTILE_TEXTS))
        sides = (await store.describe()).sides
        await need_operators(store, Eq("value", "text"))
        for item in chunks:
            text = item.document_id
            assert await chunk_of(store, item.id) == item
            ranges = (ChunkRange(text, 0, 0),)
            found = await store.fetch(FetchRequest(ranges=ranges, document_ids=(text,), filter=Eq("value", text)))
            assert list(found.chunks) == [item.id]
            assert found.documents[text].text == text
            for side in sides:
                names = await (
                    by_vector(store, unit(0), 99, Eq("value", text))
                    if side == "dense"
                    else by_text(store, "word", 99, Eq("value", text))
                )
                assert names == [item.id]
        assert await store.delete(list(HOSTILE_TEXTS)) == len(chunks)

    @pytest.mark.parametrize(
        "question", [*HOSTILE_TEXTS, SURROGATE, "* OR word", '"', "(", "word NOT word", "-word", "?"]
    )
    def test_hostile_questions_are_words(self, tmp_path: Path, question: str) -> None:
        """No question is an error or a command; a word in it is found."""

        async def test(store: Store) -> None:
            await put(store, chunk("a", "word"), chunk("b", "other"))
            await need(store, "lexical")
            await store.search(SearchRequest(5, text=question))
            assert "a" in await by_text(store, f"{question} word")

        self.run(tmp_path, test)

    @on_new_store()
    async def test_large_values(self, store: Store) -> None:
        """Texts, words and values of a megabyte are stored, searched and filtered by."""
        words = " ".join(f"w{number % 1000}" for number in range(MEGABYTE // 20))
        large = chunk("words", words, metadata={"value": "v" * MEGABYTE, "list": list(range(10_000))})
        await put(store, large, chunk("one", "x" * MEGABYTE), documents=(document("d", words),))
        assert await chunk_of(store, "words") == large
        sides = (await store.describe()).sides
        conditions = (Eq("value", "v" * MEGABYTE), Text("value", "V" * 1000))
        await need_operators(store, *conditions)
        for condition in conditions:
            if "dense" in sides:
                assert await by_vector(store, unit(0), condition=condition) == ["words"]
        if "lexical" in sides:
            assert await by_text(store, "w7") == ["words"]
            assert await by_text(store, "x" * MEGABYTE) == ["one"]
            assert await by_text(store, words[: MEGABYTE // 10]) == ["words"]

    @on_new_store()
    async def test_lone_surrogates_are_replaced(self, store: Store) -> None:
        """What UTF-8 cannot express is U+FFFD in every value that is written, wherever it stands."""
        metadata: Metadata = {SURROGATE: 1, "value": [{"key": SURROGATE}]}
        whole = document("d", SURROGATE, title=SURROGATE, metadata=metadata)
        path = ("fine", SURROGATE)
        section = Section("s", "d", "section", path, Span(0, 1))
        item = chunk(SURROGATE, SURROGATE, title=SURROGATE, section_path=path, metadata=metadata)
        await put(store, item, documents=(whole,), sections=(section,))
        assert await chunk_of(store, REPLACED) == item
        assert item.text == whole.text == section.path[1] == REPLACED
        assert item.metadata == {REPLACED: 1, "value": ({"key": REPLACED},)}

    @on_new_store()
    async def test_lone_surrogates_can_be_asked_for(self, store: Store) -> None:
        """A lone surrogate in a question, a filter or a name is no error: it matches nothing."""
        await put(store, chunk("a", "lone wolf", metadata={"value": "lone"}))
        await need_operators(store, Eq("value", SURROGATE), Text(SURROGATE, SURROGATE))
        sides = (await store.describe()).sides
        if "lexical" in sides:
            assert await by_text(store, SURROGATE) == ["a"]
            assert await by_text(store, "wolf", 5, Eq("value", SURROGATE)) == []
        if "dense" in sides:
            assert await by_vector(store, unit(0), 5, Text(SURROGATE, SURROGATE)) == []
        names = (SURROGATE, "a")
        found = await store.fetch(FetchRequest(names, (ChunkRange(SURROGATE, 0, 1),), names, names))
        assert set(found.chunks) == {"a"}
        assert await store.delete([SURROGATE]) == 0
