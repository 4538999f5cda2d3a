"""The command ``retrieval-mcp setup``: what becomes of the configurations of assistants."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp.client.stdio import StdioServerParameters, stdio_client

from mcp import Client
from retrieval_core_mcp import __version__
from support.mcp_command import CLIENTS, Machine, read_options, serve
from support.processes import MCP

if TYPE_CHECKING:
    from collections.abc import Iterator

HOMES = ("APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME")
"""The variables that say where an assistant's files are."""
NO_TERMINAL = "Nothing was changed: there is no terminal to ask at. Add --yes to write this without a question."

RECORDED = {
    "claude-desktop": """{
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/ana/Desktop"]
    }
  },
  "globalShortcut": ""
}""",
    "claude-code": """{
  "numStartups": 212,
  "projects": {"/srv/ana": {"allowedTools": [], "mcpServers": {"documents": {"command": "other"}}}},
  "mcpServers": {
    "github": {
      "type": "http",
      "url": "https://api.githubcopilot.com/mcp/",
      "headers": {"Authorization": "Bearer \\u00e4"}
    }
  },
  "tipsHistory": {"shift-enter": 4}
}
""",
    "codex": """# how I work
model = "gpt-6"
approval_policy = "on-request"

[projects."/srv/ana"]
trust_level = "trusted"

[mcp_servers.context7]  # docs
command = "npx"
args = [
  "-y",
  "@upstash/context7-mcp",
]
# the keys of context7
[mcp_servers.context7.env]
CONTEXT7_API_KEY = "k"

# colours
[tui]
theme = "dark"
""",
    "cursor": '{"mcpServers":{"linear":{"url":"https://mcp.linear.app/sse"}}}',
    "vscode": """{
\t// shared with the team
\t"servers": {
\t\t"playwright": { "command": "npx", "args": ["@playwright/mcp@latest"] }, // browser
\t},
\t"inputs": [],
}
""",
    "gemini": """{
  "security": { "auth": { "selectedType": "oauth-personal" } },
  // "mcpServers": { "old": {} },
  "ui": { "theme": "Default" }
}
""",
    "opencode": """{
  "$schema": "https://opencode.ai/config.json",
  "model": "anthropic/claude-sonnet-5", /* fast */
  "mcp": {}
}
""",
    "zed": """// Zed settings
//
// For information on how to configure Zed, see the Zed documentation.
{
  "theme": { "mode": "system" },
  "context_servers": {
    /* "documents": {}, */
    "mcp-server-context7": { "enabled": true, "settings": {} }
  },
  "vim_mode": false, // for now
}
""",
    "windsurf": "{}\n",
    "copilot-cli": """{
    "mcpServers": {
        "playwright": {
            "type": "local",
            "command": "npx",
            "args": ["@playwright/mcp@latest"],
            "tools": ["*"]
        }
    }
}
""",
}
"""The configuration of each assistant as it or its user writes it."""

LINE = ["-P", "-m", "retrieval_core_mcp", "--folder"]


def expected_entry(client: str, line: list[str]) -> dict[str, Any]:
    """Return the entry that the documentation of an assistant asks for."""
    if client == "opencode":
        return {"type": "local", "command": [sys.executable, *line], "enabled": True}
    plain = {"command": sys.executable, "args": line}
    if client == "copilot-cli":
        return {"type": "local", **plain, "tools": ["*"]}
    return {"type": "stdio", **plain} if client in {"vscode", "claude-code"} else plain


COMMENT = r"(?>//.*|/\*[\s\S]*?\*/)"
TOKEN = re.compile(rf'("(?:[^"\\]|\\.)*")|{COMMENT}|,(?=(?:\s|{COMMENT})*[}}\]])|([\s\S])')


def read_jsonc(text: str) -> Any:
    """Return the value of JSON with comments and trailing commas."""
    return json.loads("".join((found[1] or "") + (found[2] or "") for found in TOKEN.finditer(text)))


