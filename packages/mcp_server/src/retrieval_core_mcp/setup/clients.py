"""The assistants that the server can be added to, and where each keeps its list of servers."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrieval_core_mcp.setup import json_text, toml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that clients are looked for on.

    Attributes:
        system: As ``sys.platform``.
        home: The folder of the user.
        environment: Of the process.
    """

    system: str = sys.platform
    home: Path = field(default_factory=Path.home)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def application_data(self) -> Path:
        """The folder with the settings of desktop programs."""
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        if self.system == "win32":
            return self.folder("APPDATA", "AppData/Roaming")
        return self.folder("XDG_CONFIG_HOME", ".config")

    @property
    def path(self) -> str:
        """The folders with programs."""
        return self.environment.get("PATH", "")

    def folder(self, variable: str, default: str) -> Path:
        """Return the folder that an environment variable names, else one below that of the user."""
        return Path(self.environment.get(variable) or self.home / default)


def _claude_desktop(machine: Machine) -> Path:
    folder = machine.application_data / "Claude"
    if machine.system == "win32":
        # A Claude Desktop that was installed as a package sees a private copy of that folder, once it has one.
        packages = machine.folder("LOCALAPPDATA", "AppData/Local") / "Packages"
        folder = next(iter(sorted(packages.glob("Claude_*/LocalCache/Roaming/Claude"))), folder)
    return folder / "claude_desktop_config.json"


def _claude_code(machine: Machine) -> Path:
    folder = machine.environment.get("CLAUDE_CONFIG_DIR")
    return (Path(folder) if folder else machine.home) / ".claude.json"


def _opencode(machine: Machine) -> Path:
    folder = machine.folder("XDG_CONFIG_HOME", ".config") / "opencode"
    with_comments = folder / "opencode.jsonc"
    return with_comments if with_comments.exists() else folder / "opencode.json"


def _zed(machine: Machine) -> Path:
    if machine.system == "win32":
        return machine.application_data / "Zed" / "settings.json"
    folder = ".config" if machine.system == "darwin" else machine.folder("XDG_CONFIG_HOME", ".config")
    return machine.home / folder / "zed" / "settings.json"


def _plain(command: Sequence[str]) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:])}


def _stdio(command: Sequence[str]) -> dict[str, Any]:
    return {"type": "stdio", **_plain(command)}


def _local(command: Sequence[str]) -> dict[str, Any]:
    return {"type": "local", "command": list(command), "enabled": True}


def _with_tools(command: Sequence[str]) -> dict[str, Any]:
    return {"type": "local", **_plain(command), "tools": ["*"]}


@dataclass(frozen=True, slots=True)
class Client:
    """An assistant that starts servers itself, from a list in a file.

    Attributes:
        title: Its name.
        config: Returns the file with the servers for all projects of a user; it need not exist.
        servers: The name of the object or table with the servers.
        entry: Makes an entry from a command line.
        program: The name of its command, if it has one.
        afterwards: How its user makes it see a change.
        folder: Returns the folder with its own files and skills. Default: the folder of the file, and the folder of
            skills that most assistants share.
        reads_skills: Whether it reads skills from files.
        editor: Changes its file: ``json_text`` or ``toml_text``.
    """

    title: str
    config: Callable[[Machine], Path]
    servers: str = "mcpServers"
    entry: Callable[[Sequence[str]], dict[str, Any]] = _plain
    program: str | None = None
    afterwards: str = "start a new session"
    folder: Callable[[Machine], Path] | None = None
    reads_skills: bool = True
    editor: Any = json_text

    def is_found(self, machine: Machine) -> bool:
        """Return whether the assistant is on a machine: it has a file or folder, or its command is on the PATH."""
        path = self.config(machine)
        folder = path.parent if self.folder is None else self.folder(machine)
        is_there = path.exists() or folder.is_dir()
        return is_there or (self.program is not None and bool(shutil.which(self.program, path=machine.path)))

    def skills(self, machine: Machine) -> Path | None:
        """Return the folder with the user's skills; ``None`` if it reads none."""
        if not self.reads_skills:
            return None
        return (machine.home / ".agents" if self.folder is None else self.folder(machine)) / "skills"


CLIENTS = {
    "claude-desktop": Client(
        "Claude Desktop",
        _claude_desktop,
        afterwards="quit it fully (closing its window is not enough) and start it again",
        reads_skills=False,
    ),
    "claude-code": Client(
        "Claude Code",
        _claude_code,
        entry=_stdio,
        program="claude",
        folder=lambda machine: machine.folder("CLAUDE_CONFIG_DIR", ".claude"),
    ),
    "codex": Client(
        "Codex",
        lambda machine: machine.folder("CODEX_HOME", ".codex") / "config.toml",
        servers="mcp_servers",
        program="codex",
        editor=toml_text,
    ),
    "cursor": Client(
        "Cursor",
        lambda machine: machine.home / ".cursor" / "mcp.json",
        program="cursor",
        afterwards="quit it and start it again",
    ),
    "vscode": Client(
        "VS Code",
        lambda machine: machine.application_data / "Code" / "User" / "mcp.json",
        servers="servers",
        entry=_stdio,
        program="code",
        afterwards="start the server with the command MCP: List Servers",
    ),
    "gemini": Client(
        "Gemini CLI",
        lambda machine: machine.home / ".gemini" / "settings.json",
        program="gemini",
    ),
    "opencode": Client("opencode", _opencode, servers="mcp", entry=_local, program="opencode"),
    "zed": Client(
        "Zed",
        _zed,
        servers="context_servers",
        program="zed",
        afterwards="the agent panel lists the server",
    ),
    "windsurf": Client(
        "Windsurf",
        lambda machine: machine.home / ".codeium" / "windsurf" / "mcp_config.json",
        program="windsurf",
        afterwards="refresh the list of MCP servers in its settings",
    ),
    "copilot-cli": Client(
        "Copilot CLI",
        lambda machine: machine.folder("COPILOT_HOME", ".copilot") / "mcp-config.json",
        entry=_with_tools,
        program="copilot",
    ),
}
