"""From parts of LlamaIndex to a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from llama_index.core import llms
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.indices.vector_store.base import VectorStoreIndex
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_index.retrievers.retrieval_core.adapters.embedder import LlamaIndexEmbedder, as_embedder
from llama_index.retrievers.retrieval_core.adapters.llm import LlamaIndexLLM
from llama_index.retrievers.retrieval_core.adapters.reranker import LlamaIndexReranker
from llama_index.retrievers.retrieval_core.adapters.retriever import LlamaIndexRetrieverStore
from llama_index.retrievers.retrieval_core.adapters.store import LlamaIndexStore
from llama_index.retrievers.retrieval_core.checks import check_kind
from llama_index.retrievers.retrieval_core.settings import load_settings
from retrieval_core.adapters.registry import build_analyzer
from retrieval_core.config import RetrievalConfig, check_complete
from retrieval_core.errors import InvalidParameterError
from retrieval_core.index.open import build_pipeline
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import LLM, Embedder, Reranker, Store, as_plugin


def from_index(
    index: VectorStoreIndex,
    *,
    embed_model: BaseEmbedding | Embedder | None = None,
    llm: llms.LLM | LLM | None = None,
    rerank: BaseNodePostprocessor | Reranker | Sequence[BaseNodePostprocessor | Reranker] | None = None,
    config: RetrievalConfig | str | Path | None = None,
    docstore: BaseDocumentStore | None = None,
    **overrides: Any,
) -> RetrievalPipeline:
    """Return a pipeline over a ``VectorStoreIndex``, which stays as it is; see :func:`pipeline_from`."""
    _check_used(overrides)
    config = load_settings(config, overrides, from_index)
    return pipeline_from(index=index, embed_model=embed_model, llm=llm, rerank=rerank, config=config, docstore=docstore)


def pipeline_from(
    *,
    vector_store: BasePydanticVectorStore | None = None,
    index: VectorStoreIndex | None = None,
    retriever: BaseRetriever | None = None,
    embed_model: BaseEmbedding | Embedder | None = None,
    llm: llms.LLM | LLM | None = None,
    rerank: BaseNodePostprocessor | Reranker | Sequence[BaseNodePostprocessor | Reranker] | None = None,
    config: RetrievalConfig | str | Path | None = None,
    docstore: BaseDocumentStore | None = None,
    **overrides: Any,
) -> RetrievalPipeline:
    """Return a pipeline over components of LlamaIndex; closing it leaves them open.

    Pass exactly one of ``vector_store``, ``index`` and ``retriever``. A vector store gets vector search, and
    keyword search if it supports it, or if a docstore has its nodes; see :class:`LlamaIndexStore`. Otherwise every
    result reports that under ``degraded``, unless ``search.mode`` is ``dense``. A retriever gets the query as text, and
    is the only search: the mode of the pipeline is then ``lexical``.

    Args:
        vector_store: A vector store of LlamaIndex. ``embed_model`` must be the model of its vectors.
        index: Provides vector store, docstore, ids and embedding model.
        retriever: A retriever of LlamaIndex.
        embed_model: An embedding model of LlamaIndex, or an embedder. Default: that of the index.
        llm: A language model of LlamaIndex or of this library. Default: the configured one.
        rerank: Reranking postprocessors of LlamaIndex, or rerankers; each is the fallback of the one before it.
            Default: the configured one.
        config: Settings, the name of a preset, or a TOML file. Its store and embedder are not used.
        docstore: The nodes of the vector store. Default: the docstore of the index.
        overrides: Single settings with ``__`` for the dot, ``search__candidates=50``; they win over ``config``.

    Raises:
        InvalidParameterError: A part is of another kind, or they do not fit together.
        ConfigurationError: A setting is wrong, or something that it needs is missing.
    """
    given = {"vector_store": vector_store, "index": index, "retriever": retriever}
    named = [name for name, part in given.items() if part is not None]
    if len(named) != 1:
        msg = f"give one of vector_store, index and retriever, got {' and '.join(named) or 'none'}"
        raise InvalidParameterError(msg)
    if retriever is not None and docstore is not None:
        msg = "a docstore goes with a vector store or an index; a retriever has its own"
        raise InvalidParameterError(msg)
    _check_used(overrides)
    settings = load_settings(config, overrides, pipeline_from)
    check_complete(settings, with_embedder=False, with_store=False, with_llm=llm is None)
    store: Store
    if retriever is not None:
        store = LlamaIndexRetrieverStore(retriever)
        settings = settings.model_copy(update={"search": settings.search.model_copy(update={"mode": "lexical"})})
    else:
        node_ids = None
        if index is not None:
            check_kind(
                index, "index", VectorStoreIndex, "a VectorStoreIndex; for others call pipeline_from(retriever=…)"
            )
            vector_store = index.vector_store
            if docstore is None or docstore is index.docstore:  # of another one's nodes an index need not know
                docstore, node_ids = index.docstore, index.index_struct.nodes_dict
            embed_model = embed_model or cast("BaseEmbedding", getattr(index, "_embed_model", None))
        if embed_model is None:
            msg = "a vector store needs embed_model, the one whose vectors it holds, such as Settings.embed_model"
            raise InvalidParameterError(msg)
        embed_model = as_embedder(embed_model, "embed_model")
        store = LlamaIndexStore(
            cast("BasePydanticVectorStore", vector_store),
            docstore=docstore,
            node_ids=node_ids,
            analyzer=build_analyzer(settings.analysis),
            words=settings.search.mode != "dense",
            vectors=settings.search.search_type == "mmr",
            length_of=embed_model.length_of if isinstance(embed_model, LlamaIndexEmbedder) else None,
        )
    return build_pipeline(
        settings,
        store,
        None if embed_model is None else as_embedder(embed_model, "embed_model"),
        llm=None if llm is None else _llm(llm),
        reranker=None if rerank is None else _rerankers(rerank),
    )


def _check_used(overrides: Mapping[str, Any]) -> None:
    if unused := [name for name in overrides if name.partition("__")[0] in {"store", "embedder"}]:
        msg = (
            f"{', '.join(unused)}: the store and the embedding model are those of LlamaIndex; set embed_model= instead"
        )
        raise InvalidParameterError(msg)


def _rerankers(
    given: BaseNodePostprocessor | Reranker | Sequence[BaseNodePostprocessor | Reranker],
) -> Sequence[Reranker]:
    several = given if isinstance(given, (list, tuple)) else (given,)
    return [_reranker(one) for one in cast("Sequence[BaseNodePostprocessor | Reranker]", several)]


def _reranker(given: BaseNodePostprocessor | Reranker) -> Reranker:
    if isinstance(given, BaseNodePostprocessor):
        return LlamaIndexReranker(given)
    return as_plugin(given, Reranker, "rerank")


def _llm(given: llms.LLM | LLM) -> LLM:
    if isinstance(given, llms.LLM):
        return LlamaIndexLLM(given)
    return as_plugin(given, LLM, "llm")
