"""The fake language model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence  # noqa: TC003 - type aliases are public
from typing import TYPE_CHECKING, Any, TypeAlias

from retrieval_core.ports import LLM, Completion
from retrieval_core.testing.fakes import Fake
from retrieval_core.types import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from retrieval_core.ports import CompletionRequest

Answer: TypeAlias = "str | Completion | Mapping[str, Any]"
"""Text, a whole completion, or an object that is written as JSON."""
Scripted: TypeAlias = "Answer | Exception | Callable[[CompletionRequest], Answer]"
"""An answer, an error to raise, or a function of the request."""

_PIECE = re.compile(r"\s*\S+\s*|\s+")


class FakeLLM(Fake, LLM):
    """An :class:`~retrieval_core.ports.LLM` without a model: it answers from a script or a function.

    Its tokens are words divided by white space, its pieces of a stream are words too. It does not look at the schema
    of a request: a function that answers may.

    Args:
        answer: A function, called for each request; or a script, one entry for each request in order.

    Attributes:
        requests: All requests of both methods, in order.
        failure_after: Pieces that a stream yields before it raises ``failure``.
        abandoned: How many streams were closed before their last piece.
    """

    def __init__(self, answer: Callable[[CompletionRequest], Answer] | Sequence[Scripted]) -> None:
        super().__init__("fake-llm")
        self._function = answer if callable(answer) else None
        self._script: list[Scripted] = [] if callable(answer) else [answer] if isinstance(answer, str) else [*answer]
        self.requests: list[CompletionRequest] = []
        self.failure_after = 0
        self.abandoned = 0

    async def _complete(self, request: CompletionRequest) -> Completion:
        """Answer a request from the script.

        Raises:
            AssertionError: The script has no further answer.
        """
        self.requests.append(request)
        await self._obey()
        return self._next(request)

    async def _stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
        """Yield the words of an answer, each with the white space around it.

        Raises:
            AssertionError: The script has no further answer.
        """
        self.requests.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None and not self.failure_after:
            raise self.failure
        pieces: list[str] = _PIECE.findall(self._next(request).text)
        for number, piece in enumerate(pieces):
            if self.failure is not None and number == self.failure_after:
                raise self.failure
            try:
                yield piece
            except GeneratorExit:
                self.abandoned += 1
                raise
        if self.failure is not None:
            raise self.failure

    def _next(self, request: CompletionRequest) -> Completion:
        if self._function is not None:
            return _completion(request, self._function(request))
        if not self._script:
            msg = f"FakeLLM got {len(self.requests)} requests, and its script has fewer answers"
            raise AssertionError(msg)
        entry = self._script.pop(0)
        if isinstance(entry, Exception):
            raise entry
        return _completion(request, entry(request) if callable(entry) else entry)


def _completion(request: CompletionRequest, answer: Answer) -> Completion:
    if isinstance(answer, Completion):
        return answer
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    words_in = sum(len(message.content.split()) for message in request.messages)
    return Completion(text, Usage(input_tokens=words_in, output_tokens=len(text.split())))
