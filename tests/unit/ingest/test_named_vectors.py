"""Further vectors of chunks are made as they are indexed, each distinct text once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import ChunkingConfig, VectorsConfig
from retrieval_core.errors import EmbeddingError, InvalidParameterError
from retrieval_core.index.builders.backends import named_fields
from retrieval_core.ingest.embedding import LONGEST_TEXT, ChunkVectors
from retrieval_core.ingest.ingester import Ingester
from retrieval_core.ingest.reading import READING_VERSION
from retrieval_core.ports import SearchRequest
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from support.examples import times

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from retrieval_core.types import Metadata

FIELDS = {"title": "title", "headings": "section", "summary": "metadata.about.summary"}


class Bench:
    """An index with further vectors, and what was embedded for it."""

    def __init__(self, folder: Path, fields: Mapping[str, str] = FIELDS) -> None:
        self.folder = folder
        self.embedder = FakeEmbedder()
        self.store = MemoryStore(embedder_id=self.embedder.id, dimension=self.embedder.dimension, vectors=tuple(fields))
        self.use(fields)

    def use(self, fields: Mapping[str, str]) -> None:
        self.ingester = Ingester(self.store, self.embedder, chunking=ChunkingConfig(), base=self.folder, vectors=fields)

    def add(self, *chunks: Chunk) -> None:
        asyncio.run(self.ingester.add(chunks))

    def best(self, name: str, text: str) -> dict[str, float]:
        """Return the cosines of a text with the vectors of a name, rounded, by chunk id."""

        async def search() -> dict[str, float]:
            vector = await self.embedder.embed_query(text)
            found = await self.store.search(SearchRequest(100, vector=vector, vector_name=name))
            return {item.chunk_id: round(item.score, 3) for item in found}

        return asyncio.run(search())


def test_each_name_has_the_vector_of_its_text(tmp_path: Path) -> None:
    """Of title, headings and a field of the metadata; a chunk without a text has no vector of that name."""
    bench = Bench(tmp_path)
    bench.add(
        Chunk(
            "a", "d", "body", title="moon", section_path=("guide", "distance"), metadata={"about": {"summary": "far"}}
        ),
        Chunk("b", "d", "body", title=" ", metadata={"about": {"summary": ["near", 7, "hot"]}}),
        Chunk("c", "d", "body", metadata={"about": {"summary": 7}, "title": "moon"}),
    )
    assert bench.best("title", "moon") == {"a": 1.0}
    assert bench.best("headings", "guide distance") == {"a": 1.0}
    assert bench.best("summary", "near hot") == {"b": 1.0, "a": 0.0}


def test_equal_texts_are_embedded_once(tmp_path: Path) -> None:
    """Two requests a batch: the passages, and every distinct text of all names."""
    bench = Bench(tmp_path)
    bench.add(
        *(Chunk(f"c{number}", "d", f"body {number}", title="same", section_path=("same",)) for number in range(9))
    )
    assert [len(batch) for batch in bench.embedder.batches] == [9, 1]
    assert len(bench.best("title", "same")) == len(bench.best("headings", "same")) == 9


def test_files_get_their_vectors_and_other_fields_are_noticed(tmp_path: Path) -> None:
    """Indexing again costs nothing; what is embedded for a name belongs to the recipe."""
    bench = Bench(tmp_path, {"name": "title"})
    (tmp_path / "a.md").write_text("# Moon\n\n## Distance\n\nIt is far away.\n")
    assert asyncio.run(bench.ingester.index([tmp_path])).added == 1
    assert list(bench.best("name", "moon").values()) == [1.0]
    batches = len(bench.embedder.batches)
    assert asyncio.run(bench.ingester.index([tmp_path])).unchanged == 1
    assert len(bench.embedder.batches) == batches
    bench.use({"name": "section"})
    assert asyncio.run(bench.ingester.index([tmp_path])).updated == 1
    assert list(bench.best("name", "moon distance").values()) == [1.0]


def test_recipes_without_names_are_as_they_were(tmp_path: Path) -> None:
    """Indexes made before there were further vectors are not read anew."""
    bench = Bench(tmp_path, {})
    chunking = ChunkingConfig()
    assert bench.ingester._recipe == f"{READING_VERSION} {chunking.model_dump_json()} {bench.embedder.id}"
    assert Ingester(bench.store, None, chunking=chunking, base=tmp_path)._recipe.endswith("} None")
    bench.add(Chunk("a", "d", "body", title="moon"))
    assert [len(batch) for batch in bench.embedder.batches] == [1]


def test_a_failure_writes_nothing(tmp_path: Path) -> None:
    """Where the further texts cannot be embedded, neither passage nor vector is there."""
    bench = Bench(tmp_path)
    embed_texts = bench.embedder.embed_texts

    async def only_bodies(texts: Any) -> Any:
        if "moon" in texts:
            raise OSError("broken")
        return await embed_texts(texts)

    bench.embedder.embed_texts = only_bodies
    with pytest.raises(EmbeddingError, match="1 texts could not be embedded"):
        bench.add(Chunk("a", "d", "body", title="moon"))
    assert asyncio.run(bench.store.describe()).chunks == 0


def test_long_texts_are_cut(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"summary": "metadata.summary"})
    bench.add(Chunk("a", "d", "body", metadata={"summary": "x" * (LONGEST_TEXT + 5)}))
    assert len(bench.embedder.batches[-1][0]) == LONGEST_TEXT


@pytest.mark.parametrize("field", ["text", "metadata.", "metadata", ""])
def test_unknown_fields_are_refused(field: str) -> None:
    pool = ThreadPool("test", 1)
    try:
        with pytest.raises(InvalidParameterError, match="use title, section or metadata"):
            ChunkVectors(FakeEmbedder(), {"name": field}, pool)
        with pytest.raises(InvalidParameterError, match="need an embedder"):
            ChunkVectors(None, FIELDS, pool)
        assert asyncio.run(ChunkVectors(None, {}, pool).named([Chunk("a", "d", "x", title="t")])) == {}
    finally:
        pool.close()


def test_without_an_embedder_there_are_no_names() -> None:
    config = VectorsConfig(fields=FIELDS)
    assert named_fields(config, None) == {}
    assert named_fields(config, FakeEmbedder()) == FIELDS


_Row: TypeAlias = "tuple[str, list[str], str | list[str] | None]"
_TEXT = st.sampled_from(["", " ", "moon", "sun", "the far moon"])
_CHUNKS = st.lists(
    st.tuples(_TEXT, st.lists(_TEXT, max_size=2), st.one_of(_TEXT, st.lists(_TEXT), st.none())), max_size=6
)


@settings(max_examples=times(150), deadline=None)
@given(_CHUNKS)
def test_vectors_are_those_of_the_texts(rows: list[_Row]) -> None:
    """For any chunks, each has exactly the vectors for which it has a text, and each text is embedded once."""
    metadata: list[Metadata] = [
        {"about": {"summary": [*value] if isinstance(value, list) else value}} for *_, value in rows
    ]
    chunks = [
        Chunk(str(number), "d", "body", title=title, section_path=tuple(path), metadata=metadata[number])
        for number, (title, path, _) in enumerate(rows)
    ]
    expected: dict[str, dict[str, str]] = {name: {} for name in FIELDS}
    for number, (title, path, value) in enumerate(rows):
        lines = "\n".join(value) if isinstance(value, list) else value or ""
        texts = {"title": title, "headings": " > ".join(part for part in path if part), "summary": lines}
        for name, text in texts.items():
            if text.strip():
                expected[name][str(number)] = text.strip()
    embedder, pool = FakeEmbedder(), ThreadPool("test", 1)
    try:
        named = asyncio.run(ChunkVectors(embedder, FIELDS, pool).named(chunks))
        assert {name: set(vectors) for name, vectors in named.items()} == {
            name: set(texts) for name, texts in expected.items() if texts
        }
        assert len(embedder.batches) <= 1
        embedded = [text for batch in embedder.batches for text in batch]
        assert len(set(embedded)) == len(embedded)
        for name, vectors in named.items():
            for key, vector in vectors.items():
                (alone,) = asyncio.run(embedder.embed_texts([expected[name][key]]))
                np.testing.assert_array_equal(vector, alone)
    finally:
        pool.close()
