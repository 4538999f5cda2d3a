"""The interface between the pipeline and whatever watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from retrieval_core.types import RetrievalResult, StageRecord


class StageSpan(Protocol):
    """The time that one call takes, while it is under way."""

    def end(self, record: StageRecord, error: Exception | None = None) -> None:
        """Take what the call came to; not called where the call is cancelled.

        Args:
            record: What the stage did.
            error: What the last attempt raised, where the call failed.
        """
        ...


class Observer(Protocol):
    """Is told what the pipeline does, as it happens; it must be quick, and must not raise.

    Several queries may be under way at a time, in several threads.
    """

    def span(self, stage: str) -> AbstractContextManager[StageSpan]:
        """Return a context that is open while a stage's call runs, with all its attempts.

        It is left with the exception where the call is cancelled, and with none otherwise: a call that failed is a
        record with an error.
        """
        ...

    def query(self) -> AbstractContextManager[None]:
        """Return a context that is open while a query is answered; it is left with whatever the caller gets raised."""
        ...

    def answered(self, result: RetrievalResult) -> None:
        """Take the result of a query, inside its context; not called for a query that raises."""
        ...
