"""The interface of observers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from retrieval_core.types import RetrievalResult, StageRecord


class StageSpan(Protocol):
    """One call of a stage, while it is under way."""

    def end(self, record: StageRecord, error: Exception | None = None) -> None:
        """Receive the outcome of the call. It is not called if the call is cancelled.

        Args:
            record: The record of the stage.
            error: The error of the last attempt, if the call failed.
        """
        ...


class Observer(Protocol):
    """Receive events of a pipeline as they happen. Methods must be fast and thread-safe, and must not raise."""

    def span(self, stage: str) -> AbstractContextManager[StageSpan]:
        """Return a context that is open while a stage's call runs, with all its attempts.

        It is left with an exception only where the call is cancelled; a failed call is a record with an error.
        """
        ...

    def query(self) -> AbstractContextManager[None]:
        """Return a context that is open while a query is answered; it is left with what the query raises."""
        ...

    def answered(self, result: RetrievalResult) -> None:
        """Take the result of a query, inside its context; not called for a query that raises."""
        ...
