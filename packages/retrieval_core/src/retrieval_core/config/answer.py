"""Settings of answers."""

from __future__ import annotations

from pydantic import field_validator

from retrieval_core.config.backends import Settings


class AnswerConfig(Settings):
    """Answering a question from its passages."""

    verify: bool = False
    """Whether answers are held against their passages; this version writes none, so ``true`` is refused."""

    @field_validator("verify")
    @classmethod
    def _nothing_is_verified(cls, value: bool) -> bool:
        if value:
            msg = "this version writes no answers, so there is nothing to verify; leave it false"
            raise ValueError(msg)
        return value
