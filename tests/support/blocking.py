"""A guard that makes blocking calls on an event loop fail."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from blockbuster import blockbuster_ctx

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from blockbuster import BlockBuster


@contextmanager
def blocking_calls_fail_in(modules: Sequence[str]) -> Generator[BlockBuster]:
    """Make every blocking call that modules make on an event loop an error.

    Inside one such guard another one takes its place until it ends.
    """
    with blockbuster_ctx(modules) as blocker:
        blocker.functions["os.getcwd"].deactivate()  # asks the kernel and waits for nothing
        # A synchronous method called where a loop is running blocks that loop's thread; it says so.
        blocker.functions["threading.Lock.acquire"].can_block_in("retrieval_core/run/sync.py", {"run", "close"})
        # Whether an index was written to is asked of every question, and takes microseconds: the entry of a file, and
        # memory that SQLite's connections share.
        for name in ("os.stat", "sqlite3.Connection.execute", "sqlite3.Cursor.fetchone"):
            blocker.functions[name].can_block_in("sqlite/changes.py", {"file_id", "mark"})
        blocker.functions["threading.Lock.acquire"].can_block_in("sqlite/changes.py", {"mark"})  # others who ask that
        # The message of an error that ends a set-up names where this copy was installed from: one small file is read.
        for function in blocker.functions.values():
            function.can_block_in("retrieval_core/installation.py", {"install_command"})
        # Opening an index without a configuration reads the settings beside it, a few kilobytes; it says so.
        for function in blocker.functions.values():
            function.can_block_in("index/settings.py", {"load_index_config", "load_shared_config"})
        # A kind that is not built in is looked up among those that installed packages register, once in a process, when
        # settings are loaded; it says so.
        for function in blocker.functions.values():
            function.can_block_in("config/kinds.py", {"_registered"})
        # The coverage tool takes a lock of its own wherever a line is seen first, also in the middle of a coroutine.
        blocker.functions["threading.Lock.acquire"].can_block_in("coverage/collector.py", {"lock_data"})
        yield blocker
