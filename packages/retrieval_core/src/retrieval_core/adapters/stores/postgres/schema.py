"""The tables of an index in PostgreSQL, and how text and vectors are written in them.

The statements write ``s.`` for the schema of the collection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, INTEGER_COLUMNS, SECTIONS, SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from retrieval_core.ports import Manifest
    from retrieval_core.types import Matrix, Vector

APPLICATION = "retrieval-core"
"""Marks the manifest as ours."""
EXAMPLE = "postgresql://user@localhost:5432/database"
LARGEST_DIMENSION = 16_000
"""pgvector keeps no longer vectors."""
LARGEST_INDEXED = 4000
"""Its HNSW index takes no longer vectors of 16-bit numbers."""
_LARGEST_INLINE = 1800
"""Longer vectors don't fit into a page, and are kept outside of the row."""
MOST_ID_BYTES = 2600
"""PostgreSQL's indexes take no longer keys."""
MIGRATIONS: tuple[str, ...] = ()
"""Statements that bring the tables to the next format, one text a format."""


def newest_format() -> int:
    """Return the version of the tables; it grows with each migration."""
    return 1 + len(MIGRATIONS)


# "chunks" has the records, and "entries" what is searched, so that a scan of vectors reads no texts. Each write adds a
# segment of postings, a row for each term of its chunks; segments are merged as they come to be many. The postings of
# removed chunks stay until their segment is merged, and their numbers are in "stale".
_TABLES = """
CREATE TABLE s.manifest (
    application text NOT NULL, format integer NOT NULL, embedder_id text, dimension integer, analyzer text NOT NULL,
    token text NOT NULL, generation bigint NOT NULL, last bigint NOT NULL, chunks bigint NOT NULL,
    words bigint NOT NULL, documents bigint NOT NULL, sources bigint NOT NULL
);
CREATE TABLE s.documents ({documents}, seal bytea NOT NULL, PRIMARY KEY (id));
CREATE INDEX documents_by_source ON s.documents (source);
CREATE TABLE s.sections ({sections}, seal bytea NOT NULL, PRIMARY KEY (id));
CREATE INDEX sections_by_document ON s.sections (document_id);
CREATE TABLE s.sources ({sources}, PRIMARY KEY (source));
CREATE TABLE s.chunks (number bigint PRIMARY KEY, {chunks}, seal bytea NOT NULL, UNIQUE (id));
CREATE INDEX chunks_by_position ON s.chunks (document_id, chunk_index);
CREATE INDEX chunks_by_parent ON s.chunks (parent_id);
CREATE TABLE s.entries (
    number bigint PRIMARY KEY, id text COLLATE "C" NOT NULL, words integer NOT NULL, checksum bigint,
    fields jsonb NOT NULL
);
CREATE INDEX entries_by_field ON s.entries USING gin (fields jsonb_path_ops);
CREATE TABLE s.postings (
    term text COLLATE "C", segment integer, block bytea NOT NULL, PRIMARY KEY (term, segment)
);
CREATE TABLE s.segments (id integer PRIMARY KEY, first bigint NOT NULL, last bigint NOT NULL, chunks bigint NOT NULL);
CREATE TABLE s.stale (number bigint PRIMARY KEY);
"""
_VECTORS = """
ALTER TABLE s.entries ADD COLUMN embedding vector({dimension});
ALTER TABLE s.entries ALTER COLUMN embedding SET STORAGE {storage};
CREATE INDEX entries_without_embedding ON s.entries (number) WHERE embedding IS NULL;
"""


def _columns(names: Sequence[str]) -> str:
    types = ("bigint" if name in INTEGER_COLUMNS else 'text COLLATE "C"' for name in names)
    return ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))


def create_tables(dimension: int | None) -> str:
    """Return the statements that make the tables of an index."""
    forms = {"documents": DOCUMENTS, "sections": SECTIONS, "sources": SOURCES, "chunks": CHUNKS}
    tables = _TABLES.format(**{name: _columns(form.columns) for name, form in forms.items()})
    if dimension is None:
        return tables
    storage = "PLAIN" if dimension <= _LARGEST_INLINE else "EXTERNAL"
    return tables + _VECTORS.format(dimension=dimension, storage=storage)


@dataclass(frozen=True, slots=True)
class State:
    """An index's description of itself, as of one transaction.

    Attributes:
        token: A random one of the last write.
        generation: Grows with each write.
        chunks: How many there should be.
        words: How many terms they have, repeated ones included.
        is_indexed: Whether the vectors have an index.
        is_waiting: Whether some chunks have no vector.
    """

    manifest: Manifest
    format: int
    token: str
    generation: int
    chunks: int
    words: int
    is_indexed: bool
    is_waiting: bool

    @property
    def version(self) -> str:
        """Names the state of the index."""
        return f"{self.token}:{self.generation}"


_ESCAPED = re.compile("[\x00-\x03]")
_CODES = {code: f"\x01{chr(2 + code // 2)}{chr(2 + code % 2)}" for code in range(4)}
_ENCODED = re.compile("\x01([\x02\x03])([\x02\x03])")


def encode(text: str) -> str:
    r"""Return a text as PostgreSQL can keep it, which allows no ``\0``; the order of texts stays the same.

    The four lowest control characters, which texts hardly have, become three characters each. A text contains another
    one exactly if their encoded forms do.
    """
    return text if _ESCAPED.search(text) is None else text.translate(_CODES)


def decode(text: str) -> str:
    """Return a text that was encoded."""
    if "\x01" not in text:
        return text
    return _ENCODED.sub(lambda code: chr(2 * (ord(code[1]) - 2) + ord(code[2]) - 2), text)


def has_escapes(text: str) -> bool:
    """Whether a text is another one when encoded."""
    return _ESCAPED.search(text) is not None


def widen(text: str) -> str:
    """Return a text with three characters for each one, so that ``?`` of a pattern matches exactly one of them."""
    return "".join(_CODES.get(ord(character)) or f"{character}\x02\x02" for character in text)


def encode_row(row: Iterable[Any]) -> list[Any]:
    """Return a row with all texts encoded."""
    return [encode(value) if isinstance(value, str) else value for value in row]


def decode_row(row: Iterable[Any]) -> list[Any]:
    """Return a row with all texts decoded."""
    return [decode(value) if isinstance(value, str) else value for value in row]


class SentVector:
    """A vector as a parameter of a statement.

    Attributes:
        data: See :func:`vector_bytes`.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def vector_bytes(vector: Vector) -> bytes:
    """Return a vector in pgvector's binary form."""
    return len(vector).to_bytes(2) + b"\0\0" + vector.astype(">f4").tobytes()


def vectors_from(rows: Sequence[bytes]) -> Matrix:
    """Return vectors in pgvector's binary form, of one length, as the rows of a matrix."""
    import numpy as np  # noqa: PLC0415 - only those who ask for vectors pay for numpy

    joined = b"".join(row[4:] for row in rows)
    return np.frombuffer(joined, ">f4").astype(np.float32).reshape(len(rows), -1)
