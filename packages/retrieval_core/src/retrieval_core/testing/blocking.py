"""The guard against calls that block the event loop."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


def blocking_calls_fail() -> AbstractContextManager[object]:
    """Return a context in which a blocking call on an event loop raises, where BlockBuster is installed."""
    try:
        from blockbuster import blockbuster_ctx  # noqa: PLC0415 - used where it is installed
    except ImportError:
        return nullcontext()
    return blockbuster_ctx()
