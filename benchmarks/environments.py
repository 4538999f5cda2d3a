"""An environment for each system, made once from its pinned requirements, and a process that searches in it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers import PEERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.collection import Collection

ROOT = Path(__file__).parents[1]
LAST_LINES = 5
"""Lines of what a process printed that are told when it fails."""


class PeerError(Exception):
    """A system cannot be installed, or failed to do what it was asked."""


def cache_folder() -> Path:
    """Return where the environments are kept by default: a folder in the user's cache directory."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "retrieval-core-benchmarks"


def interpreter(name: str, environments: Path) -> Path:
    """Return the interpreter of a system's environment, which is made where it is not there; ours is the running one.

    Raises:
        PeerError: Something cannot be installed.
    """
    requirements = ROOT / "benchmarks/peers" / f"{PEERS[name].module}.txt"
    if not requirements.exists():
        return Path(sys.executable)
    made_of = f"{sys.version_info[:2]} {requirements.read_text('utf-8')}"
    folder = environments / f"{PEERS[name].module}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    complete = folder / "complete"
    if not complete.exists():
        print(f"{name}: installing {requirements.name} into {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        uv = _uv()
        make, install = (
            (
                [*uv, "venv", "--quiet", "--python", sys.executable],
                [*uv, "pip", "install", "--quiet", "--python", str(python)],
            )
            if uv
            else ([sys.executable, "-m", "venv"], [str(python), "-m", "pip", "install", "--quiet"])
        )
        _run(name, [*make, str(folder)])
        _run(name, [*install, "-r", str(requirements)])
        complete.touch()
    return python


class Running:
    """A system in its own process, in a folder of its own beside the collection.

    See :class:`benchmarks.worker.Worker` for what it can be asked.

    Attributes:
        versions: Of the distributions that take part.

    Raises:
        PeerError: It cannot be started.
    """

    def __init__(self, name: str, python: Path, collection: Collection, settings: Mapping[str, str]) -> None:
        self.name = name
        place = collection.folder / name
        place.mkdir(exist_ok=True)
        self._errors = place / "stderr.txt"
        command = [str(python), "-m", "benchmarks.worker", name, str(collection.folder), str(place)]
        with self._errors.open("w", encoding="utf-8") as stderr:
            self._process = subprocess.Popen(
                [*command, json.dumps(settings)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=ROOT, text=True, encoding="utf-8",
            )  # fmt: skip
        try:
            self.versions: dict[str, str] = self._answer("start")["versions"]
        except PeerError:
            self.end()
            raise

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for the answer.

        Raises:
            PeerError: It failed, or the process ended.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # then there is no answer either
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        return self._answer(do)

    def end(self) -> None:
        """Close its input, upon which it closes what it has open, and wait until it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _answer(self, do: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._errors.read_text("utf-8")}
        if "error" in answer:
            msg = f"{self.name} failed to {do}: " + "\n".join(answer["error"].rstrip().splitlines()[-LAST_LINES:])
            raise PeerError(msg)
        return answer


def _uv() -> list[str]:
    if (found := shutil.which("uv")) is not None:
        return [found]
    return [sys.executable, "-m", "uv"] if find_spec("uv") is not None else []


def _run(name: str, command: list[str]) -> None:
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        msg = f"{name} cannot be installed: " + "\n".join(done.stderr.rstrip().splitlines()[-LAST_LINES:])
        raise PeerError(msg)
