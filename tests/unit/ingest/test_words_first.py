"""Many new passages: their words first, their vectors afterwards, and nothing embedded twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import ChunkingConfig
from retrieval_core.errors import EmbeddingError, IndexFormatError, NotYetEmbeddedError
from retrieval_core.ingest.ingester import Ingester
from retrieval_core.ingest.report import CHUNKS_PER_WRITE, equal_together
from retrieval_core.ports import FetchRequest, SearchRequest
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core.ingest.report import IndexProgress
    from retrieval_core.ports import Change, Fetched
    from retrieval_core.types import Matrix

pytestmark = pytest.mark.slow

MANY = 3 * CHUNKS_PER_WRITE
FEW = CHUNKS_PER_WRITE // 2


class Watched(MemoryStore):
    """Notes how many passages had words and vectors after each write."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.states: list[tuple[int, int]] = []

    async def upsert(self, change: Change) -> None:
        await super().upsert(change)
        await self._note()

    async def add_vectors(self, change: Change) -> int:
        added = await super().add_vectors(change)
        await self._note()
        return added

    async def _note(self) -> None:
        info = await self.describe()
        self.states.append((info.chunks, info.chunks - info.unembedded))


class AtOnce:
    """A store that adds no vectors later."""

    def __init__(self, store: Watched) -> None:
        self._store = store
        for name in ("describe", "upsert", "delete", "search", "fetch", "sources", "documents_of", "aclose"):
            setattr(self, name, getattr(store, name))


class Bench:
    """A folder of files with a passage each, its index, and everything counted."""

    def __init__(self, folder: Path, *, adds_vectors: bool = True, **settings: Any) -> None:
        self.folder = folder
        self.embedder = FakeEmbedder()
        self.store = Watched(embedder_id=self.embedder.id, dimension=self.embedder.dimension)
        self.progress: list[IndexProgress] = []
        store: Any = self.store if adds_vectors else AtOnce(self.store)
        self.ingester = Ingester(store, self.embedder, chunking=ChunkingConfig(), base=folder, **settings)

    def write(self, count: int, text: str = "The word number {}.") -> None:
        for number in range(count):
            (self.folder / f"{number:04}.md").write_text(text.format(number))

    def index(self) -> None:
        asyncio.run(self.ingester.index([self.folder], self.progress.append))

    def embedded(self) -> list[str]:
        """Return the texts that were embedded since the last time."""
        texts = [text for batch in self.embedder.batches for text in batch]
        self.embedder.batches.clear()
        return texts

    def unembedded(self) -> int:
        return asyncio.run(self.store.describe()).unembedded

    def vectors(self) -> dict[str, bytes]:
        """Return the vector of each passage, by its text."""
        found = asyncio.run(self.store.search(SearchRequest(10_000, text="word")))
        request = FetchRequest(chunk_ids=tuple(item.chunk_id for item in found), with_vectors=True)
        fetched = asyncio.run(self.store.fetch(request))
        return {chunk.indexed_text: fetched.vectors[chunk.id].tobytes() for chunk in fetched.chunks.values()}

    def expected(self) -> dict[str, bytes]:
        texts = list(self.vectors())
        matrix = asyncio.run(FakeEmbedder().embed_texts(texts))
        return {text: row.tobytes() for text, row in zip(texts, matrix, strict=True)}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_all_words_are_written_before_the_first_vector(bench: Bench) -> None:
    """Then every passage is embedded once, and has the vector of its own text."""
    bench.write(MANY)
    bench.index()
    words = [state for state in bench.store.states if not state[1]]
    assert words[-1] == (MANY, 0)
    assert bench.store.states[len(words) :] == [(MANY, n * CHUNKS_PER_WRITE) for n in (1, 2, 3)]
    assert len(bench.embedded()) == MANY
    assert bench.vectors() == bench.expected()


def test_a_few_new_passages_come_with_their_vectors(bench: Bench) -> None:
    """They are embedded soon, and a search in between would know less than before."""
    bench.write(FEW)
    bench.index()
    assert bench.store.states == [(FEW, FEW)]


def test_words_and_vectors_are_written_together_if_the_store_cannot_add_vectors_later(tmp_path: Path) -> None:
    """So every chunk that is found has its vector."""
    bench = Bench(tmp_path, adds_vectors=False)
    bench.write(MANY)
    bench.index()
    assert len(bench.store.states) > 1
    assert all(chunks == embedded for chunks, embedded in bench.store.states)
    assert bench.vectors() == bench.expected()


def test_progress_tells_of_words_and_then_of_vectors(bench: Bench) -> None:
    """Nothing is to be embedded until all words are written, and in the end everything is."""
    bench.write(MANY)
    bench.index()
    words = [each for each in bench.progress if not each.to_embed]
    assert [each.embedded for each in words] == [0] * len(words)
    assert (words[-1].files_done, words[-1].chunks_done) == (MANY, MANY)
    later = bench.progress[len(words) :]
    assert [(each.embedded, each.to_embed) for each in later] == [(n * CHUNKS_PER_WRITE, MANY) for n in (1, 2, 3)]


