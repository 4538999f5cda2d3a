"""Reading and changing an index, inside the caller's transaction."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.fields import FieldCounter
from retrieval_core.adapters.stores.postgres.filters import fields_json, to_sql
from retrieval_core.adapters.stores.postgres.schema import (
    MOST_ID_BYTES,
    SentVector,
    decode,
    decode_row,
    encode,
    encode_row,
    vector_bytes,
    vectors_from,
)
from retrieval_core.adapters.stores.postgres.words import add_postings, count_postings, mark_stale, merge_segments
from retrieval_core.adapters.stores.rows import (
    CHUNKS,
    DOCUMENTS,
    FIELD_COLUMNS,
    SECTIONS,
    SOURCES,
    FieldReader,
    indexed_text_of,
)
from retrieval_core.adapters.stores.seals import CHUNK_SEAL, DOCUMENT_SEAL, SECTION_SEAL, checksum
from retrieval_core.adapters.stores.services import distinct
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Fetched
from retrieval_core.types.filters import chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from retrieval_core.adapters.stores.postgres.session import View
    from retrieval_core.adapters.stores.postgres.words import Counted
    from retrieval_core.adapters.stores.rows import RowForm
    from retrieval_core.ports import Change, FetchRequest, FieldInfo, SourceState
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Chunk, Vector
    from retrieval_core.types.filters import Filter

LARGEST_INTEGER = 2**63 - 1
WAITING = "embedding IS NULL AND checksum IS NULL"
"""Holds for chunks whose vectors come later; of others that have none it was lost."""
READ_AT_ONCE = 2000
"""Rows that a whole table is read by."""
_CHUNKS = f"SELECT {', '.join(f'chunks.{name}' for name in CHUNKS.columns)}"
_FIELDS = f"SELECT {', '.join(FIELD_COLUMNS)} FROM s.chunks"  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """The rows of a change, all but the chunks' numbers."""

    documents: Sequence[Sequence[Any]]
    sections: Sequence[Sequence[Any]]
    sources: Sequence[Sequence[Any]]
    chunks: Sequence[Sequence[Any]]
    fields: Sequence[str]
    words: Counted
    vectors: Sequence[bytes | None]


def prepare(change: Change, analyzer: Analyzer) -> ChangeRows:
    """Make the rows of a change; it takes long for many chunks, and needs no server.

    Raises:
        InvalidParameterError: An id is too long.
    """
    words = count_postings([analyzer.terms(chunk.indexed_text) for chunk in change.chunks])
    chunks = [CHUNKS.to_row(chunk) for chunk in change.chunks]
    vectors = iter(() if change.vectors is None else map(vector_bytes, change.vectors))
    prepared = ChangeRows(
        [encode_row((*row, DOCUMENT_SEAL.of(row))) for row in map(DOCUMENTS.to_row, change.documents)],
        [encode_row((*row, SECTION_SEAL.of(row))) for row in map(SECTIONS.to_row, change.sections)],
        [encode_row(row) for row in map(SOURCES.to_row, change.sources)],
        [
            encode_row((*row, CHUNK_SEAL.of(row) + bag.to_bytes(4, "little")))
            for row, bag in zip(chunks, words.bags, strict=True)
        ],
        list(map(fields_json, change.chunks)),
        words,
        [None if chunk.id in change.unembedded else next(vectors, None) for chunk in change.chunks],
    )
    _check_ids(prepared)
    return prepared


def _check_ids(prepared: ChangeRows) -> None:
    """Refuse ids that no index of PostgreSQL can have."""
    keys = [row[0] for row in (*prepared.documents, *prepared.sections, *prepared.sources)]
    keys += [row[1] for row in prepared.documents]
    keys += [name for row in prepared.chunks for name in (row[0], row[1], row[9])]
    for key in keys:
        if key is not None and len(key) * 4 > MOST_ID_BYTES and len(key.encode()) > MOST_ID_BYTES:
            size = len(key.encode())
            msg = f"PostgreSQL's indexes take ids of at most {MOST_ID_BYTES} bytes, got {key!r:.80} of {size}"
            raise InvalidParameterError(msg)


