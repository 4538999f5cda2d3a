"""The postprocessor that makes nodes a context pack: with citations, in order, nothing twice, within a budget."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Unpack, cast

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle

from llama_index.postprocessor.retrieval_core._base import ModelOptions, ModelPostprocessor, with_text
from llama_index.postprocessor.retrieval_core.budget import checked_counter, warn_where_nothing_fits
from llama_index.retrievers.retrieval_core.convert import hit_from_node, node_from_chunk, position_of
from llama_index.retrievers.retrieval_core.filters import Filters, as_filter
from retrieval_core.config import ContextConfig
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.context import NOTHING, scoped, with_budget
from retrieval_core.pipeline.stages.assemble import arrange, render
from retrieval_core.pipeline.stages.budget import Assembled, assemble
from retrieval_core.pipeline.stages.expand import Surroundings, surroundings_of, surroundings_request
from retrieval_core.pipeline.stages.search import fetch
from retrieval_core.ports import Store, TokenCounter, as_store
from retrieval_core.run.outcomes import Failed, value_of
from retrieval_core.run.runner import Run
from retrieval_core.types import Chunk, ContextPassage, Hit, format_citation
from retrieval_core.types.filters import Filter

_NOWHERE = -(10**9)
"""The position of what is not known to be in the store: nothing stands beside it."""
_NAMES = ("file_path", "file_name", "url", "source")
"""Where readers of LlamaIndex keep what a document is called."""


class ContextPackPostprocessor(ModelPostprocessor):
    """Makes nodes what retrieval-core would show a language model: passages with citations, within a token budget.

    With a store, the sections and neighbors around its chunks are added, as ``context`` of an index does. No text is
    repeated. Chunks that don't fit are dropped or cut after a sentence, the least important first.

    Each node of the result is one chunk, in the order of the pack. Language models see (``MetadataMode.LLM``) exactly
    the text of the pack: ``[1] Doc: … | Section: …`` and the chunk below it. So every response synthesizer keeps order
    and citations. Given nodes keep their scores; added nodes have none, and ``neighbor_of`` names the nodes they
    belong to. The metadata contain the ``citation``; language models don't see them a second time.

    Use it last: a later change of texts or order breaks the numbering. The given nodes are not changed.

    Nodes of other retrievers are cited by the first of ``file_path``, ``file_name``, ``url`` and ``source`` in their
    visible metadata, or else by their document id; and by ``page_label``. If the store can't be read, nothing is added
    around the nodes. Then a warning is logged, and LlamaIndex's instrumentation gets a
    :class:`RetrievalDegradedEvent`.

    Args:
        store: The store of the nodes, such as ``retriever.pipeline.store``; by default nothing is added. You close it.
            Nodes that are not chunks of this store are shown unchanged.
        max_tokens: The token budget; by default that of the settings.
        settings: The chunks to add around the nodes, and the format of a chunk. ``delimiter`` and ``token_counter``
            are not used, because LlamaIndex joins the texts of nodes.
        token_counter: Returns the number of tokens of a text; default: LlamaIndex's ``Settings.tokenizer``.
        filters: A filter for added chunks. Pass the filters of the retriever here too.
        options: ``strict``, ``deadline_seconds`` and ``callback_manager``, as :class:`ModelOptions` says.

    Raises:
        InvalidParameterError: ``store`` is not a store, a number is outside its range, or ``settings`` are of another
            kind.
        UnsupportedFilterError: The filters have an operator or value without an exact counterpart.
        FilterError: The filters are not well formed.
    """

    _store: Store | None = PrivateAttr(default=None)
    _settings: ContextConfig = PrivateAttr()
    _count: TokenCounter = PrivateAttr()
    _filter: Filter | None = PrivateAttr(default=None)

    def __init__(
        self,
        store: Store | None = None,
        *,
        max_tokens: int | None = None,
        settings: ContextConfig | None = None,
        token_counter: Callable[[str], int] | None = None,
        filters: Filters | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        store = None if store is None else as_store(store)
        chosen = ContextConfig() if settings is None else settings
        if not isinstance(chosen, ContextConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"settings must be a retrieval_core.ContextConfig, got {type(chosen).__name__}"
            raise InvalidParameterError(msg)
        # LlamaIndex's synthesizers put this between the texts of two nodes.
        chosen = with_budget(chosen, max_tokens).model_copy(update={"delimiter": "\n\n"})
        counter, condition = checked_counter(token_counter), as_filter(filters)
        super().__init__(**options)
        self._store = store
        self._settings = chosen
        self._count = counter
        self._filter = condition

    @property
    def _works_with(self) -> str:
        return f"context pack of {self._settings.max_tokens} tokens"

    async def _process(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> list[NodeWithScore]:
        run, settings = self._run(), self._settings
        given = _as_hits(nodes)
        hits, around = await self._surroundings(run, query, [hit for hit, _ in given.values()])
        # No coroutine function: the runner calls it in a thread.
        in_thread = cast("Callable[..., Awaitable[Assembled]]", assemble)
        assembled = value_of(
            await run.without_retries().call("assemble", in_thread, hits, around, settings, self._count)
        )
        pieces = arrange(assembled.items, merged=settings.window > 0)
        texts = render(pieces, around.texts, settings)
        result = [_as_node(passage, text, given) for passage, text in zip(assembled.passages, texts, strict=True)]
        warn_where_nothing_fits(nodes, result, settings.max_tokens)
        return result

    async def _surroundings(
        self, run: Run, query: QueryBundle | None, hits: list[Hit]
    ) -> tuple[list[Hit], Surroundings]:
        """Return the hits as the store knows them, and what stands around them, read in one call."""
        own = [hit for hit in hits if hit.chunk.chunk_index != _NOWHERE]
        wanted = surroundings_request(own, self._settings, self._filter)
        if self._store is None or wanted is None or not own:
            return hits, NOTHING
        wanted = replace(wanted, chunk_ids=tuple(hit.id for hit in own))
        outcome = await fetch(run, self._store, wanted, stage="surroundings")
        self._told(query, [outcome] if isinstance(outcome, Failed) else [])
        if isinstance(outcome, Failed):
            return hits, NOTHING
        return [_verified(hit, outcome.value.chunks) for hit in hits], surroundings_of(outcome.value, self._filter)


def _as_hits(nodes: Sequence[NodeWithScore]) -> dict[str, tuple[Hit, NodeWithScore]]:
    """Return nodes as hits by their chunks' ids; of nodes that are the same the first."""
    hits: dict[str, tuple[Hit, NodeWithScore]] = {}
    for item in nodes:
        hit, position = _as_hit(item), position_of(item)
        chunk = hit.chunk
        if hit.source_index is not None:  # of several indexes, ids say which one
            chunk, position = replace(scoped(hit.source_index, chunk), chunk_index=_NOWHERE), None
        elif position is None:
            chunk = _foreign(chunk, item.node)
        else:
            chunk = replace(chunk, document_id=position.document_id, chunk_index=position.index)
        name, number = chunk.id, 1
        while name in hits and hits[name][0].chunk.text != chunk.text:  # other retrievers may share ids
            number += 1
            name = f"{chunk.id} ({number})"
        hits.setdefault(name, (replace(hit, chunk=replace(chunk, id=name), source_index=None), item))
    return hits


