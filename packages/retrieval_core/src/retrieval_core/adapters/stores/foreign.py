"""Records written by other programs: LlamaIndex, LangChain, Qdrant's MCP server, or the user's own.

A record is an id and its fields by name, as the service returns them. A preset names the layout of a framework; the
preset ``default`` knows the names of the specification's payload.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.errors import IndexFormatError, InvalidParameterError
from retrieval_core.types import Chunk, PageSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from retrieval_core.types import JSON

OF_THE_RECORD = frozenset({"id", "document_id"})
"""Fields that default to the record's own id."""
WRITTEN_AS_TEXT = frozenset({"document_id", "title", "source", "parent_id", "embedding_model"})
"""Fields that are read as text; a number in a record becomes its digits."""

NODE = "_node_content"
"""LlamaIndex's field with a node as JSON."""
_OF_LLAMAINDEX = frozenset({NODE, "_node_type", "doc_id", "document_id", "ref_doc_id"})
DEFAULT_TEXT_NAMES = ("text", "page_content", "content", "chunk_text", "review_text")
_OTHER_NAMES = {
    "document_id": ("document_id", "doc_id", "source_url", "url"),
    "source": ("source", "source_url", "url", "file_path"),
    "title": ("title", "document_title"),
    "chunk_index": ("chunk_index", "position"),
}
"""The default names of fields that have several; the first one that a record has counts."""
_AS_STORED = frozenset({"timestamp", "chunk_id"})
"""Fields that filters see as the record has them."""
_NAMES_IN_PAYLOADS = {
    "source": "source_url",
    "chunk_id": "chunk_id",
    "chunk_index": "chunk_index",
    "total_chunks": "total_chunks",
}
_ONLY_MAPPED = frozenset({"section", "page", "parent_id", "content_hash"})
_SOURCE_NODE = "1"


PRESET = "preset"
"""The key of a mapping that names the preset which the other keys add to."""
PRESETS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "langchain": {"text": "text"},
    "llamaindex": {"text": NODE},
    "haystack": {"text": "content"},
}
"""Layouts of records whose metadata is flat: names of fields that differ from the default ones."""


def resolve_fields(
    fields: Mapping[str, str], presets: Mapping[str, Mapping[str, str]], known: frozenset[str], section: str
) -> dict[str, str]:
    """Return a mapping with the fields of its preset.

    Raises:
        InvalidParameterError: There is no such preset, or a key that cannot be mapped.
    """
    given = dict(fields)
    preset = given.pop(PRESET, "default")
    if preset not in presets:
        msg = f"{section}: there is no preset {preset!r:.80}; choose from {', '.join(presets)}"
        raise InvalidParameterError(msg)
    if unknown := sorted(set(given) - known):
        msg = f"{section}: {', '.join(unknown)} cannot be mapped; choose from {', '.join(sorted(known))}"
        raise InvalidParameterError(msg)
    return {**presets[preset], **given}


