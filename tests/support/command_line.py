"""The command ``retrieval``, to be called in this process."""

from __future__ import annotations

from retrieval_core.cli.commands import main

__all__ = ["main"]
