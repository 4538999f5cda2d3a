"""An index at a place, opened with the embedder it was built with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, cast

from retrieval_core.adapters.registry import build_analyzer, build_store
from retrieval_core.errors import EmbedderMismatchError, IndexNotFoundError, InvalidParameterError
from retrieval_core.ports import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.ports import (
        Candidate,
        Change,
        Embedder,
        Fetched,
        FetchRequest,
        SearchRequest,
        SourceState,
        StoreInfo,
    )


@dataclass(frozen=True, slots=True)
class Model:
    """What an index has to know of an embedding model.

    Attributes:
        id: As in :attr:`retrieval_core.ports.Embedder.id`.
        dimension: ``None`` where the first vectors tell.
    """

    id: str
    dimension: int | None


class IndexFileStore(Store):
    """A store that is opened by its first call, whatever embedder its index names.

    LlamaIndex embeds by itself, and hands over vectors without the name of their model. So an index that is there is
    opened with the embedder in its manifest, and the vectors' dimension is all that can be checked, unless a model is
    named; a new one needs the name of its model.

    Args:
        location: The file or folder.
        model: That the vectors are from.
    """

    def __init__(self, config: RetrievalConfig, location: Path, model: Model | None = None) -> None:
        self._config = config
        self._location = location
        self._model = model
        self._lock = Lock()  # calls may come from the loops of several threads
        self._named: Store | None = None
        self._unnamed: Store | None = None

    @property
    def embedder_id(self) -> str | None:
        """The id of the model that was named."""
        return None if self._model is None else self._model.id

    @property
    def location(self) -> str:
        """The file or folder."""
        return str(self._location)

    async def _describe(self) -> StoreInfo:
        return await (await self._opened()).describe()

    async def _upsert(self, change: Change) -> None:
        """Apply a change durably; the first one makes the index.

        Raises:
            InvalidParameterError: The index is new, and no model was named.
            EmbedderMismatchError: The index was built with another model than the one that was named.
        """
        dimension = None if change.vectors is None else change.vectors.shape[-1]
        await (await self._opened(dimension, writing=True)).upsert(change)

    async def _delete(self, document_ids: Sequence[str]) -> int:
        return await (await self._opened()).delete(document_ids)

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        dimension = None if request.vector is None else request.vector.shape[-1]
        return await (await self._opened(dimension)).search(request)

    async def _fetch(self, request: FetchRequest) -> Fetched:
        return await (await self._opened()).fetch(request)

    async def _unembedded(self) -> Mapping[str, str]:
        store = await self._opened()
        return await store.unembedded() if "unembedded" in store.capabilities else {}

    async def _sources(self) -> Mapping[str, SourceState]:
        return await (await self._opened()).sources()

    async def _documents_of(self, source: str) -> Mapping[str, str]:
        return await (await self._opened()).documents_of(source)

    async def _close(self) -> None:
        with self._lock:
            stores = (self._named, self._unnamed)
            self._named = self._unnamed = None
        for store in stores:
            if store is not None:
                await store.aclose()

    async def _opened(self, dimension: int | None = None, *, writing: bool = False) -> Store:
        """Return the store, opened with the embedder of its index or, for a new one, with the model that was named.

        Where neither is known, it is one that can be read without vectors.
        """
        self._check_open()
        if self._named is not None:
            return self._named
        unnamed = self._unnamed or await self._settle(None)
        try:
            manifest = (await unnamed.describe()).manifest
        except IndexNotFoundError:
            if not writing:
                raise
            manifest = None
        if manifest is None:
            model = self._new(dimension, writing=writing)
            return unnamed if model is None else await self._settle(model)
        if manifest.embedder_id is None:
            return unnamed
        if self._model is not None and self._model.id != manifest.embedder_id:
            raise EmbedderMismatchError(manifest.embedder_id, self._model.id, str(self._location))
        return await self._settle(Model(manifest.embedder_id, manifest.dimension))

    def _new(self, dimension: int | None, *, writing: bool) -> Model | None:
        """Return the model of an index without a manifest, ``None`` where it is read without vectors."""
        known = None if self._model is None else self._model.dimension or dimension
        if self._model is not None and known is not None:
            return Model(self._model.id, known)
        if not writing and dimension is None:
            return None
        if self._model is None:
            msg = (
                f"{self._location} does not say which model its vectors are from, and LlamaIndex does not tell either. "
                "Name the model that you give to LlamaIndex: RetrievalCoreVectorStore.from_index_file(path, "
                "embed_model=…)"
            )
            raise InvalidParameterError(msg)
        msg = f"{self._location} is new, and the nodes have no embeddings; LlamaIndex's VectorStoreIndex adds them"
        raise InvalidParameterError(msg)

    async def _settle(self, model: Model | None) -> Store:
        """Open the store, and return it or the one that another call has opened meanwhile."""
        store = await asyncio.to_thread(self._made, model)
        with self._lock:
            former = self._unnamed if model is None else self._named
            if former is None and not self._closed:
                if model is None:
                    self._unnamed = store
                else:
                    self._named = store
                return store
        await store.aclose()
        return store if former is None else former

    def _made(self, model: Model | None) -> Store:
        analyzer = build_analyzer(self._config.analysis)
        # Of an embedder stores take its id and dimension alone.
        embedder = cast("Embedder | None", model)
        return build_store(self._config.store, self._location, embedder, analyzer=analyzer)
