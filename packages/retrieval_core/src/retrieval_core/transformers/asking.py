"""What the transformers that ask a language model have in common."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Generic, TypeVar

from pydantic import BaseModel

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import CompletionRequest
from retrieval_core.prompting import framed, object_schema, parse_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from retrieval_core.ports import LLM, Message
    from retrieval_core.types import JSON, Usage

A = TypeVar("A", bound=BaseModel)


class Asking(Generic[A]):
    """One question to a language model, always in the same words; the data alone differ.

    Args:
        llm: What answers; it stays the caller's to close.
        purpose: One word for the id.
        prompt: The instructions. They replace neither the form of the answer nor the rule about data.
        form: What the answer has to look like.
        properties: Of the JSON object that the answer must be.
        kind: Checks it.

    Raises:
        InvalidParameterError: The prompt is blank.
    """

    def __init__(
        self, llm: LLM, *, purpose: str, prompt: str, form: str, properties: Mapping[str, JSON], kind: type[A]
    ) -> None:
        if not prompt.strip():
            msg = "prompt is blank; leave it out for the built-in instructions"
            raise InvalidParameterError(msg)
        self._llm = llm
        self._purpose = purpose
        self._prompt = prompt
        self._form = form
        self._schema = object_schema(properties)
        self._kind = kind

    @property
    def llm_id(self) -> str:
        """Names the model, for errors."""
        return self._llm.id

    def id(self, *settings: object) -> str:
        """Name the model, and a digest of everything that shapes its answer besides the data, settings included."""
        shown = self._messages(()) + tuple(map(repr, (self._schema, *settings)))
        digest = sha256("\n".join(map(str, shown)).encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"{self._llm.id} {self._purpose}@{digest}"

    async def ask(self, *data: str) -> tuple[A, Usage | None]:
        """Ask once.

        Args:
            data: Lines of :func:`retrieval_core.prompting.as_data`.

        Raises:
            MalformedAnswerError: The answer is not of the kind.
            ServiceError: The provider failed.
        """
        completion = await self._llm.complete(CompletionRequest(self._messages(data), schema=self._schema))
        return parse_answer(completion.text, self._kind, self._llm.id), completion.usage

    def _messages(self, data: Iterable[str]) -> tuple[Message, ...]:
        return framed(self._prompt, self._form, data)


def clipped(text: str, limit: int) -> str:
    """Return a text on one line of at most so many code points, cut before a word where that loses little."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    start = line[:limit]
    space = line.rfind(" ", 0, limit + 1)
    return start[:space] if space > limit * 0.8 else start


def is_searchable(text: str) -> bool:
    """Whether there is a letter or a digit in a text: without one, no side finds anything by it."""
    return any(map(str.isalnum, text))


def key(text: str) -> str:
    """Return what two texts share that differ in case, white space and marks at their ends alone."""
    return " ".join(text.casefold().split()).strip(" ?!.,;:'\"")
