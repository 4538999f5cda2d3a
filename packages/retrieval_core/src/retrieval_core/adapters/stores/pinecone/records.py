"""Conversions between chunks and Pinecone's records, with their words as sparse vectors.

Pinecone keeps no counts over an index, so there is no inverse document frequency: a query's terms count as often as
it has them. For the rest see :mod:`retrieval_core.adapters.stores.query_terms`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from retrieval_core.adapters.stores.pinecone.filters import DOCUMENT, POSITION, RECORD, TEXT, storable
from retrieval_core.adapters.stores.query_terms import passage_weights, question_weights
from retrieval_core.adapters.stores.rows import CHUNKS
from retrieval_core.adapters.stores.seals import CHUNK_SEAL, damage_of, is_like, sketch
from retrieval_core.errors import IndexFormatError, InvalidParameterError
from retrieval_core.types import Chunk, PageSpan, Span
from retrieval_core.types.filters import chunk_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from retrieval_core.ports import RecordDamage
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Matrix

# Pinecone's limits, from its reference (Database limits: operation and identifier limits).
MOST_METADATA_BYTES = 40_960
MOST_REQUEST_BYTES = 2_000_000
MOST_RECORDS = 1_000
MOST_ID_CHARACTERS = 512

_FORMAT = 1
_HASHED = "rc-sha256-"
# Text values longer than this are kept once, under their own name.
_LONG = 64
_WITH_EVERY_REQUEST = 1_000  # bytes for the namespace and what holds the records together


@dataclass(frozen=True, slots=True)
class PineconeRecord:
    """One vector with its metadata, as it is sent.

    Attributes:
        sparse: Values by index; empty where the index has none.
    """

    id: str
    values: list[float]
    metadata: Mapping[str, Any]
    sparse: Mapping[int, float] = field(default_factory=dict[int, float])

    def as_json(self) -> dict[str, Any]:
        """Return the form that the client's ``upsert`` takes."""
        record: dict[str, Any] = {"id": self.id, "values": self.values, "metadata": self.metadata}
        if self.sparse:
            record["sparse_values"] = {"indices": list(self.sparse), "values": list(self.sparse.values())}
        return record


def vector_id(chunk_id: str) -> str:
    """Return the id of a chunk's vector: the chunk's own, or its SHA-256 where Pinecone does not allow that."""
    if (
        0 < len(chunk_id) <= MOST_ID_CHARACTERS
        and all(" " <= character <= "~" for character in chunk_id)
        and not chunk_id.startswith(_HASHED)
    ):
        return chunk_id
    return _HASHED + sha256(chunk_id.encode("utf-8", "surrogatepass")).hexdigest()


def records_of(
    chunks: Sequence[Chunk], vectors: Matrix, sparse: Sequence[Mapping[int, float]], location: str
) -> list[PineconeRecord]:
    """Return the records of chunks, within Pinecone's limits.

    Raises:
        InvalidParameterError: A chunk is too large.
    """
    records: list[PineconeRecord] = []
    for position, chunk in enumerate(chunks):
        metadata = _metadata(chunk, sketch(vectors[position]))
        check_size(f"chunk {chunk.id!r:.80}", metadata, location)
        records.append(PineconeRecord(vector_id(chunk.id), vectors[position].tolist(), metadata, sparse[position]))
    return records


def check_size(what: str, metadata: Mapping[str, Any], location: str) -> None:
    """Raise :class:`InvalidParameterError` for metadata of more than :data:`MOST_METADATA_BYTES`."""
    size = _size(metadata)
    if size > MOST_METADATA_BYTES:
        msg = (
            f"{location}: {what} comes to {size} bytes with its text and metadata, and Pinecone keeps at most "
            f"{MOST_METADATA_BYTES} for each vector. Split it into smaller chunks, or leave metadata out."
        )
        raise InvalidParameterError(msg)


def batches(records: Sequence[PineconeRecord]) -> Iterator[list[dict[str, Any]]]:
    """Split records so that each part fits into one request."""
    batch: list[dict[str, Any]] = []
    size = _WITH_EVERY_REQUEST
    for record in records:
        as_json = record.as_json()
        length = _size(as_json)
        if batch and (len(batch) == MOST_RECORDS or size + length > MOST_REQUEST_BYTES):
            yield batch
            batch, size = [], _WITH_EVERY_REQUEST
        batch.append(as_json)
        size += length + 1
    if batch:
        yield batch


