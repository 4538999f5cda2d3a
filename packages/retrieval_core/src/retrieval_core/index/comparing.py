"""Compare documents of two indexes, and compute the checksum of an index, record by record and vector by vector."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, SECTIONS
from retrieval_core.adapters.stores.seals import CLOSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.adapters.stores.rows import Row
    from retrieval_core.ports import Fetched
    from retrieval_core.types import Vector


class Comparison(NamedTuple):
    """The comparison of documents of two indexes.

    Attributes:
        differing: Documents that differ by their names, each with the first difference for people.
        rounded: Number of vectors that the target keeps with fewer digits.
        largest: Largest difference of a component of these.
    """

    differing: dict[str, str]
    rounded: int = 0
    largest: float = 0.0

    def with_more(self, other: Comparison) -> Comparison:
        """Return the comparison of the documents of two."""
        return Comparison(
            self.differing | other.differing, self.rounded + other.rounded, max(self.largest, other.largest)
        )


def _rows(found: Fetched, names: Iterable[str], *, with_texts: bool) -> dict[str, dict[tuple[str, str], Row]]:
    """Return the rows of all records by the names of their documents, in order."""
    rows: dict[str, dict[tuple[str, str], Row]] = {name: {} for name in names}
    if with_texts:
        for document in found.documents.values():
            rows[document.id]["document", document.id] = DOCUMENTS.to_row(document)
        for name in sorted(found.sections):
            section = found.sections[name]
            rows.setdefault(section.document_id, {})["section", name] = SECTIONS.to_row(section)
    for name in sorted(found.chunks):
        chunk = found.chunks[name]
        rows.setdefault(chunk.document_id, {})["chunk", name] = CHUNKS.to_row(chunk)
    return rows


def compare_documents(names: Sequence[str], here: Fetched, there: Fetched, *, with_texts: bool) -> Comparison:
    """Compare documents of two indexes, record by record and vector by vector."""
    ours, theirs = _rows(here, names, with_texts=with_texts), _rows(there, names, with_texts=with_texts)
    total = Comparison({})
    for name in names:
        if told := _first_difference(ours[name], theirs[name]):
            total.differing[name] = told
            continue
        of_chunks = [key for kind, key in ours[name] if kind == "chunk"]
        total = total.with_more(_compare_vectors(name, of_chunks, here.vectors, there.vectors))
    return total


def _first_difference(ours: Mapping[tuple[str, str], Row], theirs: Mapping[tuple[str, str], Row]) -> str | None:
    """Return the first difference of two documents for people."""
    if ours == theirs:
        return None
    kind, name = next(key for key in (*ours, *theirs) if ours.get(key) != theirs.get(key))
    row, other = ours.get((kind, name)), theirs.get((kind, name))
    if row is None or other is None:
        return f"the {kind} {name!r:.120} is {'missing' if other is None else 'superfluous'}"
    return f"the {kind} {name!r:.120} differs"


def _compare_vectors(
    document_id: str, names: Iterable[str], ours: Mapping[str, Vector], theirs: Mapping[str, Vector]
) -> Comparison:
    """Compare the vectors of a document's chunks; one that is a little rounded counts as equal."""
    rounded, largest = 0, 0.0
    for name in names:
        vector, other = ours.get(name), theirs.get(name)
        if vector is None and other is None:
            continue
        if vector is None or other is None or len(vector) != len(other):
            return Comparison({document_id: f"the vector of the chunk {name!r:.120} is missing or another one"})
        difference = float(abs(vector - other).max())
        if difference > CLOSE:
            return Comparison({document_id: f"the vector of the chunk {name!r:.120} is another one"})
        rounded += difference > 0
        largest = max(largest, difference)
    return Comparison({}, rounded, largest)


def add_to_checksum(digest: Any, found: Fetched, names: Sequence[str], *, with_texts: bool) -> None:
    """Add the records and vectors of documents to a checksum."""
    rows = _rows(found, names, with_texts=with_texts)
    for name in names:
        digest.update(json.dumps([(*key, *row) for key, row in rows[name].items()]).encode())
        for kind, key in rows[name]:
            if kind == "chunk" and key in found.vectors:
                digest.update((found.vectors[key] + 0.0).tobytes())  # -0.0 is 0.0 to some stores
