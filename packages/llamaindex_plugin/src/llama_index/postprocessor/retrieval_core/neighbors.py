"""The postprocessor that adds the passages before and after each node."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore

from llama_index.retrievers.retrieval_core.checks import check_abilities
from llama_index.retrievers.retrieval_core.convert import node_from_chunk, position_of
from llama_index.retrievers.retrieval_core.filters import as_filter
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.run.sync import SyncBridge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.schema import QueryBundle

    from llama_index.retrievers.retrieval_core.convert import Position
    from llama_index.retrievers.retrieval_core.filters import Filters
    from retrieval_core.ports import Store
    from retrieval_core.types import Chunk
    from retrieval_core.types.filters import Filter


class NeighborExpansionPostprocessor(BaseNodePostprocessor):
    """Adds the passages before and after each node, read from a retrieval-core store in one call.

    Nodes of one document whose windows overlap or touch become one run, in the document's order, at the position of the
    run's first node. No passage comes twice. The given nodes keep their scores and are not changed; a neighbour has no
    score, and the ids of its nodes are in its metadata under ``neighbor_of``.

    A node of another retriever whose id and position are not those of a passage in the store is returned unchanged.

    Args:
        store: For instance ``retriever.pipeline.store``; stays the caller's.
        before: Passages before each node, at least 0.
        after: Passages after each node, at least 0.
        filters: Of the neighbours; give those of the retriever here too. A node that does not match gets no neighbours.

    Raises:
        InvalidParameterError: ``store`` is not a store, or ``before`` or ``after`` is outside its range.
        UnsupportedFilterError: The filters have an operator or value without an exact counterpart.
        FilterError: The filters are not well formed.
    """

    before: int = 1
    after: int = 1
    _store: Store = PrivateAttr()
    _filter: Filter | None = PrivateAttr(default=None)
    _bridge: SyncBridge = PrivateAttr(default_factory=SyncBridge)

    def __init__(
        self,
        store: Store,
        *,
        before: int = 1,
        after: int = 1,
        filters: Filters | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        for name, value in (("before", before), ("after", after)):
            if type(value) is not int or value < 0:
                msg = f"{name} must be a whole number of at least 0, got {value!r:.80}"
                raise InvalidParameterError(msg)
        check_abilities(
            store, "store", ("fetch",), "give the store of a pipeline, retriever.pipeline.store for instance"
        )
        condition = as_filter(filters)
        super().__init__(**({} if callback_manager is None else {"callback_manager": callback_manager}))
        self.before = before
        self.after = after
        self._store = store
        self._filter = condition

    @classmethod
    def class_name(cls) -> str:
        """Name the postprocessor in what LlamaIndex records."""
        return "NeighborExpansionPostprocessor"

    def __getstate__(self) -> dict[str, Any]:
        # LlamaIndex would silently leave the store out.
        msg = "a NeighborExpansionPostprocessor cannot be pickled, because its store cannot; make a new one instead"
        raise TypeError(msg)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return self._bridge.run(self._apostprocess_nodes(nodes, query_bundle))

    async def _apostprocess_nodes(
        self,
        nodes: list[NodeWithScore],
        query_bundle: QueryBundle | None = None,  # noqa: ARG002 - LlamaIndex passes it by name
    ) -> list[NodeWithScore]:
        claimed = {item.node.node_id: position for item in nodes if (position := position_of(item.node)) is not None}
        if not claimed or self.before == self.after == 0:
            return list(nodes)
        windows = [_Window.around(name, position, self.before, self.after) for name, position in claimed.items()]
        ranges = tuple(ChunkRange(run[0].document_id, run[0].first, _last(run)) for run in _runs(windows))
        fetched = await self._store.fetch(FetchRequest(ranges=ranges, filter=self._filter))
        return _expanded(nodes, [window for window in windows if window.is_of(fetched.chunks)], fetched.chunks)

    def close(self) -> None:
        """Stop the background loop of synchronous calls, if there is one. Closing twice is fine."""
        self._bridge.close()


@dataclass(frozen=True, slots=True)
class _Window:
    """The positions around a node, first and last included."""

    node_id: str
    document_id: str
    index: int
    first: int
    last: int

    @classmethod
    def around(cls, node_id: str, position: Position, before: int, after: int) -> _Window:
        index = position.index
        return cls(node_id, position.document_id, index, max(0, index - before), index + after)

    def is_of(self, chunks: Mapping[str, Chunk]) -> bool:
        """Whether the node is what the store has at that position, and not just alike."""
        chunk = chunks.get(self.node_id)
        return chunk is not None and (chunk.document_id, chunk.chunk_index) == (self.document_id, self.index)


def _runs(windows: Iterable[_Window]) -> list[list[_Window]]:
    """Join windows of one document that overlap or touch; each run is ordered by position."""
    runs: list[list[_Window]] = []
    for window in sorted(windows, key=lambda window: (window.document_id, window.first, window.index)):
        if runs and runs[-1][0].document_id == window.document_id and window.first <= _last(runs[-1]) + 1:
            runs[-1].append(window)
        else:
            runs.append([window])
    return runs


def _last(run: Sequence[_Window]) -> int:
    return max(window.last for window in run)


def _expanded(
    nodes: Sequence[NodeWithScore], windows: Sequence[_Window], chunks: Mapping[str, Chunk]
) -> list[NodeWithScore]:
    given: dict[str, NodeWithScore] = {}
    for item in nodes:
        given.setdefault(item.node.node_id, item)
    of_document: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks.values():
        of_document[chunk.document_id].append(chunk)
    run_of = {window.node_id: run for run in _runs(windows) for window in run}
    written: set[str] = set()
    result: list[NodeWithScore] = []
    for item in nodes:
        run = run_of.get(item.node.node_id)
        if run is None:
            result.append(item)
        elif item.node.node_id not in written:
            result += _written(run, of_document[run[0].document_id], given)
            written.update(window.node_id for window in run)
    return result


def _written(
    run: Sequence[_Window], chunks: Sequence[Chunk], given: Mapping[str, NodeWithScore]
) -> Iterable[NodeWithScore]:
    """Yield a run's nodes and neighbours in the document's order."""
    members = {window.node_id for window in run}
    taken = {window.index for window in run}
    for chunk in sorted(chunks, key=lambda chunk: (chunk.chunk_index, chunk.id)):
        if chunk.id in members:
            yield given[chunk.id]
        # Chunks that were added by hand may share a position with a node; they are not beside it.
        elif chunk.id not in given and chunk.chunk_index not in taken:
            around = [window.node_id for window in run if window.first <= chunk.chunk_index <= window.last]
            if around:
                yield NodeWithScore(node=node_from_chunk(chunk, neighbor_of=around))
