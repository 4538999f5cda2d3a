"""Settings that are not yet checked: a tree of tables, or a mapping from dotted keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def copy_tree(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree whose tables may be changed without changing the given ones."""
    return {
        name: copy_tree(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
        for name, value in tree.items()
    }


def merge_into(tree: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Lay another tree over one; if both have a table, their keys are joined."""
    for key, value in other.items():
        if isinstance(value, Mapping):
            if not isinstance(tree.get(key), dict):
                tree[key] = {}
            merge_into(tree[key], cast("Mapping[str, Any]", value))
        else:
            tree[key] = value


def nested_tree(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted keys as a tree. A value may be a tree itself."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        for part in reversed(key.split(".")):
            value = {part: value}  # noqa: PLW2901 - it is wrapped, one table at a time
        merge_into(tree, value)
    return tree


def value_at(tree: Mapping[str, Any], key: str) -> Any:
    """Return the value at a dotted key; ``None`` if there is none."""
    value: Any = tree
    for part in key.split("."):
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Any]", value).get(part)
    return value
