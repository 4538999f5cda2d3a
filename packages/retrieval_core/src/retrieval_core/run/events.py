"""Streams of events, made from a coroutine that reports through a callback."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from retrieval_core.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    from retrieval_core.run.sync import SyncBridge

T = TypeVar("T")


async def events_of(work: Callable[[Callable[[T], None]], Awaitable[object]]) -> AsyncGenerator[T]:
    """Yield the events that a coroutine function reports, as they come; closing the generator cancels it.

    It runs as a task of its own: it goes on while its events wait to be taken, and has one context throughout.

    Args:
        work: Called with the function that it reports each event to.

    Raises:
        Exception: What the work raises, after its last event.
    """
    queue: asyncio.Queue[tuple[T] | None] = asyncio.Queue()

    async def tell() -> None:
        try:
            await work(lambda event: queue.put_nowait((event,)))
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(tell())
    try:
        while (event := await queue.get()) is not None:
            yield event[0]
        await task
    finally:
        if task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait((task,))
        else:  # whoever reads on another loop gets that loop's error, and need not wait for this one
            task.get_loop().call_soon_threadsafe(task.cancel)


def in_step(bridge: SyncBridge, events: AsyncGenerator[T]) -> Generator[T]:
    """Yield the events of an asynchronous generator in synchronous code; closing this one closes that.

    Raises:
        ServiceError: The bridge, on whose loop the events are made, was closed before the last one.
    """
    busy = asyncio.Lock()  # an interrupt may leave while an event is awaited, and that has to end first
    loop: asyncio.AbstractEventLoop | None = None

    async def following() -> tuple[T] | None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with busy:
            async for event in events:
                return (event,)
            return None

    async def leave() -> None:
        async with busy:
            await events.aclose()

    try:
        while (event := bridge.run(following())) is not None:
            yield event[0]
            if loop is not None and not bridge.is_on(loop):
                msg = "the stream ended before its time: it was closed with what it came from"
                raise ServiceError(msg)
    finally:
        if loop is not None and bridge.is_on(loop):
            bridge.run_or_leave(leave)
