"""The one table of an index, and the SQL expressions for its rows.

LanceDB has no transactions over several tables. So passages, sections, documents and the states of sources are rows of
one table, told apart by ``record``, and a :class:`~retrieval_core.ports.Change` is one commit. The manifest is in the
schema's metadata, written when the table is made.

User text never enters an SQL expression: rows are looked up by hexadecimal digests and by numbers.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from retrieval_core.adapters.stores.lancedb.vendor import arrow
from retrieval_core.adapters.stores.rows import CHUNKS, INTEGER_COLUMNS, SECTIONS, SOURCES
from retrieval_core.errors import IndexFormatError
from retrieval_core.ports import Manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
"""Checksums of a record, in hexadecimal; tables of older versions of this library get the column when written to."""
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
