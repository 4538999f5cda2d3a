"""LangChain: a retriever over an index, and a document compressor over a reranker.

::

    from retrieval_core.integrations.langchain import RetrievalCoreRetriever

    retriever = RetrievalCoreRetriever("notes.db", k=4)
    documents = retriever.invoke("how far away is the moon")
"""

from __future__ import annotations

import json
import logging
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.adapters.local_models.work import needing_extra

with needing_extra("langchain", "The retriever of LangChain"):
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.retrievers import BaseRetriever

from pydantic import Field, PrivateAttr

from retrieval_core.adapters.rerankers.local import ExcerptReranker, LocalCrossEncoder
from retrieval_core.config import RerankerConfig, RetrievalConfig
from retrieval_core.errors import InvalidParameterError, checked_count
from retrieval_core.integrations.hits import engine_of, metadata_of
from retrieval_core.pipeline.lifecycle import Calls, reranker_chain
from retrieval_core.pipeline.options import (
    MAX_TOP_K,
    QueryOptions,
    check_names,
    checked_number,
    checked_values,
    condition_of,
)
from retrieval_core.pipeline.stages.format import shown_text
from retrieval_core.pipeline.stages.rerank import rerank
from retrieval_core.run.outcomes import raise_faults
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types import Chunk, Hit, Scores
from retrieval_core.types.documents import freeze_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
        Callbacks,
    )

    from retrieval_core.pipeline.options import Filters
    from retrieval_core.pipeline.query_engine import QueryEngine
    from retrieval_core.ports import Reranker
    from retrieval_core.types import RetrievalResult, SearchMode

logger = logging.getLogger("retrieval_core")
_OPTIONS = ("k", "filters", *QueryOptions.__annotations__)


