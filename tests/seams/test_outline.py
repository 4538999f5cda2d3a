"""The sections of a document, on the command line and over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from retrieval_core import Document
from support.command_line import main

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = """---
title: Guide
---
Before all.

# Setup

Install it.

## Windows

Use the shell.

# Errors

None.
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Index a file, and go to its folder."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/guide.md").write_text(GUIDE)
    (tmp_path / "docs/other.md").write_text("Nothing.\n")
    monkeypatch.chdir(tmp_path)
    settings = ("embedder.kind=none", "chunking.max_tokens=16", "chunking.min_tokens=1")
    arguments = [part for each in settings for part in ("--set", each)]
    assert CliRunner().invoke(main, ["index", "docs", *arguments]).exit_code == 0
    return tmp_path


@pytest.mark.parametrize("name", ["docs/guide.md", "guide.md", "./docs/guide.md", "docs/guide.md#1"])
def test_the_command_lists_the_sections_of_a_document(folder: Path, name: str) -> None:
    done = CliRunner().invoke(main, ["list", name])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "docs/guide.md",
        "    4  (no heading)",
        " 6-12  Setup",
        "10-12    Windows",
        "14-16  Errors",
    ]
    sections = json.loads(CliRunner().invoke(main, ["list", name, "--json"]).stdout)["sections"]
    assert [(each["title"], each["level"], each["lines"]) for each in sections][1:3] == [
        ("Setup", 1, [6, 12]),
        ("Windows", 2, [10, 12]),
    ]


def test_wrong_names_and_options_are_named(folder: Path) -> None:
    done = CliRunner().invoke(main, ["list", "docs/gide.md"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "docs/gide.md" in done.stderr
    done = CliRunner().invoke(main, ["list", "guide.md", "--filter", '{"a": 1}'])
    assert (done.exit_code, done.stdout) == (2, "")


def test_the_service_lists_only_sections_of_the_caller(tmp_path: Path) -> None:
    pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
    from support.http_service import hashed, opened, serving

    async def run() -> None:
        index = opened(tmp_path / "index.db")
        documents = [Document(f"{name}.md", f"# {name}\n\nText.\n", metadata={"tenant": name}) for name in ("a", "b")]
        await index.aadd_documents(documents)
        async with serving({"index": index}, tokens=(hashed("key", "a"),), tenant_field="tenant") as service:
            answer = await service.ask("GET", "/v1/outline", "key", params={"path": "a.md"})
            assert answer.status_code == 200, answer.text
            told = answer.json()
            assert (told["id"], [(each["title"], each["lines"]) for each in told["sections"]]) == (
                "a.md",
                [("", [1, 3])],
            )
            asked = [{"path": "b.md"}, {"path": "c.md"}]
            other, absent = [await service.ask("GET", "/v1/outline", "key", params=each) for each in asked]
            assert other.status_code == absent.status_code == 404
            assert other.json()["errors"][0].replace("b.md", "c.md") == absent.json()["errors"][0]

    asyncio.run(run())
