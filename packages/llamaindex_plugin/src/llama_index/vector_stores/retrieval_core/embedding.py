"""Embedders of retrieval-core as LlamaIndex's embedding models."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager

from retrieval_core.ports import Embedder, as_plugin
from retrieval_core.run.sync import SyncBridge


class RetrievalCoreEmbedding(BaseEmbedding):
    """An embedder of retrieval-core as an embedding model of LlamaIndex.

    With it LlamaIndex reads an index that retrieval-core filled, and the other way round.

    Args:
        embedder: Stays the caller's.

    Raises:
        InvalidParameterError: ``embedder`` is none.
    """

    _embedder: Embedder = PrivateAttr()
    _bridge: SyncBridge = PrivateAttr(default_factory=SyncBridge)

    def __init__(
        self, embedder: Embedder, *, embed_batch_size: int = 32, callback_manager: CallbackManager | None = None
    ) -> None:
        embedder = as_plugin(embedder, Embedder)
        super().__init__(
            model_name=embedder.id,
            embed_batch_size=embed_batch_size,
            callback_manager=CallbackManager() if callback_manager is None else callback_manager,
        )
        self._embedder = embedder

    @classmethod
    def class_name(cls) -> str:
        """Name the model in what LlamaIndex records."""
        return "RetrievalCoreEmbedding"

    @property
    def embedder(self) -> Embedder:
        """The embedder."""
        return self._embedder

    @property
    def embedder_id(self) -> str:
        """The embedder's id, by which an index knows whose vectors it holds."""
        return self._embedder.id

    def __getstate__(self) -> dict[str, Any]:
        # LlamaIndex would silently leave the embedder out.
        msg = "a RetrievalCoreEmbedding cannot be pickled, because its embedder cannot; make a new one instead"
        raise TypeError(msg)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._bridge.run(self._aget_query_embedding(query))

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return (await self._embedder.embed_query(query)).tolist()

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._aget_text_embeddings([text]))[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._bridge.run(self._aget_text_embeddings(texts))

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return (await self._embedder.embed_texts(texts)).tolist()

    def close(self) -> None:
        """Stop the background loop of synchronous calls, if there is one. Closing twice is fine."""
        self._bridge.close()
