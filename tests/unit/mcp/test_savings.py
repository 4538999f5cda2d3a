"""``retrieval savings``: what an assistant has read before it sees an answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

import jsonschema as _  # noqa: F401 - the client would read its files on the event loop
from click.testing import CliRunner

from retrieval_core import load_config, open_index
from retrieval_core.cli.commands import main
from retrieval_core.errors import InvalidParameterError
from retrieval_core_mcp.savings import JudgedQuestion, TextFiles, fold, load_questions

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = "# Guide\n\nTea is made with water.\n\n# Tigers\n\nA tiger **sleeps** in the shade of the mangroves.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "guide.md").write_text(GUIDE, "utf-8")
    (pages / "other.md").write_text("# Other\n\n" + "Nothing of interest here.\n\n" * 200, "utf-8")
    return pages


def test_an_answer_is_seen_once_all_of_its_places_were() -> None:
    question = JudgedQuestion("?", ((fold("**Tiger** sleeps"),), (fold("water"), fold("juice"))))
    first, second = "x" * 400 + " a tiger `sleeps`", " and " + "y" * 396 + " juice"
    assert question.find_in([first]) is None
    found = question.find_in([first, first + second])
    assert found is not None
    tokens, calls = found
    assert calls == 2
    assert len(first) / 4 < tokens <= len(first + second) / 4 + 1
    assert JudgedQuestion("?", ((fold("tiger"),),)).find_in([]) is None


def test_places_are_lines_or_words(folder: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"question": "Where do tigers sleep?", "gold": [{"path": "guide.md", "lines": [7, 7]}]},
        {"question": "Where?", "gold": [{"contains": "the  shade"}], "also": [{"contains": "Mangroves"}]},
        {"question": "How much is it?", "gold": []},
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    lines, words, none = load_questions(path, TextFiles(folder))
    assert lines.places == (("a tiger sleeps in the shade of the mangroves.",),)
    assert words.places == (("the shade", "mangroves"),)
    assert none.places == ()


@pytest.mark.parametrize(
    "line", ["[", "7", '{"gold": []}', '{"question": "?", "gold": [{"path": "gone.md", "lines": [1, 1]}]}']
)
def test_a_line_that_is_no_question_is_named(line: str, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(f"\n{line}\n", "utf-8")
    with pytest.raises(InvalidParameterError, match="line 2"):
        load_questions(path, TextFiles(folder))


def test_a_citation_is_wrong_if_its_lines_lack_the_text(folder: Path) -> None:
    files = TextFiles(folder)
    assert not files.is_wrong("guide.md", 5, 7, "A tiger **sleeps** in the shade of the mangroves.")
    assert files.is_wrong("guide.md", 1, 3, "A tiger **sleeps** in the shade of the mangroves.")
    assert files.is_wrong("guide.md", 5, 70, "A tiger")
    assert files.is_wrong("gone.md", 1, 1, "A tiger")


def test_the_command_prints_every_agent(folder: Path, tmp_path: Path) -> None:
    index = tmp_path / "index.db"
    with open_index(index, config=load_config(overrides={"embedder.kind": "none"})) as made:
        made.ingest(folder)
    path = tmp_path / "questions.jsonl"
    path.write_text('{"question": "Where does a tiger sleep?", "gold": [{"contains": "in the shade"}]}', "utf-8")
    result = CliRunner().invoke(main, ["savings", str(path), str(folder), "--index", str(index), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    recall = {each["agent"]: each["recall"] for each in report["agents"]}
    assert recall["grep with lines around"]["1000"] == 1
    assert recall["search"]["8000"] == 1
    assert report["tools"] > 0
    assert (report["questions"], report["answerable"]) == (1, 1)
