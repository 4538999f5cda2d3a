"""Settings of answers."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator

from retrieval_core.config.backends import WithOptions


class AnswerConfig(WithOptions):
    """Answering a question from its passages; with a language model where one is configured, else in their words."""

    _kinds_in: ClassVar[tuple[str, ...]] = ("verifier",)

    prompt: str | None = None
    """Instructions to the language model in place of the built-in ones."""

    @field_validator("prompt")
    @classmethod
    def _prompt_says_something(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            msg = "it is blank; leave it out for the built-in instructions"
            raise ValueError(msg)
        return value

    max_tokens: int | None = Field(default=None, ge=1)
    """The longest answer in the model's tokens; the provider's own bound where it is not set."""
    abstain_below: float = Field(default=0.15, ge=0, le=1)
    """With less confidence in the passages, or in the quotes of an answer, the answer is that they do not tell; 0 for
    never."""
    without_documents: bool = True
    """Whether the language model answers in general, and says so, when nothing can be searched."""
    verify: bool = False
    """Whether each sentence of a written answer is held against the passages."""
    verifier: str = "auto"
    """``llm``, ``local`` (on this machine), ``auto`` (the former where there is a language model) or
    ``"package.module:factory"``."""
