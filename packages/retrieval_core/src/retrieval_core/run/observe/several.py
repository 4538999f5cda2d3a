"""Several observers behind one, with their errors contained."""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import as_exception

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from retrieval_core.run.observe.observer import Observer, StageSpan
    from retrieval_core.types import RetrievalResult, StageRecord

logger = logging.getLogger("retrieval_core")


class SeveralObservers:
    """Pass all events on to one or more observers; an :class:`~retrieval_core.run.observe.Observer`.

    Contexts are entered in the given order and left in reverse. If an observer raises, the query and the other
    observers continue, and the error is logged, with its traceback once for each observer.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._logged: set[int] = set()

    def query(self) -> AbstractContextManager[None]:
        """Open the query contexts of all."""
        return self._opened([one.query for one in self._observers])

    def span(self, stage: str) -> AbstractContextManager[StageSpan]:
        """Open the spans of all."""
        return self._opened([partial(one.span, stage) for one in self._observers])

    def answered(self, result: RetrievalResult) -> None:
        """Pass the result on to all."""
        for number, one in enumerate(self._observers):
            self.try_to(number, partial(one.answered, result))

    def try_to(self, number: int, tell: Callable[[], object]) -> None:
        """Call an observer; log it where it raises."""
        try:
            tell()
        except BaseException as error:
            name, told = type(self._observers[number]).__name__, as_exception(error)
            logger.warning("the observer %s failed: %s", name, told, exc_info=number not in self._logged)
            self._logged.add(number)

    @contextmanager
    def _opened(self, contexts: list[Callable[[], AbstractContextManager[Any]]]) -> Generator[Any]:
        spans: dict[int, StageSpan] = {}
        with ExitStack() as stack:
            for number, make in enumerate(contexts):
                self.try_to(number, partial(self._enter, number, make, spans, stack))
            yield _Spans(self, spans)

    def _enter(
        self,
        number: int,
        make: Callable[[], AbstractContextManager[Any]],
        spans: dict[int, StageSpan],
        stack: ExitStack,
    ) -> None:
        context = make()
        spans[number] = context.__enter__()

        def leave(*raised: Any) -> None:
            self.try_to(number, partial(context.__exit__, *raised))

        stack.push(leave)


class _Spans:
    """The spans of one call, by the number of their observer."""

    __slots__ = ("_several", "_spans")

    def __init__(self, several: SeveralObservers, spans: dict[int, StageSpan]) -> None:
        self._several = several
        self._spans = spans

    def end(self, record: StageRecord, error: Exception | None = None) -> None:
        for number, span in self._spans.items():
            self._several.try_to(number, partial(span.end, record, error))