def chunk_of(metadata: Mapping[str, Any]) -> Chunk:
    """Return the chunk of a record that we wrote.

    Raises:
        IndexFormatError: The record is damaged, or of another version of this library.
    """
    try:
        kept = json.loads(metadata[RECORD])
        if kept["v"] != _FORMAT:
            msg = f"a record has format {kept['v']!r}, and this version reads {_FORMAT}; index the documents anew"
            raise IndexFormatError(msg)
        own = {entry[0]: entry[1] if len(entry) > 1 else metadata[entry[0]] for entry in kept["metadata"]}
        return Chunk(
            id=kept["id"],
            document_id=metadata[DOCUMENT],
            text=metadata[TEXT],
            chunk_index=kept["index"],
            total_chunks=kept["total"],
            page_span=PageSpan(*kept["pages"]) if "pages" in kept else None,
            section_path=tuple(kept.get("section", ())),
            span=Span(*kept["span"]) if "span" in kept else None,
            parent_id=kept.get("parent"),
            row_range=_pair(kept.get("rows")),
            item_range=_pair(kept.get("items")),
            title=kept.get("title"),
            source=kept.get("source"),
            content_hash=kept.get("hash", ""),
            timestamp=datetime.fromisoformat(kept["time"]) if "time" in kept else None,
            embedding_model=kept.get("model"),
            metadata=own,
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        msg = f"a record's field {RECORD} is damaged ({error!r:.80}); index its document anew"
        raise IndexFormatError(msg) from error


def damage_of_record(values: Sequence[float], metadata: Mapping[str, Any]) -> tuple[str, RecordDamage | None] | None:
    """Return the id of the chunk of a record that we wrote, and what is wrong with it or ``None``.

    Returns:
        ``None`` if it has no checksums.
    """
    chunk = chunk_of(metadata)
    kept = json.loads(metadata[RECORD])
    if "seal" not in kept:
        return None
    vector = np.asarray(values, dtype=np.float32)
    parts = {"vector": is_like(vector, kept["vector"]) if len(vector) else None}
    seal = bytes.fromhex(kept["seal"])
    return chunk.id, damage_of(chunk.document_id, CHUNK_SEAL, CHUNKS.to_row(chunk), seal, parts)


def _metadata(chunk: Chunk, vector: Sequence[float]) -> dict[str, Any]:
    native = storable(chunk_fields(chunk))
    bare = Chunk(chunk.id, chunk.document_id, chunk.text)
    optional: dict[str, Any] = {
        "pages": (chunk.page_span.first, chunk.page_span.last) if chunk.page_span else None,
        "section": chunk.section_path or None,
        "span": (chunk.span.start, chunk.span.end) if chunk.span else None,
        "parent": chunk.parent_id,
        "rows": chunk.row_range,
        "items": chunk.item_range,
        "title": chunk.title,
        "source": chunk.source,
        "hash": chunk.content_hash if chunk.content_hash != bare.content_hash else None,
        "time": chunk.timestamp.isoformat() if chunk.timestamp else None,
        "model": chunk.embedding_model,
    }
    kept = {
        "v": _FORMAT,
        "id": chunk.id,
        "index": chunk.chunk_index,
        "total": chunk.total_chunks,
        **{name: value for name, value in optional.items() if value is not None},
        # In order, since JSON objects come back from Pinecone in any.
        "metadata": [
            [key] if isinstance(value, str) and len(value) > _LONG and native.get(key) == value else [key, value]
            for key, value in chunk.metadata.items()
        ],
        "seal": CHUNK_SEAL.of(CHUNKS.to_row(chunk)).hex(),
        "vector": vector,
    }
    return {
        **native,
        DOCUMENT: chunk.document_id,
        POSITION: chunk.chunk_index,
        TEXT: chunk.text,
        RECORD: json.dumps(kept, ensure_ascii=False, separators=(",", ":")),
    }


def _pair(value: Any) -> tuple[int, int] | None:
    return cast("tuple[int, int]", tuple(value)) if value is not None else None


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


MOST_VALUES = 1_000
"""Values of one sparse vector in a hybrid index, from Pinecone's limits."""


def sparse_passage(analyzer: Analyzer, text: str, what: str) -> dict[int, float]:
    """Return the weights of a passage's terms, by their hashes; all are above 0.

    Raises:
        InvalidParameterError: The passage has more different terms than Pinecone keeps.
    """
    weights = passage_weights(analyzer.terms(text))
    if len(weights) > MOST_VALUES:
        msg = (
            f"{what} has {len(weights)} different terms, and Pinecone keeps at most {MOST_VALUES} values in a sparse "
            "vector. Split it into smaller chunks."
        )
        raise InvalidParameterError(msg)
    return weights


def sparse_question(analyzer: Analyzer, text: str) -> dict[int, float]:
    """Return the counts of a question's terms, by their hashes; the thousand most frequent."""
    return dict(islice(question_weights(analyzer.query_terms(text)).items(), MOST_VALUES))
