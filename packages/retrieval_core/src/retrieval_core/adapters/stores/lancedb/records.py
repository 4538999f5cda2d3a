"""One version of the table, from which a call reads all its records, and the changes to them.

A change is one commit, applied while the caller holds the lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.adapters.stores.fields import FieldCounter
from retrieval_core.adapters.stores.lancedb.schema import (
    FORMS,
    SEAL,
    VECTOR,
    ZERO,
    Row,
    any_of,
    arrow,
    damage_of_row,
    digest,
    is_record,
    read_rows,
    read_values,
    read_vectors,
    rows_of,
    seal_rows,
    to_arrow,
    vectors_to_store,
)
from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, FIELD_COLUMNS, SECTIONS, SOURCES, FieldReader
from retrieval_core.errors import RetrievalError
from retrieval_core.ports import Fetched, StoredDamage
from retrieval_core.types.filters import chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from retrieval_core.adapters.stores.lancedb.schema import Record
    from retrieval_core.adapters.stores.rows import RowForm
    from retrieval_core.ports import Change, ChunkRange, FetchRequest, FieldInfo, Manifest, RecordDamage, SourceState
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Chunk, Vector
    from retrieval_core.types.filters import Filter

ALL = 2**31 - 1
"""The limit that means no limit."""
_LAST = 2**64 - 1


class StaleViewError(RetrievalError):
    """Another thread has read a later version already; the read is repeated."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table, identified by the file that it leaves; a copy of the table shares it.

    Attributes:
        version: LanceDB's number. A table that was restored from a copy counts on from its own, so it may recur.
        token: Hash of the file that LanceDB writes for each commit, which holds a random name.
    """

    table: Path
    version: int
    token: str = field(init=False)
    _stamp: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_stamp", self._stamp_now())
        object.__setattr__(self, "token", self._token_now())

    @property
    def is_there(self) -> bool:
        """Whether the table still has this very commit; costs one look at a file's status."""
        try:
            return self._stamp_now() == self._stamp or self._token_now() == self.token
        except FileNotFoundError:
            return False

    @property
    def _file(self) -> Path:
        # LanceDB counts down in the names, so that the last commit is the first in a list.
        return self.table / "_versions" / f"{_LAST - self.version:020}.manifest"

    def _stamp_now(self) -> tuple[int, int, int]:
        status = self._file.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _token_now(self) -> str:
        return blake2b(self._file.read_bytes(), digest_size=16).hexdigest()


class View:
    """A table at one version.

    Attributes:
        commit: The one that made the version.
        is_indexed: Whether the vectors have an index.
        history: An object shared by all views of this process that came from one another by writes; a new one after
            another table, or an older copy, has taken the place.
        lost: How many chunks lack a part, by its column; filled by searches.
    """

    def __init__(self, table: Any, commit: Commit, manifest: Manifest, *, is_indexed: bool, history: object) -> None:
        self.table = table
        self.commit = commit
        self.manifest = manifest
        self.is_indexed = is_indexed
        self.history = history
        self.lost: dict[str, int] = {}

    @property
    def version(self) -> int:
        """LanceDB's number, which grows with each commit."""
        return self.commit.version

    def select(self, where: str, columns: Sequence[str]) -> Any:
        """Return the rows for which an expression holds, as an Arrow table."""
        there = [name for name in columns if name in self.table.schema.names]
        rows = self.table.search().where(where).limit(ALL).select(there).to_arrow()
        for name in columns:
            if name not in there:  # an older version of this library made the table
                rows = rows.append_column(name, arrow().nulls(rows.num_rows))
        return rows

    def select_named(
        self, column: str, digests: Iterable[str], columns: Sequence[str], more: str = ""
    ) -> Iterator[Any]:
        """Yield the rows that have one of these digests in a column, as Arrow tables.

        Args:
            more: An expression that must hold as well.
        """
        for where in any_of(column, digests):
            yield self.select(f"{where} AND {more}" if more else where, columns)

    def count(self, where: str) -> int:
        """Return for how many rows an expression holds."""
        return self.table.count_rows(where)


T = TypeVar("T")

LARGEST_INTEGER = 2**63 - 1
SCANNED_AT_ONCE = 5000
"""Rows read at a time where all are."""
RANGES = 50
"""Ranges of passages that one expression names."""


def read_state(view: View) -> tuple[str, int]:
    """Return the token of the last commit, and the version; upkeep makes versions too."""
    return view.commit.token, view.version


def read_manifest(view: View) -> Manifest:
    """Return the index's manifest."""
    return view.manifest


