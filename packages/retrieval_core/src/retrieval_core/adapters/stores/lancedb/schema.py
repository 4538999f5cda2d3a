"""The one table of an index, its rows in Arrow's format, and the SQL expressions for them.

LanceDB has no transactions over several tables. So passages, sections, documents and the states of sources are rows of
one table, told apart by ``record``, and a :class:`~retrieval_core.ports.Change` is one commit. The manifest is in the
schema's metadata, written when the table is made.

User text never enters an SQL expression: rows are looked up by hexadecimal digests and by numbers.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, INTEGER_COLUMNS, SECTIONS, SOURCES
from retrieval_core.adapters.stores.seals import CHUNK_SEAL, DOCUMENT_SEAL, SECTION_SEAL, checksum, damage_of
from retrieval_core.errors import IndexFormatError, MissingExtraError
from retrieval_core.ports import Manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from retrieval_core.adapters.stores.rows import RowForm
    from retrieval_core.ports import Change, RecordDamage
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Matrix, Vector


class LanceDB(NamedTuple):
    """LanceDB's modules."""

    connect: Any
    index: Any
    query: Any
    rerankers: Any


def lancedb() -> LanceDB:
    """Return LanceDB.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        from lancedb import connect, index, query, rerankers  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError("lancedb", "The LanceDB store") from error
    return LanceDB(connect, index, query, rerankers)


def arrow() -> Any:
    """Return Arrow, which comes with LanceDB."""
    import pyarrow as pa  # noqa: PLC0415 - comes with the extra

    return pa


Record: TypeAlias = Literal["chunk", "document", "section", "source", "gone"]
"""The kind of a row; those that are ``gone`` wait to be swept away."""

FORMAT: Final = 1
"""Version of the table's format; it grows when an older version of this library could no longer read it."""
MARK: Final = b"retrieval_core"
"""Key of the manifest in the schema's metadata."""
WORDS_INDEX: Final = "terms_idx"
VECTOR: Final = "vector"
ZERO: Final = "_is_zero"
"""Suffix of the column that marks zero vectors, for which LanceDB has no cosine."""
SEAL: Final = "seal"
"""Checksums of a record, in hexadecimal."""
LATER: Final = {SEAL: "string", "line_first": "bigint", "line_last": "bigint"}
"""Columns that tables of older versions of this library get when they are written to, with their types."""
LOOKED_UP: Final = ("key", "owner", "parent", "source_key", "number")
"""Columns with an index of their own, by which rows are found."""
BATCH: Final = 500
"""Rows named by one expression."""


