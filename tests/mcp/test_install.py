"""The command ``retrieval-mcp install``: what becomes of the configurations of assistants."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp.client.stdio import StdioServerParameters, stdio_client

from mcp import Client
from support.mcp_command import CLIENTS, Machine, serve
from support.processes import MCP

GROUPS = {name: client.servers for name, client in CLIENTS.items()}
NO_TERMINAL = "Nothing was changed: there is no terminal to ask at. Add --yes to write this without a question."
CHANGED = "Nothing was changed: another program has changed the file meanwhile. Run the command again."
HOMES = ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME")
"""The variables that say where a user's files are."""


class Terminal(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


class Assistant:
    """A user with an assistant, whose configuration is changed."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, client: str = "cursor") -> None:
        for name in HOMES:
            patch.setenv(name, str(home))
        self.client = client
        self.file = CLIENTS[client].config(Machine(sys.platform, home))
        self.file.parent.mkdir(parents=True, exist_ok=True)

    def install(self, *options: str) -> int:
        try:
            serve(["install", "--client", self.client, *options])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.file.parent.iterdir())

    @property
    def servers(self) -> dict[str, Any]:
        return json.loads(self.file.read_bytes().decode("utf-8-sig"))[GROUPS[self.client]]


@pytest.fixture
def assistant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Assistant:
    monkeypatch.chdir(tmp_path)
    return Assistant(tmp_path / "home", monkeypatch)


TEXTS = st.text(max_size=8) | st.just("half of a pair: \ud800")
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
SERVERS = st.dictionaries(TEXTS.filter(lambda name: name != "documents"), VALUES, max_size=4)


@st.composite
def configurations(draw: st.DrawFn, group: str) -> str:
    """Draw the text of a configuration, in one of the forms in which programs and people write it."""
    settings = draw(st.dictionaries(TEXTS, VALUES, max_size=3))
    members = list(settings.items())
    if draw(st.booleans()):
        members.insert(draw(st.integers(0, len(members))), (group, draw(SERVERS)))
    separators = draw(st.sampled_from([None, (",", ":"), (" , ", " : ")]))
    indent = draw(st.sampled_from([None, 2, 4, "\t"]))
    escaped = r"\ud800" in repr(members) or draw(st.booleans())
    text = json.dumps(dict(members), indent=indent, separators=separators, ensure_ascii=escaped)
    text = text if draw(st.booleans()) else text.replace("\n", "\r\n")
    return draw(st.sampled_from(["", "\ufeff", " \n"])) + text + draw(st.sampled_from(["", "\n", "\r\n\t"]))


def read(text: str) -> dict[str, Any]:
    return json.loads(text.removeprefix("\ufeff")) if text.strip() else {}


@given(data=st.data(), client=st.sampled_from(sorted(CLIENTS)))
def test_all_else_stays_and_undo_gives_it_back(data: st.DataObject, client: str) -> None:
    """The entry comes, and nothing else is another one; taken back, the file is the same to the byte."""
    group = GROUPS[client]
    text = data.draw(st.just("") | st.just(" \n") | configurations(group))
    before = text.encode()
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        assistant = Assistant(Path(home).resolve(), patch, client)
        name = assistant.file.name
        assistant.file.write_bytes(before)
        assert assistant.install("--yes") == 0
        after = read(assistant.file.read_bytes().decode())
        entry = after[group].pop("documents")
        assert entry["command"] == sys.executable
        assert list(after) == [*read(text), *([] if group in read(text) else [group])]
        assert repr(after) == repr({**read(text), group: read(text).get(group, {})})
        assert assistant.files == [name, f"{name}.bak1"]
        assert (assistant.file.parent / f"{name}.bak1").read_bytes() == before
        assert assistant.install("--yes") == 0
        assert assistant.files == [name, f"{name}.bak1"]  # there was nothing to change
        assert assistant.install("--undo", "--yes") == 0
        assert (assistant.files, assistant.file.read_bytes()) == ([name], before)
        assert assistant.install("--undo", "--yes") == 0
        assert (assistant.files, assistant.file.read_bytes()) == ([name], before)


"""What a program that reads and writes JSON would write in another way, or lose."""


@given(text=configurations("mcpServers"), more=SERVERS)
def test_what_was_edited_since_stays(text: str, more: dict[str, Any]) -> None:
    """Where the file is not as it was left, the entry alone goes, and the file with it is kept."""
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        assistant = Assistant(Path(home).resolve(), patch)
        assistant.file.write_bytes(text.encode())
        assert assistant.install("--yes") == 0
        edited = read(assistant.file.read_bytes().decode())
        ours = edited["mcpServers"]
        edited["mcpServers"] = {**more, **ours, "newer": {"command": "x"}}
        assistant.file.write_text(json.dumps(edited), encoding="utf-8")
        assert assistant.install("--undo", "--yes") == 0
        del edited["mcpServers"]["documents"]
        assert repr(read(assistant.file.read_bytes().decode())) == repr(edited)


BROKEN = {
    "a comment": b'{\n  // mine\n  "mcpServers": {}\n}\n',
    "a comma at the end": b'{"mcpServers": {"a": {"command": "x"},}}',
    "no end": b'{"mcpServers": {"a": ',
    "two values": b"{} {}",
    "another encoding": b'{"mcpServers": {"\xfc": {}}}',
    "a list": b"[]",
    "servers that are a list": b'{"mcpServers": []}',
    "servers that are nothing": b'{"mcpServers": null}',
    "servers twice": b'{"mcpServers": {}, "mcpServers": {"a": {}}}',
    "the entry twice": b'{"mcpServers": {"documents": {}, "documents": {"command": "retrieval-mcp"}}}',
    "too deep": b'{"mcpServers": {}, "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=list(BROKEN))
def test_what_could_lose_something_is_left_alone(
    assistant: Assistant, text: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The entry is printed, to be put in by hand; taking one out is as careful."""
    assistant.file.write_bytes(text)
    assert assistant.install("--yes") == 1
    message, _, snippet = capsys.readouterr().err.partition("by hand:\n")
    assert message.startswith("Error: the file was left as it is, since ")
    assert json.loads(snippet)["mcpServers"]["documents"]["command"] == sys.executable
    assert assistant.install("--undo", "--yes") == 1
    assert 'Take "documents" out of it by hand.' in capsys.readouterr().err
    assert (assistant.files, assistant.file.read_bytes()) == (["mcp.json"], text)


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_a_file_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], client: str
) -> None:
    """It and its folder are made, and said to be missing; undone, there is no file again."""
    assistant = Assistant(tmp_path, monkeypatch, client)
    assistant.file.parent.rmdir()
    assert assistant.install("--yes", "--name", "notes") == 0
    assert f"It is not there yet; is {CLIENTS[client].title} installed?" in capsys.readouterr().out
    assert assistant.files == [assistant.file.name]
    assert list(assistant.servers) == ["notes"]
    assert ("type" in assistant.servers["notes"]) is (client == "vscode")
    if sys.platform != "win32":
        assert assistant.file.stat().st_mode & 0o777 == 0o600
    assert assistant.install("--undo", "--yes", "--name", "notes") == 0
    assert assistant.files == []


