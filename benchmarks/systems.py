"""Several systems over one collection, asked in turns."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.collection import CANDIDATES, FILTERS, MadeUp
from benchmarks.environments import PeerError, Running, cache_folder, interpreter
from benchmarks.peers import OURS, PEERS
from benchmarks.reference import exact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from benchmarks.collection import Collection, Mode
    from benchmarks.report import Cell, Report

BLOCK = 10
"""Questions that one system is asked before it is another one's turn."""


def whole(least: int) -> Callable[[str], int]:
    """Return what reads a whole number of an option."""

    def read(text: str) -> int:
        number = int(text.replace("_", "").replace(",", ""))
        if number < least:
            msg = f"{number} is too few: at least {least}"
            raise argparse.ArgumentTypeError(msg)
        return number

    return read


def parser(command: str, description: str, systems: Sequence[str], passages: Sequence[int]) -> argparse.ArgumentParser:
    """Return the options that all benchmarks of searching have."""
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks {command}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    choices = [name for name, peer in PEERS.items() if not peer.documents]
    made.add_argument(
        "--passages", type=whole(CANDIDATES), nargs="+", default=list(passages), metavar="N", help="sizes to measure"
    )
    made.add_argument(
        "--systems",
        nargs="+",
        default=list(systems),
        choices=choices,
        metavar="NAME",
        help=f"of: {', '.join(choices)}",
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


@dataclass(slots=True)
class Asked:
    """What came of questions: milliseconds and rows of each, and the processor seconds of all."""

    milliseconds: list[float] = field(default_factory=list[float])
    found: list[list[int]] = field(default_factory=list[list[int]])
    processor: float = 0.0

    @property
    def p50(self) -> float:
        """The median of the milliseconds."""
        return median(self.milliseconds)

    @property
    def p95(self) -> float:
        """What 95 % of the milliseconds are below."""
        return percentile_95(self.milliseconds)

    @property
    def processor_milliseconds(self) -> float:
        """The processor time of a question, which hardly depends on what else the machine does."""
        return 1000 * self.processor / len(self.milliseconds)


def percentile_95(milliseconds: Sequence[float]) -> float:
    """Return what 95 % are below."""
    return float(np.percentile(milliseconds, 95))


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
        return [name for name in self._options.systems if passages >= PEERS[name].least and name not in self._lost]

    def start(self, name: str) -> bool:
        """Run one in a new process, until the end or :meth:`stop`; return whether it could be."""
        print(f"{name}: {len(self._collection):,} passages", file=sys.stderr, flush=True)
        settings = dict(pair.partition("=")[::2] for pair in self._options.set) if name.startswith(OURS) else {}
        if PEERS[name].documents:
            settings["vectors"] = str(self._options.vectors)
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
    ) -> dict[str, Asked]:
        """Ask all the first questions, in turns, and return what came of it by system."""
        asked = {name: Asked() for name in names}
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
                    asked[name].milliseconds.extend(answer["milliseconds"])
                    asked[name].found.extend(answer["found"])
                    asked[name].processor += answer["processor"]
        return asked

    def filtered(self, names: Iterable[str], questions: int) -> dict[str, dict[str, Cell]]:
        """Ask those that filter with each filter; return cells of p50, processor time and recall, by system."""
        cells: dict[str, dict[str, Cell]] = {name: {} for name in names if PEERS[name].filters}
        for share in FILTERS:
            asked = self.search([*cells], questions, share)
            recall = self.recall(asked, share)
            for name, answers in asked.items():
                cells[name] |= {f"p50, {share}": answers.p50, f"recall, {share}": recall[name]}
                cells[name][f"processor, {share}"] = answers.processor_milliseconds
        return cells

    def recall(self, asked: Mapping[str, Asked], share: str | None = None, mode: Mode = "hybrid") -> dict[str, float]:
        """Return each system's mean recall@10 against an exact search, in a collection that is made up."""
        assert isinstance(self._collection, MadeUp)
        questions = max((len(answers.found) for answers in asked.values()), default=0)
        best = exact(self._collection, questions, None if share is None else FILTERS[share])
        recall: dict[str, float] = {}
        for name, answers in asked.items():
            fusion = PEERS[name].fusion if mode == "hybrid" else None
            recall[name] = fmean(one.recall(rows, fusion) for one, rows in zip(best, answers.found, strict=True))
        return recall

    def stop(self, name: str) -> None:
        """End one's process, so that another one can open what it wrote."""
        self._processes.pop(name).end()

    def _lose(self, name: str, error: PeerError) -> None:
        self._lost.add(name)
        self._report.notes.append(f"{PEERS[name].title} with {len(self._collection):,} passages: {error}")
        print(error, file=sys.stderr, flush=True)
