"""The command ``retrieval``."""

from __future__ import annotations

TYPE_CHECKING = False  # as in the package above
if TYPE_CHECKING:
    from typing import Any

    from retrieval_core.cli.commands import main

__all__ = ["main"]


def __getattr__(name: str) -> Any:
    """Import the commands when they are first used, so that what starts them can be interrupted quietly."""
    if name != "main":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from retrieval_core.cli.commands import main  # noqa: PLC0415

    return main
