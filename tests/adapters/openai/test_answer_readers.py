"""Who reads answers from the vendor's own SDK: slowly, several at once, or not to the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.llms.openai import OpenAILLM
from support.answers import QUESTION, ROLLED_BACK, an_answering_pipeline, check_stream
from support.openai_service import KEY, OpenAIService
from support.openai_support import llm_of
from support.wire_server import Hang, PausedMidBody, WireServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from retrieval_core.ports import CompletionRequest
    from retrieval_core.types import AnswerEvent

SAID = f"{ROLLED_BACK} The history command lists every earlier revision of an application [2]."
CHAT = "/v1/chat/completions"


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer(OpenAIService(lambda _: SAID)) as running:
        yield running


def test_who_leaves_ends_the_services_work(server: WireServer) -> None:
    """Closing the iterator, cancelling its reader, and cancelling who waits for the whole each close the connection."""
    pipeline = an_answering_pipeline(llm_of(server))

    async def main() -> None:
        server.fail_always(PausedMidBody(), path=CHAT)
        async with pipeline:
            stream = pipeline.aanswer_stream(QUESTION)
            assert [event async for event in _up_to_a_chunk(stream)]
            await stream.aclose()
            await server.until(lambda: server.disconnected == 1)

            async def read() -> None:
                async for _ in pipeline.aanswer_stream(QUESTION):
                    pass

            for number, work in ((2, read()), (3, pipeline.aanswer(QUESTION))):
                task = asyncio.ensure_future(work)
                await server.until(lambda number=number: server.count() == number)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await server.until(lambda number=number: server.disconnected == number)
        assert server.count() == 3

    asyncio.run(main())


async def _up_to_a_chunk(stream: AsyncGenerator[AnswerEvent]) -> AsyncGenerator[AnswerEvent]:
    async for event in stream:
        yield event
        if event.type == "answer_chunk":
            return


def test_who_leaves_the_synchronous_stream_ends_the_services_work(server: WireServer) -> None:
    """So does leaving the loop over it, and closing the pipeline in the middle."""
    server.fail_always(PausedMidBody(), path=CHAT)
    with an_answering_pipeline(llm_of(server)) as pipeline:
        for event in (stream := pipeline.answer_stream(QUESTION)):
            if event.type == "answer_chunk":
                break
        stream.close()
        server.wait_until(lambda: server.disconnected == 1)
        another = pipeline.answer_stream(QUESTION)
        assert next(another).type == "retrieval_done"
        server.wait_until(lambda: server.count() == 2)
    server.wait_until(lambda: server.disconnected == 2)


def test_a_slow_reader_holds_nothing_up_and_loses_nothing(server: WireServer) -> None:
    """The model is heard to its end while the reader still looks at the first event, and everything waits for it."""

    class Watched(OpenAILLM):
        ended: asyncio.Event

        async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
            async for piece in super().stream(request):
                yield piece
            self.ended.set()

    llm = Watched("gpt-4.1-mini", api_key=KEY, base_url=f"{server.url}/v1")
    pipeline = an_answering_pipeline(llm, search__top_k=2)

    async def main() -> list[AnswerEvent]:
        llm.ended = asyncio.Event()
        async with pipeline:
            stream = pipeline.aanswer_stream(QUESTION)
            events = [await anext(stream)]
            await llm.ended.wait()
            async for event in stream:
                events.append(event)
                await asyncio.sleep(0)
        return events

    answer = check_stream(asyncio.run(main()))
    assert (answer.text, answer.error) == (SAID, None)


def test_streams_side_by_side_do_not_mix(server: WireServer) -> None:
    """Ten questions at once, each with its own answer."""
    pipeline = an_answering_pipeline(llm_of(server))

    async def main() -> list[list[AnswerEvent]]:
        server.fail_always(Hang(), path=CHAT)
        async with pipeline:

            async def read(number: int) -> list[AnswerEvent]:
                return [event async for event in pipeline.aanswer_stream(f"{QUESTION} {number}")]

            tasks = [asyncio.create_task(read(number)) for number in range(10)]
            await server.until(lambda: server.count() == 10)
            server.release()
            return await asyncio.gather(*tasks)

    for number, events in enumerate(asyncio.run(main())):
        answer = check_stream(events)
        assert (answer.query, answer.text) == (f"{QUESTION} {number}", SAID)
