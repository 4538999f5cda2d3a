"""Commands as processes: what becomes of them when nobody reads, when nothing can be written, and at Ctrl-C."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from support.command_line import main
from support.processes import MCP, RETRIEVAL, as_at_a_terminal, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Generator

FAKE = ("--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder")
COUNT = ("--set", "context.token_counter=support.pipelines:word_counter")
COMMANDS = {
    "help": ("--help",),
    "version": ("--version",),
    "index": ("index", "moon.md", *FAKE),
    "search": ("search", "how far is the moon", "--set", "answer.abstain_below=0", *FAKE),
    "search in JSON": ("search", "how far is the moon", "--json", *FAKE),
    "context": ("context", "how far is the moon", *FAKE, *COUNT),
    "answer": ("answer", "how far is the moon", *FAKE, *COUNT),
    "answer in JSON": ("answer", "how far is the moon", "--json", *FAKE, *COUNT),
    "info": ("info", *FAKE),
    "verify": ("verify", *FAKE),
    "doctor": ("doctor", "--json", *FAKE),
}
"""Of each command something that prints."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="streams and signals are others there")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index of one document."""
    folder = tmp_path_factory.mktemp("process")
    (folder / "moon.md").write_text("# The moon\n\nThe moon is 384,400 km away.\n")
    index = str(folder / ".retrieval" / "index.db")
    assert CliRunner().invoke(main, ["index", str(folder / "moon.md"), "--index", index, *FAKE]).exit_code == 0
    return folder


