"""Settings of what looks at a question before it is searched for."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from retrieval_core.config.backends import WithOptions

PROMPTS = ("keywords", "decompose", "hyde", "history")
"""What has instructions of its own."""


class TransformConfig(WithOptions):
    """Putting a question in other words, and searching for more than the question."""

    _kinds_in: ClassVar[tuple[str, ...]] = ("use",)

    use: tuple[str, ...] = ()
    """Names of the transformers that each query uses that does not name its own: ``keywords``, ``decompose``, ``hyde``
    (these need an LLM), ``graph`` (needs a graph), or ``"package.module:factory"``."""
    history: Literal["auto", "llm", "heuristic", "none"] = "auto"
    """How a question that belongs to a conversation is made to stand alone; ``auto`` is ``llm`` where there is one, and
    else ``heuristic``."""
    history_turns: int = Field(default=3, ge=1, le=100)
    """How many of the last turns, of either side, are looked at for that."""
    model: str | None = None
    """The language model for all this, at the same provider; that of ``llm`` where it is not set."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Instructions in place of the built-in ones, for ``keywords``, ``decompose``, ``hyde`` and ``history``."""

    @field_validator("use")
    @classmethod
    def _names_are_told_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            msg = f"each name can be given once, got {', '.join(value)}"
            raise ValueError(msg)
        return value

    @field_validator("prompts")
    @classmethod
    def _prompts_are_known(cls, value: dict[str, str]) -> dict[str, str]:
        if unknown := sorted(value.keys() - set(PROMPTS)):
            msg = f"there are no instructions for {', '.join(unknown)}; there are for {', '.join(PROMPTS)}"
            raise ValueError(msg)
        if blank := sorted(name for name, prompt in value.items() if not prompt.strip()):
            msg = f"the instructions for {', '.join(blank)} are blank; leave them out for the built-in ones"
            raise ValueError(msg)
        return value
