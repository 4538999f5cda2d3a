"""Records that others wrote: LlamaIndex, LangChain, or a program of the user's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.errors import IndexFormatError, InvalidParameterError
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.types import JSON

MAPPED = frozenset(
    {"text", "document_id", "chunk_index", "total_chunks", "title", "source", "section", "parent_id", "content_hash"}
)
"""Fields of a chunk that a field of another name may stand for."""

NODE = "_node_content"
"""Where LlamaIndex keeps a node as JSON."""
_OF_LLAMAINDEX = frozenset({NODE, "_node_type", "doc_id", "document_id", "ref_doc_id"})
_TEXT_NAMES = ("text", "page_content", "content", "chunk_text")
_SOURCE_NODE = "1"


def check_names(names: Mapping[str, str]) -> None:
    """Refuse a mapping that says something about a field that chunks do not have.

    Raises:
        InvalidParameterError: A key is not one of :data:`MAPPED`.
    """
    if unknown := sorted(set(names) - MAPPED):
        msg = f"fields: {', '.join(unknown)} cannot be mapped; choose from {', '.join(sorted(MAPPED))}"
        raise InvalidParameterError(msg)


def visible(metadata: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, JSON]:
    """Return what filters see of a record: its metadata, and below our names what these are mapped to."""
    return {**metadata, **{ours: metadata.get(theirs) for ours, theirs in names.items()}}


def foreign_chunk(record_id: str, metadata: Mapping[str, Any], names: Mapping[str, str]) -> Chunk:
    """Return a chunk made from a record.

    Its text is the mapped field, a LlamaIndex node's text, or the field ``text``, ``page_content``, ``content`` or
    ``chunk_text``. Numbers that are whole become integers where a chunk has such. Without a document's id the record
    stands for itself.

    Raises:
        IndexFormatError: No field holds its text.
    """
    node = _node(metadata.get(NODE))
    text_name, text = _text(metadata, names, node)
    if text is None:
        msg = (
            f"record {record_id!r:.80} has no text in "
            f"{repr(names['text']) if 'text' in names else 'text, page_content, content or chunk_text'}; its fields "
            f"are {', '.join(sorted(metadata)) or 'none'}. Say which one holds the text: "
            '[store.pinecone.fields] text = "..."'
        )
        raise IndexFormatError(msg)

    def named(ours: str) -> Any:
        return metadata.get(names.get(ours, ours))

    hidden = {text_name, *(_OF_LLAMAINDEX if node else ())} - set(names.values()) | {text_name}
    own = node.get("metadata") if node and isinstance(node.get("metadata"), dict) else None
    return Chunk(
        id=record_id,
        document_id=_as_text(named("document_id")) or _source_of(node) or _as_text(metadata.get("doc_id")) or record_id,
        text=text,
        chunk_index=_as_int(named("chunk_index"), 0),
        total_chunks=_as_int(named("total_chunks"), 1),
        section_path=_as_path(named("section")) if "section" in names else (),
        parent_id=_as_text(named("parent_id")) if "parent_id" in names else None,
        title=_as_text(named("title")),
        source=_as_text(named("source")) or (_as_text(metadata.get("file_path")) if node else None),
        content_hash=(_as_text(named("content_hash")) or "") if "content_hash" in names else "",
        metadata=own if own is not None else {name: value for name, value in metadata.items() if name not in hidden},
    )


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
    if "text" in names:
        return names["text"], _as_text(metadata.get(names["text"]))
    if node:
        resource = node.get("text_resource")
        for text in (
            node.get("text"),
            cast("dict[str, Any]", resource).get("text") if isinstance(resource, dict) else None,
        ):
            if isinstance(text, str) and text:
                return "text", text
    for name in _TEXT_NAMES:
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


def _as_path(value: Any) -> tuple[str, ...]:
    parts = cast("list[Any]", value) if isinstance(value, list) else [value]
    return tuple(part for part in parts if isinstance(part, str))


def _as_int(value: Any, otherwise: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        return otherwise
    return int(value)
