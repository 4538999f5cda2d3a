"""The command as a real child process: its streams, its end, and several of them on one index."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp.client.stdio import StdioServerParameters, stdio_client

from mcp import Client
from retrieval_core_mcp import ServerSettings
from support.mcp_command import read_options
from support.processes import EVERYTHING

if TYPE_CHECKING:
    from pathlib import Path

SLOW = """
import sys, threading, time
from retrieval_core.testing.fakes import FakeEmbedder

class Slow(FakeEmbedder):
    def embed_query(self, text):
        print("printed by somebody else")
        print("loading", file=sys.stderr, flush=True)
        threading.Event().wait()
"""


def test_the_librarys_client_speaks_to_it(index_file: Path, config_file: Path) -> None:
    """Over a real pipe, in the newest version of the protocol."""
    arguments = ["-m", "retrieval_core_mcp", "--index", str(index_file), "--config", str(config_file), *EVERYTHING]

    async def conversation() -> None:
        parameters = StdioServerParameters(command=sys.executable, args=arguments)
        async with Client(stdio_client(parameters)) as client:
            assert [tool.name for tool in (await client.list_tools()).tools][:2] == ["search", "grep"]
            answer: Any = await client.call_tool("search", {"query": "how far is the moon"})
            assert answer.structured_content["results"][0]["id"] == "moon.md#0"

    asyncio.run(conversation())


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_raw_lines(start: Any, index_file: Path, modern: bool) -> None:
    """Handshake or none, both tools answer; a request that is still open when the input ends is answered too."""
    with start(index_file, modern=modern) as child:
        assert child.call("fetch", id="moon.md")["structuredContent"]["title"] == "Moon"
        result = child.call("search", query="how far is the moon")
        assert result["structuredContent"]["results"][0]["id"] == "moon.md#0"
        child.send(child.request("tools/call", {"name": "search", "arguments": {"query": "the sun"}}))
        out, err = child.end()
        assert json.loads(out)["result"]["structuredContent"]["results"][0]["id"] == "sun.md#0"
        assert err == b""
        assert child.process.returncode == 0


def test_several_indexes_are_served(start: Any, index_file: Path) -> None:
    """Under the names that they are given; the handshake tells what each holds."""
    with start(index_file, "--index", f"more={index_file}", modern=False) as child:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        told = child.ask("initialize", hello)["result"]["instructions"]
        assert "The index index contains 3 documents" in told
        assert "The index more contains 3 documents" in told
        listed = child.call("list")["structuredContent"]["indexes"]
        assert [entry["name"] for entry in listed] == ["index", "more"]
        assert child.call("fetch", id="moon.md", index="more")["structuredContent"]["title"] == "Moon"
        assert child.call("fetch", id="moon.md")["isError"]


@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "SIGINT"])
def test_it_ends_while_a_model_is_loading(start: Any, index_file: Path, tmp_path: Path, how: str) -> None:
    """A thread that never returns holds nothing up; what it prints does not reach the protocol."""
    if how != "end of input" and sys.platform == "win32":
        pytest.skip("signals end a process at once there")
    (tmp_path / "slow_model.py").write_text(SLOW)
    config = tmp_path / "slow.toml"
    config.write_text('[embedder]\nkind = "slow_model:Slow"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        patch.setenv("RETRIEVAL_MCP__WAIT_SECONDS", "0.01")
        with start(index_file, config=config) as child:
            early = child.call("search", query="the moon")
            assert early["structuredContent"]["degraded"][0].startswith("embed: ")
            if how == "end of input":
                child.process.stdin.close()
            else:
                child.process.send_signal(getattr(signal, how))
            child.process.wait(timeout=30)  # the promise is a second; the model never returns
            assert child.process.returncode == (130 if how == "SIGINT" else 0)
            assert child.process.stdout.read() == b""
            assert b"Traceback" not in child.process.stderr.read()
    with closing(sqlite3.connect(index_file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.slow
def test_two_servers_and_one_writer(start: Any, tmp_path: Path) -> None:
    """All answer while the command line indexes, nothing is lost, and new documents are found without a restart."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "first.md").write_text("The first note is about apples.\n")
    config = tmp_path / "retrieval.toml"
    config.write_text('[embedder]\nkind = "retrieval_core.testing.fakes:FakeEmbedder"\n')
    path = tmp_path / "index.db"
    index = [sys.executable, "-m", "retrieval_core.cli", "index", str(folder), "--index", str(path), "--config"]
    subprocess.run([*index, str(config)], check=True, capture_output=True)
    for number in range(60):
        (folder / f"pear-{number}.md").write_text(f"Note {number} is about pears, sort number {number}.\n")
    with start(path, config=config) as one, start(path, config=config, modern=True) as two:
        with subprocess.Popen([*index, str(config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
            asked = 0
            while writer.poll() is None:
                for child in (one, two):
                    found = child.call("search", query="apples", mode="lexical")
                    assert found["structuredContent"]["results"][0]["id"] == "notes/first.md#0"
                    asked += 1
            assert writer.returncode == 0
            assert asked
        for child in (one, two):
            filters = {"source": {"$glob": "*/pear-37.md"}}
            found = child.call("search", query="pears", filters=filters)["structuredContent"]["results"]
            assert [hit["id"] for hit in found] == ["notes/pear-37.md#0"]
            counted = child.call("search", query="pears", top_k=100, max_characters=100_000)["structuredContent"]
            assert len(counted["results"]) >= 60


def test_wrong_use_is_told_before_anything_else(tmp_path: Path) -> None:
    """A setting that does not exist ends the command with its name and a proposal."""
    environment = {**os.environ, "RETRIEVAL_MCP__MAX_CHARACTER": "7"}
    command = [sys.executable, "-m", "retrieval_core_mcp"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "did you mean RETRIEVAL_MCP__MAX_CHARACTERS?" in ended.stderr
    ended = subprocess.run([*command, "--config", "lexikal"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 2
    assert "the presets are" in ended.stderr


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("setu", "unknown argument 'setu'; did you mean setup?"),
        ("--indx=a.db", "unknown option '--indx'; did you mean --index?"),
        ("--port", "unknown option '--port'; did you mean --http HOST:PORT?"),
        ("--transport=http", "unknown option '--transport'; did you mean --http HOST:PORT?"),
        ("--zzz", "unknown option '--zzz'; the options are --index"),
        ("notes.db", "unknown argument 'notes.db'; the options are --index"),
    ],
)
def test_unknown_options_are_named(option: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the nearest one, or else all of them."""
    with pytest.raises(SystemExit, match="2"):
        read_options([option])
    assert expected in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is that of the installed package, and the help names every setting of the server's own."""
    with pytest.raises(SystemExit, match="0"):
        read_options(["--version"])
    assert capsys.readouterr().out == f"retrieval-mcp {version('retrieval-core-mcp')}\n"
    with pytest.raises(SystemExit, match="0"):
        read_options(["--help"])
    shown = capsys.readouterr().out
    assert all(f"RETRIEVAL_MCP__{name.upper()}" in shown for name in ServerSettings.model_fields if name != "retrieval")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals there")
@pytest.mark.parametrize("there", [True, False])
def test_somebody_at_a_terminal_is_told_what_it_waits_for(index_file: Path, tmp_path: Path, there: bool) -> None:
    """Who starts it by hand would else wait in vain; it is told on standard error, and whether there is an index."""
    import pty

    path = index_file if there else tmp_path / "none.db"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "retrieval_core_mcp", "--index", str(path), "--config", "lexical"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=theirs, stdout=pipe, stderr=pipe, text=True) as process:
        os.close(theirs)
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        process.kill()
        out, _ = process.communicate(timeout=30)
    os.close(ours)
    assert "waiting for an MCP client" in lines[0]
    assert lines[1].startswith(f"The index is {path}." if there else f"There is no index at {path} yet.")
    assert out == ""


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_a_byte_order_mark_and_blank_lines_are_skipped(start: Any, index_file: Path, modern: bool) -> None:
    """Some programs on Windows write a mark before the first message."""
    with start(index_file, modern=modern) as child:
        child.process.stdin.write(b"\xef\xbb\xbf")
        assert child.call("fetch", id="moon.md")["structuredContent"]["title"] == "Moon"
        child.process.stdin.write(b"\n")
        assert child.call("fetch", id="sea.md")["structuredContent"]["title"] == "Sea"


def test_a_client_that_is_gone_is_no_failure(start: Any, index_file: Path) -> None:
    """The process ends quietly when nobody reads its answers and its input is closed."""
    with start(index_file, modern=False) as child:
        child.call("fetch", id="moon.md")
        child.process.stdout.close()
        child.send(child.request("tools/call", {"name": "fetch", "arguments": {"id": "moon.md"}}))
        child.process.stdin.close()
        assert child.process.wait(timeout=30) == 0
        assert child.process.stderr.read() == b""