async def apply_change(view: View, change: Change, prepared: ChangeRows) -> None:
    """Apply a change that was checked before."""
    await _remove_documents(view, (*change.removed_documents, *(document.id for document in change.documents)))
    await view.copy("documents", (*DOCUMENTS.columns, "seal"), prepared.documents)
    await _count(view, documents=len(prepared.documents))
    await _replace(view, "sections", (*SECTIONS.columns, "seal"), prepared.sections)
    ids = [row[0] for row in prepared.chunks]
    await _remove_chunks(view, "id = ANY(%(names)s)", ids)
    if prepared.chunks:
        row = await view.row("UPDATE s.manifest SET last = last + %(count)s RETURNING last", {"count": len(ids)})
        numbers = range(row[0] - len(ids) + 1, row[0] + 1)
        await _insert_chunks(view, prepared, numbers)
        await add_postings(view, numbers, prepared.words)
    await merge_segments(view)
    removed = [encode(name) for name in distinct(change.removed_sources)]
    gone = (await view.run("DELETE FROM s.sources WHERE source = ANY(%(names)s)", {"names": removed})).rowcount
    await _count(view, sources=await _replace(view, "sources", SOURCES.columns, prepared.sources) - gone)


async def _replace(view: View, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    """Write rows into a table, in place of those with their ids, and return how many more it has then."""
    if not rows:
        return 0
    last = {row[0]: row for row in rows}
    sql = f"DELETE FROM s.{table} WHERE {columns[0]} = ANY(%(names)s)"  # noqa: S608 - constants
    gone = (await view.run(sql, {"names": list(last)})).rowcount
    await view.copy(table, columns, list(last.values()))
    return len(last) - gone


async def _insert_chunks(view: View, prepared: ChangeRows, numbers: Sequence[int]) -> None:
    rows = [(number, *row) for number, row in zip(numbers, prepared.chunks, strict=True)]
    await view.copy("chunks", ("number", *CHUNKS.columns, "seal"), rows)
    words = prepared.words.lengths
    fields = (b"\x01" + text.encode() for text in prepared.fields)  # a jsonb begins with its version
    entries = list(zip(numbers, (row[0] for row in prepared.chunks), words, fields, strict=True))
    columns, types = ("number", "id", "words", "fields"), ("int8", "text", "int4", "bytea")
    if view.state.manifest.dimension is not None:
        columns, types = (*columns, "checksum", "embedding"), (*types, "int8", "bytea")
        entries = [
            (*entry, None, None) if vector is None else (*entry, checksum(vector, entry[0]), vector)
            for entry, vector in zip(entries, prepared.vectors, strict=True)
        ]
    await view.copy("entries", columns, entries, types)
    await _count(view, chunks=len(rows), words=sum(words))


async def _count(view: View, **counts: int) -> None:
    """Add to the counts of the manifest, by their columns."""
    if any(counts.values()):
        added = ", ".join(f"{name} = {name} + %({name})s" for name in counts)
        await view.run(f"UPDATE s.manifest SET {added}", counts)  # noqa: S608 - constants


async def _remove_documents(view: View, document_ids: Iterable[str]) -> int:
    names = [encode(name) for name in distinct(document_ids)]
    if not names:
        return 0
    await view.run("DELETE FROM s.sections WHERE document_id = ANY(%(names)s)", {"names": names})
    gone = await view.run("DELETE FROM s.documents WHERE id = ANY(%(names)s)", {"names": names})
    await _count(view, documents=-gone.rowcount)
    return await _remove_chunks(view, "document_id = ANY(%(names)s)", names)


async def _remove_chunks(view: View, where: str, names: Sequence[str]) -> int:
    gone = await view.rows(f"DELETE FROM s.chunks WHERE {where} RETURNING number", {"names": list(names)})  # noqa: S608
    numbers = [number for (number,) in gone]
    if numbers:
        sql = "DELETE FROM s.entries WHERE number = ANY(%(numbers)s) RETURNING words"
        words = await view.rows(sql, {"numbers": numbers})
        await mark_stale(view, numbers)
        await _count(view, chunks=-len(numbers), words=-sum(count for (count,) in words))
    return len(numbers)


async def remove(view: View, document_ids: Sequence[str]) -> int:
    """Remove documents and the states of their sources, and return how many chunks were removed."""
    names = [encode(name) for name in distinct(document_ids)]
    of_documents = "SELECT source FROM s.documents WHERE id = ANY(%(names)s)"
    gone = await view.run(f"DELETE FROM s.sources WHERE source IN ({of_documents})", {"names": names})  # noqa: S608
    await _count(view, sources=-gone.rowcount)
    count = await _remove_documents(view, document_ids)
    await merge_segments(view)
    return count


async def add_vectors(view: View, change: Change) -> int:
    """Add the vectors of chunks that still wait for them, and return how many these are."""
    chunks = {encode(chunk.id): row for row, chunk in enumerate(change.chunks)}
    if change.vectors is None or not chunks:
        return 0
    waiting = await view.rows(
        "SELECT number, chunks.id, title, section_path, text FROM s.chunks JOIN s.entries USING (number) "
        "WHERE chunks.id = ANY(%(names)s) AND embedding IS NULL AND checksum IS NULL",
        {"names": list(chunks)},
    )
    sent: list[tuple[SentVector, int, int]] = []
    for number, name, *row in waiting:
        if indexed_text_of(*decode_row(row)) == change.chunks[chunks[name]].indexed_text:
            vector = vector_bytes(change.vectors[chunks[name]])
            sent.append((SentVector(vector), checksum(vector, number), number))
    await view.run_many("UPDATE s.entries SET embedding = %s, checksum = %s WHERE number = %s", sent)
    view.is_written = bool(sent)
    return len(sent)


async def fetch(view: View, request: FetchRequest) -> Fetched:
    """Return those of the requested records that exist."""
    vector = ", embedding" if request.with_vectors and view.state.manifest.dimension is not None else ", NULL"
    select = f"{_CHUNKS}{vector} FROM s.chunks LEFT JOIN s.entries USING (number)"
    ids = [encode(name) for name in distinct(request.chunk_ids)]
    rows = await view.rows(f"{select} WHERE chunks.id = ANY(%(names)s)", {"names": ids}) if ids else []
    names = set(distinct(part.document_id for part in request.ranges))
    parts = [part for part in request.ranges if part.document_id in names and part.first <= LARGEST_INTEGER]
    if parts:
        given = {
            "names": [encode(part.document_id) for part in parts],
            "firsts": [max(0, part.first) for part in parts],
            "lasts": [max(-1, min(part.last, LARGEST_INTEGER)) for part in parts],
        }
        ranges = "unnest(%(names)s::text[], %(firsts)s::bigint[], %(lasts)s::bigint[]) AS part (name, first, last)"
        where = f"JOIN {ranges} ON document_id = part.name AND chunk_index BETWEEN part.first AND part.last"
        rows += await view.rows(f"{select} {where}", given)
    # Thousands of rows take long to make values of.
    chunks, vectors = await asyncio.to_thread(_chunks_of, rows, request.filter)
    sections = await _records(view, SECTIONS, request.section_ids, ("sections", "parent_id"), request.filter)
    documents = await _records(view, DOCUMENTS, request.document_ids, ("documents", "document_id"), request.filter)
    return Fetched(chunks, vectors, sections, documents)


def _chunks_of(rows: Sequence[Any], condition: Filter | None) -> tuple[dict[str, Chunk], dict[str, Vector]]:
    chunks: dict[str, Chunk] = {}
    blobs: dict[str, bytes] = {}
    for *row, blob in rows:
        chunk = CHUNKS.from_row(decode_row(row))
        if matches(condition, chunk_fields(chunk)):
            chunks[chunk.id] = chunk
            if blob is not None:
                blobs[chunk.id] = blob
    return chunks, dict(zip(blobs, vectors_from([*blobs.values()]), strict=True)) if blobs else {}


async def _records(
    view: View, form: RowForm[Any], ids: Sequence[str], place: tuple[str, str], condition: Filter | None
) -> dict[str, Any]:
    """Return records by id; with a filter, those that have a chunk that passes it.

    Args:
        place: The table, and the column of a chunk that names the record.
    """
    table, owner = place
    parameters: dict[str, Any] = {"names": [encode(name) for name in distinct(ids)]}
    if not parameters["names"]:
        return {}
    where = "id = ANY(%(names)s)"
    if condition is not None:
        passing = f"{owner} = {table}.id AND {to_sql(condition, parameters)}"
        where += f" AND EXISTS (SELECT FROM s.chunks JOIN s.entries USING (number) WHERE {passing})"
    rows = await view.rows(f"SELECT {', '.join(form.columns)} FROM s.{table} WHERE {where}", parameters)  # noqa: S608
    return {value.id: value for value in (form.from_row(decode_row(row)) for row in rows)}


async def count(view: View) -> tuple[int, int]:
    """Return the numbers of documents and of chunks; a document counts when its text or one of its chunks is here."""
    return await view.row(
        "SELECT (SELECT count(*) FROM s.documents) + (SELECT count(DISTINCT document_id) FROM "
        "s.chunks WHERE document_id NOT IN (SELECT id FROM s.documents)), (SELECT count(*) FROM s.chunks)"
    )


async def document_ids(view: View) -> list[str]:
    """Return the id of each document; one counts when its text or one of its chunks is here."""
    rows = await view.rows("SELECT id FROM s.documents UNION SELECT document_id FROM s.chunks")
    return [decode(name) for (name,) in rows]


async def sources(view: View, names: Collection[str] | None = None) -> dict[str, SourceState]:
    """Return the states of sources by their names. Default: of all."""
    statement = f"SELECT {', '.join(SOURCES.columns)} FROM s.sources"  # noqa: S608 - constants
    if names is None:
        rows = await view.rows(statement)
    else:
        rows = await view.rows(f"{statement} WHERE source = ANY(%(names)s)", {"names": list(map(encode, names))})
    return {state.source: state for state in (SOURCES.from_row(decode_row(row)) for row in rows)}


async def documents_of(view: View, source: str) -> dict[str, str]:
    """Return the content hashes of a source's documents, by document id."""
    names = [encode(name) for name in distinct((source,))]
    rows = await view.rows("SELECT id, content_hash FROM s.documents WHERE source = ANY(%(names)s)", {"names": names})
    return {decode(name): content for name, content in rows}


async def unembedded(view: View) -> dict[str, str]:
    """Return the content hashes of the chunks that wait for their vector, by id, in the order they were written."""
    rows = await view.rows(
        "SELECT chunks.id, content_hash FROM s.chunks JOIN s.entries USING (number) "
        "WHERE embedding IS NULL AND checksum IS NULL ORDER BY number"
    )
    return {decode(name): content for name, content in rows}


async def count_passing(view: View, condition: Filter | None, more: str = "true") -> int:
    """Return how many chunks pass a filter.

    Args:
        more: An expression that must hold as well.
    """
    parameters: dict[str, Any] = {}
    where = to_sql(condition, parameters)
    return (await view.row(f"SELECT count(*) FROM s.entries WHERE {more} AND {where}", parameters))[0]  # noqa: S608


async def fields(view: View) -> Mapping[str, FieldInfo]:
    """Return the fields of all chunks by their paths, those of most chunks first."""
    counter, fields_of = FieldCounter(), FieldReader()

    def add(rows: Sequence[Any]) -> None:
        for row in rows:
            counter.add(fields_of(decode_row(row)))

    last = -1
    while rows := await view.rows(
        f"{_FIELDS.replace(' FROM', ', number FROM')} WHERE number > %(last)s ORDER BY number LIMIT {READ_AT_ONCE}",
        {"last": last},
    ):
        await asyncio.to_thread(add, [row[:-1] for row in rows])
        last = rows[-1][-1]
    return counter.catalogue()