def _as_hit(item: NodeWithScore) -> Hit:
    try:
        return hit_from_node(item)
    except InvalidParameterError:  # its metadata hold something that only another retriever knows of
        texts = {key: value for key, value in item.node.metadata.items() if isinstance(value, str)}
        return hit_from_node(item.model_copy(update={"node": item.node.model_copy(update={"metadata": texts})}))


def _foreign(chunk: Chunk, node: BaseNode) -> Chunk:
    """Return another retriever's node as a chunk that nothing stands beside, named as models may see its document."""
    hidden = node.excluded_llm_metadata_keys
    names = (node.metadata.get(key) for key in _NAMES if key not in hidden)
    name = next((name for name in names if isinstance(name, str) and name), chunk.document_id)
    pages = None if "page_label" in hidden else chunk.page_span
    return replace(chunk, document_id=name, chunk_index=_NOWHERE, parent_id=None, page_span=pages)


def _verified(hit: Hit, chunks: Mapping[str, Chunk]) -> Hit:
    """Return a hit as what the store has of it, or as one that nothing stands beside, where it has something else."""
    chunk, known = hit.chunk, chunks.get(hit.id)
    place = chunk.document_id, chunk.chunk_index
    if known is None or (known.document_id, known.chunk_index) != place:
        return replace(hit, chunk=replace(chunk, chunk_index=_NOWHERE, parent_id=None))
    if known.text == chunk.text:
        return replace(hit, chunk=known)
    # A node that lost sentences is shown as it is; where its text stands in the document is not known.
    return replace(hit, chunk=replace(known, text=chunk.text, content_hash="", span=None), excerpts=())


def _as_node(passage: ContextPassage, text: str, given: Mapping[str, tuple[Hit, NodeWithScore]]) -> NodeWithScore:
    """Return a passage as a node: a copy of the given one, or a new one for what was added."""
    citation = own = format_citation(passage.citation)
    if passage.role == "primary":
        hit, item = given[passage.id]
        own = format_citation(hit.chunk)
        score = given[passage.hits[0].id][1].score
    else:
        item, score = NodeWithScore(node=_added(passage, given[passage.primary_id][1])), None
    shown = with_text(item, text)
    shown.score = score
    metadata = dict(shown.node.metadata)
    if metadata.get("citation", own) == own:  # another one is a field of the user's
        metadata["citation"] = citation
    shown.node.metadata = metadata
    shown.node.excluded_llm_metadata_keys = list(metadata)
    shown.node.excluded_embed_metadata_keys = list(metadata)
    return shown


def _added(passage: ContextPassage, found: NodeWithScore) -> BaseNode:
    citation = passage.citation
    chunk = Chunk(
        passage.id,
        citation.document_id,
        passage.text,
        page_span=citation.page_span,
        section_path=citation.section_path,
        row_range=citation.row_range,
        item_range=citation.item_range,
        lines=citation.lines,
        title=citation.title,
        source=citation.source,
    )
    return node_from_chunk(chunk, neighbor_of=[found.node.node_id])
