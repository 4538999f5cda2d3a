"""A report says the same as Markdown, as JSON and as a picture."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from benchmarks.report import Column, Report, machine, shown

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"


def _report() -> Report:
    columns = (Column("passages", "passages"), Column("system", "system"), Column("p50", "p50, ms"))
    report = Report("Questions", "ten hits", columns, "passages", "system", "p50", {"questions": 3}, date="2026-01-02")
    report.versions = {"b": "2", "a": "1"}
    report.rows = [
        {"passages": 1000, "system": "retrieval-core", "p50": 0.5},
        {"passages": 1000, "system": "<other> & more", "p50": 2.0, "of_plain": 4.0},
        {"passages": 1000, "system": "cannot", "p50": None},
        {"passages": 20000, "system": "retrieval-core", "p50": 0.0},
    ]
    return report


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), ("tasks", "tasks"), (100000, "100,000"), (1234.5, "1,234"), (0.12345, "0.123"), (3.0, "3"), (0, "0")],  # noqa: RUF001
)
def test_a_cell_has_the_digits_that_say_something(value: str | float | None, text: str) -> None:
    assert shown(value) == text


def test_markdown_has_a_row_for_each() -> None:
    """And beneath, on what and when it was measured."""
    lines = _report().markdown().splitlines()
    assert lines[0] == "| passages | system | p50, ms |"
    assert lines[2:6] == [
        "| 1,000 | retrieval-core | 0.5 |",
        "| 1,000 | <other> & more | 2 |",
        "| 1,000 | cannot | – |",  # noqa: RUF001
        "| 20,000 | retrieval-core | 0 |",
    ]
    assert lines[-1] == f"Questions, ten hits. 2026-01-02, {machine()}. a 1, b 2."


def test_json_has_every_figure() -> None:
    """Those that are no column of the table too."""
    report = _report()
    told = json.loads(report.json())
    assert told["rows"] == report.rows
    assert told["versions"] == {"a": "1", "b": "2"}
    assert (told["date"], told["machine"], told["settings"]) == ("2026-01-02", machine(), {"questions": 3})


def test_the_picture_has_a_bar_for_each_figure() -> None:
    """Each as long as its figure among those of its group; what was not measured has none."""
    root = ET.fromstring(_report().svg())
    bars = [element for element in root.iter(f"{SVG}rect") if element.get("class") != "back"]
    own, other, alone = (float(bar.get("width", "nan")) for bar in bars)
    assert own == pytest.approx(other / 4)
    assert alone == 0
    assert [bar.get("class") for bar in bars] == ["own", "bar", "own"]
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"<other> & more", "passages: 1,000", "passages: 20,000", "0.5", "2"} <= set(texts)
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")


def test_files_are_written_and_what_is_left_out_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = _report()
    assert report.give(Namespace(json=tmp_path / "one.json", svg=tmp_path / "one.svg")) == 0
    assert (tmp_path / "one.json").read_text("utf-8") == report.json()
    assert (tmp_path / "one.svg").read_text("utf-8") == report.svg()
    report.notes.append("LanceDB: no room")
    capsys.readouterr()
    assert report.give(Namespace(json=None, svg=None)) == 1
    assert "Left out: LanceDB: no room" in capsys.readouterr().out
