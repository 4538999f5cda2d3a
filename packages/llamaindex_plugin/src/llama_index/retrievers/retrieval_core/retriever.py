"""The LlamaIndex retriever on top of a pipeline.

Annotations are no text here: LlamaIndex makes the schema of a tool of them as they stand.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle

from llama_index.retrievers.retrieval_core.checks import (
    check_index_file,
    check_node_settings,
    check_pipeline,
    one_embed_model,
    one_top_k,
)
from llama_index.retrievers.retrieval_core.convert import ScoreKind, node_from_hit, relevance_of
from llama_index.retrievers.retrieval_core.events import RetrievalDegradedEvent, report
from llama_index.retrievers.retrieval_core.filters import Filters, as_filter
from llama_index.retrievers.retrieval_core.query import RetrievalQueryBundle, question, settings_left_behind
from llama_index.retrievers.retrieval_core.settings import load_settings
from retrieval_core.config import RetrievalConfig
from retrieval_core.errors import SearchError
from retrieval_core.index.index import Index
from retrieval_core.index.open import open_index
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.lifecycle import Closing
from retrieval_core.pipeline.options import QueryOptions, checked_values
from retrieval_core.ports import Embedder, Variant
from retrieval_core.types import RetrievalResult, SearchMode
from retrieval_core.types.filters import Filter, all_of

logger = logging.getLogger(__name__)


class RetrievalCoreRetriever(BaseRetriever, Closing):
    """Retrieve chunks with a retrieval-core pipeline, as nodes of LlamaIndex.

    ``retrieve`` may be called where an event loop is running, and then blocks that loop's thread; ``aretrieve`` blocks
    no loop. One retriever may serve any number of queries at once.

    Results are :class:`~llama_index.retrievers.retrieval_core.NodeHit`, with the citation and the scores beside the
    node. Over parts of LlamaIndex, each node is a copy of your node, with the same hash. Over an index it is a
    :class:`~llama_index.retrievers.retrieval_core.PassageNode`: its metadata are your fields and the provenance.

    If something did not work as configured, each result has it in ``degraded``, a warning is logged, and a
    :class:`RetrievalDegradedEvent` goes to LlamaIndex's instrumentation; so does the reason if a filter lets nothing
    pass because no chunk has the field, or none of that type. A fact that is the same for every query is logged once.
    If nothing could be searched, or a search failed and the others found nothing, an error is raised.

    The text of a query bundle is searched for; vector search also uses the texts in ``custom_embedding_strs``, as query
    transformations such as HyDE set them. The pipeline embeds the query itself, so an ``embedding`` is not used.
    Images are not used, and reported as degraded.

    Args:
        pipeline: You close it.
        top_k: The most nodes, 1 to 1000; by default the pipeline's.
        similarity_top_k: LlamaIndex's name of ``top_k``; give one of them.
        mode: Dense, lexical or hybrid search; by default the pipeline's.
        filters: Conditions on every node of every query: a filter, JSON, or ``MetadataFilters``.
        llm_metadata: Keys of the metadata that language models see before the text. Default: ``["citation"]``; for
            copies of your nodes only what they show anyway.
        score: ``"raw"`` orders the hits, and is comparable within one query only. ``"relevance"`` is in [0, 1], for
            ``SimilarityPostprocessor``: the score of the relevance filter, else of the reranker, else the cosine of
            query and chunk; 0 if only keyword search found it.
        objects: The objects of ``IndexNode`` among the nodes, as for every retriever of LlamaIndex.
        object_map: The same by the ids of these nodes.

    Raises:
        InvalidParameterError: ``pipeline`` is not a pipeline, or an argument is outside its range.
        UnsupportedFilterError: The filters have an operator or value without an exact counterpart.
        FilterError: The filters are not well formed.
    """

    def __init__(
        self,
        pipeline: RetrievalPipeline,
        *,
        top_k: int | None = None,
        similarity_top_k: int | None = None,
        mode: SearchMode | None = None,
        filters: Filters | None = None,
        llm_metadata: Sequence[str] | None = None,
        score: ScoreKind = "raw",
        callback_manager: CallbackManager | None = None,
        object_map: dict[str, Any] | None = None,
        objects: list[IndexNode] | None = None,
        verbose: bool = False,
    ) -> None:
        check_pipeline(pipeline)
        self.pipeline = pipeline
        self._top_k = one_top_k(top_k, similarity_top_k)
        self._mode: SearchMode | None = mode
        checked_values({"mode": mode})
        check_node_settings(llm_metadata, score)
        self._filter = as_filter(filters)
        self._llm_metadata = None if llm_metadata is None else tuple(llm_metadata)
        self._score: ScoreKind = score
        self._own_index: Index | None = None
        super().__init__(callback_manager, object_map, objects, verbose)  # pyright: ignore[reportUnknownMemberType]

    @property
    def similarity_top_k(self) -> int | None:
        """The default number of nodes of a query; ``None`` for the pipeline's."""
        return self._top_k

    @similarity_top_k.setter
    def similarity_top_k(self, top_k: int | None) -> None:
        self._top_k = one_top_k(top_k, None)

    def bound(
        self,
        *,
        filters: Filters | None = None,
        top_k: int | None = None,
        similarity_top_k: int | None = None,
        mode: SearchMode | None = None,
    ) -> "RetrievalCoreRetriever":
        """Return a retriever over the same pipeline with settings for every query, whatever the query is made of.

        HyDE, sub-questions and fusion make new queries and drop the settings of a :class:`RetrievalQueryBundle`; a
        bound retriever keeps them.

        Args:
            filters: Conditions on every node, on top of this retriever's.
            top_k: The most nodes, 1 to 1000; by default this retriever's.
            similarity_top_k: LlamaIndex's name of ``top_k``; give one of them.
            mode: Dense, lexical or hybrid search; by default this retriever's.

        Raises:
            InvalidParameterError: ``top_k`` or ``mode`` is outside its range.
            FilterError: As of the constructor.
        """
        top_k = one_top_k(top_k, similarity_top_k)
        return RetrievalCoreRetriever(
            self.pipeline,
            top_k=self._top_k if top_k is None else top_k,
            mode=self._mode if mode is None else mode,
            filters=all_of(self._filter, as_filter(filters)),
            llm_metadata=self._llm_metadata,
            score=self._score,
            callback_manager=self.callback_manager,
            object_map=self.object_map,  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            verbose=self._verbose,
        )

    def __getstate__(self) -> dict[str, Any]:
        msg = "a RetrievalCoreRetriever cannot be pickled or copied, because its index cannot; make a new one instead"
        raise TypeError(msg)

    @classmethod
    def from_index_file(
        cls,
        path: str | Path,
        *,
        config: RetrievalConfig | str | Path | None = None,
        embed_model: BaseEmbedding | Embedder | None = None,
        embedder: BaseEmbedding | Embedder | None = None,
        top_k: int | None = None,
        similarity_top_k: int | None = None,
        mode: SearchMode | None = None,
        filters: Filters | None = None,
        llm_metadata: Sequence[str] | None = None,
        score: ScoreKind = "raw",
        callback_manager: CallbackManager | None = None,
        object_map: dict[str, Any] | None = None,
        objects: list[IndexNode] | None = None,
        verbose: bool = False,
        **overrides: Any,
    ) -> Self:
        """Open an index file, and make a retriever that closes it.

        Nothing is loaded before the first query, which raises ``IndexNotFoundError`` if there is no such file. A path
        that is not an index is refused at once; checking it blocks for a moment.

        Args:
            path: The file.
            config: Settings, the name of a preset, or a TOML file. By default those that the index remembers, and a
                ``retrieval.toml`` beside it.
            embed_model: An embedding model of LlamaIndex, or an embedder, in place of the configured one. It must be
                the one that the index was built with.
            embedder: The former name of ``embed_model``.
            top_k: As of the constructor, like the following ones.
            overrides: Single settings with ``__`` for the dot, ``search__candidates=50``; they win over ``config``.

        Raises:
            ConfigurationError: A setting is wrong; ``problems`` has one line for each, beginning with its key.
            InvalidParameterError: ``path`` is a folder, ``embed_model`` is not an embedder, or as of the constructor.
            IndexFormatError: The file is not SQLite's.
            FilterError: As of the constructor.
        """
        settings = load_settings(config, overrides, cls.from_index_file, index=path)
        if settings.store.kind == "sqlite":  # other stores need no file
            check_index_file(Path(path or settings.index))
        index = open_index(path, config=settings, embedder=one_embed_model(embed_model, embedder))
        retriever = cls(
            index,
            top_k=top_k,
            similarity_top_k=similarity_top_k,
            mode=mode,
            filters=filters,
            llm_metadata=llm_metadata,
            score=score,
            callback_manager=callback_manager,
            object_map=object_map,
            objects=objects,
            verbose=verbose,
        )
        retriever._own_index = index
        return retriever

    def retrieve_with(
        self,
        query: str | QueryBundle,
        *,
        filters: Filters | None = None,
        top_k: int | None = None,
        mode: SearchMode | None = None,
    ) -> list[NodeWithScore]:
        """Find nodes as ``retrieve`` does, with settings for this query.

        Args:
            query: The question.
            filters: Conditions on every node, on top of the retriever's own filters.
            top_k: The most nodes, 1 to 1000; by default the retriever's.
            mode: Dense, lexical or hybrid search; by default the retriever's.

        Raises:
            RetrievalError: As of :meth:`retrieval_core.RetrievalPipeline.aretrieve`.
        """
        return self.retrieve(question(query, filters=filters, top_k=top_k, mode=mode))

    async def aretrieve_with(
        self,
        query: str | QueryBundle,
        *,
        filters: Filters | None = None,
        top_k: int | None = None,
        mode: SearchMode | None = None,
    ) -> list[NodeWithScore]:
        """Find nodes as ``aretrieve`` does, with settings for this query; see :meth:`retrieve_with`."""
        return await self.aretrieve(question(query, filters=filters, top_k=top_k, mode=mode))

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        filters, options = self._asked(query_bundle)
        return self._nodes(query_bundle, self.pipeline.retrieve(query_bundle.query_str, filters, **options))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        filters, options = self._asked(query_bundle)
        return self._nodes(query_bundle, await self.pipeline.aretrieve(query_bundle.query_str, filters, **options))

    def _asked(self, query: QueryBundle) -> tuple[Filter | None, QueryOptions]:
        asked = query if isinstance(query, RetrievalQueryBundle) else RetrievalQueryBundle(query.query_str)
        options: QueryOptions = {
            "top_k": self._top_k if asked.top_k is None else asked.top_k,
            "mode": self._mode if asked.mode is None else asked.mode,
            "variants": [
                Variant("passage", text, sides=frozenset({"dense"}), is_passage=True)
                for text in query.custom_embedding_strs or ()
                if text != query.query_str and text.strip()
            ],
            "syntax": False,  # language models write these queries as text
        }
        return all_of(self._filter, as_filter(asked.filters)), options

    def _nodes(self, query: QueryBundle, result: RetrievalResult) -> list[NodeWithScore]:
        """Return the hits as nodes, and report degradations.

        Raises:
            SearchError: Nothing could be searched, or one search failed and the others found nothing.
        """
        told = [f"{item.stage}: {item.reason}" for item in result.degraded]  # the pipeline has logged these
        if not result.hits and (error := result.metadata.get("error")) is not None:
            named = (line for item, line in zip(result.degraded, told, strict=True) if item.reason == error)
            msg = f"nothing was found, and at least one search failed: {next(named, str(error))}"
            raise SearchError(msg, {"degraded": told})
        own: list[str] = []
        if not result.hits and (note := result.metadata.get("note")) and note not in told:
            own.append(f"filters: {note}")
        if query.image_path is not None:
            own.append("query: the image is not used")
        if (left_behind := settings_left_behind(query)) is not None:
            own.append(left_behind)
        if self._score == "relevance" and result.hits and not any(relevance_of(hit.scores) for hit in result.hits):
            own.append('score: results of keyword search have no relevance; use score="raw"')
        if own:
            logger.warning("a query was answered, but not as configured: %s", "; ".join(own))
        if degraded := [*told, *own]:
            report(RetrievalDegradedEvent(query_str=query.query_str, degraded=degraded))
        return [
            node_from_hit(
                hit, rank, degraded, llm_metadata=self._llm_metadata, score=self._score, from_cache=result.from_cache
            )
            for rank, hit in enumerate(result.hits, start=1)
        ]

    def close(self) -> None:
        """Close the index that :meth:`from_index_file` opened; a pipeline that was given stays open.

        Closing twice is fine.
        """
        if self._own_index is not None:
            self._own_index.close()

    async def aclose(self) -> None:
        """Close without blocking the event loop."""
        if self._own_index is not None:
            await self._own_index.aclose()