def digest(*names: str) -> str:
    """Return the hexadecimal digest of names, which is safe in an expression."""
    joined = json.dumps(names, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return blake2b(joined, digest_size=16).hexdigest()


def any_of(column: str, digests: Iterable[str]) -> Iterator[str]:
    """Yield expressions for the rows with one of these digests, each for up to :data:`BATCH` of them."""
    names = list(dict.fromkeys(digests))
    for start in range(0, len(names), BATCH):
        yield f"{column} IN ({', '.join(map(_quoted, names[start : start + BATCH]))})"


def _quoted(digits: str) -> str:
    bytes.fromhex(digits)  # raises for everything else: nothing but digits ever gets between quotes
    return f"'{digits}'"


def is_record(*records: Record) -> str:
    """Return an expression for the rows of some kinds."""
    return f"record IN ({', '.join(repr(record) for record in records)})"


def arrow_schema(manifest: Manifest, *, is_whole: bool = False) -> Any:
    """Return the Arrow schema of rows or, with ``is_whole``, of the index with its manifest."""
    pa = arrow()
    fields: list[Any] = [pa.field("record", pa.string()), *(pa.field(name, pa.string()) for name in LOOKED_UP[:-1])]
    fields.append(pa.field("number", pa.int64()))
    names = dict.fromkeys((*CHUNKS.columns, *SECTIONS.columns, *SOURCES.columns, "terms"))
    for name in names:
        text = pa.large_string() if name == "text" else pa.string()
        fields.append(pa.field(name, pa.int64() if name in INTEGER_COLUMNS else text))
    for column in vector_columns(manifest):
        fields += [pa.field(column, pa.list_(pa.float32(), manifest.dimension)), pa.field(column + ZERO, pa.bool_())]
    fields.append(pa.field(SEAL, pa.string()))
    if not is_whole:
        return pa.schema(fields)
    about = {
        "format": FORMAT,
        "embedder_id": manifest.embedder_id,
        "dimension": manifest.dimension,
        "analyzer": manifest.analyzer,
        "metric": manifest.metric,
        "vectors": manifest.vectors,
    }
    return pa.schema(fields, metadata={MARK: json.dumps(about).encode()})


def vector_columns(manifest: Manifest) -> Sequence[str]:
    """Return the names of the columns of vectors; those of an older version's further vectors stay null."""
    return () if manifest.dimension is None else (VECTOR, *(f"{VECTOR}_{name}" for name in manifest.vectors))


def read_about(schema: Any, location: str) -> Manifest:
    """Return an index's manifest.

    Raises:
        IndexFormatError: The table belongs to another program, or to another version of this library.
    """
    metadata: dict[bytes, bytes] = schema.metadata or {}
    mark = metadata.get(MARK)
    if mark is None:
        msg = (
            f"{location} is a table of another program, and was not changed. Choose another name (store.lancedb.table)"
        )
        raise IndexFormatError(msg)
    about = json.loads(mark)
    if about["format"] != FORMAT:
        advice = "Upgrade retrieval-core" if about["format"] > FORMAT else "Build the index anew"
        msg = (
            f"{location} has index format {about['format']}, and this version of retrieval-core reads format {FORMAT}. "
            f"{advice}."
        )
        raise IndexFormatError(msg)
    return Manifest(
        about["embedder_id"], about["dimension"], about["analyzer"], about["metric"], tuple(about["vectors"])
    )


T = TypeVar("T")
Row: TypeAlias = "dict[str, Any]"
"""Values by column; absent columns are null."""
FORMS = {
    "chunk": (CHUNK_SEAL, CHUNKS.columns),
    "document": (DOCUMENT_SEAL, DOCUMENTS.columns),
    "section": (SECTION_SEAL, SECTIONS.columns),
}
"""The checksums and the columns of each kind of record that has checksums."""
_EXTRA = Struct("<2I")


def rows_of(change: Change, analyzer: Analyzer, first_number: int) -> dict[str, Row]:
    """Return the rows that a change adds or replaces, by key, without vectors.

    Args:
        first_number: The passages are numbered from here on; numbers are never reused.
    """
    rows: dict[str, Row] = {}
    for document in change.documents:
        rows[digest("document", document.id)] = {
            "record": "document",
            "owner": digest(document.id),
            "source_key": digest(document.source),
            **_columns(DOCUMENTS, document),
        }
    for section in change.sections:
        rows[digest("section", section.id)] = {
            "record": "section",
            "owner": digest(section.document_id),
            **_columns(SECTIONS, section),
        }
    for number, chunk in enumerate(change.chunks, first_number):
        rows[digest("chunk", chunk.id)] = {
            "record": "chunk",
            "owner": digest(chunk.document_id),
            "parent": None if chunk.parent_id is None else digest(chunk.parent_id),
            "number": number,
            "terms": " ".join(analyzer.terms(chunk.indexed_text)),
            **_columns(CHUNKS, chunk),
        }
    for state in change.sources:
        rows[digest("source", state.source)] = {
            "record": "source",
            **_columns(SOURCES, state),
        }
    return rows


def _columns(form: RowForm[T], value: T) -> Row:
    return dict(zip(form.columns, form.to_row(value), strict=True))


def vectors_to_store(change: Change, manifest: Manifest) -> dict[str, dict[str, Vector]]:
    """Return the vectors of a change, of unit length, by column and key."""
    if manifest.dimension is None or change.vectors is None:
        return {}
    vectors = change.vectors
    return {VECTOR: {digest("chunk", chunk.id): vectors[row] for row, chunk in enumerate(change.chunks)}}


def seal_rows(rows: Mapping[str, Row], vectors: Mapping[str, Mapping[str, Vector]]) -> None:
    """Give rows their checksums: those of the record, then for a chunk those of its terms and its vector."""
    for key, row in rows.items():
        if (form := FORMS.get(row["record"])) is not None:
            seal, columns = form
            kept = seal.of([row[column] for column in columns])
            if row["record"] == "chunk":
                kept += _extra(row["terms"], vectors.get(VECTOR, {}).get(key))
            row[SEAL] = kept.hex()


def damage_of_row(row: Row, vector: Vector | None, *, has_vectors: bool) -> RecordDamage | None:
    """Return the damage of a row that has checksums, or ``None``.

    Args:
        row: Of a chunk, document or section.
        vector: The chunk's own; ``None`` if it has none.
        has_vectors: Whether the index has vectors.
    """
    seal, columns = FORMS[row["record"]]
    kept = bytes.fromhex(row[SEAL])
    parts: dict[str, bool | None] = {}
    if row["record"] == "chunk":
        terms, of_vector = _EXTRA.unpack(kept[seal.size :])
        parts["postings"] = None if row["terms"] is None else checksum(row["terms"].encode()) == terms
        if has_vectors:
            parts["vector"] = None if vector is None else checksum(vector.tobytes()) == of_vector
    owner = row["id" if row["record"] == "document" else "document_id"]
    return damage_of(owner, seal, [row[column] for column in columns], kept, parts)


def _extra(terms: str, vector: Vector | None) -> bytes:
    return _EXTRA.pack(checksum(terms.encode()), 0 if vector is None else checksum(vector.tobytes()))


def to_arrow(rows: Mapping[str, Row], vectors: Mapping[str, Mapping[str, Vector]], manifest: Manifest) -> Any:
    """Return rows as an Arrow table with the columns of the index."""
    pa = arrow()
    schema = arrow_schema(manifest)
    made: dict[str, tuple[Any, Any]] = {
        column: _vector_arrays([vectors.get(column, {}).get(key) for key in rows], manifest.dimension or 0)
        for column in vector_columns(manifest)
    }
    arrays: list[Any] = []
    for field in schema:
        column = field.name.removesuffix(ZERO)
        if column in made:
            arrays.append(made[column][field.name != column])
        elif field.name == "key":
            arrays.append(pa.array(list(rows), type=field.type))
        else:
            arrays.append(pa.array([row.get(field.name) for row in rows.values()], type=field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _vector_arrays(vectors: Sequence[Vector | None], dimension: int) -> tuple[Any, Any]:
    """Return a column of vectors, null for missing and zero ones, and a column that marks the zero ones."""
    import numpy as np  # noqa: PLC0415 - only those who have vectors pay for numpy

    matrix = np.zeros((len(vectors), dimension), dtype=np.float32)
    for row, vector in enumerate(vectors):
        if vector is not None:
            matrix[row] = vector
    absent = np.logical_not(np.any(matrix != 0, axis=1, keepdims=True))[:, 0]
    zero = [bool(absent[row]) and vector is not None for row, vector in enumerate(vectors)]
    pa = arrow()
    column = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), dimension, mask=pa.array(absent))
    return column, pa.array(zero, type=pa.bool_())


def read_rows(table: Any, columns: Sequence[str]) -> Iterable[Sequence[Any]]:
    """Return the rows of an Arrow table as tuples of these columns."""
    return zip(*(table.column(name).to_pylist() for name in columns), strict=True)


def read_values(table: Any, form: RowForm[T]) -> Iterable[T]:
    """Return the values whose rows an Arrow table holds."""
    return map(form.from_row, read_rows(table, form.columns))


def read_vectors(table: Any, dimension: int) -> Matrix:
    """Return the passages' own vectors of an Arrow table, shape ``(rows, dimension)``; zero where there is none."""
    import numpy as np  # noqa: PLC0415 - only those who ask for vectors pay for numpy

    matrix = np.zeros((table.num_rows, dimension), dtype=np.float32)
    column = table.column(VECTOR).combine_chunks()
    there = np.asarray(column.is_valid())
    matrix[there] = np.asarray(column.drop_null().flatten(), dtype=np.float32).reshape(-1, dimension)
    return matrix
