"""Results kept in this process."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from operator import is_
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.adapters.registry import Adapter
from retrieval_core.errors import InvalidParameterError
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.lru import LruCache
from retrieval_core.types import FrozenDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from retrieval_core.run.clock import Clock
    from retrieval_core.run.lru import CacheEntry, CacheStatistics
    from retrieval_core.types import RetrievalResult


class MemoryCache:
    """Keeps results in memory, for this process; a :class:`~retrieval_core.ports.ResultCache`.

    A result is handed out as it is, without a copy, because it cannot be changed: what could be changed inside it
    becomes unchangeable when it is put in. It may be used from several threads and event loops.

    Args:
        max_size: The most results, at least 1; those asked for longest ago go first.
        ttl_seconds: A result of this age is gone; more than 0.
        clock: Tells the time.

    Raises:
        InvalidParameterError: ``max_size`` or ``ttl_seconds`` is out of its range.
    """

    in_process = True
    """It can neither hang nor fail, and needs no guard."""

    def __init__(self, max_size: int = 1000, ttl_seconds: float = 300, clock: Clock | None = None) -> None:
        self._results: LruCache[str, RetrievalResult] = LruCache(max_size, ttl_seconds, (clock or SystemClock()).now)

    async def get(self, key: str) -> RetrievalResult | None:
        """Return the result of a key, ``None`` where there is none or it is too old."""
        return self._results.get(key)

    async def set(self, key: str, result: RetrievalResult) -> None:
        """Keep a result; the one that the key had is replaced.

        Raises:
            InvalidParameterError: The result holds something else than :mod:`retrieval_core.types` says.
        """
        self._results.set(key, _sealed(result))

    async def clear(self) -> None:
        """Forget all results; the statistics go on."""
        self._results.clear()

    async def aclose(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def entry(self, key: str) -> CacheEntry[RetrievalResult] | None:
        """Return a result with its age and how often it was asked for, without asking for it."""
        return self._results.entry(key)

    def statistics(self) -> CacheStatistics:
        """Return what was counted so far."""
        return self._results.statistics()

    def __len__(self) -> int:
        return len(self._results)


ADAPTER = Adapter(lambda cache, _: MemoryCache(cache.max_size, cache.ttl_seconds))


def _sealed(value: Any) -> Any:
    """Return a value that cannot be changed, the same object where it could not be anyway.

    The types say that results consist of tuples and frozen mappings. Nothing but a type checker keeps a plug-in from
    putting a list there, and one list that two users share would show each the changes of the other.
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
    """Names of the fields of a frozen record, none for another type."""
    if not is_dataclass(kind) or not cast("Any", kind).__dataclass_params__.frozen:
        return ()
    return tuple(field.name for field in fields(kind))


def _same(left: Sequence[Any], right: Iterable[Any]) -> bool:
    return all(map(is_, left, right))