def test_the_command_line_is_whole(assistant: Assistant, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Paths, names of indexes and a configuration stand in it as the assistant needs them, which knows no folder."""
    (tmp_path / "there.db").touch()
    (tmp_path / "own.toml").touch()
    assert assistant.install("--yes") == 0
    assert f"There is no index at {tmp_path / '.retrieval/index.db'} yet." in capsys.readouterr().out
    prefix = ["-P", "-m", "retrieval_core_mcp", "--index"]
    assert assistant.servers["documents"]["args"] == [*prefix, str(tmp_path / ".retrieval/index.db")]
    assert (
        assistant.install("--yes", "--index", "wiki=x/../there.db", "--index", "a=b=c.db", "--config", "lexical") == 0
    )
    printed = capsys.readouterr().out
    assert "there.db yet" not in printed
    assert "b=c.db yet" in printed
    places = [f"wiki={tmp_path / 'there.db'}", "--index", f"a={tmp_path / 'b=c.db'}"]
    assert assistant.servers["documents"]["args"] == [*prefix, *places, "--config", "lexical"]
    assert assistant.install("--yes", "--config", "own.toml") == 0
    assert assistant.servers["documents"]["args"][-2:] == ["--config", str(tmp_path / "own.toml")]


def test_the_server_starts_as_written(
    assistant: Assistant, index_file: Path, config_file: Path, tmp_path: Path
) -> None:
    """Also in a folder with modules that are called as its own are."""
    assert assistant.install("--yes", "--index", str(index_file), "--config", str(config_file)) == 0
    (tmp_path / "mcp.py").write_text("raise SystemExit('not this one')")
    parameters = StdioServerParameters(**assistant.servers["documents"], cwd=tmp_path)

    async def conversation() -> None:
        async with Client(stdio_client(parameters)) as client:
            answer: Any = await client.call_tool("search", {"query": "how far is the moon"})
            assert "\nid: moon.md#0\n" in answer.content[0].text

    asyncio.run(conversation())


def test_what_was_written_into_our_entry_stays(assistant: Assistant) -> None:
    """Its environment, for instance; one that was written by hand is known by its program."""
    ours: dict[str, Any] = {
        "command": "/x/.venv/bin/retrieval-mcp",
        "args": [],
        "env": {"RETRIEVAL_MCP__DESCRIPTION": "Notes."},
    }
    assistant.file.write_text(json.dumps({"mcpServers": {"documents": ours}}))
    assert assistant.install("--yes") == 0
    assert assistant.servers["documents"]["env"] == ours["env"]
    assert assistant.servers["documents"]["command"] == sys.executable
    assert assistant.install("--undo", "--yes") == 0
    assert assistant.servers["documents"] == ours
    assert assistant.install("--undo", "--yes") == 0
    assert assistant.servers == {}


@pytest.mark.parametrize(
    "other", [{"command": "npx", "args": ["x"]}, {"url": "https://x"}, {"args": 1}, 7, "retrieval-mcp"]
)
def test_another_server_is_not_touched(assistant: Assistant, other: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither is it replaced nor taken out, whatever the answer to the question would be."""
    text = json.dumps({"mcpServers": {"documents": other}})
    assistant.file.write_text(text)
    assert assistant.install("--yes") == 1
    assert "--name" in capsys.readouterr().err
    assert assistant.install("--yes", "--undo") == 1
    assert (assistant.files, assistant.file.read_text()) == (["mcp.json"], text)
    assert assistant.install("--yes", "--name", "mine") == 0
    assert list(assistant.servers) == ["documents", "mine"]


def test_each_install_is_taken_back_in_turn(assistant: Assistant) -> None:
    """Like the steps of an editor."""
    states = ["{}\n"]
    assistant.file.write_text(states[0])
    for index in ("a.db", "b.db", "c.db"):
        assert assistant.install("--yes", "--index", index) == 0
        states.append(assistant.file.read_text())
    for state in reversed(states[:-1]):
        assert assistant.install("--undo", "--yes") == 0
        assert assistant.file.read_text() == state
    assert assistant.files == ["mcp.json"]


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("Yes\n", 0), ("\n", 1), ("n\n", 1), ("", 1)])
def test_it_asks(
    assistant: Assistant, answer: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only yes is yes; the change is shown before."""
    assistant.file.write_text("{}")
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert assistant.install() == code
    shown, question, _ = capsys.readouterr().out.partition("Write this? [y/N] ")
    assert question
    assert '+    "documents": {' in shown
    assert (assistant.file.read_text() == "{}") is bool(code)


def test_without_a_terminal_nothing_is_written(assistant: Assistant) -> None:
    """As a real process, whose input is no terminal; the change is shown all the same."""
    ended = subprocess.run(
        [*MCP, "install", "--client", "cursor"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert ended.returncode == 1
    assert '"documents": {' in ended.stdout
    assert ended.stderr == f"{NO_TERMINAL}\n"
    assert assistant.files == []


def test_a_file_that_changes_meanwhile_is_left_alone(
    assistant: Assistant, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the assistant wrote while the question stood there is not overwritten."""

    class Slow(Terminal):
        def readline(self, size: int | None = -1, /) -> str:
            assistant.file.write_text('{"theme": "dark"}')
            return "y\n"

    monkeypatch.setattr(sys, "stdin", Slow())
    assert assistant.install() == 1
    assert capsys.readouterr().err == f"{CHANGED}\n"
    assert (assistant.files, assistant.file.read_text()) == (["mcp.json"], '{"theme": "dark"}')


def test_a_write_that_fails_leaves_the_file(assistant: Assistant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing half written, and nothing besides, is left."""
    assistant.file.write_text("{}")

    def full(number: int) -> None:
        raise OSError(28, f"no space left for {number}")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        assistant.install("--yes")
    assert (assistant.files, assistant.file.read_text()) == (["mcp.json"], "{}")


@pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")
def test_modes_and_links_stay(assistant: Assistant, tmp_path: Path) -> None:
    """A file that only its owner may read has such a copy; a link into a folder of settings stays one."""
    real = tmp_path / "settings" / "cursor.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    assistant.file.symlink_to(real)
    assert assistant.install("--yes") == 0
    assert assistant.file.is_symlink()
    assert sorted(path.name for path in real.parent.iterdir()) == ["cursor.json", "cursor.json.bak1"]
    assert {path.stat().st_mode & 0o777 for path in real.parent.iterdir()} == {0o640}


@pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")
def test_a_link_in_a_circle_is_an_error(assistant: Assistant) -> None:
    """In one line, as every file that cannot be read."""
    assistant.file.symlink_to(assistant.file)
    with pytest.raises(OSError, match="symbolic links"):
        assistant.install("--yes")
    assert assistant.file.is_symlink()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "required: --client"),
        (("--client", "emacs"), "invalid choice"),
        (("--client", "cursor", "--index", "a.db", "--index", "b/a.db"), "two indexes are called a"),
        (("--client", "cursor", "--name", " "), "--name is empty"),
        (("--client", "cursor", "--index", "\udcff.db"), "Unicode"),
        (("--client", "cursor", "--global"), "unrecognized arguments: --global"),
    ],
)
def test_wrong_use(
    assistant: Assistant, options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told with the usage, before anything is read."""
    with pytest.raises(SystemExit, match="2"):
        serve(["install", *options])
    assert message in capsys.readouterr().err
    assert assistant.files == []


HOME = Path("/home/me")
MAC = HOME / "Library/Application Support"
ROAMING = HOME / "AppData/Roaming"


@pytest.mark.parametrize(
    ("client", "system", "environment", "expected"),
    [
        ("claude-desktop", "darwin", {}, MAC / "Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", {"APPDATA": "/r"}, Path("/r/Claude/claude_desktop_config.json")),
        ("claude-desktop", "win32", {}, ROAMING / "Claude/claude_desktop_config.json"),
        ("claude-desktop", "linux", {}, HOME / ".config/Claude/claude_desktop_config.json"),
        ("cursor", "darwin", {}, HOME / ".cursor/mcp.json"),
        ("cursor", "win32", {"APPDATA": "/r"}, HOME / ".cursor/mcp.json"),
        ("cursor", "linux", {"XDG_CONFIG_HOME": "/c"}, HOME / ".cursor/mcp.json"),
        ("vscode", "darwin", {}, MAC / "Code/User/mcp.json"),
        ("vscode", "win32", {}, ROAMING / "Code/User/mcp.json"),
        ("vscode", "linux", {"XDG_CONFIG_HOME": "/c"}, Path("/c/Code/User/mcp.json")),
    ],
)
def test_where_configurations_are(client: str, system: str, environment: dict[str, str], expected: Path) -> None:
    """As the assistants' own pages say."""
    assert CLIENTS[client].config(Machine(system, HOME, environment)) == expected


def test_a_packaged_claude_desktop_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Windows gives a package a private copy of the folder for application data, which is all that it reads."""
    machine = Machine("win32", HOME, {"LOCALAPPDATA": str(tmp_path), "APPDATA": "/r"})
    place_of = CLIENTS["claude-desktop"].config
    package = tmp_path / "Packages/Claude_pzs8sxrjxfjjc"
    package.mkdir(parents=True)
    assert place_of(machine) == Path("/r/Claude/claude_desktop_config.json")
    private = package / "LocalCache/Roaming/Claude"
    private.mkdir(parents=True)
    assert place_of(machine) == private / "claude_desktop_config.json"
