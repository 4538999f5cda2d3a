"""The assistants that the server can be added to, and where each keeps its list of servers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Client:
    """An assistant that starts servers itself, from a list in a JSON file."""

    title: str
    servers: str
    """The name of the object that holds the servers."""
    typed: bool
    """Whether an entry says that the server speaks over standard input and output."""
    afterwards: str
    """What its user does so that the assistant sees the change."""


CLIENTS = {
    "claude-desktop": Client(
        title="Claude Desktop",
        servers="mcpServers",
        typed=False,
        afterwards="Quit Claude Desktop fully (closing its window is not enough) and start it again.",
    ),
    "cursor": Client(
        title="Cursor",
        servers="mcpServers",
        typed=False,
        afterwards="Quit Cursor and start it again.",
    ),
    "vscode": Client(
        title="VS Code",
        servers="servers",
        typed=True,
        afterwards="In VS Code, the command MCP: List Servers shows its servers and starts them.",
    ),
}


def config_file(client: str, system: str, home: Path, environment: Mapping[str, str]) -> Path:
    """Return the file with an assistant's servers for all projects of a user; it need not exist.

    Args:
        client: A key of :data:`CLIENTS`.
        system: As ``sys.platform``.
        home: The folder of the user.
        environment: Of the process.
    """
    if client == "cursor":
        return home / ".cursor" / "mcp.json"
    data = _application_data(system, home, environment)
    if client == "vscode":
        return data / "Code" / "User" / "mcp.json"
    folder = data / "Claude"
    if system == "win32":
        # A Claude Desktop that was installed as a package sees a private copy of that folder, once it has one.
        packages = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / "Packages"
        folder = next(iter(sorted(packages.glob("Claude_*/LocalCache/Roaming/Claude"))), folder)
    return folder / "claude_desktop_config.json"


def _application_data(system: str, home: Path, environment: Mapping[str, str]) -> Path:
    if system == "darwin":
        return home / "Library" / "Application Support"
    if system == "win32":
        return Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
