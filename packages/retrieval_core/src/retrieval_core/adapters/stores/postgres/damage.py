"""Find and repair damage to an index by its checksums, inside the caller's transaction."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.postgres.filters import fields_json
from retrieval_core.adapters.stores.postgres.records import READ_AT_ONCE
from retrieval_core.adapters.stores.postgres.schema import decode, decode_row, encode
from retrieval_core.adapters.stores.postgres.words import add_postings, count_postings, merge_segments, read_block
from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, SECTIONS, indexed_text_of
from retrieval_core.adapters.stores.seals import CHUNK_SEAL, DOCUMENT_SEAL, SECTION_SEAL, checksum, damage_of
from retrieval_core.adapters.stores.services import distinct
from retrieval_core.errors import IndexFormatError
from retrieval_core.ports import RecordDamage, StoredDamage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence

    from retrieval_core.adapters.stores.postgres.session import View
    from retrieval_core.adapters.stores.postgres.words import Counted
    from retrieval_core.text.analysis import Analyzer

_INDEXED = tuple(map(CHUNKS.columns.index, ("title", "section_path", "text")))
_TABLES = (("documents", DOCUMENTS, DOCUMENT_SEAL, "id"), ("sections", SECTIONS, SECTION_SEAL, "document_id"))
_OF_FILES = "SELECT id FROM s.documents WHERE source IN (SELECT source FROM s.sources)"
_INCOMPLETE = f"""
SELECT document_id FROM s.chunks WHERE document_id IN ({_OF_FILES}) GROUP BY document_id
HAVING count(*) < max(total_chunks)
UNION SELECT id FROM s.documents WHERE id IN ({_OF_FILES}) AND btrim(text) <> ''
    AND id NOT IN (SELECT document_id FROM s.chunks)
"""  # noqa: S608 - constants
_WITHOUT_SECTION = f"""
SELECT DISTINCT document_id FROM s.chunks WHERE parent_id IS NOT NULL AND parent_id NOT IN (SELECT id FROM s.sections)
    AND document_id IN ({_OF_FILES})
"""  # noqa: S608 - constants
_UNLISTED = """
SELECT DISTINCT source FROM s.documents WHERE source NOT IN (SELECT source FROM s.sources)
    AND (id = source OR starts_with(id, source || '#')) ORDER BY source
"""
_COUNTED = ("chunks", "documents", "sources")
_FORGET_WORDS = "TRUNCATE s.postings, s.segments, s.stale"
_COUNT = """
UPDATE s.manifest SET chunks = (SELECT count(*) FROM s.chunks), documents = (SELECT count(*) FROM s.documents),
    words = (SELECT coalesce(sum(words), 0) FROM s.entries)