def fetch(view: View, request: FetchRequest) -> Fetched:
    """Return those of the requested records that exist."""
    chunks: dict[str, Chunk] = {}
    vectors: dict[str, Vector] = {}
    dimension = view.manifest.dimension if request.with_vectors else None
    for table in _chunk_tables(view, request, (*CHUNKS.columns, *(() if dimension is None else (VECTOR,)))):
        passing = [item if matches(request.filter, chunk_fields(item)) else None for item in read_values(table, CHUNKS)]
        chunks.update((item.id, item) for item in passing if item is not None)
        if dimension is not None:
            rows = zip(passing, read_vectors(table, dimension), strict=True)
            vectors.update((item.id, row) for item, row in rows if item is not None)
    sections = _values(view, "section", request.section_ids, SECTIONS)
    documents = _values(view, "document", request.document_ids, DOCUMENTS)
    if request.filter is not None:
        parents = _visible(view, "parent", (section.id for section in sections), request.filter)
        owners = _visible(view, "owner", (document.id for document in documents), request.filter)
        sections = [section for section in sections if section.id in parents]
        documents = [document for document in documents if document.id in owners]
    return Fetched(
        chunks=chunks,
        vectors=vectors,
        sections={section.id: section for section in sections},
        documents={document.id: document for document in documents},
    )


def vectors_of(view: View, chunk_ids: Iterable[str]) -> dict[str, Vector]:
    """Return the passages' own vectors, by the passage's id."""
    dimension = view.manifest.dimension
    if dimension is None:
        return {}
    found: dict[str, Vector] = {}
    for table in _named(view, "chunk", chunk_ids, ("id", VECTOR)):
        found.update(zip(table.column("id").to_pylist(), read_vectors(table, dimension), strict=True))
    return found


def count(view: View) -> tuple[int, int]:
    """Return the numbers of documents and of chunks; a document counts when its text or one of its chunks is here."""
    owners = view.select(is_record("chunk", "document"), ["owner"]).column("owner")
    return len(owners.unique()), view.count(is_record("chunk"))


def document_ids(view: View) -> list[str]:
    """Return the id of each document; one counts when its text or one of its chunks is here."""
    documents = view.select(is_record("document"), ["id"]).column("id").to_pylist()
    of_chunks = view.select(is_record("chunk"), ["document_id"]).column("document_id").unique().to_pylist()
    return list(dict.fromkeys((*documents, *of_chunks)))


def sources(view: View) -> dict[str, SourceState]:
    """Return the state of every source, by its name."""
    table = view.select(is_record("source"), SOURCES.columns)
    return {state.source: state for state in read_values(table, SOURCES)}


def documents_of(view: View, source: str) -> dict[str, str]:
    """Return the content hashes of a source's documents, by document id."""
    tables = view.select_named("source_key", [digest(source)], ("id", "content_hash"), is_record("document"))
    return {name: content for table in tables for name, content in read_rows(table, ("id", "content_hash"))}


def count_chunks(view: View, condition: Filter) -> int:
    """Return how many chunks pass a filter."""
    fields_of = FieldReader()
    rows = read_rows(view.select(is_record("chunk"), FIELD_COLUMNS), FIELD_COLUMNS)
    return sum(matches(condition, fields_of(row)) for row in rows)


def fields(view: View) -> dict[str, FieldInfo]:
    """Return the fields of all chunks by their paths, those of most chunks first."""
    counter, fields_of = FieldCounter(), FieldReader()
    for row in read_rows(view.select(is_record("chunk"), FIELD_COLUMNS), FIELD_COLUMNS):
        counter.add(fields_of(row))
    return counter.catalogue()


def find_damage(view: View, document_ids: Collection[str] | None) -> StoredDamage:
    """Compare chunks, documents and sections with the checksums that were written with them."""
    dimension = view.manifest.dimension
    chunks: dict[str, RecordDamage] = {}
    documents: dict[str, RecordDamage] = {}
    if SEAL not in view.table.schema.names:
        return StoredDamage(unsealed=view.count(is_record("chunk")) if document_ids is None else 0)
    unsealed = 0
    names = tuple(
        dict.fromkeys(("record", "id", "terms", SEAL, *(name for _, form in FORMS.values() for name in form)))
    )
    columns = (*names, *(() if dimension is None else (VECTOR, VECTOR + ZERO)))
    for table in _sealed(view, document_ids, columns):
        vectors: Any = repeat(None)
        if dimension is not None:
            is_zero = table.column(VECTOR + ZERO).to_pylist()
            there = table.column(VECTOR).is_valid().to_pylist()
            rows = zip(read_vectors(table, dimension), there, is_zero, strict=True)
            vectors = [vector if is_there or zero else None for vector, is_there, zero in rows]
        for values, vector in zip(read_rows(table, names), vectors, strict=False):
            row = dict(zip(names, values, strict=True))
            if row[SEAL] is None:
                unsealed += row["record"] == "chunk"
            elif (found := damage_of_row(row, vector, has_vectors=dimension is not None)) is not None:
                if row["record"] == "chunk":
                    chunks[row["id"]] = found
                else:
                    documents[found.document_id] = found
    return StoredDamage(chunks, documents, unsealed=unsealed)


