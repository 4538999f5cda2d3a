"""Changes to an index, each in one commit, while the caller holds the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.lancedb.rows import Row, rows_of, seal_rows, to_arrow, vectors_of
from retrieval_core.adapters.stores.lancedb.schema import any_of, digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.adapters.stores.lancedb.view import View
    from retrieval_core.ports import Change
    from retrieval_core.text.analysis import Analyzer

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
    vectors = vectors_of(change, view.manifest)
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
