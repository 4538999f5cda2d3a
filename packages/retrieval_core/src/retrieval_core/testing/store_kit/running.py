"""Tests of concurrency and closing, of versions, and of hostile texts."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import IndexNotFoundError, StoreError
from retrieval_core.ports import Change, ChunkRange, FetchRequest, SearchRequest, as_store
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
    units,
)
from retrieval_core.types import Section, Span
from retrieval_core.types.filters import Eq, Ne, Text

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import Store
    from retrieval_core.types import Metadata


VERSIONS = 20
PARTS = 5
SEARCHERS = 8

MEGABYTE = 1_000_000
SURROGATE, REPLACED = "lone \ud800 surrogate", "lone \ufffd surrogate"


class RunningTests(StoreTestBase):
    """Concurrent reads and writes, and closing."""

    @on_new_store()
    async def test_readers_see_each_document_whole(self, store: Store) -> None:
        """While a document is replaced again and again, every read sees all of one version and nothing of another."""

        def version(number: int) -> Change:
            chunks = tuple(
                chunk(f"v{number}p{part}", f"word version{number}", chunk_index=part) for part in range(PARTS)
            )
            return Change(chunks, units(PARTS, number), documents=(document("d", f"version{number}"),))

        await store.upsert(version(0))
        sides = (await store.describe()).sides
        done = asyncio.Event()

        async def write() -> None:
            for number in range(1, VERSIONS):
                await store.upsert(version(number))
            done.set()

        async def read() -> None:
            while not done.is_set():
                found = await store.fetch(FetchRequest(ranges=(ChunkRange("d", 0, PARTS),)))
                _assert_one_version(list(found.chunks))
                if "lexical" in sides:
                    _assert_one_version(await by_text(store, "word"))
                if "dense" in sides:
                    _assert_one_version(await by_vector(store, unit(0)))

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            for _ in range(SEARCHERS):
                group.create_task(read())
        assert set((await store.fetch(FetchRequest(ranges=(ChunkRange("d", 0, PARTS),)))).chunks) == {
            f"v{VERSIONS - 1}p{part}" for part in range(PARTS)
        }

    @on_new_store()
    async def test_concurrent_writes_are_all_kept(self, store: Store) -> None:
        """Writers that do not wait for each other lose nothing."""
        await asyncio.gather(*(put(store, chunk(f"c{row}", document=f"d{row}")) for row in range(20)))
        assert (await store.describe()).chunks == 20

    @on_new_store()
    async def test_a_closed_store_refuses_everything(self, store: Store) -> None:
        """After closing, every call raises a store error; closing again is fine."""
        await put(store, chunk("a"))
        await store.aclose()
        await store.aclose()
        for call in (
            store.describe,
            lambda: store.upsert(Change()),
            lambda: store.delete(["d"]),
            lambda: store.search(SearchRequest(1, text="text")),
            lambda: store.fetch(FetchRequest()),
        ):
            with pytest.raises(StoreError):
                await call()

    @on_new_store()
    async def test_a_store_can_be_closed_unused(self, store: Store) -> None:
        """Closing a store that was never asked for anything is fine."""
        await store.aclose()


def _assert_one_version(names: list[str]) -> None:
    versions = {name.partition("p")[0] for name in names}
    assert len(versions) == 1, versions
    assert len(names) == PARTS


class VersionTests(StoreTestBase):
    """The promises of :meth:`retrieval_core.ports.Store.version`; skipped for a store that is not."""

    @on_new_store(needs="version")
    async def test_every_write_changes_the_version(self, store: Store) -> None:
        """Adding, replacing by the same and deleting change it; reading does not."""
        seen = [await store.version()]
        assert seen == [None]
        for _ in range(2):
            await put(store, chunk("a", document="d"), documents=(document("d"),))
            seen.append(await store.version())
            await store.describe()
            assert await store.version() == seen[-1]
        await store.delete(["d"])
        seen.append(await store.version())
        assert None not in seen[1:]
        assert len(set(seen)) == len(seen)

    @on_new_store(needs="version")
    async def test_an_index_in_memory_is_that_of_the_last_write(self, store: Store) -> None:
        """The index that a store holds has the store's version and results; a store need not hold any."""
        for number in range(2):
            rows = [chunk(f"c{number}{row}", "moon", document=f"d{number}") for row in range(3)]
            await put(store, *rows, documents=(document(f"d{number}"),))
            sides = (await store.describe()).sides
            for _ in range(3):
                held = store.held()
                if held is None:
                    if "lexical" in sides:
                        await by_text(store, "moon")
                    await asyncio.sleep(0.01)
                    continue
                assert held.version == await store.version()
                for request in (
                    SearchRequest(5, vector=unit(0)),
                    SearchRequest(5, text="moon", filter=Ne("id", "c01")),
                ):
                    if ("lexical" if request.vector is None else "dense") in sides:
                        found = [(item.chunk_id, item.score) for item in held.search(request)]
                        assert found == [(item.chunk_id, item.score) for item in await store.search(request)]
                request = FetchRequest(chunk_ids=("c00", "c01", "nothing"), document_ids=("d0",))
                assert held.fetch(request) == await store.fetch(request)

    def test_two_indexes_have_two_versions(self, tmp_path: Path) -> None:
        """The same writes to another index give another version."""

        async def version_of_a_new_one(store: Store) -> None:
            if "version" not in store.capabilities:
                pytest.skip("this store does not tell its version")
            await put(store, chunk("a"))
            versions.add(await store.version())

        versions: set[str | None] = set()
        for name in ("one", "other"):
            folder = tmp_path / name
            folder.mkdir()
            self.run(folder, version_of_a_new_one)
        assert len(versions) == 2

    def test_two_copies_have_two_versions(self, tmp_path: Path) -> None:
        """What is written to each of two copies of one index gives another version, even if it is the same."""

        async def write(store: Store) -> None:
            if "version" not in store.capabilities:
                pytest.skip("this store does not tell its version")
            await put(store, chunk("a"))
            versions.append(await store.version())

        versions: list[str | None] = []
        template, *copies = (tmp_path / name for name in ("template", "one", "other"))
        template.mkdir()
        self.run(template, write)
        for folder in copies:
            shutil.copytree(template, folder)
            self.run(folder, write)
        assert len(set(versions)) == 3

    @pytest.mark.parametrize("writes", [0, 1, 2, 3])
    def test_an_index_that_is_put_back_is_noticed(self, tmp_path: Path, writes: int) -> None:
        """A reader that was open all the time finds what is there, however often the older index was written to."""
        place, backup = tmp_path / "place", tmp_path / "backup"
        place.mkdir()

        async def test() -> None:
            reader = as_store(await self.open_store(place))
            if "version" not in reader.capabilities:
                pytest.skip("this store does not tell its version")
            await self._write(place, "old")
            if not await holds_chunks(reader):
                pytest.skip("this store keeps no index in the folder")
            await asyncio.to_thread(shutil.copytree, place, backup)
            for name in ("new", "newer"):
                await self._write(place, name)
                seen = [await found(reader)]
            versions = [await reader.version()]
            assert seen == [{"old", "new", "newer"}]
            await asyncio.to_thread(shutil.rmtree, place)
            await asyncio.to_thread(shutil.copytree, backup, place)
            expected = {"old"}
            for number in range(writes):
                await self._write(place, f"since{number}")
                expected.add(f"since{number}")
            assert await found(reader) == expected
            versions.append(await reader.version())
            assert versions[0] != versions[1]
            await reader.aclose()

        async def holds_chunks(store: Store) -> bool:
            try:
                return bool((await store.describe()).chunks)
            except IndexNotFoundError:
                return False

        async def found(store: Store) -> set[str]:
            names = await by_text(store, "text")
            assert sorted(await by_vector(store, unit(0))) == sorted(names)
            for name in names:
                assert await by_vector(store, unit(0), condition=Eq("name", name)) == [name]
            return set(names)

        asyncio.run(test())

    async def _write(self, folder: Path, name: str) -> None:
        store = await self.open_store(folder)
        await put(store, chunk(name, document=name, metadata={"name": name}), documents=(document(name),))
        await store.aclose()


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