def _sealed(view: View, document_ids: Collection[str] | None, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the rows of the records with checksums, of all documents or of some, as Arrow tables."""
    kinds = is_record("chunk", "document", "section")
    if document_ids is not None:
        yield from view.select_named("owner", map(digest, document_ids), columns, kinds)
        return
    batches = view.table.search().where(kinds).limit(ALL).select(list(columns)).to_batches(SCANNED_AT_ONCE)
    yield from (arrow().Table.from_batches([batch]) for batch in batches)


def count_lost(view: View, column: str) -> int:
    """Return how many chunks lack their vector or their terms."""
    more = f" AND {column}{ZERO} IS NOT TRUE" if column == VECTOR else ""
    return view.count(f"{is_record('chunk')} AND {column} IS NULL{more}")


def _named(view: View, record: Record, names: Iterable[str], columns: Sequence[str]) -> Iterator[Any]:
    return view.select_named("key", (digest(record, name) for name in names), columns, is_record(record))


def _values(view: View, record: Record, names: Iterable[str], form: RowForm[T]) -> list[T]:
    return [value for table in _named(view, record, names, form.columns) for value in read_values(table, form)]


def _chunk_tables(view: View, request: FetchRequest, columns: Sequence[str]) -> Iterator[Any]:
    yield from _named(view, "chunk", request.chunk_ids, columns)
    ranges = filter(None, map(_range, request.ranges))
    while batch := list(islice(ranges, RANGES)):
        yield view.select(f"{is_record('chunk')} AND ({' OR '.join(batch)})", columns)


def _range(part: ChunkRange) -> str | None:
    first, last = max(0, part.first), min(part.last, LARGEST_INTEGER)
    if first > last:
        return None
    return f"(owner = '{digest(part.document_id)}' AND chunk_index >= {first:d} AND chunk_index <= {last:d})"


def _visible(view: View, column: str, names: Iterable[str], condition: Filter) -> set[str]:
    """Return the names of sections or documents that a matching chunk has in a column."""
    name_of: Mapping[str, str] = {digest(name): name for name in names}
    fields_of = FieldReader()
    found: set[str] = set()
    for table in view.select_named(column, name_of, (*FIELD_COLUMNS, column), is_record("chunk")):
        owners = table.column(column).to_pylist()
        for owner, row in zip(owners, read_rows(table, FIELD_COLUMNS), strict=True):
            if name_of[owner] not in found and matches(condition, fields_of(row)):
                found.add(name_of[owner])
    return found


NUMBERS = 24
"""Bits of a passage's number that count within one write; those above are the table's version before it."""
_GONE: Row = {"record": "gone"}


def apply_change(view: View, table: Any, change: Change, analyzer: Analyzer) -> int:
    """Apply a change that was checked before, and return how many rows it wrote.

    Rows that go are written as ``gone`` in the same commit, and swept away later: LanceDB's own way to delete what a
    write does not hold reads the whole table.
    """
    rows = rows_of(change, analyzer, view.version << NUMBERS)
    leaving = (*change.removed_documents, *(document.id for document in change.documents))
    gone = [digest("source", name) for name in change.removed_sources]
    for part in view.select_named("owner", map(digest, leaving), ["key"]):
        gone += part.column("key").to_pylist()
    stale = {key: _GONE for key in gone if key not in rows}
    if not rows:
        if stale:
            table.delete(" OR ".join(any_of("key", stale)))
        return 0
    vectors = vectors_to_store(change, view.manifest)
    seal_rows(rows, vectors)
    rows |= stale
    data = to_arrow(rows, vectors, view.manifest)
    merge = table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(data, on_bad_vectors="null")  # a vector that is absent is "bad" too; those given were checked
    return len(rows)


def remove_documents(view: View, table: Any, document_ids: Sequence[str]) -> int:
    """Remove documents with all that belongs to them and the states of their sources; return the number of chunks."""
    chunks, keys = 0, list[str]()
    for part in view.select_named("owner", map(digest, document_ids), ["key", "record", "source"]):
        records = part.column("record").to_pylist()
        chunks += records.count("chunk")
        keys += part.column("key").to_pylist()
        sources = part.column("source").to_pylist()
        keys += [digest("source", name) for name, record in zip(sources, records, strict=True) if record == "document"]
    if keys:
        table.delete(" OR ".join(any_of("key", keys)))
    return chunks
