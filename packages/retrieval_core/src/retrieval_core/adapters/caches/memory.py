"""The result cache in the memory of this process."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from operator import is_
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import ResultCache
from retrieval_core.run.caching import LruCache
from retrieval_core.run.clock import SystemClock
from retrieval_core.types import FrozenDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.run.caching import CacheEntry, CacheStatistics
    from retrieval_core.run.clock import Clock
    from retrieval_core.types import RetrievalResult


class MemoryCache(ResultCache):
    """Keeps results in memory; a thread-safe :class:`~retrieval_core.ports.ResultCache` with LRU eviction.

    Results are not copied when they are returned: mutable values inside are frozen when they are put in.

    Args:
        max_size: The most results, at least 1.
        ttl_seconds: The age at which a result expires; more than 0.

    Raises:
        InvalidParameterError: ``max_size`` or ``ttl_seconds`` is out of its range.
    """

    in_process = True
    """See :class:`~retrieval_core.ports.ResultCache`."""

    def __init__(self, max_size: int = 1000, ttl_seconds: float = 300, clock: Clock | None = None) -> None:
        self._results: LruCache[str, RetrievalResult] = LruCache(max_size, ttl_seconds, (clock or SystemClock()).now)

    @classmethod
    def from_settings(cls, settings: None, parts: AdapterParts) -> Self:  # noqa: ARG003 - it has none
        """Make it as configured."""
        return cls(parts.section.max_size, parts.section.ttl_seconds)

    async def _get(self, key: str) -> RetrievalResult | None:
        """Return the result of a key, ``None`` where it is absent or expired."""
        return self._results.get(key)

    async def _set(self, key: str, result: RetrievalResult) -> None:
        """Store a result, replacing the key's former one.

        Raises:
            InvalidParameterError: The result holds a value of a type that :mod:`retrieval_core.types` does not name.
        """
        self._results.set(key, result if _is_frozen(result) else _sealed(result))

    async def _clear(self) -> None:
        """Remove all results; the statistics go on."""
        self._results.clear()

    def entry(self, key: str) -> CacheEntry[RetrievalResult] | None:
        """Return a result with its time and number of hits, without counting a lookup."""
        return self._results.entry(key)

    def statistics(self) -> CacheStatistics:
        """Return the counts so far."""
        return self._results.statistics()

    def __len__(self) -> int:
        return len(self._results)


_PLAIN: frozenset[type] = frozenset({type(None), str, int, float, bool, datetime})


def _is_frozen(value: object) -> bool:
    """Whether nothing inside a value is known to be mutable. Nearly all results are, and need not be rebuilt."""
    ahead = [value]
    while ahead:
        item = ahead.pop()
        kind = type(item)
        if kind in _PLAIN:
            continue
        if kind is tuple:
            ahead.extend(cast("tuple[object, ...]", item))
        elif kind is FrozenDict:
            mapping = cast("FrozenDict", item)
            ahead.extend(mapping.keys())
            ahead.extend(mapping.values())
        elif names := _frozen_fields(kind):
            ahead.extend([getattr(item, name) for name in names])
        else:
            return False
    return True


def _sealed(value: Any) -> Any:
    """Return a value with everything mutable in it frozen, the same object where nothing is.

    Results should hold only tuples and frozen mappings, but a plug-in may put a list there, which users would share.
    """
    if value is None or isinstance(value, (str, int, float, datetime)):
        return value
    if isinstance(value, (tuple, list)):
        items = cast("tuple[Any, ...] | list[Any]", value)
        sealed = tuple(map(_sealed, items))
        return items if type(items) is tuple and _same(sealed, items) else sealed
    if isinstance(value, dict):
        mapping = cast("dict[Any, Any]", value)
        inner = {_sealed(key): _sealed(item) for key, item in mapping.items()}
        unchanged = type(mapping) is FrozenDict and _same(tuple(inner.values()), mapping.values())
        return mapping if unchanged else FrozenDict(inner)
    if names := _frozen_fields(cast("type[Any]", type(value))):
        before = [getattr(value, name) for name in names]
        after = tuple(map(_sealed, before))
        return value if _same(after, before) else replace(value, **dict(zip(names, after, strict=True)))
    msg = f"a result that is to be kept holds a {type(value).__name__}; make it of what retrieval_core.types names"
    raise InvalidParameterError(msg)


@cache
def _frozen_fields(kind: type) -> tuple[str, ...]:
    if not is_dataclass(kind) or not cast("Any", kind).__dataclass_params__.frozen:
        return ()
    return tuple(field.name for field in fields(kind))


def _same(left: Sequence[Any], right: Iterable[Any]) -> bool:
    return all(map(is_, left, right))
