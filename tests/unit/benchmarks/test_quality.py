"""Quality beside other libraries: what was found is judged, kept, and told in one table; here of this library alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("ir_measures")
pytest.importorskip("onnxruntime")

from benchmarks import __main__ as command
from benchmarks import quality
from benchmarks.collection import Written, keep, opened, passage
from benchmarks.quality import BASELINE, ENTRIES, Measured, judged, rows_of
from benchmarks.vectors import KeptVectors

from retrieval_core.evaluate import load_collection

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BIRDS = (
    "kestrel",
    "heron",
    "wren",
    "plover",
    "swift",
    "dunnock",
    "siskin",
    "garganey",
    "avocet",
    "bittern",
    "smew",
    "rook",
)
OURS = ("words", "meaning", "both", "ours")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A collection in which every question names its bird; one has two relevant documents."""
    place = tmp_path / "birds"
    (place / "qrels").mkdir(parents=True)
    corpus = [
        {"_id": bird, "title": bird, "text": f"The {bird} lives on lake number {n}."} for n, bird in enumerate(BIRDS)
    ]
    queries = [{"_id": f"q{number}", "text": f"where  does the {bird} live?"} for number, bird in enumerate(BIRDS)]
    judgements = [f"q{number}\t{bird}\t1" for number, bird in enumerate(BIRDS)] + ["q0\theron\t3", "q1\twren\t-1"]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (place / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judgements]) + "\n", "utf-8")
    return place


def _run(folder: Path, *more: str) -> dict[str, dict[str, Any]]:
    """Run the command and return its rows by system."""
    file = folder.parent / "figures.json"
    places = [part for name in ("vectors", "results") for part in (f"--{name}", str(folder.parent / name))]
    assert command.main(["quality", str(folder), *places, "--json", str(file), *more]) == 0
    return {row["system"]: row for row in json.loads(file.read_text("utf-8"))["rows"]}


@pytest.mark.slow
@pytest.mark.model
def test_one_table_of_all_and_a_second_run_measures_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results are kept by what they were made of: other settings of ours are measured anew, and need no embedding."""
    first = _run(folder, "--systems", *OURS, "--svg", str(folder.parent / "figures.svg"))
    assert [*first] == [ENTRIES[name].title for name in OURS]
    assert all(
        row["recall"] == 1 and 0.9 < row["ndcg"] == row["birds"] <= 1 and row["p50"] > 0 for row in first.values()
    )
    assert "compared" not in first[ENTRIES[BASELINE].title]
    assert first[ENTRIES["words"].title]["low"] <= first[ENTRIES["words"].title]["high"]
    assert "| retrieval-core |" in capsys.readouterr().out
    assert "retrieval-core, same passages, words" in (folder.parent / "figures.svg").read_text("utf-8")

    def embed(*_: object) -> None:
        pytest.fail("a vector was kept and is embedded again")

    monkeypatch.setattr(KeptVectors, "_write", embed)
    again = _run(folder, "--systems", "both", "--set", "search.dense_weight=0.9")
    assert [*again] == [ENTRIES["both"].title]
    monkeypatch.setattr(quality, "Systems", embed)
    assert _run(folder, "--systems", *OURS) == first


@pytest.mark.model
def test_some_questions_are_spread_over_all(folder: Path) -> None:
    """With another number of them nothing that was kept is taken for it."""
    whole, part = (_run(folder, "--systems", "words", *more) for more in ((), ("--questions", "4")))
    assert whole.keys() == part.keys()
    assert len(list((folder.parent / "results").iterdir())) == 2


def test_rankings_are_judged_by_rows(folder: Path) -> None:
    """Grades below 0 count as 0, and what found nothing counts as 0."""
    collection = load_collection(folder)
    ndcg, recall = judged(collection, ["q0", "q1", "q2"], [[1, 0], [2, 5, 1], []])
    best = 3 + 1 / np.log2(3)
    assert ndcg == pytest.approx([1, 1 / 2, 0])
    assert recall == pytest.approx([1, 1, 0])
    assert judged(collection, ["q0"], [[0, 1]])[0] == pytest.approx([(1 + 3 / np.log2(3)) / best])


def test_each_row_has_its_best_depth_and_is_compared() -> None:
    """What failed on one collection has no row."""

    def figures(*values: float) -> Measured:
        return Measured(np.array(values), np.array(values), 5)

    measured: Mapping[str, dict[tuple[str, int], Measured]] = {
        "one": {
            ("haystack", 10): figures(0.1, 0.3),
            ("haystack", 50): figures(0.3, 0.5),
            ("ours", 200): figures(0.5, 0.7),
        },
        "two": {("haystack", 10): figures(0.6), ("haystack", 50): figures(0.2), ("ours", 200): figures(0.7)},
    }
    measured["one"]["txtai", 100] = figures(1, 1)
    haystack, ours = rows_of(measured, ["haystack", "txtai", "ours"], (10, 50))
    assert (haystack["system"], ours["system"]) == ("Haystack, reciprocal rank fusion, 10 a side", "retrieval-core")
    assert (haystack["ndcg"], haystack["two"], haystack["difference"]) == pytest.approx((0.4, 0.6, 0.25))
    assert rows_of(measured, ["haystack"], (50,))[0]["system"] == "Haystack, reciprocal rank fusion"
    assert haystack["compared"] == "+0.250 (+0.250 to +0.250)"


def test_what_was_written_is_read_as_it_was(tmp_path: Path) -> None:
    """A title stands in front, and no side is asked for more passages than there are."""
    documents = [("Birds", "A wren."), ("", "A rook.")]
    vectors = np.eye(2, 3, dtype=np.float32)
    kept = keep(tmp_path, documents, ["rook?"], vectors=vectors, question_vectors=vectors[:1], candidates=50)
    again = opened(tmp_path)
    assert isinstance(again, Written)
    assert (again.documents, again.texts(0, 1), again.texts()) == (documents, ["Birds\nA wren."], kept.texts())
    assert (len(again), again.dimension, again.candidates, again.question(3).text) == (2, 3, 2, "rook?")
    assert passage("", "A rook.") == again.texts(1)[0]
