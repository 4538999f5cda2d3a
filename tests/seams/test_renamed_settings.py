"""Old names of settings: they work for one version with a warning, and those that are gone say what to use instead."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from retrieval_core import Document, RetrievalConfig, load_config, open_index
from retrieval_core.config import moved
from retrieval_core.errors import ConfigurationError, SettingRenamedWarning
from retrieval_core.testing.fakes import FakeEmbedder
from support.command_line import main
from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from pathlib import Path

ADVICE = "it is always on; remove it"


@pytest.fixture(autouse=True)
def _tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting and a section with other names, and a setting and a section that are gone."""
    renamed = {"search.most": "search.top_k", "indexes": "federation", "vanished.kind": "reranker.kind"}
    monkeypatch.setattr(moved, "MOVED", renamed)
    monkeypatch.setattr(moved, "GONE", {"search.quickly": ADVICE, "magic": ADVICE})


def load(source: str, settings: dict[str, Any], folder: Path) -> RetrievalConfig:
    """Load settings, by dotted keys, from one of the three sources that people write."""
    if source == "arguments":
        return load_config(overrides=settings)
    if source == "environment":
        variables = {f"RETRIEVAL_{key.replace('.', '__').upper()}": value for key, value in settings.items()}
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in variables.items()}
        return load_config(environment=texts)
    file = folder / "settings.toml"
    file.write_text("".join(f"{key} = {json.dumps(one)}\n" for key, one in settings.items()))
    return load_config(file)


SOURCES = pytest.mark.parametrize("source", ["file", "environment", "arguments"])


@SOURCES
def test_an_old_name_works_and_warns(source: str, tmp_path: Path) -> None:
    """The warning names the source, the old and the new name."""
    with pytest.warns(SettingRenamedWarning) as told:
        config = load(source, {"search.most": 3, "indexes.weights.notes": 7.0, "search.mode": "dense"}, tmp_path)
    assert (config.search.top_k, config.search.mode, config.federation.weights) == (3, "dense", {"notes": 7.0})
    texts = [str(one.message) for one in told]
    assert len(texts) == 2
    assert f"{source if source != 'file' else tmp_path}" in texts[0]
    assert "search.most is called search.top_k now" in texts[0]
    assert "indexes.weights.notes is called federation.weights.notes now" in texts[1]


@SOURCES
def test_both_names_are_refused(source: str, tmp_path: Path) -> None:
    """In one source, it would not be clear which one counts."""
    with pytest.raises(ConfigurationError) as refused:
        load(source, {"search.most": 3, "search.top_k": 4}, tmp_path)
    assert refused.value.problems == (
        "search.most: given by its new name search.top_k too; remove search.most",
    )  # fmt: skip


def test_a_stronger_source_wins_whatever_the_names(tmp_path: Path) -> None:
    """As it does between equal names."""
    file = tmp_path / "settings.toml"
    file.write_text("[search]\ntop_k = 3\n")
    with pytest.warns(SettingRenamedWarning):
        assert load_config(file, {"search.most": 4}).search.top_k == 4
    file.write_text("[search]\nmost = 3\n")
    with pytest.warns(SettingRenamedWarning):
        assert load_config(file, {"search.top_k": 4}).search.top_k == 4


@SOURCES
def test_a_setting_that_is_gone_says_what_to_use(source: str, tmp_path: Path) -> None:
    """Each in a line of one error, and a section's settings together."""
    settings = {"search.quickly": True, "magic.wand": 1, "magic.more.spells": ["a"], "search.top_k": 0}
    with pytest.raises(ConfigurationError) as refused:
        load(source, settings, tmp_path)
    problems = refused.value.problems
    assert f"search.quickly: {ADVICE}" in problems
    assert any("magic.wand" in one and "magic.more.spells" in one and one.endswith(ADVICE) for one in problems)
    assert len(problems) == 3, "what else is wrong is reported at once"


def test_an_index_forgets_old_names(tmp_path: Path) -> None:
    """What it remembers by an old name counts without a warning; what is gone is dropped with one."""
    file = tmp_path / "index.db"

    def write(name: str) -> None:
        document = Document(name, "The moon is far.", source=name, content_hash="")
        with open_index(file, embedder=FakeEmbedder()) as index:
            index.add_documents([document])

    write("a.md")
    with sqlite3.connect(file) as connection:
        row = json.dumps({"search.most": 3, "search.quickly": True})
        connection.execute("INSERT OR REPLACE INTO manifest VALUES ('settings', ?)", (row,))
    connection.close()
    with open_index(file, embedder=FakeEmbedder()) as index:
        assert index.config.search.top_k == 3
        provenance = index.config.provenance
        assert provenance is not None
        assert [one.partition(" remembers ")[2] for one in provenance.warnings] == [
            f"settings that are ignored: 'search.quickly': {ADVICE}."
        ]
    write("b.md")
    with sqlite3.connect(file) as connection:
        (kept,) = connection.execute("SELECT value FROM manifest WHERE key = 'settings'").fetchone()
    connection.close()
    assert json.loads(kept) == {"search.top_k": 3}, "they are written by today's names"


def test_on_the_command_line(tmp_path: Path) -> None:
    """The warning is one line on standard error."""
    usual = warnings.showwarning
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", SettingRenamedWarning)
            command = ["list", "--index", str(tmp_path / "none.db"), "--set", "search.most=3"]
            ended = CliRunner().invoke(main, command)
    finally:
        warnings.showwarning = usual
    told = ended.stderr.splitlines()
    assert told[0].startswith("Warning: arguments: search.most is called search.top_k now")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([*RETRIEVAL, "list"], id="retrieval"),
        pytest.param([sys.executable, "-m", "retrieval_core_mcp"], id="retrieval-mcp"),
    ],
)
def test_processes_say_it_on_standard_error(command: list[str], tmp_path: Path) -> None:
    """In one line, with a name that is in the real table."""
    if "retrieval_core_mcp" in command:
        pytest.importorskip("retrieval_core_mcp")
    environment = with_our_modules() | {"RETRIEVAL_RERANKER__MAX_CHARACTERS": "500"}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, input="", capture_output=True, text=True, check=False
    )
    (told,) = [line for line in ended.stderr.splitlines() if "reranker.max_characters" in line]
    assert "environment: reranker.max_characters is called reranker.llm.max_characters now" in told
    assert told.startswith("W"), "it is a warning"
