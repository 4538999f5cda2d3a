"""Single settings as keyword arguments, and the result cache, for users of LlamaIndex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.retrievers.retrieval_core import NodeHit, RetrievalCoreRetriever
from llama_index.retrievers.retrieval_core.adapters import from_index, pipeline_from
from retrieval_core import Chunk, load_config, open_index
from retrieval_core.errors import ConfigurationError, InvalidParameterError
from retrieval_core.testing.fakes import FakeEmbedder
from support.llamaindex_library import CHUNKS
from support.llamaindex_parts import WordEmbedding, index_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def over_store(**options: Any) -> Any:
    index = index_of()
    parts: dict[str, Any] = {"vector_store": index.vector_store, "docstore": index.docstore}
    return pipeline_from(embed_model=WordEmbedding(), **parts, **options)


def over_index(**options: Any) -> Any:
    return from_index(index_of(), **options)


@pytest.mark.parametrize("make", [over_index, over_store])
@pytest.mark.parametrize("config", [None, "lexical", load_config(overrides={"search.top_k": 4})])
def test_a_keyword_wins_over_the_settings(make: Callable[..., Any], config: Any) -> None:
    with make(config=config, search__top_k=2, search__mode="dense") as pipeline:
        assert len(pipeline.retrieve("the moon").hits) == 2


@pytest.mark.parametrize(("given", "meant"), [("search__topk", "top_k"), ("embedmodel", "embed_model")])
def test_an_unknown_keyword_is_an_error_with_the_one_that_was_meant(given: str, meant: str) -> None:
    options: dict[str, Any] = {given: 2}
    with pytest.raises(ConfigurationError, match=rf"{given.replace('__', '.')}: .*{meant}"):
        from_index(index_of(), **options)


@pytest.mark.parametrize("make", [over_index, over_store])
def test_settings_of_parts_that_llamaindex_gives_are_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(InvalidParameterError, match="embedder__kind: the store and the embedding model"):
        make(embedder__kind="none")


def from_cache(nodes: list[Any]) -> set[bool]:
    assert nodes
    assert all(isinstance(item, NodeHit) for item in nodes)
    return {item.from_cache for item in nodes}


def test_nodes_say_whether_their_result_is_from_the_cache(tmp_path: Path) -> None:
    """Until the index changes; over a store of LlamaIndex nobody knows whether it does."""
    file, embedder = tmp_path / "index.db", FakeEmbedder()
    with open_index(file, embedder=embedder) as index:
        index.add(CHUNKS)
        with RetrievalCoreRetriever.from_index_file(file, embedder=embedder) as retriever:
            assert [from_cache(retriever.retrieve("moon")) for _ in range(2)] == [{False}, {True}]
            index.add([Chunk("new", "new.md", "The moon is new.")])
            assert from_cache(retriever.retrieve("moon")) == {False}
        with RetrievalCoreRetriever.from_index_file(file, embedder=embedder, cache__kind="none") as retriever:
            assert [from_cache(retriever.retrieve("moon")) for _ in range(2)] == [{False}, {False}]
    with from_index(index_of()) as pipeline:
        retriever = RetrievalCoreRetriever(pipeline)
        assert [from_cache(retriever.retrieve("moon")) for _ in range(2)] == [{False}, {False}]
