"""The cache key of a result: one short name for everything that the result depends on.

The key is the SHA-256 of JSON in which a dataclass, such as a plan or a filter, is a list of its fields. Python's own
equality would not do: ``1``, ``1.0`` and ``True`` are equal to it, and a filter means something else by each. The same
values have the same key in every process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel


def digest(*values: Any) -> str:
    """Return the key of some values, 64 hexadecimal digits.

    A tuple counts as a list, and the order of a mapping and of a set doesn't count. The order within a filter does:
    ``Or((a, b))`` and ``Or((b, a))`` have two keys, which costs a second search and is never wrong.

    Args:
        values: JSON values, dataclasses and sets. Freeze mappings of users first
            (:func:`~retrieval_core.types.freeze`), since JSON takes ``1`` and ``"1"`` for the same name.
    """
    return sha256(_ENCODER.encode(values).encode()).hexdigest()


def identify(settings: Sequence[BaseModel | tuple[str, ...]], *plugins: object) -> str | None:
    """Return a name for the settings and the plug-ins of a stage; ``None`` if one of the plug-ins has no id."""
    ids = [None if plugin is None else getattr(plugin, "id", "") for plugin in plugins]
    if "" in ids:
        return None
    # A dump hides objects of programs, so these are named apart.
    custom = [getattr(section, "custom", None) for section in settings]
    dumps = [section if isinstance(section, tuple) else section.model_dump_json() for section in settings]
    from pydantic_core import to_json  # noqa: PLC0415 - once for each stage

    return digest(dumps, to_json(custom).decode(), ids)


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if isinstance(value, (set, frozenset)):
        return sorted(cast("frozenset[str]", value))
    if is_dataclass(value):
        kind = type(value)
        return [kind.__name__, *[getattr(value, name) for name in _compared(kind)]]
    msg = f"{value!r:.80} can't be part of a cache key"
    raise TypeError(msg)


@cache
def _compared(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass that its equality compares."""
    return tuple(field.name for field in fields(kind) if field.compare)


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_as_json)
