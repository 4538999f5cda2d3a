"""The JSON that commands print has the fields that docs/command-line.md lists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.command_line import main
from support.extras import HAS_RE2

PAGE = Path(__file__).parents[2] / "docs/command-line.md"
OPTIONS = (
    *("--json", "--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder"),
    *("--set", "context.token_counter=support.pipelines:word_counter"),
)


def documented() -> dict[str, list[str]]:
    """Return the fields of each command, without those that are only sometimes there."""
    section = PAGE.read_text(encoding="utf-8").split("## JSON\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `?([a-z]+)[^|]*\| (.+) \|$", section, re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", text.split(";")[0])) for name, text in rows[1:]}


def test_each_command_prints_the_fields_that_the_page_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order, whatever is in the index."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/moon.md").write_text("# The moon\n\nThe moon is far away.\n")
    calls = {
        "index": ["notes"], "search": ["moon"], "context": ["moon"], "list": [], "info": [], "verify": [], "doctor": [],
        "fetch": ["notes/moon.md"], "grep": ["moon"], "remove": ["notes/moon.md"],
    }  # fmt: skip
    fields = documented()
    if not HAS_RE2:
        del calls["grep"], fields["grep"]
    assert {*calls, "answer", "any"} == fields.keys()
    for command, arguments in calls.items():
        printed = json.loads(CliRunner().invoke(main, [command, *arguments, *OPTIONS]).stdout)
        assert list(printed) == fields[command], command
    failed = json.loads(CliRunner().invoke(main, ["remove", "notes/absent.md", *OPTIONS]).stdout)
    assert list(failed) == fields["any"]
