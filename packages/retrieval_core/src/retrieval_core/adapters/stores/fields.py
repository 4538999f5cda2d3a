"""The counter of passages' fields, for stores' catalogues of fields."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from retrieval_core.ports import LIST_TYPES, FieldInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from retrieval_core.types import JSON

MOST_COUNTED = 10_000
"""The most different paths that are counted; later ones are ignored."""
MOST_SHAPES = 1_000
"""The most shapes that are counted before they are taken apart into paths."""

_KINDS: Mapping[type, str | None] = {
    **dict.fromkeys((int, float), "number"),
    **dict.fromkeys((list, tuple), "list"),
    str: "text",
    bool: "boolean",
    type(None): None,
}
_Shape: TypeAlias = "tuple[tuple[str, ...], tuple[_Kind, ...]]"
"""The names of an object's fields, and their types."""
_Kind: TypeAlias = "str | frozenset[str] | _Shape | None"
"""The type of a value: a name, the types of a list's items, the shape of an object, or ``None`` for null."""


class FieldCounter:
    """Counts in how many passages each path has a value, by type.

    Whole shapes are counted first, as the passages of one table have few different ones.
    """

    def __init__(self) -> None:
        self._shapes: Counter[_Shape] = Counter()
        self._passages: Counter[str] = Counter()
        self._types: dict[str, Counter[str]] = {}

    def add(self, fields: Mapping[str, JSON]) -> None:
        """Count the fields of one more passage."""
        self._shapes[_shape(fields)] += 1
        if len(self._shapes) >= MOST_SHAPES:
            self._take_apart()

    def catalogue(self) -> dict[str, FieldInfo]:
        """Return the counts, the fields of most passages first, and then by name."""
        self._take_apart()
        ordered = sorted(self._passages.items(), key=lambda item: (-item[1], item[0]))
        return {path: FieldInfo(count, dict(self._types[path])) for path, count in ordered}

    def _take_apart(self) -> None:
        for shape, passages in self._shapes.items():
            for path, types in _paths(shape):
                if path not in self._types:
                    if len(self._types) >= MOST_COUNTED:
                        continue
                    self._types[path] = Counter()
                self._passages[path] += passages
                for name in types:
                    self._types[path][name] += passages
        self._shapes.clear()


def _shape(fields: Mapping[str, object]) -> _Shape:
    kinds: list[Any] = [_KINDS.get(type(value), "object") for value in fields.values()]
    if "list" in kinds or "object" in kinds:
        values = cast("Iterable[Any]", fields.values())
        kinds = [
            _types_of_items(value) if kind == "list" else _shape(value) if kind == "object" else kind
            for kind, value in zip(kinds, values, strict=True)
        ]
    return tuple(fields), tuple(kinds)


def _types_of_items(items: Sequence[object]) -> frozenset[str]:
    """Return the type of a list for each type of items that a filter can compare; ``list`` where there are none."""
    kinds = {_KINDS.get(type(item)) for item in items}
    return frozenset(name for kind, name in LIST_TYPES.items() if kind in kinds) or frozenset({"list"})


def _paths(shape: _Shape) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield every path at which :func:`retrieval_core.types.filters.lookup` finds a value, with its types."""
    for key, kind in zip(*shape, strict=True):
        if isinstance(kind, str):
            yield key, frozenset({kind})
        elif isinstance(kind, frozenset):
            yield key, kind
        elif kind is not None:
            yield key, frozenset({"object"})
            inner = () if "." in key else _paths(kind)  # a dot ends what a path can name of an object
            # A key of this level that itself holds the dot wins over the nested one.
            yield from ((f"{key}.{path}", types) for path, types in inner if f"{key}.{path}" not in shape[0])
