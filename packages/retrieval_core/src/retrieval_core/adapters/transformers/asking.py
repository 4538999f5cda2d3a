"""The base of the transformers and the rewriter that ask a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from pydantic import BaseModel

from retrieval_core.text.prompting import Asking

if TYPE_CHECKING:
    from retrieval_core.ports import LLM
    from retrieval_core.text.prompting import Task

A = TypeVar("A", bound=BaseModel)


class AsksLLM(Generic[A]):
    """Asks a language model to do one task with a question.

    Args:
        llm: Stays the caller's to close.
        prompt: Instructions in place of the module's ``DEFAULT_PROMPT``. They replace neither the form of the answer
            nor the rule that question and passages are data.

    Raises:
        InvalidParameterError: The prompt is blank.
    """

    _task: Task[A]
    _settings: tuple[object, ...]
    """What else shapes the result, for the id."""

    def __init__(self, llm: LLM, *, prompt: str | None = None) -> None:
        self._asking = Asking(llm, self._task, prompt, *self._settings)

    @property
    def id(self) -> str:
        """Names the model, and a digest of everything that it is shown besides the data."""
        return self._asking.id
