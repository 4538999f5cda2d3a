"""Chunks as Pinecone's records, with their words as sparse vectors, and the translation of filters.

Pinecone keeps no counts over an index, so there is no inverse document frequency: a query's terms count as often as
it has them. For the rest see :mod:`retrieval_core.adapters.stores.query_terms`.

Pinecone's metadata is flat and takes text, numbers, booleans and lists of text. So objects are flattened into dotted
paths, as :func:`retrieval_core.types.filters.lookup` reads them, and every value that fits is stored under its own
name. A value that does not fit (a list of numbers, an empty list, an object as a whole, an integer beyond 64-bit
floats) is named in :data:`OPAQUE`, with its items in :data:`ITEMS` as text, so that filters on presence and equality
still work.

Two points on which Pinecone's documentation is silent, or has changed, are not relied on:

- Whether ``$ne`` and ``$nin`` match if the field is absent: each is sent with an explicit ``$exists``.
- Whether ``$in`` takes booleans, and values of several types: each type is asked for by itself.

Where Pinecone cannot be exact, the translation matches more, never less: it has no patterns and no search inside of
text, ``$gt`` and its like compare numbers only and cannot be negated, ``$contains`` also finds single values, an opaque
value passes every comparison, and no filter sees a record's id. The store therefore tests each record with
:func:`~retrieval_core.types.filters.matches`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from retrieval_core.adapters.stores.foreign import OF_THE_RECORD, WRITTEN_AS_TEXT, FieldMapping
from retrieval_core.adapters.stores.query_terms import passage_weights, question_weights
from retrieval_core.adapters.stores.rows import CHUNKS
from retrieval_core.adapters.stores.seals import CHUNK_SEAL, damage_of, is_like, sketch
from retrieval_core.adapters.stores.services import combine, exact_float, flat, is_text, item_token, split
from retrieval_core.errors import IndexFormatError, InvalidParameterError, UnsupportedFilterError
from retrieval_core.types import Chunk, PageSpan, Span
from retrieval_core.types.filters import (
    And,
    Contains,
    Eq,
    Exists,
    Gt,
    Gte,
    In,
    Lt,
    Lte,
    Ne,
    Not,
    NotIn,
    Or,
    chunk_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from retrieval_core.adapters.stores.services import Expression
    from retrieval_core.ports import RecordDamage
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import JSON, Matrix
    from retrieval_core.types.filters import Condition, Filter, Scalar

RESERVED = "_rc"
"""Prefix of the library's fields; a user's field with such a name is opaque."""
RECORD = "_rc"
"""The chunk as JSON, without its text and without long values that are stored under their own names."""
TEXT = "_rc_text"
DOCUMENT = "_rc_doc"
POSITION = "_rc_pos"
OPAQUE = "_rc_opaque"
ITEMS = "_rc_items"


def storable(fields: Mapping[str, JSON]) -> dict[str, object]:
    """Return fields as Pinecone's metadata, those of :data:`OPAQUE` and :data:`ITEMS` included."""
    metadata: dict[str, object] = {}
    opaque: list[str] = []
    items: list[str] = []
    for path, value in flat(fields).items():
        native = as_native(value)
        if native is not None and can_be_name(path):
            metadata[path] = native
            continue
        opaque.append(path)
        parts = value if isinstance(value, (list, tuple)) else (value,)
        items += (item_token(path, part) for part in parts if isinstance(part, (str, int, float)))
    if opaque:
        metadata[OPAQUE] = opaque
    if items:
        metadata[ITEMS] = list(dict.fromkeys(items))
    return metadata


def can_be_name(path: str) -> bool:
    """Whether Pinecone takes a path as the name of a field, and it is none of ours."""
    return bool(path) and not path.startswith(("$", RESERVED))


