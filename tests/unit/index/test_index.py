from __future__ import annotations

import asyncio
import gc
import threading
import time
from operator import gt
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core import Chunk, Document, Index, RetrievalConfig, open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import StoreConfig
from retrieval_core.errors import ServiceConnectionError, StoreError
from retrieval_core.index.index import seconds_for_note
from retrieval_core.ports import Fetched, FetchRequest, StoreInfo
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import content_hash

if TYPE_CHECKING:
    from retrieval_core.ingest.report import IndexProgress

PATIENCE = 30.0
CONFIG = RetrievalConfig(store=StoreConfig(kind="memory"))
CHUNKS = [Chunk("a#0", "a", "a telescope shows saturn", metadata={"n": 1}), Chunk("b#0", "b", "bread with a crust")]


def an_index(folder: Path) -> Index:
    return open_index(folder / "index.db", config=CONFIG, embedder=FakeEmbedder())


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "stars.md").write_text("# Saturn\n\nA telescope shows its rings.\n", encoding="utf-8")
    (folder / "bread.txt").write_text("Bread is baked until the crust is brown.\n", encoding="utf-8")
    return folder


def test_files_in_and_passages_out(tmp_path: Path, files: Path) -> None:
    """A folder is indexed, found in, described, and a document taken out, all from synchronous code."""
    progress: list[IndexProgress] = []
    with an_index(tmp_path) as index:
        report = index.ingest(files, progress.append)
        assert (report.documents, report.added, report.failed) == (2, 2, ())
        assert progress[-1].files_done == 2
        (best,) = index.retrieve("rings of saturn", top_k=1).hits
        assert best.chunk.document_id == "files/stars.md"
        assert index.retrieve("rings of saturn", {"document_id": "files/bread.txt"}, top_k=1, mode="dense").hits != (
            best,
        )
        assert index.describe().documents == 2
        assert index.delete("files/stars.md") == 1
        assert index.describe().documents == 1


def test_the_same_asynchronously(tmp_path: Path, files: Path) -> None:
    """Every method has a coroutine function of its name with an ``a`` before it."""

    async def main() -> None:
        async with an_index(tmp_path) as index:
            report = await index.aingest([files / "stars.md", str(files / "bread.txt")])
            assert report.documents == 2
            assert (await index.aretrieve("rings of saturn", top_k=1)).documents[0].document_id == "files/stars.md"
            assert await index.adelete("files/stars.md") == 1
            assert (await index.adescribe()).documents == 1
            await index.aadd(CHUNKS)
            assert (await index.adescribe()).chunks == 3

    asyncio.run(main())


def test_chunks_made_elsewhere(tmp_path: Path) -> None:
    """Chunks can be added without files, and are found."""
    with an_index(tmp_path) as index:
        index.add(CHUNKS)
        assert index.retrieve("saturn", {"n": 1}).documents[0].text == CHUNKS[0].text


def test_documents_made_elsewhere(tmp_path: Path) -> None:
    """Whole texts can be added without files; they are split, and counted as they are written."""
    written: list[int] = []
    documents = [Document(name, f"{name} is a planet.", name, content_hash(name)) for name in ("Saturn", "Jupiter")]
    with an_index(tmp_path) as index:
        index.add_documents(documents, written.append)
        assert written[-1] == 2
        assert index.retrieve("Jupiter", top_k=1).documents[0].document_id == "Jupiter"


def test_closing(tmp_path: Path) -> None:
    """A closed index refuses further calls, and closing again is fine, in either way."""
    index = an_index(tmp_path)
    index.add(CHUNKS)
    index.close()
    index.close()
    asyncio.run(index.aclose())
    with pytest.raises(StoreError, match="closed"):
        index.retrieve("saturn")
    with pytest.raises(StoreError, match="the index is closed; open it again"):
        index.add_documents([Document("late", "Too late.")])
    index.sync.close()


