"""Conversions between our values and Qdrant's points.

All points of an index are in one collection, so that a change can be one request. A point's payload has the columns of
its value as they are in the other stores (:mod:`retrieval_core.adapters.stores.rows`), and under ``_rc`` what filters
need. Only chunks have vectors.
"""

from __future__ import annotations

import json
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from uuid import UUID

from retrieval_core.adapters.stores.qdrant.filters import OWN, digested
from retrieval_core.adapters.stores.query_terms import passage_weights
from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, FIELD_COLUMNS, SECTIONS, SOURCES, FieldReader
from retrieval_core.adapters.stores.seals import (
    CHUNK_SEAL,
    DOCUMENT_SEAL,
    SECTION_SEAL,
    checksum,
    damage_of,
    is_like,
    sketch,
)
from retrieval_core.errors import IndexFormatError, InvalidParameterError
from retrieval_core.types.filters import chunk_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.adapters.stores.rows import Row, RowForm
    from retrieval_core.adapters.stores.seals import Seal
    from retrieval_core.ports import Change, RecordDamage
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import JSON, Chunk, Vector

T = TypeVar("T")
Kind: TypeAlias = Literal["chunk", "document", "section", "source", "state"]
Payload: TypeAlias = "Mapping[str, Any]"

KIND = f"{OWN}.kind"
GENERATION = f"{OWN}.generation"
"""The number of the write that a point comes from."""
DENSE = "dense"
WORDS = "words"

MOST_POINT_BYTES = 30_000_000
"""A server takes requests of 32 MB, unless it is set otherwise."""
MOST_REQUEST_BYTES = 12_000_000
MOST_POINTS = 1_000

_NAMESPACE = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")  # that of object identifiers, in RFC 9562
_FORMS: Mapping[Kind, RowForm[Any]] = {
    "chunk": CHUNKS,
    "document": DOCUMENTS,
    "section": SECTIONS,
    "source": SOURCES,
}

SEALS: Mapping[Kind, Seal] = {"chunk": CHUNK_SEAL, "document": DOCUMENT_SEAL, "section": SECTION_SEAL}
"""Of the kinds of points that have checksums."""


def point_id(kind: Kind, name: str) -> str:
    """Return the id of a point: a UUID of version 5, as Qdrant takes whole numbers and UUIDs only."""
    text = f"retrieval-core/{kind}/{name}".encode("utf-8", "surrogatepass")
    return str(UUID(bytes=sha1(_NAMESPACE.bytes + text, usedforsecurity=False).digest()[:16], version=5))


def chunk_points(change: Change, analyzer: Analyzer, generation: int, models: Any, location: str) -> list[Any]:
    """Return the points of a change's chunks.

    Raises:
        InvalidParameterError: One of them is larger than a request may be.
    """
    rows = change.vectors
    found: list[Any] = []
    for position, chunk in enumerate(change.chunks):
        vectors: dict[str, Any] = {} if rows is None else {DENSE: rows[position].tolist()}
        weights = passage_weights(analyzer.terms(chunk.indexed_text))
        if weights:
            vectors[WORDS] = models.SparseVector(indices=[*weights], values=[*weights.values()])
        own = digested(chunk_fields(chunk)) | parts_of(vectors.get(DENSE), vectors.get(WORDS))
        row = CHUNKS.to_row(chunk)
        point = _point("chunk", chunk.id, row, generation, models=models, vectors=vectors, own=own)
        found.append(_checked(point, f"chunk {chunk.id!r:.80}", location))
    return found


def other_points(change: Change, generation: int, models: Any, location: str) -> tuple[list[Any], list[Any]]:
    """Return the points of a change's documents and sections, and those of its sources.

    Raises:
        InvalidParameterError: One of them is larger than a request may be.
    """
    values: list[tuple[Kind, str, Any]] = [
        *(("document", document.id, document) for document in change.documents),
        *(("section", section.id, section) for section in change.sections),
        *(("source", state.source, state) for state in change.sources),
    ]
    points: list[tuple[Kind, Any]] = []
    for kind, name, value in values:
        point = _point(kind, name, _FORMS[kind].to_row(value), generation, models=models)
        points.append((kind, _checked(point, f"{kind} {name!r:.80}", location)))
    return [point for kind, point in points if kind != "source"], [point for kind, point in points if kind == "source"]