class RetrievalCoreRetriever(BaseRetriever):
    """Search an index from LangChain.

    The ``metadata`` of each document have its origin: ``source``, ``title``, ``section``, ``lines``, ``pages``,
    ``document_id``, ``chunk_id`` and ``citation``; and its ``score``, which is comparable within one query only. Then
    come the document's own fields, which keep their names. ``id`` is the chunk's.

    Every option of a query can also be given with one call: ``retriever.invoke("moon", k=2, mode="keyword")``.

    A retriever of a path opens the index, and can be pickled; close it with ``retriever.index.close()``.

    Args:
        index: An open index, or several of :func:`retrieval_core.open_indexes`; or the path of one.
        k: Most documents, 1 to 1000. Default: as configured, 10.
        filters: Metadata filter that every document must match, such as ``{"year": {"$gte": 2024}}``.
        mode: ``hybrid``, ``vector`` or ``keyword``. Default: as configured.
        search_kwargs: Further options of each query; see :class:`~retrieval_core.pipeline.options.QueryOptions`.
        fields: ``name``, ``tags`` and ``metadata`` of LangChain.

    Raises:
        InvalidParameterError: ``index`` is neither an index nor a path, or ``k`` or an option is invalid.
        FilterError: The filter is invalid.
        TypeError: There is no such field or option.
    """

    index: Any
    k: int | None = None
    filters: Any = None
    mode: str | None = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict[str, Any])
    _path: str | Path | None = PrivateAttr(default=None)

    def __init__(
        self,
        index: QueryEngine | str | Path,
        *,
        k: int | None = None,
        filters: Filters = None,
        mode: SearchMode | None = None,
        search_kwargs: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        check_names(fields, tuple(type(self).model_fields))
        if k is not None:
            checked_number("k", k, MAX_TOP_K)
        own = {"k": k, "filters": filters, "mode": mode, "search_kwargs": search_kwargs or {}}
        super().__init__(index=engine_of(index), **own, **fields)  # pyright: ignore[reportCallIssue] - pydantic's
        self._path = index if isinstance(index, (str, Path)) else None
        options: dict[str, Any] = self._options({})
        condition_of(options.pop("filters"))
        checked_values(cast("QueryOptions", options))

    def add_documents(self, documents: Iterable[Document]) -> list[str]:
        """Add documents of a loader or a splitter to the index: all of them or none. Return their IDs.

        Each becomes a chunk and replaces the chunk with the same ID, so split long ones first. The ID is the document's
        ``id`` or, without one, a hash of its text and metadata. Documents with one ``source`` are one document of the
        index: ``retriever.index.delete("moon.md")`` removes them.

        Raises:
            InvalidParameterError: Metadata is not JSON.
            EmbeddingError: A text could not be embedded.
            StoreError: The index can't be written.
        """
        ids, chunks = _as_chunks(documents)
        self.index.add(chunks)
        return ids

    async def aadd_documents(self, documents: Iterable[Document]) -> list[str]:
        """Add documents of a loader or a splitter to the index, as :meth:`add_documents`. Return their IDs."""
        ids, chunks = _as_chunks(documents)
        await self.index.aadd(chunks)
        return ids

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        del run_manager
        return _documents(self.index.retrieve(query, **self._options(options)))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        del run_manager
        return _documents(await self.index.aretrieve(query, **self._options(options)))

    def _options(self, given: dict[str, Any]) -> dict[str, Any]:
        check_names({**self.search_kwargs, **given}, _OPTIONS)
        own = {"top_k": self.k, "filters": self.filters, "mode": self.mode, **self.search_kwargs, **given}
        if (k := own.pop("k", None)) is not None:
            own["top_k"] = k
        return own

    def __getstate__(self) -> dict[Any, Any]:
        """Return the state with the path instead of the open index."""
        if self._path is None:
            msg = "a retriever of an open index can't be pickled; make it with the path of the index"
            raise TypeError(msg)
        state = super().__getstate__()
        return {**state, "__dict__": {**state["__dict__"], "index": self._path}}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        """Open the index again."""
        super().__setstate__(
            {**state, "__dict__": {**state["__dict__"], "index": engine_of(state["__dict__"]["index"])}}
        )


def _documents(result: RetrievalResult) -> list[Document]:
    return [Document(id=hit.id, page_content=shown_text(hit), metadata=metadata_of(hit, result)) for hit in result.hits]


def _as_chunks(documents: Iterable[Document]) -> tuple[list[str], list[Chunk]]:
    """Return the ID of each document, and a chunk for each ID: splitters may make one twice."""
    chunks = [_as_chunk(document) for document in documents]
    return [chunk.id for chunk in chunks], list({chunk.id: chunk for chunk in chunks}.values())


def _as_chunk(document: Document) -> Chunk:
    text, metadata = document.page_content, freeze_metadata(document.metadata)
    name = document.id or sha256(json.dumps([text, metadata], sort_keys=True).encode()).hexdigest()[:32]
    source = _text_field(document, "source")
    return Chunk(name, source or name, text, title=_text_field(document, "title"), source=source, metadata=metadata)


def _text_field(document: Document, name: str) -> str | None:
    value = document.metadata.get(name)
    return value if isinstance(value, str) and value else None


class RetrievalCoreReranker(BaseDocumentCompressor):
    """Put documents of any retriever into a better order, and keep the best.

    Each document gets a ``relevance_score`` in its metadata, 0 to 1; given documents are not changed. If the reranker
    fails, the first ``top_n`` documents are returned unchanged, and a warning is logged. A wrong key or a missing
    package is always raised.

    Args:
        reranker: A reranker such as ``CohereReranker(api_key=…)``, or several: if one fails, the next one is used. You
            close them. Default: a small cross-encoder that runs in this process, off the event loop (the extra
            ``local``).
        top_n: Most documents, at least 1; ``None`` for all.

    Raises:
        InvalidParameterError: ``reranker`` is not a reranker, or ``top_n`` is out of range.
    """

    top_n: int | None = 3
    _given: Any = PrivateAttr()
    _chain: tuple[Any, ...] = PrivateAttr()
    _calls: Calls = PrivateAttr()

    def __init__(self, reranker: Reranker | Sequence[Reranker] | None = None, *, top_n: int | None = 3) -> None:
        if not (
            chain := reranker_chain(ExcerptReranker(LocalCrossEncoder(), Analyzer()) if reranker is None else reranker)
        ):
            msg = "there is no reranker in the sequence; leave it out for the local cross-encoder"
            raise InvalidParameterError(msg)
        super().__init__(top_n=None if top_n is None else checked_count(top_n, "top_n"))  # pyright: ignore[reportCallIssue]
        self._given, self._chain, self._calls = reranker, chain, Calls(RetrievalConfig())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments; the local model is loaded again."""
        return partial(type(self), self._given, top_n=self.top_n), ()

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return the best documents, best first."""
        return self._calls.sync.run(self.acompress_documents(documents, query, callbacks))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return the best documents, best first."""
        del callbacks
        hits = [_as_hit(document, number) for number, document in enumerate(documents)]
        settings = RerankerConfig(candidates=max(1, len(hits)), weight=1)
        reranked = await rerank(self._calls.begin(), self._chain, query, hits, settings)
        raise_faults(reranked.failures, strict=False)
        for item in (*reranked.failures, *reranked.degraded):
            logger.warning("%s: %s", item.stage, item.reason)
        return [_with_score(documents[int(hit.id)], hit.scores.rerank) for hit in reranked.hits[: self.top_n]]


def _as_hit(document: Document, number: int) -> Hit:
    name = str(number)
    return Hit(Chunk(name, name, document.page_content, title=_text_field(document, "title")), 0.0, Scores())


def _with_score(document: Document, score: float | None) -> Document:
    added = {} if score is None else {"relevance_score": score}
    return document.model_copy(update={"metadata": {**document.metadata, **added}})
