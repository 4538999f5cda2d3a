"""The guard against calls that block the event loop."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from blockbuster import BlockBuster

ADVICE = (
    "A coroutine method of a plug-in must not block the event loop, since all other queries wait for it. If code reads "
    "files, waits or computes for long, run it in a thread: await asyncio.to_thread(function, ...)"
)
"""Added to the error that a blocking call raises."""


@contextmanager
def blocking_calls_fail(modules: Sequence[str] = ()) -> Generator[BlockBuster | None]:
    """Make blocking calls on an event loop raise an error that says what to do, if BlockBuster is installed.

    Within one such guard another one replaces it until it ends.

    Args:
        modules: Names of the modules whose calls count. Default: all.
    """
    try:
        from blockbuster import blockbuster_ctx  # noqa: PLC0415 - used where it is installed
    except ImportError:
        yield None
        return
    with blockbuster_ctx(list(modules) or None) as blocker:
        # Whether an index was written to is asked with each query, and takes microseconds: the entry of a file, and
        # memory that SQLite's connections share.
        for name in ("os.stat", "sqlite3.Connection.execute", "sqlite3.Cursor.fetchone"):
            blocker.functions[name].can_block_in("sqlite/changes.py", {"file_id", "mark"})
        blocker.functions["threading.Lock.acquire"].can_block_in("sqlite/changes.py", {"mark"})  # others who ask that
        try:
            yield blocker
        except Exception as error:
            if any(type(one).__name__ == "BlockingError" for one in _leaves(error)):
                error.add_note(ADVICE)
            raise


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, or those of a group, and what caused them."""
    group: Any = getattr(error, "exceptions", ())
    for one in group:
        yield from _leaves(one)
    yield error
    cause = error.__cause__ or error.__context__
    if cause is not None:
        yield from _leaves(cause)
