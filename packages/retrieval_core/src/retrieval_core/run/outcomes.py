"""Outcomes of calls, success or failure, as values that stages combine, and calls for parts of a list."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from retrieval_core.errors import (
    ConfigurationError,
    DimensionMismatchError,
    EmbedderMismatchError,
    EmbeddingError,
    FilterError,
    IndexNotFoundError,
    InvalidParameterError,
    MissingExtraError,
    ModelNotFoundError,
    RetrievalError,
    SearchError,
    ServiceConnectionError,
    ServiceError,
    StoreError,
    UnsupportedSearchError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from typing import Never

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")

LONGEST_REASON = 2000
"""The most characters of an error that results and logs repeat: some errors quote a whole answer or document."""


@dataclass(frozen=True, slots=True)
class Ok(Generic[T]):
    """A call that worked."""

    value: T


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that failed, with all its retries.

    Attributes:
        of: Which of several plug-ins of the stage failed; empty where there is one.
    """

    stage: str
    error: Exception
    attempts: int = 0
    of: str = ""

    @property
    def reason(self) -> str:
        """One line for people: what went wrong, without a traceback and with at most :data:`LONGEST_REASON`."""
        text = " ".join(str(self.error)[: 2 * LONGEST_REASON].split()) or type(self.error).__name__
        if len(text) > LONGEST_REASON:
            text = text[: LONGEST_REASON - 2] + " …"
        return f"{self.of}: {text}" if self.of and self.of not in text else text


def is_callers_fault(error: Exception) -> bool:
    """Whether an error says that the set-up or the question is wrong, so that degrading would hide a mistake."""
    if isinstance(error, EmbeddingError) and isinstance(error.__cause__, ServiceError):
        error = error.__cause__
    if isinstance(error, ServiceError):
        return error.status in {401, 403, 404}
    if isinstance(error, StoreError):
        return not error.transient
    return isinstance(error, (ConfigurationError, DimensionMismatchError, FilterError, InvalidParameterError))


def is_fault_of_an_improvement(error: Exception) -> bool:
    """Whether to raise the error of a stage that only improves on the hits there are.

    If a package or a model is not installed there, it can be done without like what fails, and is listed like it.
    """
    return is_callers_fault(error) and not isinstance(error, (MissingExtraError, ModelNotFoundError))


def is_static(error: Exception) -> bool:
    """Whether an error is about how the program is set up, and so the same for every query."""
    return isinstance(error, (ConfigurationError, UnsupportedSearchError))


def is_damage(error: Exception) -> bool:
    """Whether an index exists and cannot be read, as one whose file is damaged; other parts of it may still work."""
    return isinstance(error, StoreError) and not isinstance(error, (EmbedderMismatchError, IndexNotFoundError))


def raise_faults(
    failures: Iterable[Failed], *, strict: bool, is_fault: Callable[[Exception], bool] = is_callers_fault
) -> None:
    """Raise the first failure that is the caller's fault and must not be hidden; with ``strict``, the first one.

    Args:
        is_fault: Whether an error is one; by default where something is set up or asked wrongly.
    """
    for failure in failures:
        if strict or is_fault(failure.error):
            value_of(failure)


def raise_nothing_searched(failed: Failed) -> Never:
    """Raise why nothing could be searched.

    Raises:
        RetrievalError: Always.
    """
    if isinstance(failed.error, RetrievalError):
        raise failed.error
    msg = f"nothing could be searched: {failed.reason}"
    raise ServiceConnectionError(msg) from failed.error


def value_of(outcome: Ok[T] | Failed) -> T:
    """Return what a call gave that nothing can be done without.

    Raises:
        RetrievalError: It failed.
    """
    if isinstance(outcome, Ok):
        return outcome.value
    if isinstance(outcome.error, RetrievalError):
        raise outcome.error
    msg = f"{outcome.stage}: {outcome.reason}"
    raise SearchError(msg) from outcome.error


async def in_batches(
    call: Callable[[Sequence[Item]], Awaitable[Result]],
    items: Iterable[Item],
    size: int,
    size_of: Callable[[Item], int] = lambda _: 1,
    *,
    at_a_time: int = 4,
) -> list[tuple[Sequence[Item], Result]]:
    """Call a plug-in for all items, and return each batch with what came of it, in order.

    Args:
        call: Makes one call.
        items: In their order; neighbours come together.
        size: The most that one call takes; an item that is larger comes by itself.
        size_of: How much of that an item takes.
        at_a_time: The most calls at a time.
    """
    batches: list[list[Item]] = []
    room = 0
    for item in items:
        length = size_of(item)
        if not batches or length > room:
            batches.append([])
            room = size
        batches[-1].append(item)
        room -= length
    free = asyncio.Semaphore(at_a_time)

    async def limited(batch: list[Item]) -> Result:
        async with free:
            return await call(batch)

    return list(zip(batches, await asyncio.gather(*map(limited, batches)), strict=True))