def finished(command: tuple[str, ...], folder: Path, **streams: Any) -> tuple[int, str]:
    """Return how a command ended, and what it printed on standard error."""
    with subprocess.Popen(
        command, cwd=folder, env=with_our_modules(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", **streams,
    ) as process:  # fmt: skip
        _, errors = process.communicate(timeout=120)
    return process.returncode, errors


@contextmanager
def unwritable(way: str) -> Generator[dict[str, Any]]:
    """Give a child a standard output that cannot be written, in one of several ways."""
    if way == "closed":
        yield {"preexec_fn": lambda: os.close(1)}
    elif way == "unread":
        read, write = os.pipe()
        os.close(read)
        try:
            yield {"stdout": write}
        finally:
            os.close(write)
    elif not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    else:
        with Path("/dev/full").open("wb") as output:
            yield {"stdout": output}


class Unwritable(io.StringIO):
    """A standard output whose writing fails as that of a real one does."""

    def __init__(self, failure: BaseException) -> None:
        super().__init__()
        self.failure = failure

    def write(self, text: str) -> int:
        raise self.failure


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1),
        (OSError(errno.EBADF, "Bad file descriptor"), 1),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141),
        (KeyboardInterrupt(), 130),
    ],
    ids=["full", "closed", "unread", "interrupted"],
)
def test_all_commands_end_alike_when_they_cannot_print(
    folder: Path, name: str, failure: BaseException, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One exit code for each reason, and one line at most that says it."""
    monkeypatch.chdir(folder)
    told = io.StringIO()
    monkeypatch.setattr(sys, "stdout", Unwritable(failure))
    monkeypatch.setattr(sys, "stderr", told)
    with pytest.raises(SystemExit) as ended:
        main(COMMANDS[name])
    assert ended.value.code == expected
    if expected == 1:
        assert re.fullmatch(rf"Error: (can't write the output: )?{re.escape(str(failure))}\n", told.getvalue())
    else:
        assert told.getvalue() == {141: "", 130: "\n"}[expected]  # behind ^C the line ends


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way", "expected"),
    [
        *(("help", "full", 1), ("search", "full", 1), ("search in JSON", "full", 1), ("search", "closed", 1)),
        *(("help", "unread", 141), ("search", "unread", 141), ("answer", "unread", 141)),
    ],
)
def test_an_output_that_cannot_be_written_ends_the_process_alike(
    folder: Path, name: str, way: str, expected: int
) -> None:
    """A full disk, a standard output that was closed before, and ``retrieval … | true``: nothing is said at its end."""
    with unwritable(way) as output:
        code, errors = finished((*RETRIEVAL, *COMMANDS[name]), folder, **output)
    assert code == expected, errors
    told = errors.splitlines()
    assert len(told) == (expected == 1), errors
    assert all(line.startswith("Error: ") for line in told)


MODES = ("hybrid", "vector", "keyword", "dense", "lexical")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("retrieval", "in"), {"plain,index", "plain,info"}),
        (("retrieval", "index", "docs", "--wa"), {"plain,--watch"}),
        (
            ("retrieval", "search", "--mode", ""),
            {f"plain,{mode}" for mode in MODES},
        ),
        (("retrieval", "index", "do"), {"file,do"}),
    ],
)
def test_a_shell_is_told_what_may_be_typed(folder: Path, typed: tuple[str, ...], expected: set[str]) -> None:
    """Commands, options and their values; files are the shell's to find."""
    asked = {"_RETRIEVAL_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(typed), "COMP_CWORD": str(len(typed) - 1)}
    environment = {**with_our_modules(), **asked}
    done = subprocess.run(RETRIEVAL, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["search", "index"])
def test_a_standard_error_that_cannot_be_written_changes_nothing(folder: Path, name: str) -> None:
    """What the command does, and prints on standard output, is the same."""
    with subprocess.Popen(
        (*RETRIEVAL, *COMMANDS[name]), cwd=folder, env=with_our_modules(), stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: os.close(2),  # noqa: PLW1509 - nothing else is started there
    ) as process:  # fmt: skip
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert printed


INTERRUPTED = """
import os, runpy, signal, sys

awaited, module = sys.argv[1:3]

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == awaited:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
        return None

sys.meta_path.insert(0, Interrupts())
sys.argv = sys.argv[2:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
SEARCH = ("retrieval_core.cli", *COMMANDS["search"])
SERVE = ("retrieval_core_mcp",)
MOMENTS = [
    *(
        pytest.param(SEARCH, name, id=f"search-{name}")
        for name in ("click", "pydantic", "retrieval_core.index.open", "numpy")
    ),
    *(pytest.param(SERVE, name, id=f"mcp-{name}") for name in ("argparse", "pydantic", "retrieval_core_mcp.stdio")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "module"), MOMENTS)
def test_an_interrupt_while_something_is_imported(folder: Path, command: tuple[str, ...], module: str) -> None:
    """Which takes longer than anything else at the start: exit code 130, and at most the end of a line."""
    if command == SERVE:
        pytest.importorskip("retrieval_core_mcp", reason="pip install retrieval-core-mcp")
    python = (sys.executable, "-c", INTERRUPTED, module, *command)
    code, errors = finished(python, folder, stdout=subprocess.DEVNULL, **as_at_a_terminal())
    assert code == 130, errors
    assert not errors.strip()


@pytest.mark.parametrize("arguments", [("--nonsense",), ("search",), ("search", "x", "--set", "search.top_k=none")])
def test_wrong_use_ends_with_two(folder: Path, arguments: tuple[str, ...]) -> None:
    """An option, an argument and a setting."""
    code, errors = finished((*RETRIEVAL, *arguments), folder, stdout=subprocess.DEVNULL)
    assert code == 2
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "way", "expected"),
    [
        (("--help",), "full", 1),
        (("--version",), "unread", 141),
        ((), "full", 0),  # it ends with its input
        ((), "closed", 0),
        (("--config", "nonsense"), "closed", 2),
    ],
)
def test_the_server_ends_as_the_commands_do(folder: Path, arguments: tuple[str, ...], way: str, expected: int) -> None:
    """With the same exit codes and no traceback."""
    pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
    with unwritable(way) as output:
        code, errors = finished((*MCP, *arguments), folder, **output)
    assert code == expected, errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