def test_a_run_that_breaks_off_is_completed_by_the_next(bench: Bench) -> None:
    """What has its vector by then is not embedded again, although no file has changed since."""

    def fail(progress: IndexProgress) -> None:
        if progress.embedded:
            bench.embedder.failure = EmbeddingError("gone")

    bench.write(MANY)
    with pytest.raises(EmbeddingError):
        asyncio.run(bench.ingester.index([bench.folder], fail))
    assert bench.unembedded() == MANY - CHUNKS_PER_WRITE
    with pytest.raises(NotYetEmbeddedError, match="indexing in progress, 33% embedded"):
        asyncio.run(bench.store.search(SearchRequest(1, vector=np.ones(256, dtype=np.float32))))
    bench.embedded()
    bench.embedder.failure = None
    bench.index()
    assert len(bench.embedded()) == MANY - CHUNKS_PER_WRITE
    assert (bench.unembedded(), bench.vectors()) == (0, bench.expected())
    bench.index()
    assert bench.embedded() == []


def test_equal_passages_are_embedded_once(bench: Bench) -> None:
    """Wherever they stand; those with another title are not equal."""
    bench.write(MANY, "The same word.\n")
    (bench.folder / "titled.md").write_text("# Title\n\nThe same word.\n")
    bench.index()
    assert sorted(bench.embedded()) == sorted({*bench.vectors()})
    assert len(bench.vectors()) == 2
    assert (bench.unembedded(), bench.vectors()) == (0, bench.expected())


def test_equal_passages_of_one_write_are_embedded_once(bench: Bench) -> None:
    """Also where they come with their vectors."""
    bench.write(FEW, "The same word.\n")
    bench.index()
    assert len(bench.embedded()) == 1


def test_what_a_changed_file_still_says_is_not_embedded_again(bench: Bench) -> None:
    """Wherever in the file it is now; the vectors are those of the texts."""
    path = bench.folder / "long.md"
    sections = [f"## Section {number}\n\n" + f"The word {number} is here. " * 40 for number in range(6)]
    intro = "# Guide\n\n" + "The first word is here. " * 40
    path.write_text("\n\n".join([intro, *sections]))
    bench.index()
    assert len(bench.embedded()) == 7
    sections[2] = "## Section 2\n\n" + "Another word is here. " * 40
    path.write_text("\n\n".join([intro, sections[5], *sections[:5]]))
    bench.index()
    (text,) = bench.embedded()
    assert "Another word" in text
    assert bench.vectors() == bench.expected()


def test_many_changed_files_keep_the_vectors_that_they_can(bench: Bench) -> None:
    """Those known before are written with the words."""
    text = "# One {0}\n\n" + "The first word {0}. " * 40 + "\n\n# Two {0}\n\n" + "The second word {0}. " * 40
    bench.write(MANY, text)
    bench.index()
    bench.embedded()
    bench.store.states.clear()
    bench.write(MANY, text.replace("second", "other"))
    bench.index()
    assert min(embedded for _, embedded in bench.store.states) == MANY
    assert len(bench.embedded()) == MANY
    assert (bench.unembedded(), bench.vectors()) == (0, bench.expected())


def test_vectors_of_another_embedder_are_not_taken_over(bench: Bench) -> None:
    """What says that another model made it is embedded anew."""
    bench.write(FEW)
    bench.index()
    bench.embedded()
    for entry in bench.store._contents.chunks.values():
        object.__setattr__(entry.chunk, "embedding_model", "another")
    bench.write(FEW, "The word number {}.\n")
    bench.index()
    assert len(bench.embedded()) == FEW


def test_what_cannot_be_read_any_more_is_embedded_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexing a file again is the remedy for a damaged record."""

    async def damaged(_: FetchRequest) -> Fetched:
        msg = "the record is damaged"
        raise IndexFormatError(msg)

    bench.write(FEW)
    bench.index()
    bench.embedded()
    bench.write(FEW, "Another word number {}.")
    monkeypatch.setattr(bench.store, "fetch", damaged)
    bench.index()
    assert len(bench.embedded()) == FEW


def test_what_vanishes_meanwhile_is_passed_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may have removed what was to be embedded."""
    bench.write(MANY)
    embed = bench.embedder.embed_texts

    async def embed_and_lose(texts: Sequence[str]) -> Matrix:
        await bench.store.delete([f"{number:04}.md" for number in range(0, MANY, 2)])
        return await embed(texts)

    monkeypatch.setattr(bench.embedder, "embed_texts", embed_and_lose)
    bench.index()
    info = asyncio.run(bench.store.describe())
    assert (info.chunks, info.unembedded) == (MANY // 2, 0)


def test_equal_ones_are_next_to_each_other() -> None:
    """In the order of the first of them; every id comes once."""
    hashes = {f"c{number:03}": str(number % 100) for number in range(400)}
    batches = list(equal_together(hashes))
    ids = [name for batch in batches for name in batch]
    assert sorted(ids) == sorted(hashes)
    assert ids[:5] == ["c000", "c100", "c200", "c300", "c001"]
    assert {len(batch) for batch in batches[:-1]} == {CHUNKS_PER_WRITE}
    assert list(equal_together({})) == []