def test_asking_from_a_callback_is_refused(tmp_path: Path, files: Path) -> None:
    """A synchronous method called from a progress callback says so, instead of waiting for itself for ever."""
    with an_index(tmp_path) as index, pytest.raises(RuntimeError, match="synchronous"):
        index.ingest(files, lambda _: index.describe() and None)


def test_a_whole_document_can_be_read(tmp_path: Path, files: Path) -> None:
    """A passage is a range of its document's text; a document that is not there is none."""
    with an_index(tmp_path) as index:
        index.ingest(files)
        chunk = index.retrieve("rings of saturn", top_k=1).hits[0].chunk
        document = index.document(chunk.document_id)
        assert document is not None
        assert chunk.span is not None
        assert document.text[chunk.span.start : chunk.span.end] == chunk.text
        assert index.document("nowhere") is None


def test_a_preset_is_a_configuration(tmp_path: Path, files: Path) -> None:
    """By its name, as on the command line."""
    with open_index(tmp_path / "words.db", config="lexical") as index:
        index.ingest(files)
        assert index.retrieve("crust").hits[0].chunk.document_id == "files/bread.txt"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the open files of this process cannot be counted")
@pytest.mark.parametrize(("kind", "several"), [("memory", 30), ("sqlite", 30), ("lancedb", 5)])
def test_indexes_that_nobody_closed_let_go_of_what_they_held(
    tmp_path: Path, files: Path, kind: str, several: int
) -> None:
    """They leave neither threads nor open files once they are collected."""
    if kind == "lancedb":
        pytest.importorskip("lancedb", reason="the extra 'lancedb' is not installed")

    def use(number: int) -> None:
        config = RetrievalConfig(store=StoreConfig(kind=cast("Any", kind)))
        index = open_index(tmp_path / f"index{number}", config=config, embedder=FakeEmbedder())
        index.ingest(files)
        assert index.retrieve("rings of saturn").hits
        assert asyncio.run(index.aretrieve("bread with a crust")).hits

    def held() -> tuple[int, int]:
        gc.collect()
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    use(0)  # what libraries keep for the whole process
    before = held()
    for number in range(1, several + 1):
        use(number)
    until = time.monotonic() + PATIENCE
    while any(map(gt, after := held(), before)) and time.monotonic() < until:  # threads end by themselves
        time.sleep(0.01)
    assert after[0] <= before[0]
    assert after[1] <= before[1]


def test_reading_is_guarded_as_a_search_is(tmp_path: Path) -> None:
    """A store without coroutine functions serves, a call that failed is made again."""

    class Blocking:
        id = "blocking"
        sides = frozenset({"lexical"})
        failures = 1

        def search(self, _request: object) -> tuple[()]:
            return ()

        def describe(self) -> StoreInfo:
            return asyncio.run(MemoryStore().describe())

        def fetch(self, request: FetchRequest) -> Fetched:
            self.failures -= 1
            if self.failures >= 0:
                raise ServiceConnectionError("gone for a moment")
            return Fetched(documents={name: Document(name, "text", "s", "h") for name in request.document_ids})

        async def aclose(self) -> None: ...

    store, clock = Blocking(), FakeClock()
    index = open_index(tmp_path / "index.db", config=CONFIG, embedder=FakeEmbedder(), store=cast("Any", store))
    guarded = Index(cast("Any", store), ingester=cast("Any", index._ingester), clock=clock)
    assert guarded.describe().chunks == 0
    document = asyncio.run(guarded.adocument("a"))
    assert document is not None
    assert document.text == "text"
    store.failures = 100
    with pytest.raises(ServiceConnectionError):
        asyncio.run(guarded.adocument("a"))
    guarded.close()


@pytest.mark.parametrize(("left", "seconds"), [(None, 5.0), (30.0, 5.0), (2.0, 2.0), (0.0, 0.5), (-1.0, 0.5)])
def test_the_question_whether_an_index_is_whole_ends_with_the_deadline(left: float | None, seconds: float) -> None:
    """A query of two seconds doesn't wait five for a store that has stopped answering."""
    assert seconds_for_note(left) == seconds
