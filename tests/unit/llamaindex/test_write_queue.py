"""The queue of writes."""

# LlamaIndex's own types are unknown in parts.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")


from llama_index.vector_stores.retrieval_core.write_queue import WriteQueue

pytestmark = pytest.mark.slow


def test_a_write_that_fails_or_that_nobody_waits_for_holds_up_no_other() -> None:
    """It is passed over, and those behind it still come one after another."""
    queue, inside = WriteQueue(), list[str]()

    async def write(name: str, *, until: asyncio.Event | None = None) -> None:
        async with queue.turn():
            assert not inside
            inside.append(name)
            try:
                if until is not None:
                    await until.wait()
                if name == "fails":
                    raise ZeroDivisionError
                await asyncio.sleep(0)
            finally:
                inside.remove(name)

    async def everything() -> list[Any]:
        end = asyncio.Event()
        first = asyncio.create_task(write("first", until=end))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(write(name)) for name in ("given up", "fails", "last")]
        await asyncio.sleep(0)
        waiting[0].cancel()
        for _ in range(10):  # as many turns as it may take one of them to come in early
            await asyncio.sleep(0)
        assert inside == ["first"]
        end.set()
        return await asyncio.gather(first, *waiting, return_exceptions=True)

    first, given_up, failed, last = asyncio.run(everything())
    assert (first, last) == (None, None)
    assert isinstance(given_up, asyncio.CancelledError)
    assert isinstance(failed, ZeroDivisionError)
