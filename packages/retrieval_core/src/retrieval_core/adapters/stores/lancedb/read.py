"""Reading by id, from one version of the table."""

from __future__ import annotations

from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.adapters.stores.fields import FieldCounter
from retrieval_core.adapters.stores.lancedb.rows import FORMS, damage_of_row, read_rows, read_values, read_vectors
from retrieval_core.adapters.stores.lancedb.schema import SEAL, VECTOR, ZERO, digest, is_record
from retrieval_core.adapters.stores.lancedb.vendor import arrow
from retrieval_core.adapters.stores.lancedb.view import ALL
from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, FIELD_COLUMNS, SECTIONS, SOURCES, FieldReader
from retrieval_core.ports import Fetched, StoredDamage
from retrieval_core.types.filters import chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from retrieval_core.adapters.stores.lancedb.schema import Record
    from retrieval_core.adapters.stores.lancedb.view import View
    from retrieval_core.adapters.stores.rows import RowForm
    from retrieval_core.ports import ChunkRange, FetchRequest, FieldInfo, Manifest, RecordDamage, SourceState
    from retrieval_core.types import Chunk, Vector
    from retrieval_core.types.filters import Filter

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
