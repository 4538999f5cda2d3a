"""Writing to a collection: a change as steps that Qdrant takes in order."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.qdrant.connection import models
from retrieval_core.adapters.stores.qdrant.filters import as_filter, both, in_range, one_of
from retrieval_core.adapters.stores.qdrant.points import (
    GENERATION,
    MOST_REQUEST_BYTES,
    batches,
    chunk_points,
    distinct,
    other_points,
    owner_point,
    point_id,
    size_of,
)
from retrieval_core.adapters.stores.qdrant.reading import of_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from retrieval_core.adapters.stores.base import Identity
    from retrieval_core.adapters.stores.qdrant.collection import QdrantCollection, State
    from retrieval_core.adapters.stores.qdrant.points import Kind
    from retrieval_core.adapters.stores.qdrant.reading import CollectionReader
    from retrieval_core.ports import Change
    from retrieval_core.text.analysis import Analyzer


class CollectionWriter:
    """Writes to one collection."""

    def __init__(
        self, collection: QdrantCollection, reader: CollectionReader, analyzer: Analyzer, identity: Identity
    ) -> None:
        self._collection = collection
        self._reader = reader
        self._analyzer = analyzer
        self._identity = identity

    async def write(self, change: Change) -> None:
        """Apply a change; nothing is written where it raises :class:`InvalidParameterError`."""
        former = await self._collection.state_or_new()
        self._identity.check_change(change, former.manifest)
        state = former.next()
        chunks, records, sources = await asyncio.to_thread(self._points, change, state)
        await self._collection.prepare(former)
        owners = {chunk.document_id for chunk in change.chunks}
        known = {document.id for document in change.documents}
        removed = set(change.removed_documents) - known
        records += await self._new_owners(owners - known, removed, state)
        steps = [
            _deletion(_ids("source", change.removed_sources)),
            *map(_upsert, batches([*chunks, *records])),
            _deletion(_former(known | removed, state)),
            _deletion(_ids("document", removed - owners)),
            *map(_upsert, batches(sources)),
        ]
        await self._apply(state, steps)

    async def remove(self, document_ids: Sequence[str]) -> int:
        """Remove documents with all that belongs to them, and return how many chunks were removed."""
        former = await self._collection.state_or_new()
        names = distinct(document_ids)
        if former.generation == 0 or not names:
            return 0
        state = former.next()
        count = await self._reader.count(both(of_kind("chunk"), one_of("document_id", names)))
        documents = await self._reader.retrieved((point_id("document", name) for name in names), ["source"])
        sources = {point.payload["source"] for point in documents if "source" in point.payload}
        steps = [
            _deletion(_ids("source", sources)),
            _deletion(_former(names, state)),
            _deletion(_ids("document", names)),
        ]
        await self._apply(state, steps)
        return count

    def _points(self, change: Change, state: State) -> tuple[list[Any], list[Any], list[Any]]:
        location = self._identity.location
        chunks = chunk_points(change, self._analyzer, state.generation, models(), location)
        return chunks, *other_points(change, state.generation, models(), location)

    async def _new_owners(self, names: set[str], removed: set[str], state: State) -> list[Any]:
        """Return points for the documents whose chunks come without them, save those that are there already."""
        points = await self._reader.retrieved((point_id("document", name) for name in names - removed), ["id"])
        known = {point.payload["id"] for point in points}
        return [owner_point(name, state.generation, models()) for name in sorted(names - known)]

    async def _apply(self, state: State, steps: Iterable[Any]) -> None:
        """Make a change, in as few requests as it fits into.

        The version changes with the first step and with the last: what is read in between is then of a version that
        nobody asks for again, also where the change breaks off.
        """
        begun, done = _upsert([state.point()]), _upsert([state.next().point()])
        request: list[Any] = []
        size = 0
        for step in chain([begun], (step for step in steps if step is not None), [done]):
            length = sum(map(size_of, step.upsert.points)) if hasattr(step, "upsert") else 0
            if request and size + length > MOST_REQUEST_BYTES:
                await self._collection.call("batch_update_points", update_operations=request, wait=True)
                request, size = [], 0
            request.append(step)
            size += length
        await self._collection.call("batch_update_points", update_operations=request, wait=True)


def _upsert(points: Sequence[Any]) -> Any:
    return models().UpsertOperation(upsert=models().PointsList(points=list(points)))


def _deletion(selector: Any) -> Any:
    return None if selector is None else models().DeleteOperation(delete=selector)


def _ids(kind: Kind, names: Iterable[str]) -> Any:
    found = [point_id(kind, name) for name in sorted(distinct(names))]
    return models().PointIdsList(points=found) if found else None


def _former(document_ids: Iterable[str], state: State) -> Any:
    """Return what selects the chunks and sections of documents that earlier writes left.

    Those of a write at the same time stay: each of two that replaced a document at once would remove what the other
    wrote.
    """
    names = distinct(sorted(document_ids))
    earlier = in_range(GENERATION, lt=state.generation)
    found = as_filter(both(of_kind("chunk", "section"), one_of("document_id", names), earlier)) if names else None
    return None if found is None else models().FilterSelector(filter=models().Filter.model_validate(found))
