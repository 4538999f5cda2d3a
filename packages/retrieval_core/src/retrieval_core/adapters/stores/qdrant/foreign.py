"""Collections that other programs filled: LlamaIndex, LangChain, Qdrant's own MCP server, or the user's own.

The settings say where a point keeps what: ``text`` and ``metadata``, and any other field of a chunk, as paths into its
payload. Points are read as :mod:`retrieval_core.adapters.stores.foreign` reads records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from retrieval_core.adapters.stores.foreign import MAPPED, NODE, foreign_chunk, visible
from retrieval_core.adapters.stores.qdrant.filters import EXACT, Pushed, both, either, in_range, one_of
from retrieval_core.adapters.stores.qdrant.points import distinct
from retrieval_core.errors import InvalidParameterError
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
_CANNOT_BE_ASKED = MAPPED | {"id"}
"""Fields that are read in more ways than one, where they are not mapped."""
_IDS_AS_TEXT = 20  # digits of a number that 64 bits hold


def check_names(names: Mapping[str, str]) -> None:
    """Raise :class:`InvalidParameterError` for a mapping with an unknown key."""
    known = MAPPED | {METADATA}
    if unknown := sorted(set(names) - known):
        msg = f"{SECTION}: {', '.join(unknown)} cannot be mapped; choose from {', '.join(sorted(known))}"
        raise InvalidParameterError(msg)


def proposed_settings(payloads: Sequence[Mapping[str, Any]], vectors: Sequence[str]) -> str:
    """Return settings that read a collection, by what some of its points look like."""
    there = {name: value for payload in payloads for name, value in payload.items()}
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
    if len(vectors) > 1:
        choice = f"vector = {_quoted(vectors[0])}  # one of {', '.join(map(_quoted, vectors))}"
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
    paths = set(_as_keys(names).values()) - set(_metadata(payload, names))
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
    """Return the expression for a range of a document's chunks; false where the mapping does not tell positions."""
    document, position = names.get("document_id"), names.get("chunk_index")
    if document is None or position is None or not (_is_plain(document) and _is_plain(position)):
        return False
    return both(_equal(document, document_id, is_read=True), in_range(position, gte=first, lte=last))


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
            where = None if path in names else _where(path, names)
            bound = {condition.operator.removeprefix("$"): value}
            return in_range(where, **bound) if where and abs(value) < EXACT else True
        case _:
            return True


def _any_of(path: str, values: Sequence[Scalar], names: Mapping[str, str]) -> Expression:
    where = _where(path, names)
    if where is None:
        return True
    found = either(*(_equal(where, value, is_read=path in names) for value in values))
    # A point without a document id is a document of its own.
    return either(found, {"is_empty": {"key": where}}) if path == "document_id" else found


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
    return True if is_read and _may_be_number(value) else one_of(where, distinct((value,)))


def _may_be_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _where(path: str, names: Mapping[str, str]) -> str | None:
    """Return the path of a field in the payload, where it has one place only and a plain name."""
    if path in names and path not in {"text", METADATA}:
        found = names[path]
    elif path in _CANNOT_BE_ASKED or "." in path or path in names.values():
        return None
    else:
        found = f"{names[METADATA]}.{path}" if METADATA in names else path
    return found if _is_plain(found) else None


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
