"""Single ways of finding passages, under the names that the field has for them.

Each is one mode of the pipeline, without reranking or anything else that follows a search. So they serve by themselves,
and as further retrievers of another pipeline, for instance to search a second index beside the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrieval_core.config import load_config
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.lifecycle import Closing
from retrieval_core.ports import Candidate, Versioned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.pipeline.stages.combine import VectorRule
    from retrieval_core.pipeline.stages.fuse import FusionMethod
    from retrieval_core.ports import Embedder, Store
    from retrieval_core.types import Hit
    from retrieval_core.types.filters import Filter, MetadataFilter

    Filters = Filter | MetadataFilter | Mapping[str, Any] | None


class BaseRetriever(Closing):
    """What the retrievers here share; not meant to be made itself.

    It owns what it was given: closing it closes the store and the embedder. A retriever of your own needs no base
    class, see :class:`retrieval_core.ports.Retriever`.

    Raises:
        ConfigurationError: A setting is outside its range.
    """

    def __init__(self, store: Store, embedder: Embedder | None, settings: Mapping[str, Any]) -> None:
        # Whoever asks a retriever wants to know that it failed; nothing stands in for it.
        config = load_config(overrides={**settings, "strict": True})
        self._pipeline = RetrievalPipeline(store, embedder, config=config)

    @property
    def id(self) -> str:
        """Names the way of searching and the embedder; empty where the store does not tell what it holds.

        Without an id, results of a pipeline that this is plugged into are not cached.
        """
        if not isinstance(self._pipeline.store, Versioned):
            return ""
        embedder = self._pipeline.embedder
        settings = self._pipeline.config.model_dump_json(include={"search", "vectors"})
        return f"{type(self).__name__} {settings} {None if embedder is None else embedder.id}"

    async def version(self) -> str | None:
        """Name the state of the index, as its store does; ``None`` before the first write, and where it does not tell.

        Raises:
            StoreError: The index cannot be read.
        """
        store = self._pipeline.store
        return await store.version() if isinstance(store, Versioned) else None

    async def search(self, query: str, k: int = 10, filters: Filters = None) -> tuple[Candidate, ...]:
        """Find passages: at most ``k``, best first, each with its chunk; none in an index that was not yet written.

        Raises:
            RetrievalError: As :meth:`RetrievalPipeline.aretrieve`, and whatever failed.
        """
        most = self._pipeline.config.limits.max_results
        try:
            result = await self._pipeline.aretrieve(query, filters, top_k=min(k, most))
        except IndexNotFoundError:
            return ()  # nothing was written yet
        return tuple(Candidate(hit.id, hit.score, hit.chunk) for hit in result.hits)

    def retrieve(self, query: str, k: int = 10, filters: Filters = None) -> tuple[Hit, ...]:
        """Find passages from synchronous code: at most ``k`` hits, best first, with all their scores.

        Raises:
            RetrievalError: As :meth:`search`.
        """
        return self._pipeline.retrieve(query, filters, top_k=k).hits

    async def aclose(self) -> None:
        """Close the store and the embedder. Closing twice is fine."""
        await self._pipeline.aclose()

    def close(self) -> None:
        """Close the store and the embedder. Closing twice is fine."""
        self._pipeline.close()


class BM25Retriever(BaseRetriever):
    """Finds passages by their words.

    Args:
        store: Where to search.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store, None, {"search": {"mode": "lexical"}})


class DenseRetriever(BaseRetriever):
    """Finds passages by their meaning.

    Args:
        store: Where to search.
        embedder: The one that the index was built with.
    """

    def __init__(self, store: Store, embedder: Embedder) -> None:
        super().__init__(store, embedder, {"search": {"mode": "dense"}, "vectors": {"weights": {}}})


class HybridRetriever(BaseRetriever):
    """Finds passages by words and by meaning, and combines both.

    Args:
        store: Where to search.
        embedder: The one that the index was built with.
        dense_weight: In [0, 1]; words have the rest.
        fusion: See :mod:`retrieval_core.pipeline.stages.fuse`; ``minmax`` is ``(1 - w) * bm25 + w * dense`` of scaled
            scores.
        candidates: Passages asked of each side.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        *,
        dense_weight: float = 0.5,
        fusion: FusionMethod = "zscore",
        candidates: int = 200,
    ) -> None:
        search = {"mode": "hybrid", "dense_weight": dense_weight, "fusion": fusion, "candidates": candidates}
        super().__init__(store, embedder, {"search": search, "vectors": {"weights": {}}})


class MultiVectorRetriever(BaseRetriever):
    """Finds passages by several vectors of each, such as those of the text and of the title.

    Args:
        store: Where to search; opened with the names of its further vectors.
        embedder: The one that the index was built with.
        weights: The weight of each further vector, above 0; the passage's own has 1.
        rule: How the cosines become one score, see :mod:`retrieval_core.pipeline.stages.combine`.

    Raises:
        InvalidParameterError: There is no further vector to search.
    """

    def __init__(
        self, store: Store, embedder: Embedder, weights: Mapping[str, float], rule: VectorRule = "max"
    ) -> None:
        if not weights:
            msg = "weights must name at least one further vector, for instance {'title': 1.0}; else use DenseRetriever"
            raise InvalidParameterError(msg)
        vectors = {"weights": dict(weights), "rule": rule}
        super().__init__(store, embedder, {"search": {"mode": "dense"}, "vectors": vectors})
