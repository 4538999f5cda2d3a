"""The command ``retrieval`` as a process; ``python -m retrieval_core.cli`` is the same."""

from __future__ import annotations

from retrieval_core.cli.process import run_command

TYPE_CHECKING = False  # typing is not imported for it
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


def run() -> NoReturn:
    """Run the command with the process's own arguments and streams, and end the process."""
    run_command(_main)


def _main() -> Callable[[], object]:
    from retrieval_core.cli.commands import main  # noqa: PLC0415 - slow, and may be interrupted

    return lambda: main(prog_name="retrieval")


if __name__ == "__main__":
    run()
