"""Each part of a pipeline dead in turn, in each way: what becomes of a query, and what its result says of it.

``python tests/support/degradation_table.py`` prints the table.

The clock moves only where a part hangs: that part lets time pass until somebody ends it. Waits between attempts are 0.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __package__:  # run by itself
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from retrieval_core.types import Answer
from support.degradation_parts import (
    DEADLINE,
    FAULTS,
    HANGS,
    IN_THREADS,
    MAX_RETRIES,
    MISBEHAVIOUR,
    NOTE,
    QUESTION,
    World,
    answering_pipeline,
    the_pipeline,
    three_indexes,
)

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator

    from retrieval_core.types import RetrievalResult

HISTORY = ({"role": "user", "content": "what is an application?"}, {"role": "assistant", "content": "A program."})
STORE = ("dense", "lexical", "fetch", "version")
MODEL = ("condense", "keywords", "decompose", "hyde", "rerank", "relevance", "rewrite")
OTHERS = ("embedder", "notes", "second reranker", "prune", "cache")
PARTS = {
    "embedder": ("embedder",),
    "embedder, mode dense": ("embedder",),
    "search by meaning": ("dense",),
    "search by words": ("lexical",),
    "reading the passages": ("fetch",),
    "store": STORE,
    "condenser": ("condense",),
    "one transformer": ("hyde",),
    "all transformers": ("keywords", "decompose", "hyde"),
    "further retriever": ("notes",),
    "first reranker": ("rerank",),
    "all rerankers": ("rerank", "second reranker"),
    "relevance filter": ("relevance",),
    "pruner": ("prune",),
    "rewriter": ("rewrite",),
    "cache": ("cache",),
    "language model": MODEL,
    "everything": (*STORE, *MODEL, *OTHERS),
    "one index of three": tuple(f"b {part}" for part in (*STORE, "embedder")),
    "embedder of one index of three": ("b embedder",),
    "language model, three indexes": ("rerank", "relevance", "rewrite"),
    "all three indexes": tuple(f"{name} {part}" for name in "abc" for part in (*STORE, "embedder")),
}
"""What is dead, by the name of the row."""
OTHER_PORTS = {
    "language model of answers": ("writer",),
    "verifier": ("verifier",),
    "evaluator": ("evaluator",),
    "token counter": ("token counter",),
    "observer": ("observer",),
}
"""What only answers, contexts and those who watch have."""
PORTS = (
    *("embedder", "search by meaning", "search by words", "reading the passages", "store", "condenser"),
    *("one transformer", "further retriever", "first reranker", "relevance filter", "pruner", "rewriter", "cache"),
    *("everything", "one index of three", *OTHER_PORTS),
)
"""The rows of the table of plug-ins that misbehave."""
NEVER_IN_THREADS = frozenset({"language model of answers", "observer"})
"""Parts that run on the event loop, whatever they are."""
ALL_PARTS = PARTS | OTHER_PORTS
WITH_HISTORY = frozenset({"condenser", "language model", "everything"})
WITH_REWRITER_ALONE = frozenset({"rewriter"})


@dataclass(frozen=True, slots=True)
class Cell:
    """What became of one query; its result, or what it raised.

    Attributes:
        asked: How often each part was called.
        seconds: On the clock.
    """

    part: str
    fault: str
    result: RetrievalResult | Answer | None
    error: Exception | None
    asked: Counter[str]
    seconds: float

    @property
    def attempts(self) -> int:
        """Calls of the parts that are dead."""
        return sum(self.asked[part] for part in ALL_PARTS[self.part])

    @property
    def outcome(self) -> str:
        """``passages`` of the index, those of the further ``retriever`` alone, ``nothing``, or ``raises``.

        For an answer its kind.
        """
        if self.result is None:
            return "raises"
        if isinstance(self.result, Answer):
            return self.result.kind
        found = {hit.id for hit in self.result.hits}
        return "passages" if found - {NOTE.id} else "retriever" if found else "nothing"

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that were done without, each once, in alphabetical order."""
        return () if self.result is None else tuple(sorted({item.stage for item in self.result.degraded}))

    @property
    def said(self) -> str:
        """What a user reads of it."""
        if self.result is None:
            return f"{type(self.error).__name__}: {self.error}"
        return "; ".join(f"{item.stage}: {item.reason}" for item in self.result.degraded)


def run_cell(part: str, fault: str, *, rewriter: bool, **more: Any) -> Cell:
    """Ask one question while a part is dead. An error that is not foreseen is part of the cell too."""
    return asyncio.run(_run_cell(part, fault, rewriter=rewriter, **more))


async def _run_cell(part: str, fault: str, *, rewriter: bool, **more: Any) -> Cell:
    world = World(ALL_PARTS[part] if fault else (), fault)
    several = "index" in part
    result, error = None, None
    options: dict[str, Any] = {"history": HISTORY} if part in WITH_HISTORY and not several else {}
    if "mode dense" in part:
        options["mode"] = "dense"
    if part in OTHER_PORTS:
        asked = await answering_pipeline(world, observer=part == "observer", evaluator=part == "evaluator")
    else:
        make = three_indexes if several else the_pipeline
        asked = await make(world, rewriter=rewriter or part in WITH_REWRITER_ALONE, **more)
    try:
        async with world.passing_time():
            if part in OTHER_PORTS and part != "evaluator":
                result = await asked.aanswer(QUESTION, verify=True)
            else:
                result = await asked.aretrieve(QUESTION, **options)
    except Exception as caught:  # noqa: BLE001 - which errors there may be is what is tested
        error = caught
    calls, seconds = world.asked.copy(), world.clock.now()
    await asked.aclose()
    return Cell(part, fault, result, error, calls, seconds)


def all_cells() -> Iterator[tuple[str, str]]:
    """Yield part and fault of every row of the documented table."""
    for part in PARTS:
        for fault in FAULTS:
            yield part, fault


def misbehaving() -> Iterator[tuple[str, str]]:
    """Yield part and fault of every row of the table of plug-ins that misbehave.

    An observer is called, and not awaited: what hangs there blocks the event loop, where no clock can be moved.
    """
    for part in PORTS:
        for fault in (*FAULTS, *MISBEHAVIOUR) if part in OTHER_PORTS else MISBEHAVIOUR:
            if not (part in NEVER_IN_THREADS and fault in IN_THREADS) and (part, fault) != ("observer", HANGS):
                yield part, fault


def rendered(cells: Iterable[Cell]) -> str:
    """Return the table as text."""
    heads = ("part", "fault", "outcome", "calls", "s", "listed or raised")
    rows = [
        (cell.part, cell.fault, cell.outcome, str(cell.attempts), f"{cell.seconds:.1f}", _short(cell.said))
        for cell in cells
    ]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in (heads, *rows))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 150 else f"{line[:149]}…"


def main() -> None:
    """Print the table, without a rewriter and with one."""
    logging.getLogger("retrieval_core").addHandler(logging.NullHandler())
    for rewriter in (False, True):
        title = f"deadline {DEADLINE:g} s, max_retries {MAX_RETRIES}, {'a' if rewriter else 'no'} rewriter"
        cells = [run_cell(part, fault, rewriter=rewriter) for part, fault in all_cells()]
        sys.stdout.write(f"{title}\n{rendered(cells)}\n")
    cells = [run_cell(part, fault, rewriter=False) for part, fault in misbehaving()]
    sys.stdout.write(f"deadline {DEADLINE:g} s, plug-ins that misbehave\n{rendered(cells)}\n")


if __name__ == "__main__":
    main()
