"""The postprocessor that adds the passages before and after each node, and the section around it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo

from llama_index.postprocessor.retrieval_core._base import Postprocessor, Request
from llama_index.retrievers.retrieval_core.checks import check_abilities
from llama_index.retrievers.retrieval_core.convert import Position, neighbor_from_chunk, position_of
from llama_index.retrievers.retrieval_core.filters import Filters, as_filter
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.stages.expand import surroundings_of
from retrieval_core.ports import ChunkRange, FetchRequest, Store
from retrieval_core.types import Chunk
from retrieval_core.types.filters import Filter


class NeighborExpansionPostprocessor(Postprocessor):
    """Adds the passages before and after each node, read from a retrieval-core store in one call.

    Nodes of one document whose windows overlap or touch become one run, in the document's order, at the position of the
    run's first node. No passage comes twice. The given nodes keep their scores and are not changed; what is added has
    no score, and the ids of its nodes under ``neighbor_of``.

    With ``include_parents``, the section or page around each node (its relationship ``PARENT``) follows the run. It
    repeats the text of the nodes in it; :class:`ContextPackPostprocessor` repeats nothing.

    A node of another retriever whose id and position are not those of a passage in the store is returned unchanged.

    Args:
        store: For instance ``retriever.pipeline.store``; stays the caller's.
        before: Passages before each node, at least 0.
        after: Passages after each node, at least 0.
        include_parents: Whether the section or page around each node is added.
        filters: A filter for added chunks. Pass the filters of the retriever here too. A node that does not match gets
            no neighbors. A section is added only if the fields of its document match.

    Raises:
        InvalidParameterError: ``store`` is not a store, or ``before`` or ``after`` is outside its range.
        UnsupportedFilterError: The filters have an operator or value without an exact counterpart.
        FilterError: The filters are not well formed.
    """

    before: int = 1
    after: int = 1
    include_parents: bool = False
    _store: Store = PrivateAttr()
    _filter: Filter | None = PrivateAttr(default=None)

    def __init__(
        self,
        store: Store,
        *,
        before: int = 1,
        after: int = 1,
        include_parents: bool = False,
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
        super().__init__(callback_manager, before=before, after=after, include_parents=include_parents)
        self._store = store
        self._filter = condition

    @property
    def _works_with(self) -> str:
        return "neighbors"

    async def _process(self, request: Request) -> list[NodeWithScore]:
        nodes = request.nodes
        claimed = {item.node.node_id: item for item in nodes if position_of(item) is not None}
        if not claimed or (self.before == self.after == 0 and not self.include_parents):
            return nodes
        windows = [_Window.around(item, self.before, self.after) for item in claimed.values()]
        ranges = tuple(ChunkRange(run[0].document_id, run[0].first, _last(run)) for run in _runs(windows))
        parents = [(window.parent_id, window.document_id) for window in windows if self.include_parents]
        sections = {name: document_id for name, document_id in parents if name is not None}
        fetched = await self._store.fetch(
            FetchRequest(
                ranges=ranges,
                section_ids=tuple(sections),
                document_ids=tuple(dict.fromkeys(sections.values())),
                filter=self._filter,
            )
        )
        windows = [window for window in windows if window.is_of(fetched.chunks)]
        return _expanded(nodes, windows, fetched.chunks, surroundings_of(fetched, self._filter).parents)


@dataclass(frozen=True, slots=True)
class _Window:
    """The positions around a node, first and last included."""

    node_id: str
    document_id: str
    index: int
    first: int
    last: int
    parent_id: str | None

    @classmethod
    def around(cls, item: NodeWithScore, before: int, after: int) -> _Window:
        node = item.node
        position, parent = cast("Position", position_of(item)), node.relationships.get(NodeRelationship.PARENT)
        return cls(
            node.node_id,
            position.document_id,
            position.index,
            max(0, position.index - before),
            position.index + after,
            parent.node_id if isinstance(parent, RelatedNodeInfo) else None,
        )

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
    nodes: Sequence[NodeWithScore],
    windows: Sequence[_Window],
    chunks: Mapping[str, Chunk],
    parents: Mapping[str, Chunk],
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
            for name in dict.fromkeys(window.parent_id for window in run):
                if name is not None and name in parents and name not in written and name not in given:
                    inside = [window.node_id for window in windows if window.parent_id == name]
                    result.append(neighbor_from_chunk(parents[name], inside))
                    written.add(name)
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
                yield neighbor_from_chunk(chunk, around)
