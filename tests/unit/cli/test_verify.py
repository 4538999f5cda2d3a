"""``retrieval verify``: what it prints, how it ends, and what a repair touches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from retrieval_core import open_index
from retrieval_core.cli.commands import main
from retrieval_core.types import Chunk
from support.corruption import KINDS, MODULES, Damage, bytes_below, lexical

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ("--set", "embedder.kind=none", "--set", "search.mode=lexical", "--set", "chunking.min_tokens=0")


class Shell:
    """Runs the command in a folder with an index of two files."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.config = lexical(folder, store)
        self.options = (*WORDS, "--store", store, "--index", str(self.config.index))
        self.options += ("--set", f"store.qdrant.path={self.config.store.qdrant.path}")

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, *self.options])

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        result = self(*arguments, "--json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    def damage(self, kind: str) -> None:
        with open_index(config=self.config) as index:
            damage = Damage(index)
            damage.replace("docs/moon.md", KINDS[kind](damage.chunks("docs/moon.md"), 0, 5))


@pytest.fixture(params=MODULES)
def shell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    pytest.importorskip(MODULES[request.param])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/moon.md").write_text("# The moon\n\nIt is far.\n\n## Distance\n\n384,400 km.\n")
    (tmp_path / "docs/sun.md").write_text("# The sun\n\nEight light minutes away.\n")
    shell = Shell(tmp_path, request.param)
    assert shell("index", "docs").exit_code == 0
    return shell


def test_a_clean_index(shell: Shell) -> None:
    """One line, and 0; no byte of the index is another one afterwards."""
    before = bytes_below(shell.folder)
    result = shell("verify")
    assert before == bytes_below(shell.folder) != {}
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("2 documents, 3 chunks verified · no differences · ")
    assert len(result.stdout.splitlines()) == 1
    report = shell.json("verify")
    assert report.pop("seconds") >= 0
    assert report == {
        "verdict": "clean",
        "documents": 2,
        "chunks": 3,
        "unverifiable": 0,
        "unsealed": 0,
        "mismatches": [],
        "differences": [],
        "absent_sources": [],
        "repaired": [],
    }


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_told_and_repaired(shell: Shell, kind: str) -> None:
    """A line for each chunk, and 1; once it is repaired, 0, and again."""
    shell.damage(kind)
    result = shell("verify")
    assert result.exit_code == 1
    assert "✗ docs/moon.md#" in result.stdout
    assert "chunks verified · " in result.stdout.splitlines()[-1]
    report = shell.json("verify", code=1)
    assert {found["document_id"] for found in report["mismatches"]} == {"docs/moon.md"}
    repaired = shell("verify", "--repair")
    assert repaired.exit_code == 0
    assert "no differences · 1 document repaired" in repaired.stdout
    assert shell("verify").exit_code == 0


def test_where_and_how_long(shell: Shell) -> None:
    """JSON has the first byte that differs and both lengths."""
    shell.damage("truncated")
    (found,) = shell.json("verify", code=1)["mismatches"]
    assert (found["chunk_id"], found["source"]) == ("docs/moon.md#0", "docs/moon.md")
    assert (found["first_difference"], found["stored_bytes"], found["original_bytes"]) == (5, 5, 22)
    assert found["details"].startswith("Stored text truncated or corrupted (length mismatch: 5 vs 22 chars); first")


def test_an_edited_file(shell: Shell) -> None:
    """It is told, and ingested again by a repair."""
    (shell.folder / "docs/sun.md").write_text("# The sun\n\nNine light minutes away.\n")
    result = shell("verify")
    assert result.exit_code == 1
    assert "✗ docs/sun.md: its file was edited after it was indexed; first difference at byte 11 (37 vs 36)" in (
        result.stdout
    )
    (found,) = shell.json("verify", code=1)["differences"]
    assert (found["document_id"], found["first_difference"]) == ("docs/sun.md", 11)
    assert shell.json("verify", "--repair")["repaired"] == ["docs/sun.md"]
    assert "Nine" in shell("search", "light minutes").stdout


def test_what_cannot_be_compared(shell: Shell) -> None:
    """2, unless something differs too; files that are gone are told and are no failure."""
    (shell.folder / "docs/sun.md").unlink()
    result = shell("verify")
    assert result.exit_code == 0
    assert "Warning: 1 file no longer found" in result.stderr
    with open_index(config=shell.config) as index:
        index.add([Chunk("alone#0", "alone", "A chunk without a document.")])
    result = shell("verify")
    assert result.exit_code == 2
    assert "Warning: 1 chunk not verifiable" in result.stderr
    shell.damage("changed")
    assert shell("verify").exit_code == 1


def test_a_sample(shell: Shell) -> None:
    """So many documents, as whole ones; the same seed draws the same."""
    assert shell.json("verify", "--sample", "1")["documents"] == 1
    shell.damage("lost")
    codes = [shell("verify", "--sample", "1", "--seed", str(seed)).exit_code for seed in range(6)]
    assert set(codes) == {0, 1}
    assert shell("verify", "--sample", "0").exit_code == 2


def test_names_cannot_steer_the_terminal(shell: Shell) -> None:
    """What an index holds is printed harmlessly."""
    with open_index(config=shell.config) as index:
        damage = Damage(index)
        (chunk,) = damage.chunks("docs/sun.md")
        stray = Chunk("\x1b[31mred", chunk.document_id, "x", chunk_index=1, span=chunk.span)
        damage.replace("docs/sun.md", [chunk, stray])
    result = shell("verify")
    assert (result.exit_code, "\x1b" in result.stdout, "[31mred" in result.stdout) == (1, False, True)


def test_an_index_that_is_not_there(tmp_path: Path) -> None:
    """It is one line, and 1."""
    result = CliRunner().invoke(main, ["verify", "--index", str(tmp_path / "no.db"), *WORDS])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: there is no index at")
