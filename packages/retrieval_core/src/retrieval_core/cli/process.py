"""How a command begins and ends as a process: exit codes, standard streams, and Ctrl-C at any moment.

This module imports next to nothing, so that Ctrl-C is taken care of before anything slow is imported.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # typing is not imported for it
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import NoReturn, TextIO

FAILURE = 1
"""Something could not be done; one line on standard error says what."""
WRONG_USE = 2
"""An argument, a setting or a filter is wrong."""
INTERRUPTED = 130
"""Ctrl-C: what a shell reports of a program that SIGINT has ended."""
NOBODY_READS = 141
"""Whoever read the output has closed it: what a shell reports of a program that SIGPIPE has ended."""


def run_command(load: Callable[[], Callable[[], object]]) -> NoReturn:
    """Run a command and end the process, with one line at most on standard error that the command did not write.

    Args:
        load: Imports what is needed, and returns the command, which may raise ``SystemExit``.
    """
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a process may be told to ignore them
    if interrupts:
        signal.signal(signal.SIGINT, _leave)
    sys.unraisablehook = _ignoring_interrupts
    _open_missing_streams()
    try:
        with ends_quietly():
            command = load()
            if interrupts:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            command()
        code: object = 0
    except SystemExit as end:
        code = 0 if end.code is None else end.code
    except KeyboardInterrupt:  # a second one, while the first one was being told
        code = INTERRUPTED
    if interrupts:
        signal.signal(signal.SIGINT, _leave)  # what is still going on, such as threads that end, is not waited for
    for stream in (sys.stdout, sys.stderr):
        _let_go_of(stream)
    gc.freeze()  # all is closed; looking for cycles in everything that was imported takes as long as an import of numpy
    raise SystemExit(code)


@contextmanager
def ends_quietly() -> Generator[None]:
    """Turn Ctrl-C, and an output that cannot be written, into an exit code and one line at most.

    Raises:
        SystemExit: With :data:`INTERRUPTED`, :data:`NOBODY_READS` or :data:`FAILURE`.
    """
    try:
        with _all_is_written():
            yield
    except KeyboardInterrupt:
        _say("")  # the shell's prompt stands on a line of its own
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        raise SystemExit(NOBODY_READS) from None
    except OSError as error:
        told = str(error) if error.filename is not None else f"can't write the output: {error}"
        _say(f"Error: {told}")
        _let_go_of(sys.stdout)  # or it would fail, and be told, once more
        raise SystemExit(FAILURE) from None


@contextmanager
def _all_is_written() -> Generator[None]:
    """Write what is left of the output, so that what cannot be written is told now, and not by the interpreter."""
    try:
        yield
    except SystemExit as end:
        if end.code:  # a failure, which was told
            _let_go_of(sys.stdout)
        else:
            sys.stdout.flush()
        raise
    except BaseException:
        _let_go_of(sys.stdout)
        raise
    if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison] - pythonw
        sys.stdout.flush()


def _say(line: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # there may be nobody to tell
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _leave(_signal: int, _frame: object) -> None:
    """End at once: nothing has begun yet, or everything is done."""
    os._exit(INTERRUPTED)


def _ignoring_interrupts(problem: sys.UnraisableHookArgs) -> None:
    """Leave where Ctrl-C came while the interpreter tidied up, which it would else report and forget."""
    if problem.exc_type is KeyboardInterrupt:
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(problem)


def _open_missing_streams() -> None:
    """Open the standard streams that the process was started without.

    Otherwise the next file that is opened would be taken for one of them. What is written to a missing standard output
    fails, as it does where the disk is full.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # it gets the lowest number that is free: this one
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] - so it is without one
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the rest of the process
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison] - likewise
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - likewise


def _let_go_of(stream: TextIO | None) -> None:
    """Write what is left; what cannot be written is dropped, or the interpreter would complain of it at its end."""
    if stream is None:
        return
    try:
        stream.flush()
    except (OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        with suppress(OSError, ValueError):
            os.dup2(nothing, stream.fileno())
            stream.flush()
