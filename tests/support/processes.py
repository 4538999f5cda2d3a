"""Child processes as somebody at a terminal starts them, whatever started the tests."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

RETRIEVAL = (sys.executable, "-m", "retrieval_core.cli")
"""The command ``retrieval``."""
MCP = (sys.executable, "-m", "retrieval_core_mcp")
"""The command ``retrieval-mcp``."""
EVERYTHING = ("--tools", "all", "--structured")
"""Its options for all tools, and for structured content beside the text of results."""


def as_at_a_terminal() -> dict[str, Any]:
    """Return arguments for ``Popen`` with which Ctrl-C ends the child.

    What is started in the background, with ``&`` or ``nohup``, ignores SIGINT, and so would its children.
    """
    return {} if sys.platform == "win32" else {"preexec_fn": _interruptible}


def _interruptible() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def with_our_modules(*more: str) -> dict[str, str]:
    """Return the environment of a child that imports what the tests have, and what is in its own folder."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((".", str(Path(__file__).parents[1]), *more))}
