"""Streams of answers that are left, interrupted, collected, closed under their readers, and read two at a time."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.errors import ServiceConnectionError
from retrieval_core.testing.fakes_llm import FakeLLM
from support.answers import QUESTION, ROLLED_BACK, an_answering_pipeline, check_stream, events_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from types import FrameType

    from retrieval_core.ports import CompletionRequest
    from retrieval_core.types import AnswerEvent

TURNS = 2_000
"""Of an event loop: what has not come by then never comes."""


class Endless(FakeLLM):
    """A model that says a word, and then nothing for ever.

    Attributes:
        closed: How often its work was ended.
    """

    def __init__(self) -> None:
        super().__init__("")
        self.closed = 0

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
        """Say a word."""
        self.requests.append(request)
        try:
            yield "word "
            await self.forever()
        finally:
            await _turns()
            self.closed += 1

    async def forever(self) -> None:
        """Wait."""
        await asyncio.Event().wait()


def up_to_a_chunk(stream: Iterator[AnswerEvent]) -> None:
    """Read a stream up to its first piece."""
    assert next(event for event in stream if event.type == "answer_chunk")


def test_a_stream_that_nobody_reads_does_nothing() -> None:
    """Neither form searches before it is asked for its first event."""
    llm = FakeLLM([])
    with an_answering_pipeline(llm) as pipeline:
        assert pipeline.answer_stream(QUESTION)
        assert pipeline.aanswer_stream(QUESTION)
    assert llm.requests == []


class Interrupt(BaseException):
    """What Ctrl-C raises, of a kind that no test runner waits for."""


def test_a_reader_that_is_interrupted_is_told_so() -> None:
    """Ctrl-C while it waits for the next event ends the model's work, and comes out as what it is."""
    if not hasattr(signal, "SIGUSR1") or threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are handled in the main thread, and Windows has other ones")
    reader = threading.get_ident()
    waiting = threading.Event()

    class Interrupting(Endless):
        async def forever(self) -> None:
            while not waiting.is_set():
                await _turns()
            await _turns()  # until the reader does wait
            signal.pthread_kill(reader, signal.SIGUSR1)
            await super().forever()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupt

    llm = Interrupting()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with an_answering_pipeline(llm) as pipeline, closing(pipeline.answer_stream(QUESTION)) as stream:
            up_to_a_chunk(stream)
            with pytest.raises(Interrupt):
                _next_of(stream, waiting)
            assert llm.closed == 1
    finally:
        signal.signal(signal.SIGUSR1, before)


def _next_of(stream: Iterator[AnswerEvent], waiting: threading.Event) -> AnswerEvent:
    waiting.set()
    return next(stream)


def test_a_stream_that_the_loops_own_thread_collects_is_closed() -> None:
    """The garbage collector runs in any thread, also in the one that would have to close the stream."""
    llm = Endless()
    collects = gc.isenabled()
    gc.disable()
    try:
        with an_answering_pipeline(llm) as pipeline:
            stream = pipeline.answer_stream(QUESTION)
            up_to_a_chunk(stream)
            circle: list[Any] = [stream]
            circle.append(circle)
            del stream, circle

            async def collect() -> None:
                gc.collect()
                await _turns()
                await _turns()

            pipeline.sync.run(collect())
            assert llm.closed == 1
    finally:
        if collects:
            gc.enable()


CHILD = """
import sys
from support.answers import QUESTION, ROLLED_BACK, an_answering_pipeline
from retrieval_core.testing.fakes_llm import FakeLLM

pipeline = an_answering_pipeline(FakeLLM(ROLLED_BACK))
stream = pipeline.answer_stream(QUESTION)
print(next(stream).type)
if "closed" in sys.argv:
    pipeline.close()
"""


@pytest.mark.parametrize("how", ["closed", "left open"])
def test_a_program_ends_though_it_left_a_stream(how: str) -> None:
    """A stream that a program forgot does not keep its process, closed pipeline or not."""
    command = [sys.executable, "-c", f"import sys\nsys.path[:0] = {sys.path!r}\n{CHILD}", how]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (child.stdout, child.stderr) == ("retrieval_done\n", "")


def test_a_model_that_fails_as_it_is_left_is_not_asked_again() -> None:
    """An error while a stream is being closed hides that it is; what has begun is over all the same."""

    class Fails(FakeLLM):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
            self.requests.append(request)
            try:
                yield "word "
                await asyncio.Event().wait()
            finally:
                msg = "the connection is gone already"
                raise ServiceConnectionError(msg)

    llm = Fails("")
    pipeline = an_answering_pipeline(llm)

    async def main() -> None:
        async with pipeline:
            stream = pipeline.aanswer_stream(QUESTION)
            async for event in stream:
                if event.type == "answer_chunk":
                    break
            await _ended(stream.aclose())

    asyncio.run(main())
    assert len(llm.requests) == 1


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def _ended(work: Any) -> None:
    """Wait for what must end, for so many turns of the event loop."""
    task = asyncio.ensure_future(work)
    for _ in range(TURNS):
        if task.done():
            break
        await asyncio.sleep(0)
    assert task.done(), "it goes on"
    await task


def test_a_model_that_is_known_to_be_down_is_not_asked() -> None:
    """Its circuit breaker opens after so many failures; then the passages answer at once, and the stream says why."""
    llm = FakeLLM("")
    llm.failure = ServiceConnectionError("refused")
    pipeline = an_answering_pipeline(llm, retry__max_retries=0, breaker__failures=2)

    async def main() -> list[list[AnswerEvent]]:
        async with pipeline:
            return [[event async for event in pipeline.aanswer_stream(QUESTION)] for _ in range(4)]

    answers = [check_stream(events) for events in asyncio.run(main())]
    assert [answer.kind for answer in answers] == ["extracted"] * 4
    assert len(llm.requests) == 2
    assert answers[1].fallbacks[0].reason == "answer: refused"
    assert answers[3].fallbacks[0].reason != "answer: refused"


def test_a_model_that_was_never_asked_is_closed_too() -> None:
    """A pipeline owns the answer_writer that it was given, used or not."""

    class Held(FakeLLM):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    asked_once, never_asked = Held(ROLLED_BACK), Held("")
    check_stream(events_of(an_answering_pipeline(asked_once)))
    with an_answering_pipeline(never_asked):
        pass
    assert (asked_once.closed, never_asked.closed) == (1, 1)
