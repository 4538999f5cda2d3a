"""The command ``retrieval-mcp`` as a process; ``python -m retrieval_core_mcp`` is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from retrieval_core.cli.process import run_command

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> NoReturn:
    """Serve with the process's own arguments and streams, and end the process."""
    run_command(_command)


def _command() -> Callable[[], object]:
    from retrieval_core_mcp.command import serve  # noqa: PLC0415 - slow, and may be interrupted

    return serve


if __name__ == "__main__":
    main()
