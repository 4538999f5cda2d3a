"""What is imported by what."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from support.processes import with_our_modules

if TYPE_CHECKING:
    from pathlib import Path


def test_the_server_of_assistants_imports_nothing_of_the_service() -> None:
    """Its start is what an assistant waits for; of the service only the settings are read."""
    code = (
        "import sys; import retrieval_core_mcp.server, retrieval_core_mcp.stdio; "
        "own = [name for name in sys.modules if name.startswith('retrieval_core_mcp.http.')]; "
        "print(*own, 'uvicorn' in sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=with_our_modules()
    )
    *modules, uvicorn = shown.stdout.split()
    needed = ("addresses", "settings", "tokens")
    assert sorted(modules) == [f"retrieval_core_mcp.http.{name}" for name in needed]
    by_the_protocol = subprocess.run(
        [sys.executable, "-c", "import sys, mcp.server.lowlevel; print('uvicorn' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert uvicorn == by_the_protocol.stdout.strip()


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [(["--version"], "retrieval_core_mcp.install"), (["install", "--client", "cursor"], "mcp")],
)
def test_what_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], absent: str) -> None:
    """Nothing of it by the server, and nothing of the protocol by it."""
    for name in ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    program = f"""
import sys
from retrieval_core_mcp.command import serve
try:
    serve({arguments})
except SystemExit:
    print("absent" if {absent!r} not in sys.modules else "imported")
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert ended.stdout.endswith("\nabsent\n")


def test_importing_it_is_cheap() -> None:
    """Neither the protocol's library nor anything that searches is loaded before it is needed."""
    shallow = loaded_by("import retrieval_core_mcp", "mcp", "numpy", "pydantic")
    deep = loaded_by(
        "import retrieval_core_mcp.server, retrieval_core_mcp.stdio",
        "numpy", "onnxruntime", "sqlite3", "retrieval_core.adapters.stores.sqlite", "retrieval_core.pipeline",
        "retrieval_core.ports",
    )  # fmt: skip
    assert (shallow, deep) == ("[]", "[]")


def loaded_by(statement: str, *modules: str) -> str:
    program = f"{statement}; import sys; print([name for name in {modules} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return run.stdout.strip()
