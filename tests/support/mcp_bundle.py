"""The MCP server's bundle for Claude Desktop: put together, and started as its manifest says.

As a command, ``python tests/support/mcp_bundle.py WHEELS FOLDER`` puts it into a folder, unpacks it elsewhere, lets uv
install it there, and searches with it; it fails if anything of that does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PACKAGE = Path(__file__).parents[2] / "packages/mcp_server"
BUNDLE = PACKAGE / "bundle"
PARTS = {
    "LICENSE": PACKAGE / "LICENSE",
    **{name: BUNDLE / name for name in ("manifest.json", "pyproject.toml", "server/main.py")},
}
MANIFEST: dict[str, Any] = json.loads((BUNDLE / "manifest.json").read_text(encoding="utf-8"))
WHEELS = re.findall(r'"wheels/(.+\.whl)"', (BUNDLE / "pyproject.toml").read_text(encoding="utf-8"))
"""The wheels that the bundle installs."""
MOMENT = (1980, 1, 1, 0, 0, 0)
"""The time of everything in a bundle, so that the same parts give the same bundle."""
VARIABLE = re.compile(r"\$\{([\w.]+)\}")


def pack(wheels: Path, folder: Path) -> Path:
    """Write the bundle into a folder, and return it.

    Args:
        wheels: The folder with the wheels of the core and of the server.
    """
    parts = {**PARTS, **{f"wheels/{name}": wheels / name for name in WHEELS}}
    folder.mkdir(parents=True, exist_ok=True)
    bundle = folder / f"{MANIFEST['name']}-{MANIFEST['version']}.mcpb"
    with ZipFile(bundle, "w", ZIP_DEFLATED) as archive:
        for name, path in sorted(parts.items()):
            part = ZipInfo(name, MOMENT)
            part.create_system, part.external_attr, part.compress_type = 3, 0o644 << 16, ZIP_DEFLATED
            archive.writestr(part, path.read_bytes())
    return bundle


def start_of(folder: Path, answers: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the command line and the environment with which a host starts an unpacked bundle.

    Args:
        answers: What the user has filled in, by the names of ``user_config``.
    """
    defaults = {name: option["default"] for name, option in MANIFEST["user_config"].items() if "default" in option}
    values = {f"user_config.{name}": value for name, value in {**defaults, **answers}.items()}
    values["__dirname"] = str(folder)

    def filled(text: str) -> str:
        return VARIABLE.sub(lambda found: values[found[1]], text)

    config = MANIFEST["server"]["mcp_config"]
    line = [config["command"], *map(filled, config["args"])]
    return line, {name: filled(value) for name, value in config["env"].items()}


def conversation(line: list[str], environment: dict[str, str], requests: Iterable[tuple[str, Any]]) -> list[Any]:
    """Start a server, ask it one thing after the other, and return the results."""
    pipe = subprocess.PIPE
    with subprocess.Popen(line, env=_outside() | environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        results: list[Any] = []
        for number, (method, params) in enumerate(requests):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            results.append(json.loads(process.stdout.readline())["result"])
        process.stdin.close()
    return results


def _outside() -> dict[str, str]:
    """Return the environment of a program that was started outside of the virtual environment of this one."""
    return {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}


def attempt(bundle: Path) -> None:
    """Unpack a bundle, index a note with what is in it, and find that through the server."""
    with TemporaryDirectory() as name:
        place, index, note = (Path(name).resolve() / part for part in ("bundle", "index.db", "moon.md"))
        with ZipFile(bundle) as archive:
            archive.extractall(place)
        note.write_text("The moon is 384,400 km away from the earth.\n")
        line, environment = start_of(place, {"index": str(index), "description": "The moon."})
        index_it = [*line[:-1], "retrieval", "index", str(note), "--index", str(index)]
        subprocess.run(index_it, env=_outside(), check=True)
        client: Any = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "a test", "version": "1"},
        }
        search: Any = {"name": "search", "arguments": {"query": "how far away is the satellite", "mode": "dense"}}
        asked: Any = (("initialize", client), ("tools/list", {}), ("tools/call", search))
        greeting, tools, found = conversation(line, environment, asked)
    assert "The documents are about: The moon." in greeting["instructions"]
    assert [tool["name"] for tool in tools["tools"]] == [tool["name"] for tool in MANIFEST["tools"]]
    assert "\n[1] moon.md:1\n" in found["content"][0]["text"], found


if __name__ == "__main__":
    built = pack(*map(Path, sys.argv[1:]))
    attempt(built)
    sys.stdout.write(f"{built} works as its manifest says\n")
