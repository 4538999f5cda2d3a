from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.errors import EmbeddingError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.run.observe import Metrics, SeveralObservers
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import StageRecord
from support.pipelines import TroubledStore, filled
from support.plugins import UnspeakableError

if TYPE_CHECKING:
    from collections.abc import Generator

    from retrieval_core.types import RetrievalResult

QUERY = "history of an application"


class Teller:
    """An observer that writes down what it is told, and raises where it is to."""

    def __init__(self, name: str, told: list[str], broken: str = "") -> None:
        self._name, self._told, self._broken = name, told, broken

    def _tell(self, what: str) -> None:
        if what == self._broken:
            raise RuntimeError(what)
        self._told.append(f"{self._name} {what}")

    @contextmanager
    def query(self) -> Generator[None]:
        self._tell("query")
        try:
            yield
        except EmbeddingError:
            self._tell("raised")
            raise
        self._tell("left")

    @contextmanager
    def span(self, stage: str) -> Generator[Any]:
        self._tell("span")
        yield self
        self._tell("span left")

    def end(self, record: StageRecord, error: Exception | None = None) -> None:
        self._tell("end")

    def answered(self, result: RetrievalResult) -> None:
        self._tell("answered")


def answer(observer: Any) -> RetrievalResult:
    store = TroubledStore()
    filled(store)
    return RetrievalPipeline(store, FakeEmbedder(), observer=observer).retrieve(QUERY)


def test_all_are_told_the_same_and_left_in_reverse() -> None:
    """As with contexts inside each other."""
    told: list[str] = []
    several = SeveralObservers(Teller("a", told), Teller("b", told))
    with several.query(), several.span("embed") as span:
        span.end(StageRecord("embed", 1.0))
    assert told == "a query,b query,a span,b span,a end,b end,b span left,a span left,b left,a left".split(",")  # noqa: SIM905


def test_all_see_the_error_of_a_query() -> None:
    """And it goes on to the caller."""
    told: list[str] = []
    several = SeveralObservers(Teller("a", told), Teller("b", told))
    with pytest.raises(EmbeddingError), several.query():
        raise EmbeddingError("no")
    assert told[2:] == ["b raised", "a raised"]


@pytest.mark.parametrize("broken", ["query", "left", "span", "end", "span left", "answered"])
def test_one_that_raises_harms_neither_the_query_nor_the_others(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    """The result is the same, the others count, and the error is logged, with one traceback."""
    metrics = Metrics()
    result = answer(SeveralObservers(Teller("a", [], broken), metrics))
    assert result.hits
    seen = metrics.snapshot()
    assert (seen.answered, seen.in_progress, seen.stages["dense"].calls) == (1, 0, 1)
    logged = [record for record in caplog.records if "Teller failed" in record.message]
    assert broken in logged[0].message
    assert sum(bool(record.exc_info) for record in logged) == 1


@pytest.mark.parametrize("error", [GeneratorExit(), SystemExit(3), KeyboardInterrupt(), UnspeakableError()])
def test_one_that_raises_what_nobody_expects(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """It harms nobody either: from synchronous code, a query is answered in a thread where nothing is Ctrl-C."""

    class Odd(Teller):
        def answered(self, result: RetrievalResult) -> None:
            raise error

    assert answer(Odd("a", [])).hits
    assert "Odd failed" in caplog.text


def test_one_alone_or_none_is_fine() -> None:
    """It then only keeps it from doing harm."""
    metrics = Metrics()
    assert answer(SeveralObservers(metrics)).hits == answer(SeveralObservers()).hits
    assert metrics.snapshot().answered == 1
