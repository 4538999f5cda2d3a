"""Observers: their interface, several behind one, and the trace of a query as a table."""

from __future__ import annotations

import logging
import re
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, Self

from retrieval_core.errors import as_exception
from retrieval_core.ports.plugin import check_members
from retrieval_core.types.escapes import CONTROLS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from retrieval_core.types import DroppedPassage, RetrievalResult, StageRecord

logger = logging.getLogger("retrieval_core")

_HEADINGS = ("stage", "round", "ms", "attempts", "in → out", "tokens", "what happened")
_RIGHT = frozenset({"round", "ms", "attempts", "tokens"})
_LONGEST = 160
_CONTROL = re.compile(f"[{CONTROLS}]")


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


class SeveralObservers:
    """Pass all events on to one or more observers; an :class:`~retrieval_core.run.observe.Observer`.

    Contexts are entered in the given order and left in reverse. If an observer raises, the query and the other
    observers continue, and the error is logged, with its traceback once for each observer.

    Attributes:
        observers: All observers, without such ones that only pass events on.
    """

    def __init__(self, *observers: Observer) -> None:
        for one in observers:
            check_members(one, ("query", "span", "answered"), "observer", "see retrieval_core.run.observe")
        self.observers: tuple[Observer, ...] = tuple(
            chain.from_iterable(one.observers if isinstance(one, SeveralObservers) else (one,) for one in observers)
        )
        self._logged: set[int] = set()

    def query(self) -> AbstractContextManager[Any]:
        """Open the query contexts of all."""
        return _Contexts(self, [one.query for one in self.observers])

    def span(self, stage: str) -> AbstractContextManager[StageSpan]:
        """Open the spans of all."""
        return _Contexts(self, [partial(one.span, stage) for one in self.observers])

    def answered(self, result: RetrievalResult) -> None:
        """Pass the result on to all."""
        for number, one in enumerate(self.observers):
            try:
                one.answered(result)
            except BaseException as error:  # noqa: BLE001 - the query goes on, whatever an observer raises
                self.log(number, error)

    def log(self, number: int, error: BaseException) -> None:
        """Log what an observer raised."""
        name, told = type(self.observers[number]).__name__, as_exception(error)
        logger.warning("the observer %s failed: %s", name, told, exc_info=None if number in self._logged else error)
        self._logged.add(number)


class _Contexts:
    """The contexts of several observers for one query or call, as one context and one span."""

    __slots__ = ("_make", "_open", "_several")

    def __init__(self, several: SeveralObservers, make: Sequence[Callable[[], AbstractContextManager[Any]]]) -> None:
        self._several = several
        self._make = make
        self._open: list[tuple[int, AbstractContextManager[Any], Any]] = []

    def __enter__(self) -> Self:
        for number, make in enumerate(self._make):
            try:
                context = make()
                self._open.append((number, context, context.__enter__()))
            except BaseException as error:  # noqa: BLE001 - as above
                self._several.log(number, error)
        return self

    def __exit__(self, *raised: Any) -> None:  # noqa: PYI036 - passed on as they are
        for number, context, _ in reversed(self._open):
            try:
                context.__exit__(*raised)
            except BaseException as error:  # noqa: BLE001 - as above
                self._several.log(number, error)

    def end(self, record: StageRecord, error: Exception | None = None) -> None:
        for number, _, span in self._open:
            try:
                span.end(record, error)
            except BaseException as failed:  # noqa: BLE001 - as above
                self._several.log(number, failed)


def explain(result: RetrievalResult) -> str:
    """Return a table of the stages of a query, in the order they ended.

    Its columns are wall time in milliseconds, attempts, candidates before and after, tokens read and written, and the
    decision or error. If a query was rewritten, the column ``round``
    has the number of the search: 1 is the original query. Stages run in parallel, so that their times add up to more
    than the whole.

    Below the table are a line for each chunk that the relevance filter dropped, with its score, and one for each
    degradation. Reasons are cut after 160 code points and contain no control characters.
    """
    with_rounds = any((record.round or 1) > 1 for record in result.trace)
    lines: list[str] = []
    if result.trace:
        lines = _table([_HEADINGS, *(_row(record) for record in result.trace)], with_rounds=with_rounds)
        lines += [_dropped(record, item, with_rounds) for record in result.trace for item in record.dropped]
    source = " from the cache" if result.from_cache else ""
    count = len(result.hits)
    lines.append(f"{count} result{'s' * (count != 1)}{source} in {result.latency_ms:.1f} ms")
    lines += [f"degraded: {_one_line(f'{entry.stage}: {entry.reason}')}" for entry in result.degraded]
    return "\n".join(lines)


def _row(record: StageRecord) -> tuple[str, ...]:
    counts = ""
    if record.count_in is not None or record.count_out is not None:
        before, after = ("" if count is None else str(count) for count in (record.count_in, record.count_out))
        counts = f"{before} → {after}".strip()
    tokens = f"{record.usage.input_tokens}+{record.usage.output_tokens}" if record.usage is not None else ""
    said = [record.decision or "", f"failed: {record.error}" if record.error is not None else ""]
    return (
        _one_line(record.stage),
        str(record.round or ""),
        f"{record.milliseconds:.1f}",
        str(record.attempts or ""),
        counts,
        tokens,
        _one_line("; ".join(filter(None, said))),
    )


def _table(rows: Sequence[tuple[str, ...]], *, with_rounds: bool) -> list[str]:
    columns = [column for column in zip(*rows, strict=True) if with_rounds or column[0] != "round"]
    return ["  ".join(cells).rstrip() for cells in zip(*map(_aligned, columns), strict=True)]


def _aligned(column: tuple[str, ...]) -> list[str]:
    width = max(map(len, column))
    return [f"{cell:>{width}}" if column[0] in _RIGHT else f"{cell:<{width}}" for cell in column]


def _dropped(record: StageRecord, item: DroppedPassage, with_rounds: bool) -> str:
    where = f" in round {record.round}" if with_rounds and record.round is not None else ""
    reason = f": {_one_line(item.reason)}" if item.reason else ""
    return f"left out{where}: {_one_line(item.id)} ({item.score:.3g}){reason}"


def _one_line(text: str) -> str:
    line = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
