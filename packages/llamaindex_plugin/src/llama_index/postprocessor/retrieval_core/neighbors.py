"""The postprocessor that adds the passages before and after each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index.postprocessor.retrieval_core._base import Postprocessor
from llama_index.retrievers.retrieval_core.convert import Position, neighbor_from_chunk, position_of
from llama_index.retrievers.retrieval_core.filters import Filters, as_filter
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import ChunkRange, FetchRequest, Store, as_store
from retrieval_core.types import Chunk
from retrieval_core.types.filters import Filter


class NeighborExpansionPostprocessor(Postprocessor):
    """Adds the passages before and after each node, read from a retrieval-core store in one call.

    Nodes of one document whose windows overlap or touch become one run, in the document's order, at the position of the
    run's first node. No passage comes twice. The given nodes keep their scores and are not changed; what is added has
    no score, and the ids of its nodes under ``neighbor_of``.

    :class:`ContextPackPostprocessor` adds the sections around the nodes too.

    A node of another retriever whose id and position are not those of a passage in the store is returned unchanged.

    Args:
        store: For instance ``retriever.pipeline.store``; stays the caller's.
        before: Passages before each node, at least 0.
        after: Passages after each node, at least 0.
        filters: A filter for added chunks. Pass the filters of the retriever here too. A node that does not match gets
            no neighbors.
        include_parents: Removed; only ``False`` is accepted.

    Raises:
        InvalidParameterError: ``store`` is not a store, ``before`` or ``after`` is outside its range, or
            ``include_parents`` is true.
        UnsupportedFilterError: The filters have an operator or value without an exact counterpart.
        FilterError: The filters are not well formed.
    """

    before: int = 1
    after: int = 1
    _store: Store = PrivateAttr()
    _filter: Filter | None = PrivateAttr(default=None)

    def __init__(
        self,
        store: Store,
        *,
        before: int = 1,
        after: int = 1,
        filters: Filters | None = None,
        include_parents: bool = False,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if include_parents:
            msg = (
                "include_parents=True was removed. Use ContextPackPostprocessor(store), which adds the sections around "
                "nodes and repeats no text"
            )
            raise InvalidParameterError(msg)
        for name, value in (("before", before), ("after", after)):
            if type(value) is not int or value < 0:
                msg = f"{name} must be a whole number of at least 0, got {value!r:.80}"
                raise InvalidParameterError(msg)
        store = as_store(store)
        condition = as_filter(filters)
        super().__init__(callback_manager, before=before, after=after)
        self._store = store
        self._filter = condition

    @property
    def _works_with(self) -> str:
        return "neighbors"

    async def _process(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> list[NodeWithScore]:  # noqa: ARG002
        claimed = {item.node.node_id: place for item in nodes if (place := position_of(item)) is not None}
        if not claimed or self.before == self.after == 0:
            return nodes
        ranges = tuple(map(self._window, claimed.values()))
        chunks = (await self._store.fetch(FetchRequest(ranges=ranges, filter=self._filter))).chunks
        windows = {name: self._window(place) for name, place in claimed.items() if _is_at(chunks, name, place)}
        run_of = {name: run for run in _runs(windows) for name in run}
        given = {item.node.node_id: item for item in reversed(nodes)}
        written: set[str] = set()
        result: list[NodeWithScore] = []
        for item in nodes:
            run = run_of.get(item.node.node_id)
            if run is None:
                result.append(item)
            elif item.node.node_id not in written:
                result += _written({name: windows[name] for name in run}, chunks.values(), given)
                written.update(run)
        return result

    def _window(self, place: Position) -> ChunkRange:
        return ChunkRange(place.document_id, max(0, place.index - self.before), place.index + self.after)


def _is_at(chunks: Mapping[str, Chunk], name: str, place: Position) -> bool:
    """Whether a node is what the store has at that position, and not just alike."""
    chunk = chunks.get(name)
    return chunk is not None and (chunk.document_id, chunk.chunk_index) == (place.document_id, place.index)


def _runs(windows: Mapping[str, ChunkRange]) -> list[list[str]]:
    """Return the ids of nodes whose windows overlap or touch, together."""
    runs: list[list[str]] = []
    end = ChunkRange("", 0, -2)
    for name, window in sorted(windows.items(), key=lambda item: (item[1].document_id, item[1].first)):
        if runs and window.document_id == end.document_id and window.first <= end.last + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
        end = window  # all windows are equally long, so that of a later node ends last
    return runs


def _written(
    windows: Mapping[str, ChunkRange], chunks: Iterable[Chunk], given: Mapping[str, NodeWithScore]
) -> Iterable[NodeWithScore]:
    """Yield a run's nodes and neighbours in the document's order."""
    by_place = sorted(chunks, key=lambda chunk: (chunk.chunk_index, chunk.id))
    taken = {(chunk.document_id, chunk.chunk_index) for chunk in by_place if chunk.id in windows}
    for chunk in by_place:
        if chunk.id in windows:
            yield given[chunk.id]
        # Chunks that were added by hand may share a position with a node; they are not beside it.
        elif chunk.id not in given and (chunk.document_id, chunk.chunk_index) not in taken:
            around = [name for name, window in windows.items() if _is_in(chunk, window)]
            if around:
                yield neighbor_from_chunk(chunk, around)


def _is_in(chunk: Chunk, window: ChunkRange) -> bool:
    return chunk.document_id == window.document_id and window.first <= chunk.chunk_index <= window.last
