"""Several processes that index one folder at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

from retrieval_core import load_config, open_index
from retrieval_core.ports import Change, SourceState
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core.adapters.stores.postgres import PostgresStore
    from retrieval_core.types import Matrix
    from support.postgres_server import PostgresServer


class CountingEmbedder(FakeEmbedder):
    """Counts how often each text is embedded, by all that share the counter."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        self.counts.update(texts)
        await asyncio.sleep(0)
        return await super()._embed_texts(texts)


@pytest.mark.parametrize("files", [12, 400], ids=["in one write", "words first"])
def test_each_text_is_embedded_once(postgres: PostgresServer, tmp_path: Path, files: int) -> None:
    """By three indexers of one folder; each reports the whole index when it ends."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for row in range(files):
        (folder / f"{row}.md").write_text(f"# Note {row}\n\nThe moon has no air, says note {row}.\n")
    counts: Counter[str] = Counter()

    config = load_config(
        overrides={
            "index": str(tmp_path / "index"),
            "store.kind": "postgres",
            "store.postgres": {"url": postgres.url, "collection": f"claims_{files}"},
        }
    )

    async def run() -> None:
        indexes = [await asyncio.to_thread(open_index, config=config, embedder=CountingEmbedder(counts)) for _ in "123"]
        try:
            reports = await asyncio.gather(*(index.aingest(folder) for index in indexes))
            assert {(each.documents, each.chunks) for each in reports} == {(files, files)}
            assert sum(each.added for each in reports) == files
            assert not await indexes[0].store.unembedded()
        finally:
            for index in indexes:
                await index.aclose()

    asyncio.run(run())
    assert len(counts) == files
    assert set(counts.values()) == {1}


def test_work_of_a_process_that_is_gone_is_done_by_another(postgres: PostgresServer, tmp_path: Path) -> None:
    """A claim ends with its connection, and is refused or awaited until then."""

    async def run() -> None:
        one, other = postgres.store(tmp_path), postgres.store(tmp_path)
        try:
            async with one.claimed("work") as is_claimed:
                assert is_claimed
                assert not await is_free(other, "work")
                assert await is_free(other, "other work")
                waiting = asyncio.create_task(enter(other))
                await asyncio.sleep(0)
                assert not waiting.done()
            assert await waiting
        finally:
            await one.aclose()
            await other.aclose()

    async def is_free(store: PostgresStore, work: str) -> bool:
        async with store.claimed(work, is_patient=False) as is_ours:
            return is_ours

    async def enter(store: PostgresStore) -> bool:
        async with store.claimed("work") as is_ours:
            return is_ours

    asyncio.run(run())


def test_states_of_some_files_are_read_without_those_of_all(postgres: PostgresServer, tmp_path: Path) -> None:
    """Each write of a run asks for those of its own files; names may have any characters."""

    async def run() -> None:
        store = postgres.store(tmp_path)
        names = ["a", "ä 'quoted'", "\0", "100%"]
        states = {name: SourceState(name, "hash", "recipe", 1) for name in names}
        try:
            await store.upsert(Change(sources=tuple(states.values())))
            assert await store.sources() == states
            assert await store.sources({"a", "\0", "none"}) == {name: states[name] for name in ("a", "\0")}
            assert await store.sources(()) == {}
        finally:
            await store.aclose()

    asyncio.run(run())
