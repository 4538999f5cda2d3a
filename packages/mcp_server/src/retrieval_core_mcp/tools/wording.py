"""Sentences about a search that several tools use."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from retrieval_core_mcp.fitting import in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from retrieval_core.types import Degradation

MOST_REASONS = 4
FIELDS = frozenset({"id", "document_id", "chunk_index", "page", "section", "parent_id", "title", "source", "timestamp"})
"""Fields of every chunk, besides its metadata."""
LONGEST_FIELD_LIST = 5


def degraded_lines(degraded: Sequence[Degradation], limit: int) -> list[str]:
    """Return a line for each stage that did not work as configured, ``stage: reason``, for an answer with a limit."""
    return [f"{in_one_line(one.stage, 20)}: {in_one_line(one.reason, limit // 20)}" for one in degraded[:MOST_REASONS]]


def advice(filters: Mapping[str, Any]) -> str:
    """Return advice for a search without results. A filter on a field that no chunk has is no error."""
    if not filters:
        return "Try other words."
    own = [name for name in dict.fromkeys(_fields_of(filters)) if name not in FIELDS]
    if not own:
        return "Try other words, or without the filter; its values must be those of the documents, exactly."
    named = ", ".join(in_one_line(name, 60) for name in own[:LONGEST_FIELD_LIST])
    return (
        f"Try other words, or without the filter. It uses {named}, which a chunk has only if its metadata "
        "has it, in this spelling; list shows all fields. Every chunk can be filtered by source, "
        "document_id, title, section, page and timestamp."
    )


def _fields_of(condition: object) -> Iterator[str]:
    """Yield the names of the fields in a valid filter."""
    if isinstance(condition, (list, tuple)):
        for part in cast("Sequence[object]", condition):
            yield from _fields_of(part)
    elif isinstance(condition, dict):
        for key, value in cast("dict[str, object]", condition).items():
            if key.startswith("$"):
                yield from _fields_of(value)
            else:
                yield key