def parts_of(vector: Sequence[float] | None, words: Any) -> dict[str, Any]:
    """Return what is kept of a chunk's vectors, by which other ones are told apart."""
    import numpy as np  # noqa: PLC0415 - slow to load

    kept: dict[str, Any] = {} if vector is None else {"vector": sketch(np.asarray(vector, np.float32))}
    return kept if words is None else kept | {"words": _words_checksum(words)}


def damage_of_point(point: Any) -> RecordDamage | None:
    """Return the damage of a chunk's, document's or section's point that has checksums, or ``None``."""
    payload: dict[str, Any] = point.payload
    own = payload[OWN]
    form = _FORMS[own["kind"]]
    vectors: Any = point.vector or {}
    parts: dict[str, bool | None] = {}
    if "vector" in own:
        vector = vector_of(point, DENSE)
        parts["vector"] = None if vector is None else is_like(vector, own["vector"])
    if "words" in own:
        words = vectors.get(WORDS)
        parts["postings"] = None if words is None else _words_checksum(words) == own["words"]
    owner = payload.get("id" if own["kind"] == "document" else "document_id", "")
    row = [payload.get(column) for column in form.columns]
    return damage_of(owner, SEALS[own["kind"]], row, bytes.fromhex(own["seal"]), parts)


def _words_checksum(words: Any) -> int:
    import numpy as np  # noqa: PLC0415 - slow to load

    pairs = sorted(zip(words.indices, words.values, strict=True))
    return checksum(np.asarray(pairs, np.float64).astype("<f4").tobytes())


def owner_point(document_id: str, generation: int, models: Any) -> Any:
    """Return the point that stands for a document whose chunks are here and whose text is not."""
    payload = {"id": document_id, OWN: {"kind": "document", "generation": generation}}
    return models.PointStruct(id=point_id("document", document_id), vector={}, payload=payload)


def value_of(payload: Payload, form: RowForm[T]) -> T:
    """Return the value of a point that we wrote.

    Raises:
        IndexFormatError: The point is damaged.
    """
    return form.from_row([payload.get(column) for column in form.columns])


def fields_of(payload: Payload, reader: FieldReader) -> Mapping[str, JSON]:
    """Return what filters see of a chunk that we wrote, from the columns :data:`FIELD_COLUMNS`.

    Raises:
        IndexFormatError: The point is damaged.
    """
    try:
        return reader([payload.get(column) for column in FIELD_COLUMNS])
    except (KeyError, TypeError, ValueError) as error:
        msg = f"the point of {payload.get('id')!r:.80} is damaged ({error!r:.80}); index its document anew"
        raise IndexFormatError(msg) from error


def chunk_of(payload: Payload) -> Chunk:
    """Return the chunk of a point that we wrote."""
    return value_of(payload, CHUNKS)


def vector_of(point: Any, name: str) -> Vector | None:
    """Return a point's vector of a name, blank for the one without; ``None`` where it did not come along."""
    import numpy as np  # noqa: PLC0415 - slow to load

    given: Any = point.vector
    values: Any = given.get(name) if hasattr(given, "get") else given
    return None if values is None else np.asarray(values, dtype=np.float32)


def size_of(point: Any) -> int:
    """Return about how many bytes a point takes in JSON."""
    numbers = sum(
        2 * len(values.values) if hasattr(values, "values") else len(values) for values in point.vector.values()
    )
    return 24 * numbers + len(json.dumps(point.payload).encode())


def _point(
    kind: Kind,
    name: str,
    row: Row,
    generation: int,
    *,
    models: Any,
    vectors: Mapping[str, Any] | None = None,
    own: Mapping[str, Any] | None = None,
) -> Any:
    columns = zip(_FORMS[kind].columns, row, strict=True)
    payload = {column: value for column, value in columns if value is not None}
    seal = {"seal": SEALS[kind].of(row).hex()} if kind in SEALS else {}
    payload[OWN] = {"kind": kind, "generation": generation, **seal, **(own or {})}
    return models.PointStruct(id=point_id(kind, name), vector=dict(vectors or {}), payload=payload)


def _checked(point: Any, what: str, location: str) -> Any:
    size = size_of(point)
    if size > MOST_POINT_BYTES:
        msg = f"{location}: {what} comes to {size} bytes, and Qdrant takes about {MOST_POINT_BYTES} in one request. "
        msg += "Split it into smaller ones, or leave metadata out."
        raise InvalidParameterError(msg)
    return point
