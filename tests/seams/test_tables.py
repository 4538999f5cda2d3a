"""Tables as people export them: a longer row, or a header with gaps, costs nothing else of the file."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Index, RetrievalConfig, open_index
from support.processes import RETRIEVAL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = RetrievalConfig.model_validate({"store": {"kind": "memory"}, "embedder": {"kind": "none"}})


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """An empty index beside the files."""
    with open_index(tmp_path / "index.db", config=CONFIG) as opened:
        yield opened


def rows_read(index: Index, count: int) -> list[tuple[str, dict[str, Any]]]:
    documents = [index.document(f"a.csv#{number}") for number in range(1, count + 1)]
    return [(document.text, dict(document.metadata)) for document in documents if document is not None]


@pytest.mark.parametrize("isolated", [False, True])
def test_a_longer_row_is_kept_with_its_cells(tmp_path: Path, index: Index, isolated: bool) -> None:
    """All rows are documents; the cells beyond the header are metadata of their row, and reported once."""
    rows = [f"a kettle of {number} litres,{number}" for number in range(1, 40)]
    rows[6] = "a kettle, red,7,new"
    (tmp_path / "a.csv").write_text("\n".join(["text,price", *rows]))
    report = index.ingest(tmp_path, isolated=isolated)
    assert (report.failed, report.added) == ((), 39)
    read = rows_read(index, 39)
    assert read[0] == ("a kettle of 1 litres", {"price": "1"})
    assert read[6] == ("a kettle", {"price": " red", "column 3": 7, "column 4": "new"})
    longer, _ = report.notes
    assert longer.path == str(tmp_path / "a.csv")
    assert "line 8 has 4 instead of 2" in longer.message
    assert "'column 3', 'column 4'" in longer.message


def test_delimiters_at_the_ends_of_rows_are_no_cells(tmp_path: Path, index: Index) -> None:
    """Some programs end each row with one, and there is nothing to report."""
    (tmp_path / "a.csv").write_text("text;price\na kettle;1;\na pan;2;;\n")
    report = index.ingest(tmp_path)
    assert (report.failed, report.notes) == ((), ())
    assert rows_read(index, 2) == [("a kettle", {"price": 1}), ("a pan", {"price": 2})]


def test_empty_and_repeated_names_of_columns_are_replaced(tmp_path: Path, index: Index) -> None:
    """The first column of a name keeps it; an unnamed column is named after its position, if it has content."""
    (tmp_path / "a.csv").write_text("text,price,,price,,price,column 3\na kettle,1,x,2,,3,y\na pan,4,,5,,6,z\n")
    report = index.ingest(tmp_path)
    assert report.failed == ()
    assert rows_read(index, 2) == [
        ("a kettle", {"price": 1, "column 3 2": "x", "price 2": 2, "price 3": 3, "column 3": "y"}),
        ("a pan", {"price": 4, "price 2": 5, "price 3": 6, "column 3": "z"}),
    ]
    empty, repeated = (note.message for note in report.notes)
    assert "'column 3 2'" in empty
    assert "'price 2', 'price 3'" in repeated
    found = index.retrieve("kettle", {"price 2": 2}, mode="lexical").hits
    assert [hit.chunk.document_id for hit in found] == ["a.csv#1"]


def test_the_command_indexes_such_a_table_and_says_what_it_did(tmp_path: Path) -> None:
    """The command succeeds, and names the line in its text and in its JSON."""
    (tmp_path / "a.csv").write_text("text,price\na kettle,1,2\n")
    command = [*RETRIEVAL, "index", "a.csv", "--set", "embedder.kind=none", "--set", "search.mode=lexical"]
    for extra in (["--index", "a.db"], ["--index", "b.db", "--json"]):
        done = subprocess.run([*command, *extra], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0
        notes = json.loads(done.stdout)["notes"] if "--json" in extra else [{"message": done.stderr}]
        assert ["line 2 has 3 instead of 2" in note["message"] for note in notes] == [True]
