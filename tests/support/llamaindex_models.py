"""Language models of LlamaIndex for tests, and what listens to its instrumentation."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import contextmanager
from threading import current_thread
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, LLMMetadata
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation import get_dispatcher  # pyright: ignore[reportPrivateImportUsage] - its public home
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import CustomLLM
from llama_index.core.schema import NodeWithScore, TextNode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from llama_index.core.instrumentation.events import BaseEvent
    from llama_index.core.postprocessor.types import BaseNodePostprocessor

_PASSAGE = re.compile(r'^passage (\d+): (".*")$', re.MULTILINE)


class ScriptedLLM(CustomLLM):
    """A model of LlamaIndex that can only block, as those that run on this machine; its answers are a function's."""

    temperature: float = 0.1
    _answer: Callable[[str], str] = PrivateAttr()
    _prompts: list[str] = PrivateAttr(default_factory=list)
    _threads: list[str] = PrivateAttr(default_factory=list)

    def __init__(self, answer: Callable[[str], str], **fields: Any) -> None:
        super().__init__(**fields)
        self._answer = answer

    @property
    def prompts(self) -> list[str]:
        return self._prompts

    @property
    def threads(self) -> list[str]:
        """Names of the threads that asked."""
        return self._threads

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="scripted", is_chat_model=True, context_window=32_000)

    def _said(self, prompt: str) -> str:
        self._prompts.append(prompt)
        self._threads.append(current_thread().name)
        return self._answer(prompt)

    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return CompletionResponse(text=self._said(prompt))
        raise AssertionError("a model that can only block was called on an event loop")

    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:
        def pieces() -> Iterator[CompletionResponse]:
            text = ""
            for word in re.findall(r"\S+\s*", self._said(prompt)):
                text += word
                yield CompletionResponse(text=text, delta=word)

        return pieces()


class AsyncScriptedLLM(ScriptedLLM):
    """The same, with asynchronous methods of its own; its synchronous ones work too."""

    def __init__(self, answer: Callable[[str], str], **fields: Any) -> None:
        super().__init__(answer, **fields)

    async def achat(self, messages: Sequence[ChatMessage], **_: Any) -> ChatResponse:
        await asyncio.sleep(0)
        prompt = "\n".join(f"{message.role.value}: {message.content}" for message in messages)
        return ChatResponse(message=ChatMessage(role="assistant", content=self._said(prompt)))

    async def astream_chat(self, messages: Sequence[ChatMessage], **_: Any) -> Any:
        text = (await self.achat(messages)).message.content or ""

        async def pieces() -> Any:
            for word in re.findall(r"\S+\s*", text):
                yield ChatResponse(message=ChatMessage(role="assistant", content=text), delta=word)

        return pieces()


def passages_in(prompt: str) -> dict[int, str]:
    """Return the passages that a model was shown, by number."""
    return {int(number): json.loads(text) for number, text in _PASSAGE.findall(prompt)}


def graded(grade: Callable[[str], int]) -> Callable[[str], str]:
    """Return what answers as a model that keeps to the rubric's form."""

    def answer(prompt: str) -> str:
        results = [
            {"id": number, "key_evidence": text, "answerability": True, "relevance_score": grade(text)}
            for number, text in passages_in(prompt).items()
        ]
        return json.dumps({"results": results})

    return answer


def node(text: str, score: float | None = None, **fields: Any) -> NodeWithScore:
    return NodeWithScore(node=TextNode(text=text, **fields), score=score)


def texts(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [item.node.get_content() for item in nodes]


def both(
    postprocessor: BaseNodePostprocessor, nodes: list[NodeWithScore], query: str | None = "where is the moon"
) -> list[NodeWithScore]:
    """Return the nodes, the same from the sync and the async method, also inside a running loop; none are changed."""
    before = [item.model_dump() for item in nodes]

    async def inside() -> list[list[NodeWithScore]]:
        return [
            await postprocessor.apostprocess_nodes(nodes, query_str=query),
            postprocessor.postprocess_nodes(nodes, query_str=query),
        ]

    result = postprocessor.postprocess_nodes(nodes, query_str=query)
    told = [(item.score, item.node.get_content()) for item in result]
    for other in asyncio.run(inside()):
        assert [(item.score, item.node.get_content()) for item in other] == told
    assert [item.model_dump() for item in nodes] == before
    return result


@contextmanager
def listening() -> Generator[list[BaseEvent]]:
    """Collect what LlamaIndex's instrumentation is told."""
    caught: list[BaseEvent] = []

    class Catch(BaseEventHandler):
        def handle(self, event: BaseEvent, **_: Any) -> None:
            caught.append(event)

    dispatcher, handler = get_dispatcher(), Catch()
    dispatcher.add_event_handler(handler)
    try:
        yield caught
    finally:
        dispatcher.event_handlers.remove(handler)
