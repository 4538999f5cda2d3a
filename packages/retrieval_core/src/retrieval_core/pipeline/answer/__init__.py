"""The values of answering: the question, the searches and the evidence they find, the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core.ports import Message
    from retrieval_core.run.outcomes import Failed
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Answer, ContextPack, FallbackStep, RetrievalResult


@dataclass(frozen=True, slots=True)
class AnswerEvidence:
    """The result and the context that an answer is written from."""

    result: RetrievalResult
    pack: ContextPack


@dataclass(frozen=True, slots=True)
class EvidenceSearch:
    """One way of finding the evidence for an answer.

    Attributes:
        find: Searches, within a run.
        step: What it is as a fallback; ``None`` for the first one.
    """

    find: Callable[[Run], Awaitable[AnswerEvidence]]
    step: FallbackStep | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and how to answer it.

    Attributes:
        text: As it was asked.
        history: The conversation before it, oldest first.
        prompt: Instructions in place of the configured ones.
        verify: Whether the answer is held against its passages.
        strict: Whether everything that could be done without is raised instead.
    """

    text: str
    history: tuple[Message, ...] = ()
    prompt: str | None = None
    verify: bool = False
    strict: bool = False


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """An answer, and what it rests on.

    Attributes:
        failed: Why it is not complete.
        result: Of the search; ``None`` where that failed.
    """

    answer: Answer
    failed: Failed | None = None
    result: RetrievalResult | None = None
