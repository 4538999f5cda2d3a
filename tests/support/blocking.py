"""A guard that makes blocking calls on an event loop fail."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from retrieval_core.testing.blocking import blocking_calls_fail

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from blockbuster import BlockBuster


@contextmanager
def blocking_calls_fail_in(modules: Sequence[str]) -> Generator[BlockBuster]:
    """Make every blocking call that modules make on an event loop an error.

    Inside one such guard another one takes its place until it ends.
    """
    with blocking_calls_fail(modules) as blocker:
        assert blocker is not None
        blocker.functions["os.getcwd"].deactivate()  # asks the kernel and waits for nothing
        # A synchronous method called where a loop is running blocks that loop's thread; it says so.
        blocker.functions["threading.Lock.acquire"].can_block_in("retrieval_core/run/sync.py", {"run", "close"})
        # The message of an error that ends a set-up names where this copy was installed from: one small file is read.
        for function in blocker.functions.values():
            function.can_block_in("retrieval_core/installation.py", {"install_command"})
        # Opening an index without a configuration reads the settings beside it, a few kilobytes; it says so.
        for function in blocker.functions.values():
            function.can_block_in("index/settings.py", {"load_index_config", "load_shared_config", "named_file"})
        # A kind that is not built in is looked up among those that installed packages register, once in a process, when
        # settings are loaded; it says so.
        for function in blocker.functions.values():
            function.can_block_in("config/kinds.py", {"_registered"})
        # The coverage tool takes a lock of its own wherever a line is seen first, also in the middle of a coroutine.
        blocker.functions["threading.Lock.acquire"].can_block_in("coverage/collector.py", {"lock_data"})
        yield blocker
