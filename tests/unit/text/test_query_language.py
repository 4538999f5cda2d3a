from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Any

import chardet
import pytest

from retrieval_core.text.query import is_of_another_language


def test_threads_never_load_the_language_detector_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, detect = Lock(), chardet.detect

    def alone(text: bytes) -> Any:
        assert inside.acquire(blocking=False), "two threads are in the detector"
        try:
            return detect(text)
        finally:
            inside.release()

    monkeypatch.setattr(chardet, "detect", alone)
    together = Barrier(4)

    def ask(number: int) -> bool:
        together.wait()
        german = f"Wie lade ich die Datei {number} hoch und warum ist sie größer"
        return is_of_another_language(german, [f"The pump is in the tank and the valve of number {number} is closed."])

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(4))) == [True] * 4
