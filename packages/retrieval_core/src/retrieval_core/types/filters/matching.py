"""The meaning of filters: which fields they see, and when these match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from retrieval_core.types.filters.conditions import And, Not, Or

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval_core.types import JSON, Chunk
    from retrieval_core.types.filters.conditions import Filter


def lookup(fields: Mapping[str, JSON], path: str) -> JSON:
    """Return the value at a dotted path; ``None`` if there is none."""
    if path in fields:
        return fields[path]
    head, dot, rest = path.partition(".")
    inner = fields.get(head) if dot else None
    return lookup(inner, rest) if isinstance(inner, Mapping) else None


def chunk_fields(chunk: Chunk) -> Mapping[str, JSON]:
    """Return the fields of a chunk that filters see: its own and its metadata, which win where a name is in both."""
    pages, timestamp = chunk.page_span, chunk.timestamp
    return {
        "id": chunk.id,
        "document_id": chunk.document_id,
        "chunk_index": chunk.chunk_index,
        "page": tuple(range(pages.first, pages.last + 1)) if pages else None,
        "section": chunk.section_path,
        "parent_id": chunk.parent_id,
        "title": chunk.title,
        "source": chunk.source,
        "timestamp": timestamp.isoformat() if timestamp else None,
        **chunk.metadata,
    }


def matches(condition: Filter | None, fields: Mapping[str, JSON]) -> bool:
    """Whether fields match a filter; everything matches ``None``."""
    match condition:
        case None:
            return True
        case And(filters):
            return all(matches(part, fields) for part in filters)
        case Or(filters):
            return any(matches(part, fields) for part in filters)
        case Not(inner):
            return not matches(inner, fields)
        case _:
            return condition.test(lookup(fields, condition.field))


def all_of(*filters: Filter | None) -> Filter | None:
    """Combine filters so that every one must match, leaving out those that are ``None``."""
    given = tuple(item for item in filters if item is not None)
    return None if not given else given[0] if len(given) == 1 else And(given)


def parts_of(condition: Filter) -> Iterator[Filter]:
    """Yield a filter and all filters inside it."""
    yield condition
    match condition:
        case And(filters) | Or(filters):
            for part in filters:
                yield from parts_of(part)
        case Not(inner):
            yield from parts_of(inner)
        case _:
            pass


def operators_of(condition: Filter) -> frozenset[str]:
    """Return the names of all operators that a filter uses."""
    return frozenset(part.operator for part in parts_of(condition))


def paths_of(condition: Filter) -> frozenset[str]:
    """Return the paths that a filter looks at."""
    return frozenset(part.field for part in parts_of(condition) if not isinstance(part, (And, Or, Not)))
