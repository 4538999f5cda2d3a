"""What the table of LlamaIndex's stock engines is made of: its rows, its page, and language models that are scripts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import (
    ChatMessage,
    CompletionResponse,
    CustomLLM,
    LLMMetadata,
    MessageRole,
    MockFunctionCallingLLM,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


class Writer(CustomLLM):
    """Completes prompts with what a function of the prompt returns, and keeps the prompts."""

    _reply: Callable[[str], str] = PrivateAttr()
    _prompts: list[str] = PrivateAttr(default_factory=list[str])

    def __init__(self, reply: Callable[[str], str]) -> None:
        super().__init__()
        self._reply = reply

    @property
    def reply(self) -> Callable[[str], str]:
        """What is returned for a prompt."""
        return self._reply

    def answer_with(self, reply: Callable[[str], str]) -> None:
        """Return something else from now on."""
        self._reply = reply

    @property
    def prompts(self) -> list[str]:
        return self._prompts

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(context_window=16_000)

    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        self._prompts.append(prompt)
        return CompletionResponse(text=self._reply(prompt))

    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:
        text = self.complete(prompt).text

        def pieces() -> Any:
            for end in range(1, len(text) + 1):
                yield CompletionResponse(text=text[:end], delta=text[end - 1])

        return pieces()


class Caller(MockFunctionCallingLLM):
    """Calls each tool that it is given once, with arguments by the tool's name, and then writes an answer."""

    _arguments: Mapping[str, Mapping[str, Any]] = PrivateAttr()
    _answer: str = PrivateAttr()
    _prompts: list[str] = PrivateAttr(default_factory=list[str])

    def __init__(self, arguments: Mapping[str, Mapping[str, Any]], answer: str = "") -> None:
        super().__init__(response_generator=self._next, is_chat_model=True)
        self._arguments = arguments
        self._answer = answer

    @property
    def reply(self) -> Callable[[str], str]:
        """What is returned for a prompt."""
        return self._reply

    def answer_with(self, reply: Callable[[str], str]) -> None:
        """Return something else from now on."""
        self._reply = reply

    @property
    def prompts(self) -> list[str]:
        return self._prompts

    def _next(self, messages: Sequence[ChatMessage], **settings: Any) -> ChatMessage:
        self._prompts.append("\n".join(f"{message.role.value}: {message.content}" for message in messages))
        called = {block.tool_name for message in messages for block in _calls(message)}
        names = [tool.metadata.name for tool in settings.get("tools") or ()]
        name = next((name for name in names if name in self._arguments and name not in called), None)
        if name is None:
            return ChatMessage(role=MessageRole.ASSISTANT, content=self._answer)
        call = ToolCallBlock(tool_call_id=f"call-{name}", tool_name=name, tool_kwargs=dict(self._arguments[name]))
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=[call])


def _calls(message: ChatMessage) -> list[ToolCallBlock]:
    return [block for block in message.blocks if isinstance(block, ToolCallBlock)]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table.

    Attributes:
        area: The table it stands in.
        name: Of LlamaIndex's class, with the setting that makes it another case.
        verdict: What becomes of it with our retriever.
        note: What a user should know, as Markdown; may be empty.
        check: Shows it, given the parts of a test; text names a test of another file that does, ``file::test``.
    """

    area: str
    name: str
    verdict: Literal["works", "refused with words"]
    note: str
    check: Callable[[Any], None] | str


def sections(examples: Path) -> dict[str, str]:
    """Return where each class that a heading of a page names is told of, as the target of a link from beside it."""
    headings = re.findall(r"^## (.+)$", examples.read_text("utf-8"), re.MULTILINE)
    return {
        name: f"{examples.name}#{re.sub(r'[^a-z ]', '', heading.lower()).replace(' ', '-')}"
        for heading in headings
        for name in re.findall(r"[A-Z]\w+(?:Engine|Agent|Tool|Transform)\b", heading)
    }


def linked(text: str, targets: Mapping[str, str]) -> str:
    """Return Markdown whose first name in code is a link, if it has a target."""
    return re.sub(
        r"`(\w+)`", lambda name: f"[{name[0]}]({targets[name[1]]})" if name[1] in targets else name[0], text, count=1
    )


def page(head: str, rows: Iterable[Row], targets: Mapping[str, str]) -> str:
    """Return the page of the table: the head, and a table for each area in the order of the rows; names are linked."""
    areas: dict[str, list[Row]] = {}
    for row in rows:
        areas.setdefault(row.area, []).append(row)
    parts = [head]
    for area, members in areas.items():
        lines = [f"## {area}", "", "| of LlamaIndex | with ours | note |", "|---|---|---|"]
        lines += [f"| {linked(row.name, targets)} | {row.verdict} | {row.note} |" for row in members]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)
