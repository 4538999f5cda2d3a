"""Several systems over one collection, asked in turns."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.environments import PeerError, Running, cache_folder, interpreter
from benchmarks.peers import OURS, PEERS
from benchmarks.reference import exact

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from benchmarks.collection import Collection, Mode
    from benchmarks.report import Report

BLOCK = 10
"""Questions that one system is asked before it is another one's turn."""


def parser(command: str, description: str, systems: Sequence[str], passages: Sequence[int]) -> argparse.ArgumentParser:
    """Return the options that all benchmarks of searching have."""
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks {command}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    made.add_argument("--passages", type=int, nargs="+", default=list(passages), metavar="N", help="sizes to measure")
    made.add_argument(
        "--systems",
        nargs="+",
        default=list(systems),
        choices=list(PEERS),
        metavar="NAME",
        help=f"of: {', '.join(PEERS)}",
    )
    made.add_argument(
        "--environments",
        type=Path,
        default=cache_folder(),
        metavar="FOLDER",
        help="where the peers are installed, once",
    )
    made.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of ours, such as store.kind=lancedb"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    made.add_argument("--svg", type=Path, metavar="FILE", help="also draw the figures as SVG")
    return made


class Systems:
    """The systems of one run over one collection. One that fails is noted in the report, and left out from then on."""

    def __init__(self, options: argparse.Namespace, collection: Collection, report: Report) -> None:
        self._options = options
        self._collection = collection
        self._report = report
        self._stack = ExitStack()
        self._processes: dict[str, Running] = {}
        self._lost: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    @property
    def wanted(self) -> list[str]:
        """Those that make sense with so many passages, and have not failed."""
        passages = len(self._collection)
        return [name for name in self._options.systems if PEERS[name].takes(passages) and name not in self._lost]

    def start(self, name: str) -> bool:
        """Run one in a new process, until the end or :meth:`stop`; return whether it could be."""
        print(f"{name}: {len(self._collection):,} passages", file=sys.stderr, flush=True)
        settings = dict(pair.partition("=")[::2] for pair in self._options.set) if name.startswith(OURS) else {}
        try:
            python = interpreter(name, self._options.environments)
            process = Running(name, python, self._collection, settings)
        except PeerError as error:
            self._lose(name, error)
            return False
        self._stack.callback(process.end)
        self._processes[name] = process
        self._report.versions |= process.versions
        return True

    def ready(self) -> list[str]:
        """Start all, have them load the passages and open what they loaded; return those that did."""
        return [
            name
            for name in self.wanted
            if self.start(name) and self.ask(name, "load") is not None and self.ask(name, "open") is not None
        ]

    def ask(self, name: str, do: str, **arguments: Any) -> dict[str, Any] | None:
        """Ask one; ``None`` if it fails."""
        try:
            return self._processes[name].ask(do, **arguments)
        except PeerError as error:
            self._lose(name, error)
            return None

    def search(
        self, names: Sequence[str], questions: int, share: str | None = None, mode: Mode = "hybrid"
    ) -> dict[str, tuple[list[float], list[list[int]]]]:
        """Ask all the first questions, in turns; return milliseconds and rows of each system."""
        asked: dict[str, tuple[list[float], list[list[int]]]] = {name: ([], []) for name in names}
        # Each is asked a few others before, so that nothing is measured that happens once.
        blocks = [range(questions, questions + BLOCK)]
        blocks += [range(start, min(start + BLOCK, questions)) for start in range(0, questions, BLOCK)]
        for turn, block in enumerate(blocks):
            first = turn % (len(asked) or 1)
            order = list(asked)
            for name in (*order[first:], *order[:first]):
                answer = self.ask(name, "search", numbers=list(block), share=share, mode=mode)
                if answer is None:
                    del asked[name]
                elif turn:
                    asked[name][0].extend(answer["milliseconds"])
                    asked[name][1].extend(answer["found"])
        return asked

    def recall(
        self, found: dict[str, tuple[list[float], list[list[int]]]], share: Any = None, mode: Mode = "hybrid"
    ) -> dict[str, float]:
        """Return each system's mean recall@10 against an exact search."""
        questions = max((len(rows) for _, rows in found.values()), default=0)
        best = exact(self._collection, questions, share)
        return {
            name: sum(
                reference.recall(own, PEERS[name].fusion if mode == "hybrid" else None)
                for reference, own in zip(best, rows, strict=True)
            )
            / len(rows)
            for name, (_, rows) in found.items()
        }

    def stop(self, name: str) -> None:
        """End one's process, so that another one can open what it wrote."""
        self._processes.pop(name).end()

    def _lose(self, name: str, error: PeerError) -> None:
        self._lost.add(name)
        self._report.notes.append(f"{PEERS[name].title} with {len(self._collection):,} passages: {error}")
        print(error, file=sys.stderr, flush=True)
