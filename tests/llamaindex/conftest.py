"""The plugin makes no blocking call on an event loop either."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.blocking import blocking_calls_fail_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.llamaindex_library import Library

PLUGIN = [
    f"llama_index.{part}.retrieval_core"
    for part in ("retrievers", "postprocessor", "vector_stores", "storage.docstore", "embeddings")
]


@pytest.fixture(autouse=True, scope="module")
def blocking_calls_of_the_plugin_fail() -> Iterator[None]:
    """Make every blocking call that the plugin or the core makes on an event loop an error.

    Inside this one the core's own guard is out of action, so both are named; and it ends with the module.
    """
    with blocking_calls_fail_in([*PLUGIN, "retrieval_core"]) as blocker:
        # Making a retriever blocks too: it looks at the file.
        for function in ("os.stat", "sqlite3.Connection.execute"):
            blocker.functions[function].can_block_in("retrieval_core/checks.py", {"check_index_file"})
        yield


@pytest.fixture(autouse=True)
def loop_that_is_closed() -> Iterator[None]:
    """LlamaIndex's synchronous methods take the thread's event loop, or make one that nobody closes."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture(autouse=True)
def no_bundle_of_another_test() -> None:
    """Make a bundle with settings that is gone at once, so that none that a test's parameters keep is the latest."""
    from llama_index.retrievers.retrieval_core import RetrievalQueryBundle

    RetrievalQueryBundle("gone", top_k=1)


@pytest.fixture
def library() -> Iterator[Library]:
    """A small library of passages, with the pipeline over it."""
    from support.llamaindex_library import Library

    with Library() as library:
        yield library
