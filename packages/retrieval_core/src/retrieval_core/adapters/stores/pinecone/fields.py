"""The form of a chunk's fields that Pinecone can keep and filter by.

Pinecone's metadata is flat and takes text, numbers, booleans and lists of text. So objects are flattened into dotted
paths, as :func:`retrieval_core.types.filters.lookup` reads them, and every value that fits is stored under its own
name. A value that does not fit (a list of numbers, an empty list, an object as a whole, an integer beyond 64-bit
floats) is named in :data:`OPAQUE`, with its items in :data:`ITEMS` as text, so that filters on presence and equality
still work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.adapters.stores.paths import exact_float, flat, item_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.types import JSON

RESERVED = "_rc"
"""Prefix of our own names; a user's field with such a name is opaque."""
RECORD = "_rc"
"""The chunk as JSON, without its text and without long values that are stored under their own names."""
TEXT = "_rc_text"
DOCUMENT = "_rc_doc"
POSITION = "_rc_pos"
OPAQUE = "_rc_opaque"
ITEMS = "_rc_items"


def storable(fields: Mapping[str, JSON]) -> dict[str, object]:
    """Return fields as Pinecone's metadata, those of :data:`OPAQUE` and :data:`ITEMS` included."""
    metadata: dict[str, object] = {}
    opaque: list[str] = []
    items: list[str] = []
    for path, value in flat(fields).items():
        native = as_native(value)
        if native is not None and can_be_name(path):
            metadata[path] = native
            continue
        opaque.append(path)
        parts = value if isinstance(value, (list, tuple)) else (value,)
        items += (item_token(path, part) for part in parts if isinstance(part, (str, int, float)))
    if opaque:
        metadata[OPAQUE] = opaque
    if items:
        metadata[ITEMS] = list(dict.fromkeys(items))
    return metadata


def can_be_name(path: str) -> bool:
    """Whether Pinecone takes a path as the name of a field, and it is none of ours."""
    return bool(path) and not path.startswith(("$", RESERVED))


def as_native(value: JSON) -> str | int | float | bool | list[str] | None:
    """Return a value in a form that Pinecone keeps without loss, ``None`` where it has none."""
    if isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, float)):
        return exact_float(value)
    if isinstance(value, (list, tuple)) and value:
        texts = [item for item in value if isinstance(item, str)]
        return texts if len(texts) == len(value) else None
    return None
