"""The command that installs more of this project, from where this copy of it came."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

CORE = "retrieval-core"
SERVER = "retrieval-core-mcp"
_FOLDERS = {CORE: "retrieval_core", SERVER: "mcp_server"}
"""The folder of each package in the repository, beside the others."""


def install_command(extra: str | None = None, *, package: str = CORE, again: bool = False) -> str:
    """Return the command that installs a package of this project, as a line for a shell.

    The requirement names the checkout, the wheel, the archive or the repository that this copy was installed from, as
    its metadata record it (PEP 610). Only a copy from a package index is installed by name: on an index that does not
    have this project, somebody else could register the name. The command is that of the running interpreter. Paths are
    absolute, since the command is often copied from the log of another program into a terminal.

    Args:
        extra: The extra to install with it.
        package: The distribution, :data:`CORE` or :data:`SERVER`.
        again: Whether to install what is already there once more, since it is damaged.
    """
    words = [*_installer(), *(["--force-reinstall"] if again else []), *_requirement(package, extra)]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _installer() -> list[str]:
    if find_spec("pip") is None:  # environments that uv made have none
        return ["uv", "pip", "install", "--python", sys.executable]
    is_active = os.environ.get("VIRTUAL_ENV") == sys.prefix
    return ["pip", "install"] if is_active else [sys.executable, "-m", "pip", "install"]


def _requirement(package: str, extra: str | None) -> list[str]:
    extras = f"[{extra}]" if extra else ""
    origin = _origin()
    if origin is None:
        return [f"{package}{extras}"]
    # What one build makes lies beside each other, so the name of the file or folder tells packages apart.
    url = str(origin["url"]).replace("retrieval_core-", f"{package.replace('-', '_')}-")
    folder = _FOLDERS[package]
    if vcs := origin.get("vcs_info"):
        place = str(origin.get("subdirectory", "packages/retrieval_core")).removesuffix("retrieval_core") + folder
        return [f"{package}{extras} @ {vcs['vcs']}+{url}@{vcs['commit_id']}#subdirectory={place}"]
    if not url.startswith("file:"):
        return [f"{package}{extras} @ {url}"]
    path = Path(url2pathname(urlsplit(url).path))
    if "dir_info" in origin:
        editable = ["-e"] if origin["dir_info"].get("editable") else []
        return [*editable, f"{path.with_name(folder)}{extras}"]
    return [f"{path}{extras}"]


def _origin() -> dict[str, Any] | None:
    """Return where this copy was installed from, in the form of PEP 610; ``None`` for a package index."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - only errors need it

    source = Path(__file__).resolve().parents[2]
    if (source / "pyproject.toml").is_file():  # editable, or imported from a checkout without being installed
        return {"url": source.as_uri(), "dir_info": {"editable": True}}
    try:
        recorded = distribution(CORE).read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    return json.loads(recorded) if recorded else None
