"""Memory of the process, and of what the parts of a pipeline have loaded."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from retrieval_core.ports.plugin import given_as

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

logger = logging.getLogger("retrieval_core")

MEMORY_LIMIT = 8 * 1024**3
"""Bytes above which the specification calls memory usage high."""
_STATM = Path("/proc/self/statm")


@runtime_checkable
class Measurable(Protocol):
    """An optional protocol of components that know what they hold in memory; asking must neither load nor block."""

    @property
    def is_loaded(self) -> bool:
        """Whether it has loaded its model or data."""
        ...

    @property
    def loaded_bytes(self) -> int | None:
        """A lower bound in bytes: weights and arrays, without working memory; ``None`` if unknown."""
        ...


@dataclass(frozen=True, slots=True)
class ComponentMemory:
    """Memory of one part of a pipeline.

    Attributes:
        role: For instance ``embedder``.
        type: The name of its class.
        is_loaded: As :attr:`Measurable.is_loaded`; ``None`` where the component is not :class:`Measurable`.
        bytes: As :attr:`Measurable.loaded_bytes`.
    """

    role: str
    type: str
    is_loaded: bool | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """Memory of the process at one moment.

    Attributes:
        rss: Bytes of the process in physical memory (resident set size); ``None`` where the system does not tell.
        limit: Bytes above which usage counts as high.
    """

    rss: int | None
    limit: int
    components: tuple[ComponentMemory, ...]

    @property
    def is_high(self) -> bool:
        """Whether the process is known to take more than the limit."""
        return self.rss is not None and self.rss > self.limit


def memory_of(components: Mapping[str, object], *, limit: int = MEMORY_LIMIT) -> MemoryUsage:
    """Return the memory of the process and of components; nothing is loaded or freed.

    Args:
        components: By role; a list or tuple for several with one role, ``None`` for none.
        limit: Bytes above which usage counts as high.
    """
    measured = tuple(_measured(role, each) for role, given in components.items() for each in _several(given))
    return MemoryUsage(resident_bytes(), limit, measured)


def monitor_memory_usage(components: Mapping[str, object], *, limit: int = MEMORY_LIMIT) -> MemoryUsage:
    """Return :func:`memory_of`, and where usage is high log a warning that names what is loaded; nothing is freed."""
    usage = memory_of(components, limit=limit)
    if usage.is_high:
        loaded = ", ".join(_described(usage.components)) or "no component that tells"
        logger.warning(
            "the process takes %.1f MB of memory, more than the limit of %.1f MB; loaded: %s",
            (usage.rss or 0) / 1024**2,
            limit / 1024**2,
            loaded,
        )
    return usage


def resident_bytes() -> int | None:
    """Return the process's resident set size in bytes: from ``/proc``, or by ``psutil`` if installed, else ``None``."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return _asked_of_psutil()


def _asked_of_psutil() -> int | None:
    try:
        import psutil  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return int(psutil.Process().memory_info().rss)


def _several(given: object) -> Sequence[object]:
    if isinstance(given, (list, tuple)):
        return cast("Sequence[object]", given)
    return () if given is None else (given,)


def _measured(role: str, component: object) -> ComponentMemory:
    component = given_as(component)
    name = type(component).__name__
    if not isinstance(component, Measurable):
        return ComponentMemory(role, name, None, None)
    return ComponentMemory(role, name, component.is_loaded, component.loaded_bytes)


def _described(components: Iterable[ComponentMemory]) -> Iterable[str]:
    for one in components:
        if one.is_loaded:
            size = "" if one.bytes is None else f" (at least {one.bytes / 1024**2:.1f} MB)"
            yield f"{one.role} {one.type}{size}"
