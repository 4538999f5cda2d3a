"""Conversions between values and rows of the table."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from retrieval_core.adapters.stores.checks import unit_rows
from retrieval_core.adapters.stores.lancedb.schema import (
    SEAL,
    VECTOR,
    ZERO,
    arrow_schema,
    digest,
    vector_columns,
)
from retrieval_core.adapters.stores.lancedb.vendor import arrow
from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, SECTIONS, SOURCES
from retrieval_core.adapters.stores.seals import CHUNK_SEAL, DOCUMENT_SEAL, SECTION_SEAL, checksum, damage_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.adapters.stores.rows import RowForm
    from retrieval_core.ports import Change, Manifest, RecordDamage
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Matrix, Vector

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


def vectors_of(change: Change, manifest: Manifest) -> dict[str, dict[str, Vector]]:
    """Return the vectors of a change, of unit length, by column and key."""
    if manifest.dimension is None or change.vectors is None:
        return {}
    units = unit_rows(change.vectors)
    return {VECTOR: {digest("chunk", chunk.id): units[row] for row, chunk in enumerate(change.chunks)}}


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
