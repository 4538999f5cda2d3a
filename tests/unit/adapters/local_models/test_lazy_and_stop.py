from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from retrieval_core.adapters.local_models.work import StopSignal
from retrieval_core.run.caching import Lazy


def test_made_once_under_concurrency() -> None:
    """However many threads ask at once, the value is made once and all get the same one."""
    made: list[object] = []
    together = threading.Barrier(8)

    def make() -> object:
        made.append(object())
        return made[-1]

    lazy = Lazy(make)

    def ask(_: int) -> object:
        together.wait(30)
        return lazy.get()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == set(made)
    assert len(made) == 1


def test_a_failure_is_not_kept() -> None:
    """When making the value fails, the next call tries again; ``None`` is a value like any other."""
    outcomes = [OSError("not yet"), None]

    def make() -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    lazy = Lazy(make)
    with pytest.raises(OSError, match="not yet"):
        lazy.get()
    assert lazy.get() is None
    assert lazy.get() is None


def test_begun_in_a_thread_it_is_made_once() -> None:
    """Whoever asks while a thread makes the value waits for it."""
    may_end = threading.Event()
    made: list[int] = []

    def make() -> int:
        assert may_end.wait(30)
        made.append(threading.get_ident())
        return len(made)

    lazy = Lazy(make)
    lazy.begin()
    assert lazy.made is None
    may_end.set()
    assert lazy.get() == 1
    assert made != [threading.get_ident()]


def test_a_failure_of_what_was_begun_is_met_by_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread says nothing of it."""
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    lazy = Lazy(lambda: 1 / 0)
    lazy.begin()
    with pytest.raises(ZeroDivisionError):
        lazy.get()
    for thread in threading.enumerate():
        if thread.name == "lazy":
            thread.join(30)
    assert failures == []


def test_a_signal_reaches_what_runs() -> None:
    """Sent while the work runs, the signal interrupts it, once."""
    calls: list[str] = []
    stop = StopSignal()
    with stop.reaching(lambda: calls.append("interrupted")):
        assert calls == []
        stop.send()
        assert calls == ["interrupted"]
    stop.send()
    assert calls == ["interrupted"]


def test_a_signal_reaches_what_begins_later() -> None:
    """Sent before the work begins, the signal interrupts it at once."""
    calls: list[str] = []
    stop = StopSignal()
    stop.send()
    with stop.reaching(lambda: calls.append("interrupted")):
        assert calls == ["interrupted"]
