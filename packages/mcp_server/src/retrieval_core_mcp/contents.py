"""What an index holds: how much, of what kind, and since when, as far as a caller may see it."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from retrieval_core.errors import NotYetEmbeddedError, StoreError
from retrieval_core.ports import (
    ChunkRange,
    FetchRequest,
    SearchRequest,
)
from retrieval_core.types.filters import chunk_fields

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from retrieval_core.index.index import Index
    from retrieval_core.ports import FieldInfo, Store, StoreInfo
    from retrieval_core.types import Chunk, SearchMode
    from retrieval_core.types.filters import Filter

T = TypeVar("T")
MOST_FIELDS = 40
SAMPLE = 200
"""How many passages are looked at for examples of values, and read at a time."""
MOST_LISTED = 10_000
"""How many passages are looked at for the documents that they are of."""
MOST_EXAMPLES = 10
LONGEST_EXAMPLE = 60
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.]+(?:Z|[+-][0-9:]+)?)?")
_NOT_TOLD = frozenset({"id", "document_id", "chunk_index", "parent_id", "timestamp"})
"""Fields that every passage has, and whose values tell nobody what an index is about."""


@dataclass(frozen=True, slots=True)
class FieldContents:
    """A field that filters can name.

    Attributes:
        passages: How many have it; ``None`` where only the sample is known.
        types: Names of the types that its values have.
        examples: Values that occur, the most frequent of the sample first.
        least: The smallest number of the sample, or, where all of its texts are dates, the first of these; ``None``
            where there is neither.
        most: The largest or last, likewise.
    """

    name: str
    passages: int | None
    types: tuple[str, ...]
    examples: tuple[str | float | bool, ...] = ()
    least: float | str | None = None
    most: float | str | None = None


@dataclass(frozen=True, slots=True)
class Contents:
    """What an index holds.

    Attributes:
        documents: ``None`` where a caller may see a part of them only.
        passages: ``None`` where they cannot be counted.
        sampled: How many passages the examples are from.
        sources: Some of the documents.
        indexed_first: When the oldest passage of the sample was indexed; ``None`` where that is not known.
        indexed_last: Likewise the youngest.
        by_meaning: Whether it can be searched by meaning.
    """

    documents: int | None
    passages: int | None
    by_meaning: bool
    sampled: int = 0
    sources: tuple[str, ...] = ()
    fields: tuple[FieldContents, ...] = ()
    indexed_first: datetime | None = None
    indexed_last: datetime | None = None

    @property
    def modes(self) -> tuple[SearchMode, ...]:
        """How it can be searched."""
        return ("hybrid", "dense", "lexical") if self.by_meaning else ("lexical",)


@dataclass(slots=True)
class _Seen:
    """What a sample says of one field."""

    values: Counter[str | float | bool] = field(default_factory=Counter[str | float | bool])
    types: Counter[str] = field(default_factory=Counter[str])


async def count_of(index: Index, condition: Filter | None) -> Contents:
    """Return how much an index holds, and nothing else of it.

    Raises:
        RetrievalError: The index cannot be read.
    """
    return await _counted(index, await index.adescribe(), condition)


async def contents_of(index: Index, condition: Filter | None) -> Contents:
    """Return what an index holds; with a condition, of the passages that pass it alone.

    Raises:
        RetrievalError: The index cannot be read.
    """
    info = await index.adescribe()
    counted = await _counted(index, info, condition)
    chunks = await _sample(index, info, condition)
    seen = _seen(chunks)
    store = index.store
    known: Mapping[str, FieldInfo] = {}
    if condition is None and "fields" in store.capabilities:
        known = await store.fields(MOST_FIELDS)
    names = [name for name in dict.fromkeys((*known, *seen)) if name not in _NOT_TOLD][:MOST_FIELDS]
    moments = sorted(chunk.timestamp for chunk in chunks if chunk.timestamp is not None)
    return Contents(
        documents=counted.documents,
        passages=counted.passages,
        by_meaning=counted.by_meaning,
        sampled=len(chunks),
        sources=tuple(dict.fromkeys(chunk.source or chunk.document_id for chunk in chunks)),
        fields=tuple(
            _field(
                name,
                known[name].passages if name in known else None,
                known[name].types if name in known else seen[name].types,
                seen.get(name, _Seen()),
            )
            for name in names
        ),
        indexed_first=moments[0] if moments else None,
        indexed_last=moments[-1] if moments else None,
    )


async def documents_of(index: Index, condition: Filter | None) -> list[str]:
    """Return the ids of documents that a caller may see, in order.

    A caller who may see only some chunks gets the documents of these, of which at most :data:`MOST_LISTED` are read.
    The same holds for a store that cannot list its documents.

    Raises:
        RetrievalError: The index cannot be read.
    """
    store = index.store
    if condition is None and "document_ids" in store.capabilities:
        with suppress(StoreError):  # another program filled it
            return sorted(await store.document_ids())
    info = await index.adescribe()
    names = set(await _of_files(store)) if condition is None and "sources" in store.capabilities else set[str]()
    if condition is not None or len(names) < info.documents:
        async for chunks in _passages(index, info, condition, MOST_LISTED):
            names.update(chunk.document_id for chunk in chunks)
    return sorted(names)


async def _of_files(store: Store) -> list[str]:
    """Return the ids of the documents that came from files, by these in order."""
    names: list[str] = []
    for source, state in sorted((await store.sources()).items()):
        one = state.documents == 1  # a file that is one document is called as that is
        names += [source] if one else sorted(await store.documents_of(source))
    return names


async def _counted(index: Index, info: StoreInfo, condition: Filter | None) -> Contents:
    by_meaning = index.embedder is not None and (info.manifest is None or info.manifest.dimension is not None)
    if condition is None:
        return Contents(info.documents, info.chunks, by_meaning)
    store = index.store
    passages = await store.count_chunks(condition) if "count_chunks" in store.capabilities else None
    return Contents(None, passages, by_meaning)


async def _sample(index: Index, info: StoreInfo, condition: Filter | None) -> list[Chunk]:
    """Return some passages that pass a condition, in the order of their ids."""
    chunks = [chunk async for part in _passages(index, info, condition, SAMPLE) for chunk in part]
    return sorted(chunks[:SAMPLE], key=lambda chunk: chunk.id)


async def _passages(
    index: Index, info: StoreInfo, condition: Filter | None, most: int
) -> AsyncGenerator[Sequence[Chunk]]:
    """Yield passages that pass a condition, in parts.

    Where there are no vectors, these are the first passages of the documents that came from files, until there are
    enough: how many documents others have does not matter.
    """
    store, dimension = index.store, info.manifest.dimension if info.manifest is not None else None
    if dimension is None and index.embedder is not None and info.manifest is None:
        dimension = index.embedder.dimension
    if dimension is not None:
        # Nearest to an arbitrary direction: every store can do that, with any filter.
        direction: Any = [1.0] + [0.0] * (dimension - 1)
        waiting: tuple[str, ...] = ()
        try:
            found = await store.search(SearchRequest(limit=most, vector=direction, filter=condition))
        except NotYetEmbeddedError as error:
            found = error.found
            if "unembedded" in store.capabilities:
                waiting = tuple(await store.unembedded())[: max(0, most - len(found))]
        for part in _parts(found):
            ids = tuple(candidate.chunk_id for candidate in part if candidate.chunk is None)
            read = await store.fetch(FetchRequest(chunk_ids=ids, filter=condition)) if ids else None
            yield [
                *(candidate.chunk for candidate in part if candidate.chunk is not None),
                *(read.chunks.values() if read is not None else ()),
            ]
        for names in _parts(waiting):
            yield tuple((await store.fetch(FetchRequest(chunk_ids=tuple(names), filter=condition))).chunks.values())
    elif "sources" in store.capabilities:
        seen = 0
        for part in _parts(await _of_files(store)):
            ranges = tuple(ChunkRange(name, 0, 0) for name in part)
            chunks = tuple((await store.fetch(FetchRequest(ranges=ranges, filter=condition))).chunks.values())
            yield chunks
            seen += len(chunks)
            if seen >= most:
                break


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), SAMPLE):
        yield items[begin : begin + SAMPLE]


def _seen(chunks: Iterable[Chunk]) -> dict[str, _Seen]:
    seen: dict[str, _Seen] = {}
    for chunk in chunks:
        for name, value in _paths(chunk_fields(chunk)):
            of_field = seen.setdefault(name, _Seen())
            is_list = isinstance(value, (list, tuple))
            items = cast("Sequence[object]", value) if is_list else (value,)
            for item in items:
                kind = _type_of(item)
                of_field.types[f"list of {kind}" if is_list else kind] += 1
                if isinstance(item, (str, int, float, bool)):
                    of_field.values[item] += 1
    return seen


def _paths(fields: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _paths(value, f"{above}{name}.")  # pyright: ignore[reportUnknownArgumentType]
        elif value not in (None, ()):
            yield f"{above}{name}", value


def _type_of(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case _:
            return "object"


def _field(name: str, passages: int | None, types: Iterable[str], seen: _Seen) -> FieldContents:
    numbers = [float(value) for value in seen.values if not isinstance(value, (str, bool))]
    texts = [value for value in seen.values if isinstance(value, str)]
    # Dates are compared as texts, as filters do it.
    ordinal = numbers or (texts if all(map(_DATE.fullmatch, texts)) else ())
    ordered = sorted(seen.values, key=lambda value: (-seen.values[value], str(value)))
    examples = [value for value in ordered if not isinstance(value, str) or len(value) <= LONGEST_EXAMPLE]
    return FieldContents(
        name,
        passages,
        tuple(types),
        tuple(examples[:MOST_EXAMPLES]),
        min(ordinal, default=None),
        max(ordinal, default=None),
    )
