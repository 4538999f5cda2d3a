"""nDCG@10 of other libraries and of this one on collections of yours, with the same vectors: one table.

FOLDER is a BEIR collection: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv``. A document is one passage, its
title in front of its text, cut where the model stops reading; every library gets the same passages, vectors and
questions, and has its own defaults otherwise. They have no common default for how many passages are asked of each side;
``--candidates`` says it, and where it has several numbers, a row has the one that is best for it. This library is
measured twice: over the same passages, and over documents that it cuts itself, as a user has it; the latter is what the
others are compared with. Vectors and results are kept, so that a second run measures only what has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

import retrieval_core
from benchmarks.collection import CANDIDATES, TOP_K, Mode, keep, passage
from benchmarks.environments import ROOT, cache_folder
from benchmarks.peers import OURS, PEERS
from benchmarks.report import Column, Report
from benchmarks.significance import interval
from benchmarks.systems import Asked, Systems, whole
from benchmarks.vectors import KeptVectors
from retrieval_core.evaluate import load_collection
from retrieval_core.evaluate.run import load_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from benchmarks.collection import Written
    from benchmarks.report import Cell
    from retrieval_core.evaluate import Collection as Judged
    from retrieval_core.types import Document

    Figures = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the table.

    Attributes:
        title: In the table.
        system: One of :data:`~benchmarks.peers.PEERS`.
        mode: How it is asked.
        candidates: Passages asked of each side, where the system has a number of its own.
    """

    title: str
    system: str
    mode: Mode = "hybrid"
    candidates: int | None = None

    def depths(self, asked: Sequence[int]) -> Sequence[int]:
        """Return how many passages each side is asked for, one number or several."""
        return asked if self.candidates is None else (self.candidates,)


ENTRIES = {
    "llamaindex-vectors": Entry("LlamaIndex, VectorStoreIndex", "llamaindex", "dense", TOP_K),
    "llamaindex-fusion": Entry("LlamaIndex, QueryFusionRetriever, ranks", "llamaindex"),
    "llamaindex-scores": Entry("LlamaIndex, QueryFusionRetriever, scores", "llamaindex-scores"),
    "langchain": Entry("LangChain, EnsembleRetriever", "langchain"),
    "haystack": Entry("Haystack, reciprocal rank fusion", "haystack"),
    "lancedb": Entry("LanceDB, hybrid", "lancedb"),
    "lancedb-linear": Entry("LanceDB, hybrid, linear combination", "lancedb-linear"),
    "txtai": Entry("txtai, hybrid", "txtai", candidates=10 * TOP_K),
    "plain": Entry("numpy + bm25s, ranks", "numpy-bm25s"),
    "plain-scores": Entry("numpy + bm25s, scores", "numpy-bm25s-scores"),
    "words": Entry(f"{OURS}, same passages, words", OURS, "lexical", 200),
    "meaning": Entry(f"{OURS}, same passages, meaning", OURS, "dense", 200),
    "both": Entry(f"{OURS}, same passages, both", OURS, candidates=200),
    "ours": Entry(OURS, "retrieval-core-documents", candidates=200),
    "reranked": Entry(f"{OURS}, reranked", "retrieval-core-reranked", candidates=200),
}
BASELINE = "ours"
BY_DEFAULT = [name for name in ENTRIES if name != "reranked"]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one system reached on one collection: for each question nDCG@10 and recall@10, and the milliseconds' p50."""

    ndcg: Figures
    recall: Figures
    p50: float


