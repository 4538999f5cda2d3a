"""Collections that other programs filled: LlamaIndex, LangChain, Qdrant's own MCP server, or the user's own.

The settings say where a point keeps what: ``text`` and ``metadata``, and any other field of a chunk, as paths into its
payload. Points are read as :mod:`retrieval_core.adapters.stores.foreign` reads records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from retrieval_core.adapters.stores.foreign import (
    DEFAULT_TEXT_NAMES,
    MAPPED,
    NODE,
    foreign_chunk,
    places,
    positions_as_text,
    resolve_fields,
    visible,
)
from retrieval_core.adapters.stores.qdrant.filters import EXACT, Pushed, both, either, in_range, one_of
from retrieval_core.adapters.stores.qdrant.points import distinct
from retrieval_core.types.filters import And, Contains, Eq, Gt, Gte, In, Lt, Lte, Or

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.adapters.stores.qdrant.filters import Expression
    from retrieval_core.types import JSON, Chunk
    from retrieval_core.types.filters import Filter, Scalar

METADATA = "metadata"
"""The mapping's key for the object whose keys are a chunk's metadata; the whole payload where it is not mapped."""
SECTION = "store.qdrant.fields"

_SIMPLE_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_LARGEST_ID = 2**64
_CANNOT_BE_ASKED = frozenset({"id", "text", "section", "page", "parent_id", "content_hash"})
"""Fields that are read in more ways than one, where they are not mapped."""
_IDS_AS_TEXT = 20  # digits of a number that 64 bits hold


PRESETS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "langchain": {"text": "page_content", METADATA: METADATA, "source": f"{METADATA}.source"},
    "llamaindex": {"text": NODE},
    "haystack": {"text": "content", METADATA: "meta"},
}
"""Layouts of frameworks: names of fields that differ from the default ones."""


def resolve_names(fields: Mapping[str, str]) -> dict[str, str]:
    """Return a mapping with the fields of its preset.

    Raises:
        InvalidParameterError: There is no such preset, or a key that cannot be mapped.
    """
    return resolve_fields(fields, PRESETS, MAPPED | {METADATA}, SECTION)


def proposed_settings(payloads: Sequence[Mapping[str, Any]], vectors: Sequence[str]) -> str:
    """Return settings that read a collection, by what some of its points look like."""
    there = {name: value for payload in payloads for name, value in payload.items()}
    choice = f"vector = {_quoted(vectors[0])}  # one of {', '.join(map(_quoted, vectors))}" if len(vectors) > 1 else ""
    is_default = any(isinstance(there.get(name), str) for name in DEFAULT_TEXT_NAMES)
    if is_default and NODE not in there and METADATA not in there:
        return "\n".join(filter(None, ("[store.qdrant]", 'fields = "default"', choice)))
    if NODE in there:  # LlamaIndex
        names = {"text": NODE}
    elif "page_content" in there:  # LangChain
        names = {"text": "page_content", METADATA: METADATA}
    elif "document" in there and METADATA in there:  # mcp-server-qdrant
        names = {"text": "document", METADATA: METADATA}
    else:
        names = {"text": next((name for name, value in there.items() if isinstance(value, str)), "…")}
    if METADATA in names and any("source" in _metadata(payload, names) for payload in payloads):
        names["source"] = f"{METADATA}.source"
    lines = [f"[{SECTION}]", *(f"{ours} = {_quoted(theirs)}" for ours, theirs in names.items())]
    if choice:
        lines = ["[store.qdrant]", choice, "", *lines]
    return "\n".join(lines)


def fields_of(point_id: str, payload: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, JSON]:
    """Return what filters see of a point."""
    return visible(point_id, _record(payload, names), _as_keys(names))


def chunk_of(point_id: str, payload: Mapping[str, Any], names: Mapping[str, str]) -> Chunk:
    """Return a point as a chunk; its id is the point's.

    Raises:
        IndexFormatError: No field holds its text.
    """
    chunk = foreign_chunk(point_id, _record(payload, names), _as_keys(names), SECTION)
    paths = set(_as_keys(names).values()) - set(_metadata(payload, names)) - {"chunk_id"}
    return replace(chunk, metadata={name: value for name, value in chunk.metadata.items() if name not in paths})


def native_id(chunk_id: str) -> int | str | None:
    """Return a point's id in the form that Qdrant takes; ``None`` where no point can have it."""
    if chunk_id.isascii() and chunk_id.isdigit() and len(chunk_id) <= _IDS_AS_TEXT:
        return number if (number := int(chunk_id)) < _LARGEST_ID and str(number) == chunk_id else None
    try:
        return chunk_id if str(UUID(chunk_id)) == chunk_id else None
    except ValueError:
        return None


