"""The service over HTTP as a real process."""

from __future__ import annotations

import re
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from support.processes import MCP, as_at_a_terminal, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

_LISTENS = re.compile(r"retrieval-mcp listens at (?P<url>http://(?P<host>\S+):(?P<port>\d+))\n")
PATIENCE = 200
"""Seconds after which a process that does not end fails a test."""


class HttpProcess:
    """A running service.

    Attributes:
        url: Its address, without a slash at the end.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        assert process.stderr is not None
        for line in process.stderr:
            if (found := _LISTENS.fullmatch(line)) is not None:
                self.url, self.port = found["url"], int(found["port"])
                return
            self.said.append(line)
        msg = f"the service ended with {process.wait()}: {''.join(self.said)}"
        raise AssertionError(msg)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait for its end, and return its exit code and what else it said on standard error."""
        _, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, "".join(self.said) + said


@contextmanager
def http_process(
    *options: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> Generator[HttpProcess]:
    """Start ``retrieval-mcp --http`` at a free port; it is killed at the end, where it still runs."""
    command = [*MCP, "--http", "127.0.0.1:0", *options]
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=folder, env={**with_our_modules(), **(environment or {})},
        **as_at_a_terminal(),
    )  # fmt: skip
    with child as process:
        try:
            yield HttpProcess(process)
        finally:
            process.kill()


def refused(*options: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Start the command with options that it cannot run with, and return its exit code and what it said."""
    given: dict[str, Any] = {"env": {**with_our_modules(), **(environment or {})}}
    ended = subprocess.run([*MCP, *options], capture_output=True, text=True, timeout=PATIENCE, check=False, **given)
    assert ended.stdout == ""
    return ended.returncode, ended.stderr