class Terminal(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


class User:
    """A user with a home of their own, and with some assistants."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home = home.resolve()
        self.documents = self.home / "notes"
        self.documents.mkdir(parents=True)
        for name in HOMES:
            patch.delenv(name, raising=False)
        for name in ("HOME", "USERPROFILE"):
            patch.setenv(name, str(self.home))
        patch.setenv("PATH", "")
        patch.chdir(self.documents)

    def place(self, client: str) -> Path:
        return CLIENTS[client].config(Machine())

    def write(self, client: str, content: bytes) -> Path:
        path = self.place(client)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def read(self, client: str) -> dict[str, Any]:
        text = self.place(client).read_bytes().decode("utf-8-sig")
        return tomllib.loads(text) if client == "codex" else read_jsonc(text)

    def servers(self, client: str) -> dict[str, Any]:
        return self.read(client)[CLIENTS[client].servers]

    def setup(self, *options: str, command: str = "setup") -> int:
        try:
            serve([command, *options])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    def files(self) -> dict[str, bytes]:
        found = (path for path in sorted(self.home.rglob("*")) if path.is_file())
        return {path.relative_to(self.home).as_posix(): path.read_bytes() for path in found}


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    return User(tmp_path / "home", monkeypatch)


def test_every_assistant_is_found_and_left_as_before(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """One command adds the server to all ten, a second run changes nothing, and one more gives all files back."""
    for client, text in RECORDED.items():
        user.write(client, text.encode())
    before = user.files()
    assert user.setup(str(user.documents), "--description", "Our notes", "--allow-writes", "--yes") == 0
    line = [*LINE, str(user.documents), "--description", "Our notes", "--allow-writes"]
    for client, text in RECORDED.items():
        group = CLIENTS[client].servers
        former = tomllib.loads(text) if client == "codex" else read_jsonc(text)
        expected = {**former, group: {**former.get(group, {}), "documents": expected_entry(client, line)}}
        assert user.read(client) == expected
    for folder in (".claude", ".agents"):
        skill = (user.home / folder / "skills/documents/SKILL.md").read_text("utf-8")
        assert skill.startswith("---\nname: documents\ndescription: ")
        assert "Our notes. Indexed: the folder " in skill
    after = user.files()
    assert user.setup(str(user.documents), "--description", "Our notes", "--allow-writes", "--yes") == 0
    assert user.files() == after
    assert user.setup("--uninstall", "--dry-run") == 0
    assert user.files() == after
    assert user.setup("--uninstall", "--yes") == 0
    assert user.files() == before
    capsys.readouterr()
    assert user.setup("--uninstall", "--yes") == 0
    assert capsys.readouterr().out == "There is nothing to change.\n"


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=6)
HALF = "half of a pair: \ud800"
"""A text that JSON can only have with an escape."""
TEXTS = NAMES | st.sampled_from(["// no comment", "/* none */", "a,}", 'quoted " \\', "[x]", HALF])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
COMMENTS = st.sampled_from(["// note", "/* one */", "/* two\n   lines */", '// "documents": {}, ]}', "/*,*/"])


class Writer:
    """Writes JSON as people do: with comments, trailing commas, and lines broken anywhere."""

    def __init__(self, draw: st.DrawFn, *, with_comments: bool) -> None:
        self.draw = draw
        self.indent = draw(st.sampled_from(["", " ", "  ", "    ", "\t"]))
        self.with_comments = with_comments
        self.comments: list[str] = []

    def space(self, depth: int) -> str:
        kind = self.draw(st.sampled_from(["", " ", "line", "line", "line"]))
        space = f"\n{self.indent * depth}" if kind == "line" else kind
        if self.with_comments and self.draw(st.integers(0, 4)) == 0:
            comment = self.draw(COMMENTS)
            self.comments.append(comment)
            space += comment + (f"\n{self.indent * depth}" if comment.startswith("//") else "")
        return space

    def value(self, value: Any, depth: int = 0) -> str:
        if not isinstance(value, (dict, list)) or not value:
            return json.dumps(value, ensure_ascii=value == HALF or self.draw(st.booleans()))
        items = list(cast("dict[str | None, Any]", value).items()) if isinstance(value, dict) else []
        items += [(None, item) for item in cast("list[Any]", value if isinstance(value, list) else [])]
        parts: list[str] = []
        for name, item in items:
            key = "" if name is None else f"{json.dumps(name)}{self.draw(st.sampled_from(['', ' ']))}: "
            parts.append(f"{self.space(depth + 1)}{key}{self.value(item, depth + 1)}{self.space(depth + 1)}")
        comma = "," if self.with_comments and self.draw(st.booleans()) else ""
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        return f"{opening}{','.join(parts)}{comma}{self.space(depth)}{closing}"


@st.composite
def configurations(draw: st.DrawFn, client: str) -> tuple[str, list[str]]:
    """Draw the text of a JSON configuration, and its comments."""
    group = CLIENTS[client].servers
    members = list(draw(st.dictionaries(NAMES.filter(lambda name: name != group), VALUES, max_size=3)).items())
    if draw(st.booleans()):
        servers = draw(st.dictionaries(NAMES.filter(lambda name: name != "documents"), VALUES, max_size=3))
        members.insert(draw(st.integers(0, len(members))), (group, servers))
    writer = Writer(draw, with_comments=client not in {"claude-desktop", "claude-code"})
    text = f"{writer.space(0)}{writer.value(dict(members))}{writer.space(0)}{draw(st.sampled_from(['', chr(10)]))}"
    text = draw(st.sampled_from(["", "\ufeff"])) + text
    is_windows = draw(st.booleans())
    return (text.replace("\n", "\r\n") if is_windows else text), writer.comments


def has_all(text: str, comments: list[str]) -> bool:
    """Return whether a text has some comments, each as often as it was written."""
    lines = text.replace("\r\n", "\n")
    return all(lines.count(comment) >= comments.count(comment) for comment in comments)


JSON_CLIENTS = sorted(set(CLIENTS) - {"codex"})


@settings(max_examples=40, deadline=None)
@given(data=st.data(), client=st.sampled_from(JSON_CLIENTS))
def test_all_else_stays_and_uninstalling_gives_it_back(data: st.DataObject, client: str) -> None:
    """The entry comes, and every other character stays; without the entry the file is the same to the byte."""
    blank = st.sampled_from([("", list[str]()), (" \r\n", list[str]())])
    text, comments = data.draw(blank | configurations(client))
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", id)  # the disk is slow
        user = User(Path(home) / "home", patch)
        path = user.write(client, text.encode())
        before = user.files()
        assert user.setup("--client", client, "--yes") == 0
        entry = expected_entry(client, [*LINE, str(user.documents)])
        group = CLIENTS[client].servers
        former: dict[str, Any] = read_jsonc(text.removeprefix("\ufeff")) if text.strip() else {}
        assert user.read(client) == {**former, group: {**former.get(group, {}), "documents": entry}}
        after = path.read_bytes().decode()
        assert has_all(after, comments)
        assert "\n" not in after.replace("\r\n", "") or "\r\n" not in text
        assert user.setup("--client", client, "--yes", "--allow-writes") == 0  # an update
        # Another program changes the file, so that the entry has to be taken out of it.
        edited = path.read_bytes()
        path.write_bytes(edited + b"\n \n")
        (path.parent / f"{path.name}.before-documents").unlink(missing_ok=True)
        assert user.setup("--client", client, "--uninstall", "--yes") == 0
        assert user.read(client) == {**former, group: former.get(group, {})}
        assert has_all(path.read_bytes().decode(), comments)
        path.write_bytes(text.encode())
        assert user.setup("--client", client, "--yes") == 0
        assert user.setup("--client", client, "--uninstall", "--yes") == 0
        assert user.files() == before


@settings(max_examples=20, deadline=None)
@given(data=st.data(), client=st.sampled_from(JSON_CLIENTS))
def test_what_was_edited_since_stays(data: st.DataObject, client: str) -> None:
    """Servers that come before and after the entry stay when it goes, though a copy of the file is kept."""
    text, _ = data.draw(configurations(client))
    more = data.draw(st.dictionaries(NAMES.filter(lambda name: name != "documents"), VALUES, max_size=3))
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", id)  # the disk is slow
        user = User(Path(home) / "home", patch)
        path = user.write(client, text.encode())
        assert user.setup("--client", client, "--yes") == 0
        edited, group = user.read(client), CLIENTS[client].servers
        edited[group] = {**more, **edited[group], "newer": {"command": "x"}}
        path.write_text(json.dumps(edited), "utf-8")
        assert user.setup("--client", client, "--uninstall", "--yes") == 0
        del edited[group]["documents"]
        assert user.read(client) == edited
        assert list(user.files()) == [path.relative_to(user.home).as_posix()]


TOML_PARTS = [
    'model = "x" # mine\n',
    "\n# a comment\n",
    "[tui]\ntheme = 'dark'\n",
    '[mcp_servers.a]\ncommand = "b"\nargs = [\n  "[not.a.table]",\n]\n',
    '[mcp_servers."b c"]\nurl = "https://x"\n[mcp_servers."b c".env]\nKEY = """\n[mcp_servers.other]\n"""\n',
    "# about what follows\n[projects.'/x']\ntrust = 1\n",
    "\n\n",
]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_toml_stays_as_it_is(data: st.DataObject) -> None:
    """The table comes at the end; comments and blank lines stay, and all is as before without it."""
    parts = data.draw(st.lists(st.sampled_from(TOML_PARTS[1:]), max_size=5, unique=True))
    text = "".join(([TOML_PARTS[0]] if data.draw(st.booleans()) else []) + parts)
    text = text.rstrip() if data.draw(st.booleans()) else text
    text = data.draw(st.sampled_from(["", "\ufeff"])) + text
    text = text.replace("\n", "\r\n") if data.draw(st.booleans()) else text
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", id)  # the disk is slow
        user = User(Path(home) / "home", patch)
        path = user.write("codex", text.encode())
        before = user.files()
        assert user.setup("--client", "codex", "--yes") == 0
        added = path.read_bytes().decode()
        assert added.startswith(text)
        assert user.setup("--client", "codex", "--allow-writes", "--yes") == 0
        line = [*LINE, str(user.documents), "--allow-writes"]
        former = tomllib.loads(text.removeprefix("\ufeff"))
        assert user.servers("codex") == {**former.get("mcp_servers", {}), "documents": expected_entry("codex", line)}
        path.write_bytes(path.read_bytes() + b"\n# later\n[later]\nx = 1\n")
        assert user.setup("--client", "codex", "--uninstall", "--yes") == 0
        assert user.read("codex") == {**former, "later": {"x": 1}}
        assert path.read_bytes().decode().startswith(text)
        assert "# later\n[later]\nx = 1\n" in path.read_bytes().decode()
        path.write_bytes(text.encode())
        assert user.setup("--client", "codex", "--yes") == 0
        assert user.setup("--client", "codex", "--uninstall", "--yes") == 0
        assert user.files() == before


BROKEN = {
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


@pytest.mark.parametrize("content", BROKEN.values(), ids=list(BROKEN))
def test_what_could_lose_something_is_left_alone(
    user: User, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The entry is printed, to be put in by hand, and other assistants get theirs all the same."""
    path = user.write("cursor", content)
    user.write("gemini", b"{}")
    assert user.setup("--yes") == 1
    message, _, snippet = capsys.readouterr().err.partition("by hand:\n")
    assert message.startswith(f"Cursor: {path} was left as it is: ")
    assert json.loads(snippet.rstrip().removesuffix("."))["mcpServers"]["documents"]["command"] == sys.executable
    assert list(user.servers("gemini")) == ["documents"]
    assert user.setup("--uninstall", "--yes") == 1
    assert 'Remove "documents" from it by hand if it is there.' in capsys.readouterr().err
    assert path.read_bytes() == content
    assert (user.home / ".gemini/settings.json").read_bytes() == b"{}"


def test_servers_in_one_line_of_toml_are_left_alone(user: User) -> None:
    """A table can't be added to them."""
    path = user.write("codex", b'mcp_servers = {a = {command = "b"}}\n')
    assert user.setup("--client", "codex", "--yes") == 1
    assert path.read_bytes() == b'mcp_servers = {a = {command = "b"}}\n'


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_a_file_that_is_not_there(user: User, client: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It and its folder are made, and said to be missing; afterwards there is no file again."""
    assert user.setup("--client", client, "--yes", "--name", "notes") == 0
    assert f"{user.place(client)} (is it installed?)" in capsys.readouterr().out
    assert user.servers(client) == {"notes": expected_entry(client, [*LINE, str(user.documents)])}
    if sys.platform != "win32":
        assert user.place(client).stat().st_mode & 0o777 == 0o600
    assert user.setup("--uninstall", "--yes", "--name", "notes") == 0
    assert user.files() == {}


def test_without_an_assistant_it_says_which_there_are(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs on the PATH count, too, before they were ever started."""
    assert user.setup("--yes") == 1
    assert "No assistant was found" in capsys.readouterr().err
    programs = user.home / "bin"
    programs.mkdir()
    program = programs / ("codex.exe" if sys.platform == "win32" else "codex")
    program.touch(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(programs))
        assert user.setup("--yes") == 0
    assert list(user.servers("codex")) == ["documents"]


def test_the_command_line_is_whole(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Paths, names of indexes and a configuration stand in it as the assistant needs them, which knows no folder."""
    (user.documents / "there.db").touch()
    (user.documents / "own.toml").touch()
    indexes = ("--index", "wiki=x/../there.db", "--index", "a=b=c.db")
    assert user.setup("--client", "cursor", "--yes", *indexes, "--config", "lexical") == 0
    printed = capsys.readouterr().out
    assert "there.db yet" not in printed
    assert "b=c.db yet" in printed
    places = ["--index", f"wiki={user.documents / 'there.db'}", "--index", f"a={user.documents / 'b=c.db'}"]
    assert user.servers("cursor")["documents"]["args"] == [*LINE[:3], *places, "--config", "lexical"]
    assert user.setup("--client", "cursor", "--yes", "--config", "own.toml", "--allow-writes") == 0
    line = [*LINE, str(user.documents), "--allow-writes", "--config", str(user.documents / "own.toml")]
    assert user.servers("cursor")["documents"]["args"] == line


@pytest.mark.parametrize(
    "options",
    [
        ("nowhere",),
        ("~",),
        ("/",),
        (".", "--index", "a.db"),
        ("--index", "a.db", "--index", "b/a.db"),
        ("--index", "\udcff.db"),
        ("--name", "two words"),
        ("--description", "x" * 501),
        ("--client", "emacs"),
    ],
)
def test_wrong_options_change_nothing(user: User, options: tuple[str, ...]) -> None:
    """A whole home or disk is no folder of documents."""
    user.write("cursor", b"{}")
    assert user.setup("--yes", *options) == 2
    assert user.files() == {".cursor/mcp.json": b"{}"}


def test_the_server_starts_as_written(user: User, config_file: Path) -> None:
    """Also in a folder with modules that are called as its own are."""
    (user.documents / "moon.md").write_text("The moon is 384,400 km away.")
    assert user.setup("--client", "cursor", "--yes", "--config", str(config_file)) == 0
    (user.home / "mcp.py").write_text("raise SystemExit('not this one')")
    parameters = StdioServerParameters(**user.servers("cursor")["documents"], cwd=user.home)

    async def conversation() -> None:
        async with Client(stdio_client(parameters)) as client:
            answer: Any = None
            for _ in range(100):
                answer = await client.call_tool("search", {"query": "how far is the moon"})
                if not answer.is_error:
                    break
                await asyncio.sleep(0.1)
            assert "moon.md" in answer.content[0].text

    asyncio.run(conversation())


def test_what_was_written_into_our_entry_stays(user: User) -> None:
    """Its environment, for instance; one that was written by hand is known by its program."""
    ours: dict[str, Any] = {"command": "/x/.venv/bin/retrieval-mcp", "args": [], "env": {"RETRIEVAL_LOG": "1"}}
    user.write("cursor", json.dumps({"mcpServers": {"documents": ours}}).encode())
    assert user.setup("--client", "cursor", "--yes") == 0
    assert user.servers("cursor")["documents"]["env"] == ours["env"]
    assert user.servers("cursor")["documents"]["command"] == sys.executable
    assert user.setup("--client", "cursor", "--uninstall", "--yes") == 0
    assert user.servers("cursor") == {}


@pytest.mark.parametrize(
    "other", [{"command": "npx", "args": ["x"]}, {"url": "https://x"}, {"args": 1}, 7, "retrieval-mcp"]
)
def test_another_server_is_not_touched(user: User, other: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither is it replaced nor removed, whatever the answer to the question would be."""
    content = json.dumps({"mcpServers": {"documents": other}}).encode()
    path = user.write("windsurf", content)
    assert user.setup("--yes") == 1
    assert "--name" in capsys.readouterr().err
    assert path.read_bytes() == content
    capsys.readouterr()
    assert user.setup("--yes", "--uninstall") == 0
    assert f'{path}: "documents" is another server there, and stays.' in capsys.readouterr().out
    assert path.read_bytes() == content
    assert user.setup("--yes", "--name", "mine") == 0
    assert list(user.servers("windsurf")) == ["documents", "mine"]


def test_a_skill_stays_while_somebody_uses_it(user: User) -> None:
    """Several assistants read the same one. Another skill of its name is never touched."""
    for client in ("gemini", "zed"):
        user.write(client, b"{}")
    shared = user.home / ".agents/skills/documents/SKILL.md"
    assert user.setup("--yes") == 0
    assert user.setup("--uninstall", "--client", "zed", "--yes") == 0
    assert shared.exists()
    assert user.setup("--uninstall", "--client", "gemini", "--yes") == 0
    assert not shared.parent.exists()
    shared.parent.mkdir()
    shared.write_text("---\nname: documents\n---\nMine.\n")
    assert user.setup("--yes") == 1
    assert user.setup("--uninstall", "--yes") == 0
    assert shared.read_text() == "---\nname: documents\n---\nMine.\n"


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("Yes\n", 0), ("\n", 1), ("n\n", 1), ("", 1)])
def test_it_asks(
    user: User, answer: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only yes is yes; the change is shown before, without the lines around it, which may have keys."""
    path = user.write("cursor", b'{\n  "mcpServers": {\n    "a": {"env": {"KEY": "secret"}}\n  }\n}')
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert user.setup("--client", "cursor") == code
    shown, question, _ = capsys.readouterr().out.partition("Write this? [y/N] ")
    assert question
    assert '+     "documents": {' in shown
    assert ("documents" in path.read_text()) is not bool(code)


def test_without_a_terminal_nothing_is_written(user: User) -> None:
    """As a real process, whose input is no terminal; the change is shown all the same."""
    ended = subprocess.run(
        [*MCP, "setup", "--client", "cursor"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert ended.returncode == 1
    assert '"documents": {' in ended.stdout
    assert ended.stderr == f"{NO_TERMINAL}\n"
    assert user.files() == {}


def test_runs_at_the_same_time_lose_nothing(user: User) -> None:
    """A run either adds its server, or says that the file was changed."""
    user.write("cursor", b"{}")
    names = [f"s{number}" for number in range(5)]
    runs = [
        subprocess.Popen(
            [*MCP, "setup", str(user.home / "notes"), "--client", "cursor", "--name", name, "--yes"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in names
    ]
    ended = {name: run.wait() for name, run in zip(names, runs, strict=True)}
    assert set(ended.values()) <= {0, 1}
    assert {name for name, code in ended.items() if code == 0} == set(user.read("cursor")["mcpServers"])


def test_keys_of_other_servers_are_not_shown(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even if all servers are in one line."""
    for text in (b'{"mcpServers": {"a": {"env": {"KEY": "sk-1"}}}}', b'{"mcpServers": {\n "a": {"KEY": "sk-1"}\n}}'):
        user.write("cursor", text)
        for options in ((), ("--uninstall",)):
            assert user.setup("--client", "cursor", "--yes", *options) == 0
            shown = capsys.readouterr().out
            assert "retrieval_core_mcp" in shown
            assert "sk-1" not in shown


def test_a_read_only_file_is_left_alone(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Its owner, or a program that keeps it, did not want it to be changed."""
    user.write("cursor", b"{}")
    user.place("cursor").chmod(0o444)
    assert user.setup("--client", "cursor", "--yes") == 1
    assert user.place("cursor").read_bytes() == b"{}"
    shown = capsys.readouterr().err
    assert "was left as it is: it is read-only. Put this into it by hand:" in shown
    assert shown.endswith("}\n")


def test_a_file_that_changes_meanwhile_is_left_alone(
    user: User, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the assistant wrote while the question stood there is not overwritten."""
    path = user.place("cursor")

    class Slow(Terminal):
        def readline(self, size: int | None = -1, /) -> str:
            path.parent.mkdir(parents=True)
            path.write_text('{"theme": "dark"}')
            return "y\n"

    monkeypatch.setattr(sys, "stdin", Slow())
    assert user.setup("--client", "cursor") == 1
    assert "another program has changed it meanwhile" in capsys.readouterr().err
    assert path.read_text() == '{"theme": "dark"}'


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_write_that_fails_leaves_the_file(
    user: User, failing: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing half written, and nothing besides, is left; the other files are written, and another run completes it."""
    for client in ("cursor", "gemini"):
        user.write(client, b'{"theme": "dark"}')
    before = user.files()
    writes: list[int] = []

    def full(number: int) -> None:
        writes.append(number)
        if len(writes) == failing:
            raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert user.setup("--yes") == 1
    assert "was left as it is: it can't be written (no space left).\n" in capsys.readouterr().err
    found = user.files()
    whole = [client for client in ("cursor", "gemini") if "documents" in user.read(client).get("mcpServers", {})]
    copies = {f"{user.place(client).relative_to(user.home).as_posix()}.before-documents" for client in whole}
    skills = {name for name in found if name.endswith("/SKILL.md")}
    assert set(found) == {*before, *copies, *skills}
    assert len(whole) + len(skills) == 2
    assert user.setup("--yes") == 0
    assert user.setup("--uninstall", "--yes") == 0
    assert user.files() == before


@pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")
def test_modes_and_links_stay(user: User) -> None:
    """A file that only some may read has such a copy; a link into a folder of settings stays one, also afterwards."""
    real = user.home / "settings/cursor.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    link = user.place("cursor")
    link.parent.mkdir()
    link.symlink_to(real)
    assert user.setup("--client", "cursor", "--yes") == 0
    assert sorted(path.name for path in real.parent.iterdir()) == ["cursor.json", "cursor.json.before-documents"]
    assert {path.stat().st_mode & 0o777 for path in real.parent.iterdir()} == {0o640}
    assert user.setup("--client", "cursor", "--uninstall", "--yes") == 0
    assert link.readlink() == real
    assert [(path.read_text(), path.stat().st_mode & 0o777) for path in real.parent.iterdir()] == [("{}", 0o640)]


@pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")
def test_a_link_in_a_circle_is_left_alone(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """As every file that can't be read; other assistants get the server all the same."""
    link = user.place("cursor")
    link.parent.mkdir()
    link.symlink_to(link)
    user.write("gemini", b"{}")
    assert user.setup("--yes") == 1
    message = capsys.readouterr().err
    assert message.startswith(f"Cursor: {link} was left as it is: it can't be read (")
    assert "symbolic links" in message
    assert list(user.servers("gemini")) == ["documents"]
    assert link.readlink() == link


def test_the_old_name_still_works(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """``install`` does the same, and says how it is called now."""
    assert user.setup("--client", "cursor", "--yes", command="install") == 0
    assert "retrieval-mcp install is deprecated" in capsys.readouterr().err
    assert list(user.servers("cursor")) == ["documents"]
    assert user.setup("--client", "cursor", "--undo", "--yes", command="install") == 0
    assert user.files() == {}


SYSTEMS = {
    "darwin": {
        "claude-desktop": "Library/Application Support/Claude/claude_desktop_config.json",
        "vscode": "Library/Application Support/Code/User/mcp.json",
        "zed": ".config/zed/settings.json",
    },
    "linux": {
        "claude-desktop": ".config/Claude/claude_desktop_config.json",
        "vscode": ".config/Code/User/mcp.json",
        "zed": ".config/zed/settings.json",
    },
    "win32": {
        "claude-desktop": "AppData/Roaming/Claude/claude_desktop_config.json",
        "vscode": "AppData/Roaming/Code/User/mcp.json",
        "zed": "AppData/Roaming/Zed/settings.json",
    },
}
EVERYWHERE = {
    "claude-code": ".claude.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "copilot-cli": ".copilot/mcp-config.json",
}


def places() -> Iterator[tuple[str, str, str]]:
    for system, own in SYSTEMS.items():
        for client, place in {**EVERYWHERE, **own}.items():
            yield system, client, place


@pytest.mark.parametrize(("system", "client", "place"), list(places()))
def test_where_the_files_are(tmp_path: Path, system: str, client: str, place: str) -> None:
    """On each system, as the documentation of each assistant says."""
    assert CLIENTS[client].config(Machine(system, tmp_path, {})) == tmp_path / place


@pytest.mark.parametrize(
    ("system", "client", "place"),
    [
        ("win32", "claude-desktop", "moved/Claude/claude_desktop_config.json"),
        ("win32", "vscode", "moved/Code/User/mcp.json"),
        ("win32", "zed", "moved/Zed/settings.json"),
        ("win32", "cursor", ".cursor/mcp.json"),
        ("linux", "claude-desktop", "moved/Claude/claude_desktop_config.json"),
        ("linux", "vscode", "moved/Code/User/mcp.json"),
        ("linux", "cursor", ".cursor/mcp.json"),
        ("darwin", "vscode", "Library/Application Support/Code/User/mcp.json"),
    ],
)
def test_where_application_data_is_moved_to(tmp_path: Path, system: str, client: str, place: str) -> None:
    """Each system has its own variable for that folder; the one of another system has no effect."""
    own, other = ("APPDATA", "XDG_CONFIG_HOME") if system == "win32" else ("XDG_CONFIG_HOME", "APPDATA")
    environment = {own: str(tmp_path / "moved"), other: str(tmp_path / "other")}
    assert CLIENTS[client].config(Machine(system, tmp_path, environment)) == tmp_path / place


def test_a_packaged_claude_desktop_has_its_own_folder(tmp_path: Path) -> None:
    """Windows gives a package a private copy of the folder for application data, which is all that it reads."""
    machine = Machine("win32", tmp_path, {"LOCALAPPDATA": str(tmp_path / "local"), "APPDATA": str(tmp_path / "r")})
    place_of = CLIENTS["claude-desktop"].config
    package = tmp_path / "local/Packages/Claude_pzs8sxrjxfjjc"
    package.mkdir(parents=True)
    assert place_of(machine) == tmp_path / "r/Claude/claude_desktop_config.json"
    private = package / "LocalCache/Roaming/Claude"
    private.mkdir(parents=True)
    assert place_of(machine) == private / "claude_desktop_config.json"


def test_where_a_variable_says(tmp_path: Path) -> None:
    """Assistants whose folder can be moved; and the two forms of opencode's file."""
    other = tmp_path / "other"
    names = {"CODEX_HOME": "codex", "CLAUDE_CONFIG_DIR": "claude-code", "COPILOT_HOME": "copilot-cli"}
    machine = Machine("linux", tmp_path, dict.fromkeys((*names, "XDG_CONFIG_HOME"), str(other)))
    for client in names.values():
        assert CLIENTS[client].config(machine).parent == other
    assert CLIENTS["claude-code"].skills(machine) == other / "skills"
    (other / "opencode").mkdir(parents=True)
    (other / "opencode/opencode.jsonc").touch()
    assert CLIENTS["opencode"].config(machine) == other / "opencode/opencode.jsonc"
    assert CLIENTS["zed"].config(machine) == other / "zed/settings.json"


def test_the_plugin_has_what_its_marketplace_says() -> None:
    """The server with options that it takes, the skill under the name of its folder, and the package's version."""
    root = Path(__file__).parents[2]
    (listed,) = json.loads((root / ".claude-plugin/marketplace.json").read_text("utf-8"))["plugins"]
    plugin = root / listed["source"]
    manifest = json.loads((plugin / ".claude-plugin/plugin.json").read_text("utf-8"))
    assert (manifest["name"], manifest["version"]) == (listed["name"], __version__)
    (server,) = json.loads((plugin / ".mcp.json").read_text("utf-8"))["mcpServers"].values()
    assert server["command"] == "retrieval-mcp"
    assert read_options(server["args"]).watch
    (skill,) = (plugin / "skills").iterdir()
    head = (skill / "SKILL.md").read_text("utf-8").split("---\n")[1]
    assert set(yaml.safe_load(head)) == {"name", "description"}
    assert yaml.safe_load(head)["name"] == skill.name
    assert len(yaml.safe_load(head)["description"]) <= 1024