def as_native(value: JSON) -> str | int | float | bool | list[str] | None:
    """Return a value in a form that Pinecone keeps without loss, ``None`` where it has none."""
    if isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, float)):
        return exact_float(value)
    if isinstance(value, (list, tuple)) and value:
        texts = [item for item in value if isinstance(item, str)]
        return texts if len(texts) == len(value) else None
    return None


MOST_VALUES = 10_000
"""Values that Pinecone takes in one ``$in`` or ``$nin``."""

DEFAULT_MAPPING = FieldMapping.load(None, "store.pinecone.fields", is_flat=True)

KEPT_AS_DIGITS = frozenset({"page"})
"""Numbers that a record may hold as text."""

_DIGITS = 17  # of whole numbers that 64-bit floats tell apart


def translate(condition: Filter | None, mapping: FieldMapping | None = None) -> Expression:
    """Return a filter in Pinecone's language.

    Args:
        condition: ``None`` matches everything.
        mapping: For an index that another program filled. Default: our own fields, and those of the default mapping.

    Returns:
        An expression that holds for everything that matches, and as little else as Pinecone can express.

    Raises:
        UnsupportedFilterError: It names more values than Pinecone takes.
    """
    return (
        True
        if condition is None
        else _Translation(mapping or DEFAULT_MAPPING, is_own=mapping is None).of(condition, negated=False)
    )


def both(*expressions: Expression) -> Expression:
    """Combine expressions so that every one must hold."""
    return combine("$and", expressions, decisive=False)


def either(*expressions: Expression) -> Expression:
    """Combine expressions so that at least one must hold."""
    return combine("$or", expressions, decisive=True)


@dataclass(frozen=True, slots=True)
class _Translation:
    mapping: FieldMapping
    is_own: bool

    def of(self, condition: Filter, *, negated: bool) -> Expression:
        match condition:
            case And(filters) | Or(filters):
                parts = [self.of(part, negated=negated) for part in filters]
                return both(*parts) if isinstance(condition, And) != negated else either(*parts)
            case Not(inner):
                return self.of(inner, negated=not negated)
            case _:
                return self._condition(condition, negated=negated)

    def _condition(self, condition: Condition, *, negated: bool) -> Expression:
        match condition:
            case Eq(path, value) | Ne(path, value):
                return self._member(path, (value,), wanted=isinstance(condition, Eq) != negated)
            case In(path, values) | NotIn(path, values):
                return self._member(path, values, wanted=isinstance(condition, In) != negated)
            case Exists(path, value):
                return self._exists(path, wanted=value != negated)
            case Contains(path, value) if not negated:
                return self._member(path, (value,), wanted=True)
            case Gt(path, value) | Gte(path, value) | Lt(path, value) | Lte(path, value) if (
                not negated and not isinstance(value, str) and path not in KEPT_AS_DIGITS
            ):
                own = {OPAQUE: {"$in": [path]}} if self.is_own and is_text(path) else False
                operator = condition.operator
                return either(self._at(path, lambda name: _ordering(name, operator, value), absent=False), own)
            case _:
                return negated or self._exists(condition.field, wanted=True)

    def _at(self, path: str, test: Callable[[str], Expression], *, absent: bool) -> Expression:
        """Return a test of the first present field of those that may hold a path.

        Args:
            path: Our name of the field.
            test: Makes the test of one present field.
            absent: Whether a record without any of them passes.
        """
        found: Expression = absent or path in OF_THE_RECORD
        places = self.mapping.places(path)
        # Our own records have only the first one, so nothing else says whether the field is absent.
        for name, *within in reversed(places[:1] if self.is_own and absent else places):
            if within:  # JSON as text, into which Pinecone cannot look
                found = True
            elif can_be_name(name) and is_text(name):
                found = either(test(name), both({name: {"$exists": False}}, found))
        return found

    def _member(self, path: str, values: Sequence[Scalar], *, wanted: bool) -> Expression:
        texts = [value for value in values if isinstance(value, str) and is_text(value)]
        numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
        if wanted and path in WRITTEN_AS_TEXT:
            numbers += [int(text) for text in texts if _is_number(text)]
        if wanted and path in KEPT_AS_DIGITS:
            texts += [str(int(number)) for number in numbers if number == int(number)]
        exact = [number for number in map(exact_float, numbers) if number is not None]
        groups: list[Sequence[Scalar]] = [texts, exact, *([value] for value in values if isinstance(value, bool))]
        tokens = [item_token(path, value) for value in values] if self.is_own else []
        combine = either if wanted else both
        native = self._at(
            path,
            lambda name: combine(*[_among(name, group, wanted=wanted) for group in groups if group]),
            absent=not wanted,
        )
        listed = _among(ITEMS, tokens, wanted=wanted) if tokens else not wanted
        if wanted or not tokens:
            return combine(native, listed)
        return both(native, either({ITEMS: {"$exists": False}}, listed))

    def _exists(self, path: str, *, wanted: bool) -> Expression:
        native = self._at(path, lambda name: {name: {"$exists": wanted}}, absent=not wanted)
        if not self.is_own or not is_text(path):
            return native
        if wanted:
            return either(native, {OPAQUE: {"$in": [path]}})
        return both(native, either({OPAQUE: {"$exists": False}}, {OPAQUE: {"$nin": [path]}}))


