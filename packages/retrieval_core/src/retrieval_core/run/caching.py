"""Values that are kept: made once when first needed, or in a least-recently-used cache with a time to live."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import TYPE_CHECKING, Generic, TypeVar

from retrieval_core.errors import InvalidParameterError, checked_count

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")
V = TypeVar("V")


class Lazy(Generic[T]):
    """A value made once, however many threads ask for it at the same time.

    Where making it fails, the caller gets the error, and the next call tries again.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = Lock()
        self._made: tuple[T] | None = None

    @property
    def made(self) -> T | None:
        """The value, or ``None`` before it is made; never blocks."""
        made = self._made
        return None if made is None else made[0]

    def get(self) -> T:
        """Return the value, making it on the first call. Blocks while another thread makes it."""
        with self._lock:
            if self._made is None:
                self._made = (self._make(),)
            return self._made[0]

    def begin(self) -> None:
        """Begin to make the value, in a thread; whoever asks for it meanwhile waits, and meets a failure by itself."""
        Thread(target=self._attempt, name="lazy").start()

    def _attempt(self) -> None:
        with suppress(Exception):  # see begin()
            self.get()

    def forget(self) -> None:
        """Drop the value; the next :meth:`get` makes it anew. Whoever has it may go on using it."""
        with self._lock:
            self._made = None


@dataclass(frozen=True, slots=True)
class CacheEntry(Generic[V]):
    """One entry at one moment.

    Attributes:
        created_at: When it was put in, in the seconds of the cache's clock.
        hits: How often it was returned since then.
    """

    value: V
    created_at: float
    hits: int


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Counts since a cache was made.

    Attributes:
        misses: Lookups of keys that were absent or expired.
        evictions: Entries that made room for others; expired, replaced and cleared ones do not count.
        size: Entries now; expired ones count until they are asked for.
    """

    hits: int
    misses: int
    evictions: int
    size: int


class LruCache(Generic[K, V]):
    """A least-recently-used cache whose entries expire. Thread-safe; every operation takes constant time.

    Values must not be ``None``, and are not copied.

    Args:
        max_size: The most entries; at least 1.
        ttl_seconds: The age at which an entry expires; more than 0, or ``None`` for never.
        now: A monotonic clock in seconds.

    Raises:
        InvalidParameterError: ``max_size`` or ``ttl_seconds`` is out of its range.
    """

    def __init__(self, max_size: int, ttl_seconds: float | None, now: Callable[[], float]) -> None:
        if ttl_seconds is not None and not ttl_seconds > 0:
            msg = f"ttl_seconds must be more than 0, got {ttl_seconds}; None keeps entries for as long as there is room"
            raise InvalidParameterError(msg)
        self._max_size = checked_count(max_size, "max_size")
        self._ttl = float("inf") if ttl_seconds is None else ttl_seconds
        self._now = now
        self._lock = Lock()
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._hits = self._misses = self._evictions = 0

    def get(self, key: K) -> V | None:
        """Return the value of a key, ``None`` where it is absent or expired."""
        now = self._now()
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            if now - entry.created_at >= self._ttl:
                del self._entries[key]
                self._misses += 1
                return None
            self._entries.move_to_end(key)
            entry.hits += 1
            self._hits += 1
            return entry.value

    def set(self, key: K, value: V) -> None:
        """Store a value, replacing the key's former one; age and hits begin anew."""
        entry = _Entry(value, self._now())
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            if len(self._entries) > self._max_size:
                self._entries.popitem(last=False)
                self._evictions += 1

    def entry(self, key: K) -> CacheEntry[V] | None:
        """Return an entry without counting as a lookup; ``None`` where :meth:`get` would."""
        now = self._now()
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or now - entry.created_at >= self._ttl:
                return None
            return CacheEntry(entry.value, entry.created_at, entry.hits)

    def clear(self) -> None:
        """Remove all entries; the statistics go on."""
        with self._lock:
            self._entries.clear()

    def statistics(self) -> CacheStatistics:
        """Return the counts so far."""
        with self._lock:
            return CacheStatistics(self._hits, self._misses, self._evictions, len(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


class _Entry(Generic[V]):
    __slots__ = ("created_at", "hits", "value")

    def __init__(self, value: V, created_at: float) -> None:
        self.value = value
        self.created_at = created_at
        self.hits = 0
