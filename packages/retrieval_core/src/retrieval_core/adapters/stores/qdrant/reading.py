"""Reading a collection: searches, fetches, and lists page after page."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.fields import FieldCounter
from retrieval_core.adapters.stores.foreign import is_in_ranges
from retrieval_core.adapters.stores.qdrant import filters
from retrieval_core.adapters.stores.qdrant.collection import models
from retrieval_core.adapters.stores.qdrant.filters import OWN, as_filter, both, either, in_range, one_of
from retrieval_core.adapters.stores.qdrant.points import (
    DENSE,
    KIND,
    SEALS,
    chunk_of,
    damage_of_point,
    fields_of,
    point_id,
    value_of,
    vector_of,
)
from retrieval_core.adapters.stores.rows import DOCUMENTS, FIELD_COLUMNS, SECTIONS, FieldReader
from retrieval_core.adapters.stores.services import distinct, find_best, together
from retrieval_core.ports import Candidate, Fetched, StoredDamage
from retrieval_core.types.filters import matches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence

    from retrieval_core.adapters.stores.foreign import FieldMapping
    from retrieval_core.adapters.stores.qdrant.collection import Opened, QdrantCollection
    from retrieval_core.adapters.stores.qdrant.filters import Pushed
    from retrieval_core.adapters.stores.qdrant.points import Kind
    from retrieval_core.adapters.stores.services import Expression
    from retrieval_core.ports import ChunkRange, FetchRequest, FieldInfo, RecordDamage, SearchRequest
    from retrieval_core.types import JSON, Chunk, Document, Section
    from retrieval_core.types.filters import Filter

_PAGE = 1_000
_LAST_POSITION = 2**53
"""Positions beyond are not told apart; none is as far."""


class CollectionReader:
    """Reads one collection.

    Args:
        mapping: How points that another program wrote are read.
    """

    def __init__(self, collection: QdrantCollection, mapping: FieldMapping, location: str) -> None:
        self._collection = collection
        self._mapping = mapping
        self._location = location

    async def search(
        self, opened: Opened, request: SearchRequest, query: Any, vector: str
    ) -> tuple[tuple[Candidate, ...], str | None]:
        """Return the best candidates, and a message on what is missing from them; see :func:`find_best`.

        Args:
            query: A vector, dense or sparse.
            vector: The name of those that it is compared with.
        """
        pushed = self._pushed(opened, request.filter)
        if pushed.expression is False:
            return (), None
        dense = DENSE if opened.manifest else opened.vector
        arguments: dict[str, Any] = {
            "query": query,
            "using": vector or None,
            "query_filter": _filter(pushed.expression),
            "with_payload": self._selected(opened, pushed),
            "with_vectors": ([dense] if dense else True) if request.with_vectors else False,
        }
        reader = FieldReader()

        async def ask(count: int) -> Sequence[Any]:
            return (await self._collection.call("query_points", limit=count, **arguments)).points

        def read(point: Any) -> Candidate | None:
            payload = _payload(point)
            name = str(payload.get("id")) if opened.manifest else str(point.id)
            if not pushed.is_exact and not matches(request.filter, self._fields(opened, point, reader)):
                return None
            chunk = None if opened.manifest else self._mapping.chunk(name, payload)
            score = point.score if request.vector is None else min(1.0, max(-1.0, point.score))
            return Candidate(name, score, chunk, vector_of(point, dense) if request.with_vectors else None)

        return await find_best(ask, read, request.limit, service="Qdrant", location=self._location)

    async def fetch(self, opened: Opened, request: FetchRequest) -> Fetched:
        """Return those of the requested records that exist."""
        pushed = self._pushed(opened, request.filter)
        if pushed.expression is False:
            return Fetched()
        if opened.manifest is None:
            return await self._chunks_of_others(opened, request, pushed.expression)
        parts = (
            partial(self._chunks, request, pushed.expression),
            partial(self._sections, request, pushed),
            partial(self._documents, request, pushed),
        )
        (chunks, vectors), sections, documents = await together(parts)
        return Fetched(chunks, vectors, sections, documents)

    async def scrolled(
        self, expression: Expression, columns: Sequence[str] | bool, *, with_vectors: Sequence[str] | bool = False
    ) -> AsyncIterator[Any]:
        """Yield the points for which an expression holds, page after page."""
        offset: Any = None
        while expression is not False:
            points, offset = await self._collection.call(
                "scroll",
                scroll_filter=_filter(expression),
                limit=_PAGE,
                offset=offset,
                with_payload=columns if isinstance(columns, bool) else _include(columns),
                with_vectors=with_vectors,
            )
            for point in points:
                yield point
            if offset is None:
                return

    async def retrieved(
        self, ids: Iterable[int | str], columns: Sequence[str] | bool = True, *, with_vectors: Any = False
    ) -> list[Any]:
        """Return the points with some ids."""
        ordered = list(dict.fromkeys(ids))
        payload = columns if isinstance(columns, bool) else _include(columns)
        parts = [
            partial(
                self._collection.call,
                "retrieve",
                ids=ordered[start : start + _PAGE],
                with_payload=payload,
                with_vectors=with_vectors,
            )
            for start in range(0, len(ordered), _PAGE)
        ]
        return [point for points in await together(parts) for point in points]

    async def find_damage(self, document_ids: Collection[str] | None) -> StoredDamage:
        """Compare chunks, documents and sections with the checksums that were written with them."""
        found: dict[str, dict[str, RecordDamage]] = {"chunk": {}, "document": {}, "section": {}}
        unsealed = 0
        for kind in SEALS:
            column = "id" if kind == "document" else "document_id"
            some = True if document_ids is None else one_of(column, distinct(document_ids))
            async for point in self.scrolled(both(of_kind(kind), some), True, with_vectors=kind == "chunk"):
                if "seal" not in point.payload[OWN]:
                    unsealed += kind == "chunk"
                elif (damage := damage_of_point(point)) is not None:
                    name = damage.document_id if kind != "chunk" else str(point.payload.get("id"))
                    found[kind][name] = damage
        return StoredDamage(found["chunk"], {**found["section"], **found["document"]}, unsealed=unsealed)

    async def count(self, expression: Expression) -> int:
        """Return for how many points an expression holds."""
        if expression is False:
            return 0
        return (await self._collection.call("count", count_filter=_filter(expression), exact=True)).count

    async def count_matching(self, opened: Opened, condition: Filter) -> int:
        """Return how many chunks match a filter; reads them where Qdrant cannot evaluate it by itself."""
        pushed = self._pushed(opened, condition)
        expression = both(of_kind("chunk") if opened.manifest else True, pushed.expression)
        if pushed.is_exact:
            return await self.count(expression)
        reader, found = FieldReader(), 0
        async for point in self.scrolled(expression, FIELD_COLUMNS if opened.manifest else True):
            found += matches(condition, self._fields(opened, point, reader))
        return found

    async def fields(self, opened: Opened) -> dict[str, FieldInfo]:
        """Return the fields of all chunks by their paths, those of most chunks first; reads every point."""
        counter, reader = FieldCounter(), FieldReader()
        expression = of_kind("chunk") if opened.manifest else True
        async for point in self.scrolled(expression, FIELD_COLUMNS if opened.manifest else True):
            counter.add(self._fields(opened, point, reader))
        return counter.catalogue()

    async def documents_of_others(self) -> list[str]:
        """Return the document IDs in a collection that another program filled; reads every point, without its text."""
        keys = filters.keys_of("document_id", self._mapping)
        found: dict[str, None] = {}
        others: list[Any] = []
        async for point in self.scrolled(True, keys or False):
            if (name := self._mapping.document_id(_payload(point))) is not None:
                found[name] = None
            else:
                others.append(point.id)
        if len(keys) < len(self._mapping.places("document_id")):  # the other places are read only where these lack it
            for point in await self.retrieved(others):
                found[self._mapping.document_id(_payload(point)) or str(point.id)] = None
        else:
            found |= dict.fromkeys(map(str, others))
        return list(found)

    async def sample_fields(self, opened: Opened) -> tuple[frozenset[str], int]:
        """Return the paths of the fields of the first points, and how many points these are."""
        points, _ = await self._collection.call("scroll", limit=_PAGE, with_payload=True)
        counter, reader = FieldCounter(), FieldReader()
        for point in points:
            counter.add(self._fields(opened, point, reader))
        return frozenset(counter.catalogue()), len(points)

    def _pushed(self, opened: Opened, condition: Filter | None) -> Pushed:
        return filters.translate(condition) if opened.manifest else filters.translate_foreign(condition, self._mapping)

    def _selected(self, opened: Opened, pushed: Pushed) -> Any:
        """Return how much of the payload a search needs; the chunks that are wanted are fetched later."""
        return _include(["id"] if pushed.is_exact else FIELD_COLUMNS) if opened.manifest else True

    def _fields(self, opened: Opened, point: Any, reader: FieldReader) -> Mapping[str, JSON]:
        payload = _payload(point)
        if opened.manifest:
            return fields_of(payload, reader)
        return self._mapping.visible(str(point.id), payload)

    async def _chunks(self, request: FetchRequest, expression: Expression) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return chunks and their vectors."""
        vectors = [DENSE] if request.with_vectors else False
        points = await self.retrieved(
            (point_id("chunk", name) for name in distinct(request.chunk_ids)), with_vectors=vectors
        )
        wanted = both(of_kind("chunk"), _in_ranges(request.ranges), expression)
        points += [point async for point in self.scrolled(wanted, True, with_vectors=vectors)]
        found: dict[str, Any] = {}
        kept: dict[str, Any] = {}
        reader = FieldReader()
        for point in points:
            if request.filter is None or matches(request.filter, fields_of(point.payload, reader)):
                chunk = found[point.payload["id"]] = chunk_of(point.payload)
                if (vector := vector_of(point, DENSE)) is not None:
                    kept[chunk.id] = vector
        return found, kept

    async def _chunks_of_others(self, opened: Opened, request: FetchRequest, expression: Expression) -> Fetched:
        vectors: Any = ([opened.vector] if opened.vector else True) if request.with_vectors else False
        ids = (filters.native_id(name) for name in request.chunk_ids)
        points = await self.retrieved((one for one in ids if one is not None), with_vectors=vectors)
        ranges = [
            filters.range_expression(part.document_id, *_bounds(part), self._mapping)
            for part in request.ranges
            if distinct((part.document_id,))
        ]
        wanted = both(either(*ranges), expression)
        points += [point async for point in self.scrolled(wanted, True, with_vectors=vectors)]
        chunks: dict[str, Chunk] = {}
        kept: dict[str, Any] = {}
        reader = FieldReader()
        for point in points:
            name = str(point.id)
            if not matches(request.filter, self._fields(opened, point, reader)):
                continue
            chunk = self._mapping.chunk(name, _payload(point))
            if name in request.chunk_ids or is_in_ranges(chunk, request.ranges):
                chunks[name] = chunk
                if (vector := vector_of(point, opened.vector)) is not None:
                    kept[name] = vector
        return Fetched(chunks, kept)

    async def _sections(self, request: FetchRequest, pushed: Pushed) -> dict[str, Section]:
        points = await self.retrieved(point_id("section", name) for name in distinct(request.section_ids))
        sections = {point.payload["id"]: value_of(point.payload, SECTIONS) for point in points}
        seen = await self._visible("parent_id", sections, request.filter, pushed)
        return {name: section for name, section in sections.items() if name in seen}

    async def _documents(self, request: FetchRequest, pushed: Pushed) -> dict[str, Document]:
        points = await self.retrieved(point_id("document", name) for name in distinct(request.document_ids))
        documents = {point.payload["id"]: value_of(point.payload, DOCUMENTS) for point in points if _is_whole(point)}
        seen = await self._visible("document_id", documents, request.filter, pushed)
        return {name: document for name, document in documents.items() if name in seen}

    async def _visible(
        self, column: str, names: Mapping[str, object], condition: Filter | None, pushed: Pushed
    ) -> set[str]:
        """Return those of some names that a matching chunk has in a column."""
        if condition is None:
            return set(names)
        found: set[str] = set()
        reader = FieldReader()
        wanted = both(of_kind("chunk"), one_of(column, names), pushed.expression)
        async for point in self.scrolled(wanted, FIELD_COLUMNS):
            if point.payload[column] not in found and matches(condition, fields_of(point.payload, reader)):
                found.add(point.payload[column])
        return found


def of_kind(*kinds: Kind) -> Expression:
    """Return the expression for points of some kinds."""
    return one_of(KIND, kinds)


def _in_ranges(ranges: Sequence[ChunkRange]) -> Expression:
    """Return the expression for chunks in one of some ranges; the documents are named once more, which is quicker."""
    parts: list[Expression] = []
    for part in ranges:
        first, last = _bounds(part)
        if first <= last and distinct((part.document_id,)):
            position = in_range("chunk_index", gte=first, lte=last)
            parts.append({"must": [one_of("document_id", (part.document_id,)), position]})
    return both(one_of("document_id", distinct(part.document_id for part in ranges)), either(*parts))


def _bounds(part: ChunkRange) -> tuple[int, int]:
    return max(part.first, -_LAST_POSITION), min(part.last, _LAST_POSITION)


def _payload(point: Any) -> dict[str, Any]:
    return point.payload or {}


def _is_whole(point: Any) -> bool:
    """Whether a document's text is here too, and not its name alone."""
    return "text" in point.payload


def _filter(expression: Expression) -> Any:
    found = as_filter(expression)
    return None if found is None else models().Filter.model_validate(found)


def _include(columns: Sequence[str]) -> Any:
    return models().PayloadSelectorInclude(include=list(columns))
