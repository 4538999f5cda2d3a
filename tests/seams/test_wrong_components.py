"""Components that are none are refused when an index is opened; models of LangChain work through an adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk, load_config, open_index, open_indexes
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.compat.models import adapt_embedder, adapt_llm
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Embedder, as_plugin
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ROLES = ("embedder", "llm", "token_counter", "observer", "store", "reranker")


class Embeddings:
    """The interface of LangChain's embeddings."""

    model = "letters"

    def embed_query(self, text: str) -> list[float]:
        return [1.0 + text.lower().count(letter) for letter in "aeiou"]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


class Chat:
    """The interface of LangChain's chat models."""

    model_name = "chat"

    def invoke(self, turns: list[tuple[str, str]]) -> str:
        return "The moon is bright [1]."


class Nameless:
    """An embedder without an id."""

    dimension = 5
    embed_query = Embeddings.embed_query
    embed_texts = Embeddings.embed_documents


def opened(how: str, folder: Path, **given: Any) -> Any:
    """Open an index, several, or a pipeline with components."""
    config = load_config(overrides={"store.kind": "memory", "embedder.kind": "none"})
    if how == "open_index":
        return open_index(folder / "i.db", config=config, **given)
    if how == "open_indexes":
        return open_indexes({"a": folder / "a.db"}, config=config, **given)
    return RetrievalPipeline(given.pop("store", MemoryStore()), config=config, **given)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("how", ["open_index", "open_indexes", "RetrievalPipeline"])
@pytest.mark.parametrize("wrong", ["sk-secret", 3, object(), Embeddings()], ids=["text", "number", "object", "other"])
def test_a_component_that_is_none_is_refused_at_opening(how: str, role: str, wrong: object, tmp_path: Path) -> None:
    """The error names the argument and the type that was given, and never the value, which may be a secret."""
    if (how, role) in {("open_indexes", "store"), ("RetrievalPipeline", "llm")}:
        pytest.skip("there is no such argument")
    with pytest.raises(InvalidParameterError) as caught:
        opened(how, tmp_path, **{role: wrong})
    assert role in str(caught.value)
    assert type(wrong).__name__ in str(caught.value)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("role", "wrong", "missing", "adapter"),
    [
        ("embedder", Embeddings(), "id, dimension, embed_texts", "retrieval_core.compat.models.adapt_embedder("),
        ("llm", Chat(), "id, complete, stream", "retrieval_core.compat.models.adapt_llm("),
        ("embedder", Nameless(), "id", "adapt_embedder("),
    ],
)
def test_the_error_names_what_is_missing_and_the_adapter(
    role: str, wrong: object, missing: str, adapter: str, tmp_path: Path
) -> None:
    """For a model of LangChain it says which call makes it fit."""
    with pytest.raises(InvalidParameterError) as caught:
        opened("open_index", tmp_path, **{role: wrong})
    assert f"has no {missing}." in str(caught.value)
    assert adapter in str(caught.value)


def test_a_class_in_place_of_an_instance_is_named(tmp_path: Path) -> None:
    """The error says to give an instance."""
    with pytest.raises(InvalidParameterError, match=r"the class .*FakeEmbedder\. Give an instance of it"):
        opened("open_index", tmp_path, embedder=FakeEmbedder)


def test_models_of_langchain_work_through_their_adapters(tmp_path: Path) -> None:
    """An index with adapted embeddings finds, and an adapted chat model answers."""
    config = load_config(overrides={"store.kind": "memory"})
    embedder, llm = adapt_embedder(Embeddings()), adapt_llm(Chat())
    with open_index(
        tmp_path / "i.db", config=config, embedder=embedder, llm=llm, token_counter=lambda text: len(text.split())
    ) as index:
        index.add([Chunk("a#0", "a", "The moon is bright.")])
        assert index.retrieve("bright moon", mode="dense").hits[0].id == "a#0"
        assert "moon is bright" in index.answer("What is bright?").text


def test_a_chain_of_rerankers_is_checked_one_by_one(tmp_path: Path) -> None:
    """An empty chain is fine; a wrong member is refused."""
    opened("open_index", tmp_path, reranker=()).close()
    with pytest.raises(InvalidParameterError, match="reranker must be an object with id, batch_size and score"):
        opened("open_index", tmp_path, reranker=[object()])


def test_a_plugin_of_a_base_class_without_an_id_is_refused() -> None:
    class Nameless(Embedder):
        dimension = 2

        async def _embed_query(self, text: str) -> Any:
            return [1.0, float(len(text))]

        async def _embed_texts(self, texts: Sequence[str]) -> Any:
            return [await self._embed_query(text) for text in texts]

    with pytest.raises(InvalidParameterError, match="Nameless has no id"):
        as_plugin(Nameless(), Embedder)