def _among(name: str, values: Sequence[Scalar], *, wanted: bool) -> Expression:
    if len(values) > MOST_VALUES:
        msg = f"Pinecone takes at most {MOST_VALUES} values in one $in or $nin, got {len(values)}; ask in parts"
        raise UnsupportedFilterError(msg)
    if len(values) == 1:
        return {name: {"$eq" if wanted else "$ne": values[0]}}
    return {name: {"$in" if wanted else "$nin": list(values)}}


def _ordering(name: str, operator: str, value: float) -> Expression:
    """Compare with the number itself, though only 64-bit floats can be sent."""
    upward = operator in {"$gt", "$gte"}
    limit = float(value)
    if limit != value:  # no stored number lies between the two, so only the side of the limit counts
        operator = ("$gte" if limit > value else "$gt") if upward else ("$lte" if limit < value else "$lt")
    return {name: {operator: limit}}


def _is_number(text: str) -> bool:
    """Whether a text is the canonical form of a whole number that a 64-bit float holds."""
    return len(text) < _DIGITS and text.removeprefix("-").isdecimal() and text == str(int(text))


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


def batches(records: Iterable[PineconeRecord]) -> Iterator[list[dict[str, Any]]]:
    """Split records so that each part fits into one request."""
    as_json = (record.as_json() for record in records)
    most_size = MOST_REQUEST_BYTES - _WITH_EVERY_REQUEST
    return split(as_json, lambda record: _size(record) + 1, most=MOST_RECORDS, most_size=most_size)


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
            lines=_pair(kept.get("lines")),
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
        "lines": chunk.lines,
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


MOST_TERMS = 1_000
"""Values of one sparse vector in a hybrid index, from Pinecone's limits."""


def sparse_passage(analyzer: Analyzer, text: str, what: str) -> dict[int, float]:
    """Return the weights of a passage's terms, by their hashes; all are above 0.

    Raises:
        InvalidParameterError: The passage has more different terms than Pinecone keeps.
    """
    weights = passage_weights(analyzer.terms(text))
    if len(weights) > MOST_TERMS:
        msg = (
            f"{what} has {len(weights)} different terms, and Pinecone keeps at most {MOST_TERMS} values in a sparse "
            "vector. Split it into smaller chunks."
        )
        raise InvalidParameterError(msg)
    return weights


def sparse_question(analyzer: Analyzer, text: str) -> dict[int, float]:
    """Return the counts of a question's terms, by their hashes; the thousand most frequent."""
    return dict(islice(question_weights(analyzer.query_terms(text)).items(), MOST_TERMS))
