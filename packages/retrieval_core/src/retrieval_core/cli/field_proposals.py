"""Propose the setting that reads records of another program; nothing applies it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from retrieval_core.adapters.stores.foreign import PRESETS, FieldMapping
from retrieval_core.errors import IndexFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence


@runtime_checkable
class SamplesRecords(Protocol):
    """A store that can show records of another program as they are."""

    async def sample_records(self) -> Sequence[Mapping[str, Any]]:
        """Return some records; none of an index of this library."""
        ...


def propose_fields(
    records: Sequence[Mapping[str, Any]], kind: str, fields: Mapping[str, str] | str | None
) -> str | None:
    """Return the lines to put into the configuration; ``None`` if the present mapping is the right one.

    Args:
        records: Some records of the collection.
        kind: The kind of store.
        fields: The present mapping. Default: the preset ``default``, which gives way to that of a framework.
    """
    section, is_flat = f"store.{kind}.fields", kind == "pinecone"
    present = FieldMapping.load(fields, section, is_flat=is_flat)
    is_read = any(_reads(present, record) for record in records)
    if not records or (fields and is_read):
        return None
    for preset in PRESETS:
        mapping = FieldMapping.load(preset, section, is_flat=is_flat)
        marks = {*mapping.json, *mapping.metadata[:1]}
        if marks and any(marks <= record.keys() and _reads(mapping, record) for record in records):
            return f"[store.{kind}]\nfields = {_quoted(preset)}"
    return None if is_read else f"[store.{kind}]\nfields = {_by_name(records)}"


def _reads(mapping: FieldMapping, record: Mapping[str, Any]) -> bool:
    try:
        mapping.check([("", record)])
    except IndexFormatError:
        return False
    return True


def _by_name(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a mapping of the field with most text, and of the object beside it if there is one."""
    lengths: dict[str, int] = {}
    objects: dict[str, None] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, str):
                lengths[name] = lengths.get(name, 0) + len(value)
            elif isinstance(value, Mapping):
                objects[name] = None
    names = {"text": max(lengths, key=lengths.__getitem__, default="...")}
    if len(objects) == 1:
        names["metadata"] = next(iter(objects))
    return "{" + ", ".join(f"{ours} = {_quoted(theirs)}" for ours, theirs in names.items()) + "}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
