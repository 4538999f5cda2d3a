"""Killing processes in the middle of their writes, and telling how many of the kills hit one.

``KILLS=200`` in the environment makes the tests that use this kill so often, and ``pytest -rA`` shows what was hit.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

PATIENCE = 300.0
"""Seconds after which a process that says nothing is taken to hang; none needs a tenth of it."""


def kills(usual: int) -> int:
    """Return how often to kill: a handful in an ordinary run."""
    return int(os.environ.get("KILLS", usual))


@dataclass
class Tally:
    """What the kills of one test hit.

    Attributes:
        between: Came while nothing was being written.
        undone: Came in the middle of a write, which is as if it had never been.
        kept: Came in the middle of a write, or before it could be acknowledged, and it is there.
    """

    between: int = 0
    undone: int = 0
    kept: int = 0

    def count(self, killed: Killed, *, there: bool) -> None:
        """Count a kill.

        Args:
            there: Whether the write that was under way is in the index.
        """
        if killed.under_way is None:
            self.between += 1
        elif there:
            self.kept += 1
        else:
            self.undone += 1


@dataclass(frozen=True)
class Killed:
    """Where a process was when it was killed.

    Attributes:
        acknowledged: The number of its last write that it said was done.
        under_way: That of the one that it had begun.
    """

    acknowledged: int
    under_way: int | None


@dataclass
class Writer:
    """A process that says ``begin 7`` before it writes number 7, and ``done 7`` after it."""

    code: str
    arguments: tuple[object, ...]
    _lines: list[str] = field(default_factory=list[str])
    _rest: bytes = b""
    _seen: int = 0
    _out: int = -1

    def killed_in_a_write(self, generator: Random, after: int) -> Killed:
        """Start it, and kill it in the midst of a write that follows some others; return where it was.

        It is killed at a moment drawn from the time that a write takes, or sooner if the write is done before that.
        """
        command = [sys.executable, "-c", self.code, *map(str, self.arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
        assert process.stdout is not None
        self._out = process.stdout.fileno()
        with process:
            try:
                lasted = 0.0
                for _ in range(after):
                    self._until("begin")
                    begun = perf_counter()
                    self._until("done")
                    lasted = perf_counter() - begun
                self._until("begin")
                select.select([self._out], [], [], generator.uniform(0, lasted))
            finally:
                process.kill()
            while self._read():
                pass
        acknowledged, begun_last = self._last("done"), self._last("begin")
        return Killed(acknowledged, begun_last if begun_last > acknowledged else None)

    def _last(self, word: str) -> int:
        return max(int(line.split()[1]) for line in self._lines if line.startswith(word))

    def _until(self, word: str) -> None:
        """Read on to the next line that begins with a word."""
        while True:
            while self._seen < len(self._lines):
                self._seen += 1
                if self._lines[self._seen - 1].startswith(word):
                    return
            assert self._read(), "the process ended by itself"

    def _read(self) -> bool:
        assert select.select([self._out], [], [], PATIENCE)[0], "the process hangs"
        data = os.read(self._out, 65536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines += [line.decode() for line in lines]
        return bool(data)