"""


async def find_damage(view: View, document_ids: Collection[str] | None) -> StoredDamage:
    """Compare chunks, documents and sections with the checksums that were written with them."""
    names = None if document_ids is None else [encode(name) for name in distinct(document_ids)]
    bags, chunks = await _read_bags(view), dict[str, RecordDamage]()
    async for rows in _batches(view, names):
        chunks |= await asyncio.to_thread(_damage_of_chunks, view, rows, bags)
    documents: dict[str, RecordDamage] = {}
    for table, form, seal, owner in _TABLES:
        where = "true" if names is None else f"{owner} = ANY(%(names)s)"
        sql = f"SELECT {owner}, seal, {', '.join(form.columns)} FROM s.{table} WHERE {where}"  # noqa: S608 - constants
        for name, kept, *row in await view.rows(sql, {"names": names}):
            if damage := damage_of(decode(name), seal, tuple(decode_row(row)), kept, {}):
                documents[damage.document_id] = damage
    wanted = None if names is None else set(names)
    for (name,) in await view.rows(_WITHOUT_SECTION):
        if wanted is None or name in wanted:
            documents.setdefault(decode(name), RecordDamage(decode(name), missing=("section",)))
    incomplete = [name for (name,) in await view.rows(_INCOMPLETE) if wanted is None or name in wanted]
    problems, unlisted = ([], ()) if names is not None else await _compare_counts(view)
    return StoredDamage(
        chunks, documents, frozenset(map(decode, incomplete)), tuple(problems), unlisted=tuple(map(decode, unlisted))
    )


async def repair(view: View, analyzer: Analyzer) -> None:
    """Build again what the index derives from its chunks, and have damaged vectors wait for being embedded."""
    is_embedded = view.state.manifest.dimension is not None
    await view.run("DELETE FROM s.entries WHERE number NOT IN (SELECT number FROM s.chunks)")
    await view.run(_FORGET_WORDS)
    async for rows in _batches(view, None):
        numbers, words, entries, lost = await asyncio.to_thread(_derived, rows, analyzer)
        await view.run_many(
            "INSERT INTO s.entries (number, id, words, fields) VALUES (%s, %s, %s, %s) ON CONFLICT (number) "
            "DO UPDATE SET id = excluded.id, words = excluded.words, fields = excluded.fields",
            entries,
        )
        if is_embedded and lost:
            forget = "UPDATE s.entries SET embedding = NULL, checksum = NULL WHERE number = ANY(%(numbers)s)"
            await view.run(forget, {"numbers": lost})
        await add_postings(view, numbers, words)
        await merge_segments(view)
    await view.run(_COUNT)


async def _batches(view: View, names: Sequence[str] | None) -> AsyncGenerator[list[Any]]:
    """Yield the rows of chunks with what is derived from them."""
    vector = "NULL" if view.state.manifest.dimension is None else "embedding"
    columns = ", ".join(f"chunks.{name}" for name in CHUNKS.columns)
    where = "true" if names is None else "document_id = ANY(%(names)s)"
    last = -1
    sql = (
        f"SELECT number, seal, entries.words, checksum, fields, {vector}, {columns} FROM s.chunks "  # noqa: S608
        f"LEFT JOIN s.entries USING (number) WHERE number > %(last)s AND {where} ORDER BY number LIMIT {READ_AT_ONCE}"
    )
    while rows := await view.rows(sql, {"names": names, "last": last}):
        yield rows
        last = rows[-1][0]


def _damage_of_chunks(view: View, rows: Sequence[Any], bags: dict[int, int]) -> dict[str, RecordDamage]:
    is_embedded = view.state.manifest.dimension is not None
    found: dict[str, RecordDamage] = {}
    for number, kept, words, written, fields, vector, *encoded in rows:
        row = tuple(decode_row(encoded))
        bag = int.from_bytes(kept[CHUNK_SEAL.size :], "little")
        parts: dict[str, bool | None] = {"postings": None if words is None else bags.get(number, 0) == bag}
        if is_embedded and written is not None:
            parts["vector"] = None if vector is None else checksum(vector, number) == written
        with suppress(IndexFormatError):  # the checksum of the record says so
            parts["fields"] = None if words is None else fields == json.loads(fields_json(CHUNKS.from_row(row)))
        if damage := damage_of(row[1], CHUNK_SEAL, row, kept, parts):
            found[row[0]] = damage
    return found


def _derived(rows: Sequence[Any], analyzer: Analyzer) -> tuple[list[int], Counted, list[Any], list[int]]:
    """Return numbers, postings and entries of chunks, and the numbers of those whose vector is lost."""
    numbers = [row[0] for row in rows]
    terms: list[Sequence[str]] = []
    entries: list[Any] = []
    lost: list[int] = []
    for number, _, _, written, fields, vector, *encoded in rows:
        row = decode_row(encoded)
        terms.append(analyzer.terms(indexed_text_of(*(row[at] for at in _INDEXED))))
        try:
            derived = fields_json(CHUNKS.from_row(row))
        except IndexFormatError:
            derived = json.dumps(fields or {"is": {}})
        entries.append((number, encoded[0], len(terms[-1]), derived))
        if written is not None and (vector is None or checksum(vector, number) != written):
            lost.append(number)
    return numbers, count_postings(terms), entries, lost


async def _read_bags(view: View) -> dict[int, int]:
    """Return the checksums of the postings that are stored, by the number of the chunk."""
    import numpy as np  # noqa: PLC0415 - slow to import

    from retrieval_core.adapters.stores.held import Postings, checksums_of  # noqa: PLC0415 - likewise

    there = await view.rows("SELECT number FROM s.chunks ORDER BY number")
    numbers = np.array([*there, (np.iinfo(np.int64).max,)], np.int64)[:, 0]
    bags = np.zeros(len(numbers), np.uint32)
    words, lengths = np.zeros((2, len(numbers)), np.int64)

    def add(rows: Sequence[Any]) -> None:
        blocks = [read_block(block) for _, _, block in rows]
        found = np.concatenate(blocks)
        places = np.searchsorted(numbers, found["number"])
        parts = checksums_of(
            Postings([key for key, _, _ in rows], np.array(list(map(len, blocks))), places, found["frequency"])
        )
        is_there = numbers[places] == found["number"]  # others are of chunks that were removed
        places, found = places[is_there], found[is_there]
        np.add.at(bags, places, parts[is_there])
        np.add.at(words, places, found["frequency"])
        lengths[places] = found["length"]

    last = {"term": "", "segment": -1}
    while rows := await view.rows(
        "SELECT term, segment, block FROM s.postings "  # noqa: S608 - constants
        f"WHERE (term, segment) > (%(term)s, %(segment)s) ORDER BY term, segment LIMIT {READ_AT_ONCE}",
        last,
    ):
        await asyncio.to_thread(add, rows)
        last = {"term": rows[-1][0], "segment": rows[-1][1]}
    bags[words != lengths] ^= np.uint32(1)
    return dict(zip(numbers.tolist(), bags.tolist(), strict=True))


async def _compare_counts(view: View) -> tuple[list[str], Sequence[str]]:
    """Return problems of the index as a whole, and sources that are missing from its list."""
    problems: list[str] = []
    counts = ", ".join(f"{table}, (SELECT count(*) FROM s.{table})" for table in _COUNTED)  # noqa: S608 - constants
    row = await view.row(f"SELECT {counts} FROM s.manifest")  # noqa: S608 - constants
    for name, written, there in zip(("chunks", "documents"), row[:4:2], row[1:4:2], strict=True):
        if written != there:
            problems.append(f"the index has {there} {name}, and {written} were written")
    return problems, [name for (name,) in await view.rows(_UNLISTED)] if row[5] < row[4] else ()
