"""Holds retrieval on real collections against thresholds: ``python benchmarks/gate.py FOLDER_WITH_COLLECTIONS``.

Every figure comes from the command line that users have. The folder holds the BEIR collections ``scifact``,
``cranfield`` and ``limit_small``, a folder ``docs/argocd`` with that project's documentation, and ``files`` with
documents of many formats. Prints a table; ends with 1 if a figure is below its threshold. What costs minutes of
embedding (the documentation, SciFact and Cranfield by meaning) is measured with ``--all`` behind the folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrieval_core import open_index
from retrieval_core.evaluate import load_collection

if TYPE_CHECKING:
    from collections.abc import Iterator

IS_COMPLETE = "--all" in sys.argv
REGRESSION = 3
"""What ``retrieval suite`` ends with where less is found than before."""
ROLLBACK = "how do I roll back an application to an earlier revision"
ROLLBACK_COMMAND = "argocd app rollback APPNAME [ID]"


@dataclass(frozen=True)
class Check:
    """One figure and the least it has to be."""

    name: str
    figure: float
    threshold: float

    @property
    def holds(self) -> bool:
        """Whether the figure reaches the threshold."""
        return self.figure >= self.threshold


def retrieval(*arguments: str | Path, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Run the command, which has to end with one of some codes, and return its JSON."""
    command = [sys.executable, "-m", "retrieval_core.cli", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout)


def collections(data: Path) -> Iterator[Check]:
    """Yield nDCG@10 on the collections; the thresholds are what a plain program with the same model nearly reaches."""
    for name, mode, threshold in (
        *(
            (("scifact", "hybrid", 0.73), ("scifact", "dense", 0.70), ("cranfield", "hybrid", 0.42))
            if IS_COMPLETE
            else ()
        ),
        ("scifact", "lexical", 0.675),
        ("limit_small", "lexical", 0.99),
        ("limit_small", "hybrid", 0.97),
    ):
        preset = ("--config", "lexical") if mode == "lexical" else ("--mode", mode)
        figures = retrieval("evaluate", data / name, *preset)
        print(name, mode, figures, flush=True)
        yield Check(f"{name} {mode} nDCG@10", figures["ndcg@10"], threshold)


def documentation(data: Path, index: Path) -> Iterator[Check]:
    """Yield what a user of the documentation sees: the right passages, and a second run that costs next to nothing.

    Keyword search alone passes 35 of the 40 cases, the same ones in each run.
    """
    preset = () if IS_COMPLETE else ("--config", "lexical")
    pages = index.with_name("docs")
    pages.symlink_to((data / "docs" / "argocd").resolve())
    first = retrieval("index", pages, "--index", index, *preset)
    second = retrieval("index", pages, "--index", index, *preset)
    print("argocd", first, second, sep="\n", flush=True)
    yield Check("argocd: nothing failed", float(not first["failed"]), 1)
    yield Check("argocd: all unchanged in the second run", float(second["unchanged"] == first["documents"]), 1)
    if IS_COMPLETE:
        yield Check("argocd: first run / second run", first["seconds"] / second["seconds"], 10)
    hits = retrieval("search", ROLLBACK, "--top-k", "3", "--index", index, *preset)["hits"]
    found = [hit for hit in hits if ROLLBACK_COMMAND in hit["text"] and hit["source"] and hit["section_path"]]
    yield Check("argocd: how to roll back is told among the first three", len(found), 1)
    suite = Path(__file__).with_name("argocd.retrieval.yaml")
    report = retrieval("suite", "run", suite, "--index", index, *preset, codes=(0, 1))
    yield Check("argocd: cases that pass, of 40", report["passed"], 40 if IS_COMPLETE else 35)


def regression(data: Path, index: Path) -> Iterator[Check]:
    """Yield whether a suite notices that what single vectors cannot tell is searched for by vectors alone."""
    collection = load_collection(data / "limit_small")
    with open_index(index) as opened:
        opened.add_documents(collection.documents())
    cases = [
        {"name": name, "query": query, "expect": {"documents": sorted(collection.judgements[name])}, "top_k": 5}
        for name, query in collection.queries.items()
    ]
    suite, before = index.with_suffix(".retrieval.json"), index.with_suffix(".json")
    suite.write_text(
        json.dumps({"name": "limit", "criteria": dict.fromkeys(("found_in_first_five", "pass_rate")), "cases": cases})
    )
    code = subprocess.run(
        [sys.executable, "-m", "retrieval_core.cli", "suite", "run", suite, "--index", index, "--report", before],
        stdout=subprocess.DEVNULL, check=False,
    ).returncode  # fmt: skip
    after = index.with_name("after.json")
    retrieval("suite", "run", suite, "--index", index, "--mode", "dense", "--report", after, codes=(1,))
    compared = retrieval("suite", "compare", before, after, codes=(REGRESSION,))
    print(
        "limit_small, dense",
        {name: compared[name] for name in ("before", "after", "low", "high", "change")},
        flush=True,
    )
    yield Check("limit_small: dense alone is a regression", float(code <= 1 and compared["high"] < 0), 1)


def files(data: Path, index: Path) -> Iterator[Check]:
    """Yield whether files of many formats are read, with their pages."""
    report = retrieval("index", data / "files", "--index", index)
    print("files", report, flush=True)
    present = sum(1 for file in (data / "files").iterdir() if file.name != "SOURCE.md")
    yield Check("files: documents", report["documents"], present)
    yield Check("files: nothing failed", float(not report["failed"]), 1)
    hits = retrieval("search", "layout detection model zoo", "--index", index, "--top-k", "5")["hits"]
    paged = [hit for hit in hits if hit["source"].endswith("layout-parser-paper-with-table.pdf") and hit["page_span"]]
    yield Check("files: a hit in a PDF has its page", float(bool(paged)), 1)


def main() -> None:
    """Run all checks and print them."""
    data = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        checks = [
            *documentation(data, Path(folder, "docs.db")),
            *regression(data, Path(folder, "limit.db")),
            *files(data, Path(folder, "files.db")),
            *collections(data),
        ]
    for check in checks:
        print(f"{'ok  ' if check.holds else 'FAIL'} {check.name}: {check.figure:.4f} (at least {check.threshold})")
    held = sum(check.holds for check in checks)
    print(f"{held} passed, {len(checks) - held} failed")
    sys.exit(held != len(checks))


if __name__ == "__main__":
    main()
