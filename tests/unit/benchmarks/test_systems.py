"""The benchmarks run: each system in its own process, over the same small collection; here this library alone."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from benchmarks import __main__ as command
from benchmarks import systems as running
from benchmarks.collection import make
from benchmarks.environments import PeerError, Running, interpreter
from benchmarks.peers import OURS, PEERS

from support.postgres_server import skip_without_server

ROOT = Path(__file__).parents[3]
FEW = ("--systems", OURS, "--passages", "120")


def _rows(tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run one benchmark, which has to succeed, and return its figures."""
    file = tmp_path / "figures.json"
    assert command.main([*arguments, "--json", str(file)]) == 0
    return json.loads(file.read_text("utf-8"))["rows"]


def test_speed_tells_times_and_recall(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results are those of an exact search, filtered or not."""
    (row,) = _rows(tmp_path, "speed", *FEW, "--questions", "12")
    assert (row["passages"], row["system"]) == (120, OURS)
    assert 0 < row["p50"] <= row["p95"]
    assert row["of_plain"] is None
    assert min(row["recall"], row["recall, 1 %"], row["recall, 50 %"]) > 0.8
    assert "| 120 | retrieval-core |" in capsys.readouterr().out


@pytest.mark.parametrize("system", [OURS, pytest.param("retrieval-core-postgres", marks=pytest.mark.slow)])
def test_scale_opens_what_another_process_has_loaded(tmp_path: Path, system: str) -> None:
    """And tells what that takes. A second run with the same folder only searches."""
    if system != OURS:
        pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
        skip_without_server()
    arguments = ("scale", *FEW, "--systems", system, "--questions", "5", "--seconds", "0", "--turns", "1")
    (row,) = _rows(tmp_path, *arguments, "--folder", str(tmp_path))
    assert row["recall, dense"] == 1
    assert row["disk"] * 2**20 == pytest.approx(120 * row["bytes"])
    assert row["bytes"] > 384 * 4
    assert min(row["load"], row["first"], row["dense"], row["p50, 1 %"], row["p50, 64 callers"]) > 0
    assert (row["server"] is None) == (system == OURS)
    (again,) = _rows(tmp_path, *arguments, "--folder", str(tmp_path))
    assert (again["load"], again["recall"]) == (row["load"], row["recall"])


def test_concurrency_has_a_row_for_each_number_of_callers(tmp_path: Path) -> None:
    """All callers are answered, also where the time is over at once."""
    rows = _rows(tmp_path, "concurrency", *FEW, "--callers", "1", "5", "--seconds", "0", "--turns", "2")
    assert [(row["callers"], row["how"]) for row in rows] == [(1, "tasks"), (5, "tasks")]
    assert all(row["rate"] > 0 and 0 < row["p50"] <= row["p95"] for row in rows)


def test_settings_reach_this_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong one is told as the reason for which it is left out."""
    assert command.main(["speed", *FEW, "--questions", "1", "--set", "search.fusion=nothing"]) == 1
    assert "search.fusion" in capsys.readouterr().out


def test_a_system_that_cannot_be_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are measured nevertheless, and the exit code says it."""

    def install(name: str, environments: Path) -> Path:
        if name == "txtai":
            msg = "txtai cannot be installed: no network"
            raise PeerError(msg)
        return interpreter(name, environments)

    monkeypatch.setattr(running, "interpreter", install)
    assert command.main(["speed", "--systems", "txtai", OURS, "--passages", "120", "--questions", "1"]) == 1
    printed = capsys.readouterr().out
    assert "Left out: txtai with 120 passages: txtai cannot be installed: no network" in printed
    assert "| 120 | retrieval-core |" in printed


def test_a_system_that_fails_says_what_was_asked_and_why(tmp_path: Path) -> None:
    """Then it can be asked on; one whose process has ended cannot."""
    process = Running(OURS, Path(sys.executable), make(tmp_path, 60, 2), {})
    with pytest.raises(PeerError, match=r"(?s)retrieval-core failed to search.*KeyError: 'no such filter'"):
        process.ask("search", numbers=[0], share="no such filter")
    assert process.ask("memory").keys() == {"now", "most"}
    process.end()
    with pytest.raises((PeerError, ValueError)):
        process.ask("memory")


@pytest.mark.parametrize("name", [name for name in PEERS if name != OURS and not PEERS[name].module.startswith("ours")])
def test_peers_are_pinned(name: str) -> None:
    """Each has a module that is imported without the library itself, and requirements with versions."""
    module = PEERS[name].module
    assert hasattr(import_module(f"benchmarks.peers.{module}"), "System")
    lines = (ROOT / "benchmarks/peers" / f"{module}.txt").read_text("utf-8").splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9-]+==[0-9.]+", line) for line in pinned)
    assert pinned == sorted(pinned, key=str.lower)


@pytest.mark.parametrize(
    "arguments", [["speed", "--passages", "49"], ["speed", "--systems", "nobody"], ["nothing"], []]
)
def test_a_wrong_call_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, before anything is measured."""
    try:
        code: object = command.main(arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert capsys.readouterr().err


def test_help_names_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with what it measures."""
    assert command.main(["--help"]) == 0
    told = capsys.readouterr().err
    assert all(name in told for name in command.COMMANDS)
