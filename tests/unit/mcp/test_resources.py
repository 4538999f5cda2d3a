"""Addresses of documents, and progress."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")


from retrieval_core_mcp.progress import reporting
from retrieval_core_mcp.resources import Address, read_address

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("entry", ["guide.md", "a/b c#4", "100 %", "漢字", "..", "a//b?x=1#2"])
@pytest.mark.parametrize("kind", ["chunk", "document"])
def test_addresses_are_read_as_they_are_written(kind: Literal["chunk", "document"], entry: str) -> None:
    """Whatever an id consists of."""
    address = Address(kind, "my notes", entry)
    assert read_address(str(address)) == address


@pytest.mark.parametrize("uri", ["", "chunk://", "chunk:///x", "document://notes", "file:///etc/passwd", "x" * 10_000])
def test_other_addresses_are_none(uri: str) -> None:
    """An empty name of an index is one that there is not."""
    found = read_address(uri)
    assert found is None or not found.index


def test_progress_of_what_takes_long_is_told_while_it_runs() -> None:
    """The work here ends with what is told of it."""
    told: list[str] = []

    async def conversation() -> None:
        heard = asyncio.Event()

        async def report_progress(_progress: float, _total: float | None, message: str) -> None:
            told.append(message)
            heard.set()

        async def work(step: Callable[[str], None]) -> None:
            step("first")
            await asyncio.wait_for(heard.wait(), 10)
            await asyncio.to_thread(step, "second")

        context: Any = SimpleNamespace(session=SimpleNamespace(report_progress=report_progress))
        await reporting(context, work)

    asyncio.run(conversation())
    assert told == ["first", "second"]
