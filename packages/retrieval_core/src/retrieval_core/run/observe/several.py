"""Several observers behind one, with their errors contained."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import as_exception

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from retrieval_core.run.observe.observer import Observer, StageSpan
    from retrieval_core.types import RetrievalResult, StageRecord

logger = logging.getLogger("retrieval_core")


class SeveralObservers:
    """An :class:`~retrieval_core.run.observe.Observer` that passes everything on to one or more others.

    Contexts are entered in the order given and left in reverse. Where an observer raises, the query goes on, the others
    are told, and the error is logged, with its traceback once for each observer.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._logged: set[int] = set()

    @contextmanager
    def query(self) -> Generator[None]:
        """Open the query contexts of all."""
        with _Contexts(self, [one.query for one in self._observers]):
            yield

    @contextmanager
    def span(self, stage: str) -> Generator[_Spans]:
        """Open the spans of all."""
        with _Contexts(self, [partial(one.span, stage) for one in self._observers]) as spans:
            yield _Spans(self, spans)

    def answered(self, result: RetrievalResult) -> None:
        """Pass the result on to all."""
        for number, one in enumerate(self._observers):
            self.try_to(number, partial(one.answered, result))

    def try_to(self, number: int, tell: Callable[[], Any]) -> Any:
        """Return what a call of an observer returns; log and return ``None`` where it raises."""
        try:
            return tell()
        except BaseException as error:
            name, told = type(self._observers[number]).__name__, as_exception(error)
            logger.warning("the observer %s failed: %s", name, told, exc_info=number not in self._logged)
            self._logged.add(number)
            return None


class _Spans:
    """The spans of one call, by the number of their observer."""

    __slots__ = ("_several", "_spans")

    def __init__(self, several: SeveralObservers, spans: dict[int, StageSpan]) -> None:
        self._several = several
        self._spans = spans

    def end(self, record: StageRecord, error: Exception | None = None) -> None:
        for number, span in self._spans.items():
            self._several.try_to(number, partial(span.end, record, error))


class _Contexts:
    """The contexts of several observers that could be entered."""

    __slots__ = ("_entered", "_make", "_several")

    def __init__(self, several: SeveralObservers, make: list[Callable[[], AbstractContextManager[Any]]]) -> None:
        self._several = several
        self._make = make
        self._entered: list[tuple[int, AbstractContextManager[Any]]] = []

    def __enter__(self) -> dict[int, Any]:
        values: dict[int, Any] = {}
        for number, make in enumerate(self._make):
            self._several.try_to(number, partial(self._enter, number, make, values))
        return values

    def _enter(self, number: int, make: Callable[[], AbstractContextManager[Any]], values: dict[int, Any]) -> None:
        context = make()
        values[number] = context.__enter__()
        self._entered.append((number, context))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, context in reversed(self._entered):
            self._several.try_to(number, partial(context.__exit__, kind, error, trace))