def places(ours: str, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the fields of a record that may hold one of ours; the first present one counts, also for filters."""
    return (names[ours],) if ours in names else _OTHER_NAMES.get(ours, (ours,))


def visible(record_id: str, metadata: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, JSON]:
    """Return the fields of a record that filters see: its metadata, and the chunk's fields under our names.

    A number that is read as text has both values.
    """
    seen: dict[str, JSON] = {"id": record_id, **metadata}
    read = _read(record_id, metadata, names, _node(metadata.get(NODE)))
    for ours, value in read.items():
        if value is None and ours not in names:
            continue
        stored = _stored(ours, metadata, names)
        if ours in _AS_STORED:
            seen[ours] = stored
            continue
        is_both = ours in WRITTEN_AS_TEXT and isinstance(stored, (int, float))
        seen[ours] = (value, stored) if is_both else value
    return seen


_MOST_POSITIONS = 100


def positions_as_text(first: int, last: int) -> list[str] | None:
    """Return a range of positions as text, as some programs write them; ``None`` if there are too many to list."""
    return None if last - first > _MOST_POSITIONS else [str(number) for number in range(first, last + 1)]


def foreign_chunk(record_id: str, metadata: Mapping[str, Any], names: Mapping[str, str], section: str) -> Chunk:
    """Return a record as a chunk.

    Its text is the mapped field, a LlamaIndex node's text, or the field ``text``, ``page_content``, ``content``,
    ``chunk_text`` or ``review_text``. Without a document id, the URL of the source or the record's own id is taken.
    A field that the record lacks is absent, and named in ``missing_fields`` if the specification's payload has it.

    Args:
        section: Of the settings that map the fields, for the error.

    Raises:
        IndexFormatError: No field holds its text.
    """
    node = _node(metadata.get(NODE))
    text_name, text = _text(metadata, names, node)
    if text is None:
        where = (
            repr(names["text"])
            if "text" in names
            else f"{', '.join(DEFAULT_TEXT_NAMES[:-1])} or {DEFAULT_TEXT_NAMES[-1]}"
        )
        msg = (
            f"record {record_id!r:.80} has no text in {where}; its fields are "
            f"{', '.join(sorted(metadata)) or 'none'}. Say which one holds the text: "
            f'[{section}] text = "..."'
        )
        raise IndexFormatError(msg)
    hidden = {text_name, *(_OF_LLAMAINDEX if node else ())} - set(names.values()) | {text_name}
    own = node.get("metadata") if node and isinstance(node.get("metadata"), dict) else None
    if own is None:
        own = {name: value for name, value in metadata.items() if name not in hidden}
    read = _read(record_id, metadata, names, node)
    pages = read["page"]
    if read["chunk_id"] is not None:
        own = {**own, "chunk_id": read["chunk_id"]}
    return Chunk(
        id=record_id,
        document_id=read["document_id"],
        text=text,
        chunk_index=read["chunk_index"] or 0,
        total_chunks=1 if read["total_chunks"] is None else read["total_chunks"],
        page_span=PageSpan(pages[0], pages[-1]) if pages else None,
        section_path=read["section"] or (),
        parent_id=read["parent_id"],
        title=read["title"],
        source=read["source"],
        content_hash=read["content_hash"] or "",
        timestamp=read["timestamp"],
        embedding_model=read["embedding_model"],
        metadata=own,
        missing_fields=tuple(theirs for ours, theirs in _NAMES_IN_PAYLOADS.items() if read[ours] is None),
    )


def _read(
    record_id: str, metadata: Mapping[str, Any], names: Mapping[str, str], node: dict[str, Any] | None
) -> dict[str, Any]:
    """Return a chunk's fields, but for its text, as the record has them; ``None`` for what it lacks."""
    read = {ours: how(_stored(ours, metadata, names)) for ours, how in _HOW_TO_READ.items()}
    read["document_id"] = read["document_id"] or _source_of(node) or record_id
    return read


def _stored(ours: str, metadata: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    if ours in _ONLY_MAPPED and ours not in names:
        return None
    return next((metadata[place] for place in places(ours, names) if metadata.get(place) is not None), None)


def _node(content: Any) -> dict[str, Any] | None:
    if not isinstance(content, str):
        return None
    try:
        node = json.loads(content)
    except ValueError:
        return None
    return cast("dict[str, Any]", node) if isinstance(node, dict) else None


def _text(
    metadata: Mapping[str, Any], names: Mapping[str, str], node: dict[str, Any] | None
) -> tuple[str | None, str | None]:
    if "text" in names and names["text"] != NODE:
        return names["text"], _as_text(metadata.get(names["text"]))
    if node:
        resource = node.get("text_resource")
        for text in (
            node.get("text"),
            cast("dict[str, Any]", resource).get("text") if isinstance(resource, dict) else None,
        ):
            if isinstance(text, str) and text:
                return "text", text
    for name in DEFAULT_TEXT_NAMES:
        if isinstance(text := metadata.get(name), str):
            return name, text
    return None, None


def _source_of(node: dict[str, Any] | None) -> str | None:
    relationships = node.get("relationships") if node else None
    source = cast("dict[str, Any]", relationships).get(_SOURCE_NODE) if isinstance(relationships, dict) else None
    return _as_text(cast("dict[str, Any]", source).get("node_id")) if isinstance(source, dict) else None


def _as_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value or None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _as_path(value: Any) -> tuple[str, ...] | None:
    parts = cast("list[Any]", value) if isinstance(value, list) else [value]
    return tuple(part for part in parts if isinstance(part, str)) or None


def _as_pages(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _DIGITS:
        return (int(value),)
    page = _as_int(value)
    return None if page is None or page < 0 else (page,)


def _as_moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _as_id(value: Any) -> str | int | None:
    return value if isinstance(value, str) and value else _as_int(value)


def _as_int(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not float(value).is_integer():
        return None
    return int(value)


def _as_position(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _DIGITS:
        return int(value)
    return _as_int(value)


_DIGITS = 10
_HOW_TO_READ: dict[str, Callable[[Any], Any]] = {
    "document_id": _as_text,
    "chunk_index": _as_position,
    "total_chunks": _as_position,
    "title": _as_text,
    "source": _as_text,
    "section": _as_path,
    "page": _as_pages,
    "parent_id": _as_text,
    "content_hash": _as_text,
    "timestamp": _as_moment,
    "embedding_model": _as_text,
    "chunk_id": _as_id,
}
MAPPED = frozenset({"text", *_HOW_TO_READ})
"""Fields of a chunk that a record's field of another name can be mapped to."""
