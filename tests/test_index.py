from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from retrieval_core import Chunk, Document, Index, RetrievalConfig, open_index
from retrieval_core.config import StoreConfig
from retrieval_core.errors import StoreError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import content_hash

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ingest.report import IndexProgress

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
        report = index.index(files, progress.append)
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
            report = await index.aindex([files / "stars.md", str(files / "bread.txt")])
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
    index.pipeline.sync.close()


def test_asking_from_a_callback_is_refused(tmp_path: Path, files: Path) -> None:
    """A synchronous method called from a progress callback says so, instead of waiting for itself for ever."""
    with an_index(tmp_path) as index, pytest.raises(RuntimeError, match="synchronous"):
        index.index(files, lambda _: index.describe() and None)


def test_a_whole_document_can_be_read(tmp_path: Path, files: Path) -> None:
    """A passage is a range of its document's text; a document that is not there is none."""
    with an_index(tmp_path) as index:
        index.index(files)
        chunk = index.retrieve("rings of saturn", top_k=1).hits[0].chunk
        document = index.document(chunk.document_id)
        assert document is not None
        assert chunk.span is not None
        assert document.text[chunk.span.start : chunk.span.end] == chunk.text
        assert index.document("nowhere") is None


def test_a_preset_is_a_configuration(tmp_path: Path, files: Path) -> None:
    """By its name, as on the command line."""
    with open_index(tmp_path / "words.db", config="lexical") as index:
        index.index(files)
        assert index.retrieve("crust").hits[0].chunk.document_id == "files/bread.txt"