class Run:
    """The systems over one collection.

    Args:
        folder: The collection's.
        options: Of the command line.
        report: Where versions and failures are told.
    """

    def __init__(self, folder: Path, options: argparse.Namespace, report: Report) -> None:
        self._options = options
        self._report = report
        collection = load_collection(folder)
        count = min(options.questions or len(collection.queries), len(collection.queries))
        names = [*collection.queries]
        self._asked = {
            names[number * len(names) // count]: collection.queries[names[number * len(names) // count]]
            for number in range(count)
        }
        self._collection = collection
        files = (folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels/test.tsv")
        self._digest = digest([*(file.read_bytes() for file in files), json.dumps([*self._asked]).encode()])

    def measured(self, names: Iterable[str]) -> dict[tuple[str, int], Measured]:
        """Return the figures of entries at their depths, without those that failed."""
        wanted = [(name, depth) for name in names for depth in ENTRIES[name].depths(self._options.candidates)]
        for depth in sorted({depth for name, depth in wanted if not self._file(name, depth).exists()}):
            self._ask([name for name, own in wanted if own == depth and not self._file(name, own).exists()], depth)
        return {key: self._judged(self._file(*key)) for key in wanted if self._file(*key).exists()}

    def _file(self, name: str, depth: int) -> Path:
        entry = ENTRIES[name]
        made_of = [
            self._digest.encode(),
            json.dumps([entry.system, entry.mode, depth]).encode(),
            *sources(entry.system, self._options.set),
        ]
        return self._options.results / f"{name}-{depth}-{digest(made_of)}.json"

    def _ask(self, names: Sequence[str], depth: int) -> None:
        """Ask the systems, and keep what they found."""
        systems = list(dict.fromkeys(ENTRIES[name].system for name in names))
        before = len(self._report.notes)
        with TemporaryDirectory(prefix="benchmark-") as folder:
            collection = self._kept(Path(folder), depth)
            options = argparse.Namespace(**vars(self._options) | {"systems": systems})
            with Systems(options, collection, self._report) as running:
                ready = running.ready()
                modes: tuple[Mode, ...] = get_args(Mode)
                for mode in modes:
                    of_mode = {ENTRIES[name].system: name for name in names if ENTRIES[name].mode == mode}
                    asked = running.search(
                        [system for system in ready if system in of_mode], len(self._asked), mode=mode
                    )
                    for system, answers in asked.items():
                        versions = {package: self._report.versions[package] for package in PEERS[system].packages}
                        kept = {"versions": versions, **asdict(answers)}
                        self._file(of_mode[system], depth).write_text(json.dumps(kept), "utf-8")
        place = self._collection.corpus.parent.name
        self._report.notes[before:] = [f"{place}: {note}" for note in self._report.notes[before:]]

    def _kept(self, folder: Path, depth: int) -> Written:
        documents = [(document.title or "", document.text) for document in with_text(self._collection)]
        questions = [" ".join(text.split()) for text in self._asked.values()]
        embedder = KeptVectors(self._options.vectors)
        try:
            vectors = asyncio.run(embedder.embed_texts([passage(*document) for document in documents]))
            asked = asyncio.run(embedder.embed_queries(questions))
        finally:
            embedder.close()
        return keep(folder, documents, questions, vectors=vectors, question_vectors=asked, candidates=depth)

    def _judged(self, file: Path) -> Measured:
        kept: dict[str, Any] = json.loads(file.read_text("utf-8"))
        self._report.versions |= kept["versions"]
        answers = Asked(kept["milliseconds"], kept["found"])
        ndcg, recall = judged(self._collection, [*self._asked], answers.found)
        return Measured(ndcg, recall, answers.p50)


def with_text(collection: Judged) -> Iterator[Document]:
    """Yield the documents that are more than white space: not every library takes the others."""
    return (document for document in collection.documents() if document.text.strip())


def judged(collection: Judged, questions: Sequence[str], found: Sequence[Sequence[int]]) -> tuple[Figures, Figures]:
    """Return nDCG@10 and recall@10 of each question, whose documents are rows of those with text, best first."""
    library = load_library()
    rows = {document.id: f"{row}" for row, document in enumerate(with_text(collection))}
    grades = {
        f"{number}": {
            rows.get(name, f"without text: {name}"): max(grade, 0)
            for name, grade in collection.judgements[question].items()
        }
        for number, question in enumerate(questions)
    }
    run = {
        f"{number}": {f"{row}": -float(rank) for rank, row in enumerate(ranking[:TOP_K])}
        for number, ranking in enumerate(found)
    }
    measures = (library.nDCG @ TOP_K, library.R @ TOP_K)
    figures = {measure: np.zeros(len(questions)) for measure in measures}
    for item in library.iter_calc(measures, grades, run):
        figures[item.measure][int(item.query_id)] = item.value
    return figures[measures[0]], figures[measures[1]]


def digest(parts: Iterable[bytes]) -> str:
    """Return a digest of several things in their order."""
    made = hashlib.sha256()
    for part in parts:
        made.update(hashlib.sha256(part).digest())
    return made.hexdigest()[:16]


def sources(system: str, settings: Sequence[str]) -> list[bytes]:
    """Return what a system's results depend on beside the collection: its module, its versions, and our own code."""
    peer = PEERS[system]
    files = [ROOT / "benchmarks/peers" / f"{peer.module}{ending}" for ending in (".py", ".txt")]
    made_of = [file.read_bytes() for file in files if file.exists()]
    if system.startswith(OURS):
        package = Path(retrieval_core.__file__).parent
        made_of += [file.read_bytes() for file in sorted(package.rglob("*.py"))]
        made_of.append(json.dumps(sorted(settings)).encode())
    return made_of


def rows_of(
    measured: Mapping[str, Mapping[tuple[str, int], Measured]], names: Sequence[str], candidates: Sequence[int]
) -> list[dict[str, Cell]]:
    """Return the table's rows, an entry each.

    Args:
        measured: By collection.
        names: The entries, in their order.
        candidates: Passages asked of each side; of several numbers, a row has the one that is best for it.
    """
    collections = [*measured]
    best: dict[str, tuple[str, int]] = {}
    for name in names:
        keys = [(name, depth) for depth in ENTRIES[name].depths(candidates)]
        if everywhere := [key for key in keys if all(key in measured[one] for one in collections)]:
            best[name] = max(everywhere, key=lambda key: fmean(measured[one][key].ndcg.mean() for one in collections))
    rows: list[dict[str, Cell]] = []
    for name, key in best.items():
        own = [measured[one][key] for one in collections]
        row: dict[str, Cell] = {
            "collections": len(collections),
            "system": ENTRIES[name].title + (f", {key[1]} a side" if len(ENTRIES[name].depths(candidates)) > 1 else ""),
            "ndcg": fmean(one.ndcg.mean() for one in own),
            "recall": fmean(one.recall.mean() for one in own),
            "p50": fmean(one.p50 for one in own),
        }
        if name != BASELINE and BASELINE in best:
            ours = [measured[one][best[BASELINE]] for one in collections]
            differences = [mine.ndcg - other.ndcg for mine, other in zip(ours, own, strict=True)]
            low, high = interval(*differences)
            row |= {"difference": fmean(part.mean() for part in differences), "low": low, "high": high}
            row["compared"] = f"{row['difference']:+.3f} ({low:+.3f} to {high:+.3f})"
        for collection, one in zip(collections, own, strict=True):
            row |= {
                collection: float(one.ndcg.mean()),
                f"{collection}, recall": float(one.recall.mean()),
                f"{collection}, p50": one.p50,
            }
        rows.append(row)
    return rows


def arguments() -> argparse.ArgumentParser:
    """Return the options."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks quality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cache = cache_folder()
    made.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a collection")
    made.add_argument(
        "--systems", nargs="+", default=BY_DEFAULT, choices=[*ENTRIES], metavar="NAME", help=f"of: {', '.join(ENTRIES)}"
    )
    made.add_argument(
        "--candidates", type=whole(TOP_K), nargs="+", default=[CANDIDATES], metavar="N", help="asked of each side"
    )
    made.add_argument("--questions", type=whole(1), metavar="N", help="so many of each collection, evenly spread")
    made.add_argument(
        "--vectors", type=Path, default=cache / "vectors", metavar="FOLDER", help="where vectors are kept"
    )
    made.add_argument(
        "--results", type=Path, default=cache / "results", metavar="FOLDER", help="where results are kept"
    )
    made.add_argument(
        "--environments", type=Path, default=cache, metavar="FOLDER", help="where the peers are installed, once"
    )
    made.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of ours")
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    made.add_argument("--svg", type=Path, metavar="FILE", help="also draw the means as SVG")
    return made


def main(argv: Sequence[str]) -> int:
    """Measure each collection, and return the exit code."""
    options = arguments().parse_args(argv)
    options.results.mkdir(parents=True, exist_ok=True)
    settings = {"questions": options.questions, "top_k": TOP_K, "candidates": options.candidates, "set": options.set}
    names = [folder.resolve().name for folder in options.folders]
    columns = (
        Column("system", "system"),
        Column("ndcg", "mean nDCG@10"),
        Column("compared", f"{OURS} above it (95 %)"),
        Column("recall", "mean recall@10"),
        Column("p50", "p50, ms"),
        *(Column(name, name) for name in names),
    )
    report = Report("Quality", "nDCG@10 with the same vectors", columns, "collections", "system", "ndcg", settings)
    measured: dict[str, dict[tuple[str, int], Measured]] = {}
    for name, folder in zip(names, options.folders, strict=True):
        print(name, file=sys.stderr, flush=True)
        measured[name] = Run(folder, options, report).measured(options.systems)
    report.rows += rows_of(measured, options.systems, options.candidates)
    return report.give(options)