def translate(condition: Filter | None, names: Mapping[str, str]) -> Pushed:
    """Return what is asked of Qdrant for a filter: never exact, as each point is tested again.

    It is asked for what it surely understands as we do: equality and comparison with a number, of fields whose names
    are plain.
    """
    return Pushed(True if condition is None else _pushed(condition, names), is_exact=condition is None)


def range_expression(document_id: str, first: int, last: int, names: Mapping[str, str]) -> Expression:
    """Return an expression that holds for a range of a document's chunks, and for those whose position is unknown."""
    documents, positions = _paths("document_id", names), _paths("chunk_index", names)
    if first > last or not documents or not positions:
        return False
    of_document = either(*(_equal(path, document_id, is_read=True) for path in documents))
    texts = positions_as_text(first, last)
    if texts is None:  # each point is tested again
        return of_document
    in_place = either(*(either(in_range(path, gte=first, lte=last), one_of(path, texts)) for path in positions))
    is_unknown = both(*({"is_empty": {"key": path}} for path in positions)) if first <= 0 <= last else False
    return both(of_document, either(in_place, is_unknown))


def _pushed(condition: Filter, names: Mapping[str, str]) -> Expression:
    match condition:
        case And(filters):
            return both(*(_pushed(part, names) for part in filters))
        case Or(filters):
            return either(*(_pushed(part, names) for part in filters))
        case Eq(path, value) | Contains(path, value):
            return _any_of(path, (value,), names)
        case In(path, values):
            return _any_of(path, values, names)
        case Gt(path, value) | Gte(path, value) | Lt(path, value) | Lte(path, value) if not isinstance(value, str):
            paths = () if path in MAPPED else _paths(path, names)
            bound = {condition.operator.removeprefix("$"): value}
            return either(*(in_range(where, **bound) for where in paths)) if paths and abs(value) < EXACT else True
        case _:
            return True


def _any_of(path: str, values: Sequence[Scalar], names: Mapping[str, str]) -> Expression:
    paths = _paths(path, names)
    if not paths:
        return True
    found = either(*(_equal(where, value, is_read=path in MAPPED) for where in paths for value in values))
    if path != "document_id":
        return found
    # A point whose document id is absent, or cannot be read as one, is a document of its own.
    own = [number for value in values if isinstance(value, str) and (number := native_id(value)) is not None]
    return either(found, both(*({"is_empty": {"key": where}} for where in paths)), {"has_id": own} if own else False)


def _equal(where: str, value: Scalar, *, is_read: bool) -> Expression:
    """Compare with a value.

    Args:
        is_read: Whether the payload's value is read first: numbers as text, or digits as a number.
    """
    if isinstance(value, bool):
        return {"key": where, "match": {"value": value}}
    if not isinstance(value, str):
        # 1 and 1.0 are one value to us, and a range finds both.
        return True if is_read or abs(value) >= EXACT else in_range(where, gte=value, lte=value)
    found = one_of(where, distinct((value,)))
    if not is_read or (number := _as_number(value)) is None:
        return found
    if not isfinite(number) or abs(number) >= EXACT:
        return True
    return either(found, in_range(where, gte=number, lte=number))


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _paths(path: str, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths in the payload that may hold a field; empty if Qdrant cannot be asked for it."""
    if path in names and path not in {"text", METADATA}:
        found: tuple[str, ...] = (names[path],)
    elif path in _as_keys(names).values():
        found = (path,)
    elif path in _CANNOT_BE_ASKED or path in names or "." in path:
        return ()
    else:
        prefix = f"{names[METADATA]}." if METADATA in names else ""
        found = tuple(f"{prefix}{place}" for place in places(path, names))
    return found if all(map(_is_plain, found)) else ()


def _is_plain(path: str) -> bool:
    return _SIMPLE_PATH.fullmatch(path) is not None


def _at(payload: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path, of which each dot leads into an object, as with Qdrant."""
    value: Any = payload
    for name in path.split("."):
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return value


def _metadata(payload: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    found = _at(payload, names[METADATA]) if METADATA in names else payload
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def _record(payload: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a point as a record: its metadata, and beside it every mapped field under its path."""
    return {**_metadata(payload, names), **{path: _at(payload, path) for path in _as_keys(names).values()}}


def _as_keys(names: Mapping[str, str]) -> dict[str, str]:
    return {ours: path for ours, path in names.items() if ours != METADATA}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
