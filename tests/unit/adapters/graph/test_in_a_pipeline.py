"""A graph beside the searches of a pipeline, and on the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from retrieval_core import load_config, open_index
from retrieval_core.adapters.graph import GraphQueryTranslator, KnowledgeGraph, Triple
from retrieval_core.adapters.registry import build_graph_translator
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.config import GraphConfig, RetrievalConfig
from retrieval_core.index.settings import load_index_config
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Change, Versioned
from retrieval_core.types import Chunk, RetrievalResult
from retrieval_core.types.filters import Eq

CHUNKS = (
    Chunk("bio#0", "bio", "He came from a town on the Danube.", source="bio.md"),
    Chunk("city#0", "city", "Einstein went to school in Munich.", source="city.md"),
    Chunk("other#0", "other", "Where it was, nobody knows.", source="other.md"),
)
LINE = '{"subject": "Einstein", "relation": "born in", "object": "Ulm", "chunk_id": "bio#0"}\n'


def ask(triples: list[Triple], question: str, *, source: str | None = None) -> RetrievalResult:
    config = load_config("lexical")

    async def run() -> RetrievalResult:
        store = MemoryStore(embedder_id=None, dimension=None)
        await store.upsert(Change(chunks=CHUNKS))
        translator = GraphQueryTranslator(KnowledgeGraph(triples), store)
        async with RetrievalPipeline(store, transformers={"graph": translator}, config=config) as pipeline:
            return await pipeline.aretrieve(question, Eq("source", source) if source else None, transforms=("graph",))

    return asyncio.run(run())


def test_a_linked_chunk_is_found() -> None:
    """A chunk that shares no word with the question is in the result, which says how it got there."""
    result = ask([Triple("Einstein", "born in", "Ulm", "bio#0")], "where was Einstein born")
    hits = {hit.chunk.id: hit for hit in result.hits}
    assert {"bio#0", "city#0"} <= hits.keys()
    assert [(origin.kind, origin.text) for origin in hits["bio#0"].found_by] == [("graph", "Einstein -born in-> Ulm")]
    assert result.degraded == ()


def test_names_are_searched_for() -> None:
    """Facts without a place find chunks by the names of the entities."""
    result = ask([Triple("Einstein", "born near", "Danube")], "where was Einstein born")
    assert "bio#0" in [hit.chunk.id for hit in result.hits]


def test_a_filter_holds_for_linked_chunks() -> None:
    """No fact leads past the filter of a query, nor to a chunk that is no longer there."""
    triples = [Triple("Einstein", "born in", "Ulm", "bio#0"), Triple("Einstein", "died in", "Princeton", "gone#0")]
    result = ask(triples, "where was Einstein born", source="city.md")
    assert [hit.chunk.id for hit in result.hits] == ["city#0"]


def test_it_names_its_versions() -> None:
    """So that results are not kept for longer than the graph is the same."""
    assert isinstance(GraphQueryTranslator(KnowledgeGraph([])), Versioned)


def test_a_graph_is_built_if_its_file_is_set(tmp_path: Path) -> None:
    store = MemoryStore(embedder_id=None, dimension=None)
    assert build_graph_translator(GraphConfig(), store) is None
    assert build_graph_translator(GraphConfig(file=tmp_path / "facts.jsonl"), store) is not None


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with open_index("index.db", config=RetrievalConfig(embedder={"kind": "none"})) as index:  # type: ignore[arg-type]
        index.add(CHUNKS)
    (tmp_path / "facts.jsonl").write_text(LINE)
    return tmp_path


def test_an_index_that_was_built_with_extraction_still_opens(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The setting that it remembers is ignored with a warning, and its extracted file can be searched."""
    record = '{"chunk_id": "bio#0", "document_id": "bio", "content_hash": "h"}\n'
    (here / "index.db.graph.jsonl").write_text(record + LINE)
    with open_index("index.db") as index:
        assert isinstance(index.store, SqliteStore)
        index.sync.run(index.store.remember(json.dumps({"graph.extract": True, "embedder.kind": "none"})))
    config = load_index_config("index.db", overrides={"graph.file": "index.db.graph.jsonl"})
    with open_index(config=config) as index:
        found = index.retrieve("where was Einstein born", transforms=("graph",)).hits
    assert "bio#0" in [hit.id for hit in found]
    assert "graph.extract" in caplog.text
