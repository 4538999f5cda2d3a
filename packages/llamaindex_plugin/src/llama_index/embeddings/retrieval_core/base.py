"""Embedders of retrieval-core as LlamaIndex's embedding models."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager

from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.options import check_names
from retrieval_core.ports import Embedder, as_plugin
from retrieval_core.run.sync import SyncBridge


class RetrievalCoreEmbedding(BaseEmbedding):
    """An embedding model that runs on this machine, without a key or a server.

    With it LlamaIndex reads an index that retrieval-core filled, and the other way round::

        from llama_index.core import Settings
        from llama_index.embeddings.retrieval_core import RetrievalCoreEmbedding

        Settings.embed_model = RetrievalCoreEmbedding()

    It can be pickled if it loads its model itself, or if ``embedder`` can be pickled.

    Args:
        embedder: Any embedder of retrieval-core, which you close. Default: the model in ``model_name``.
        model_name: Folder with an ONNX model and its tokenizer. Default: the English model of the extra ``local``.
            With ``embedder``, the name that LlamaIndex records; by default the embedder's id.
        embed_batch_size: Texts of one call, at least 1.
        callback_manager: As of other models of LlamaIndex.
        fields: Other fields of LlamaIndex's ``BaseEmbedding``, such as ``num_workers``.

    Raises:
        InvalidParameterError: ``embedder`` is not an embedder, or ``model_name`` is not a folder.
        MissingExtraError: The extra ``local`` is not installed.
        ModelNotFoundError: The folder lacks a file.
    """

    _embedder: Embedder = PrivateAttr()
    _is_given: bool = PrivateAttr()
    _bridge: SyncBridge = PrivateAttr(default_factory=SyncBridge)

    def __init__(
        self,
        embedder: Embedder | None = None,
        *,
        model_name: str | None = None,
        embed_batch_size: int = 32,
        callback_manager: CallbackManager | None = None,
        **fields: Any,
    ) -> None:
        check_names(fields, tuple(type(self).model_fields))
        chosen = _local(model_name) if embedder is None else as_plugin(embedder, Embedder)
        super().__init__(
            model_name=model_name or chosen.id,
            embed_batch_size=embed_batch_size,
            callback_manager=CallbackManager() if callback_manager is None else callback_manager,
            **fields,
        )
        self._embedder = chosen
        self._is_given = embedder is not None

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
        # LlamaIndex would silently leave out what cannot be pickled. Callbacks belong to this process.
        state = {name: getattr(self, name) for name in type(self).model_fields if name != "callback_manager"}
        if self._is_given:
            state["embedder"] = self._embedder
        try:
            pickle.dumps(state)
        except Exception as error:
            msg = "a RetrievalCoreEmbedding cannot be pickled if its embedder cannot; make a new one instead"
            raise TypeError(msg) from error
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)

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


def _local(model_name: str | None) -> LocalEmbedder:
    if model_name is not None and Path(model_name).is_dir():
        return LocalEmbedder(folder=model_name)
    default = LocalEmbedder()
    if model_name in (None, default.id):  # LlamaIndex makes a model again from the fields that it recorded
        return default
    msg = (
        f"model_name must be a folder with an ONNX model, got {model_name!r:.200}; leave it out for {default.id}, "
        "or pass an embedder"
    )
    raise InvalidParameterError(msg)
