"""Reading a file in a process of its own: what brings a reader down, or never ends, takes nothing else with it.

That process is this module, run: it reads the file that its argument names, writes a line of JSON for each document and
each note, and last one that says how it ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import RetrievalError, UnreadableFileError
from retrieval_core.ingest.readers import ReadOptions, read_file
from retrieval_core.ingest.readers.base import ParsedDocument, ParsedPage, unreadable
from retrieval_core.ingest.report import ColumnNote, FileNote
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SECONDS = 300.0
"""How long a file may be read."""
MOST_MEMORY = 4 << 30
"""Bytes of address space that the process may take, where the system can bound that."""
_THIS = (sys.executable, "-P", "-m", "retrieval_core.ingest.isolated")


def read_isolated(
    path: Path,
    options: ReadOptions | None = None,
    *,
    over: Event | None = None,
    seconds: float = SECONDS,
    command: Sequence[str] = _THIS,
) -> Iterator[ParsedDocument]:
    """Read one file as :func:`retrieval_core.ingest.readers.read_file` does, in a process that ends with it.

    Args:
        over: Set, by any thread, when nobody wants the documents any more: it ends the process, and so the wait for it.
        seconds: How long that may take, without what the caller does between two documents, such as embedding.
        command: Starts the process; the path is added.

    Raises:
        UnreadableFileError: The file cannot be read, or its reader broke down or was not done in time.
    """
    options = options or ReadOptions()
    asked = {"text_column": options.text_column, "columns": dict(options.columns)}
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 - this interpreter, and a path that no shell reads
        [*command, str(path)], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    ) as child:
        watch = Watch(child.kill, seconds, over)
        Thread(target=watch.run, name="retrieval-reader-end", daemon=True).start()
        try:
            assert child.stdin is not None  # noqa: S101 - both are pipes
            assert child.stdout is not None  # noqa: S101 - likewise
            with suppress(BrokenPipeError), child.stdin as given:
                given.write(json.dumps(asked).encode())
            for line in child.stdout:
                if not line.endswith(b"\n"):
                    break  # it ended in the midst of a line
                told: dict[str, Any] = json.loads(line)
                if "document" in told:
                    watch.pause()
                    yield _document(told["document"])
                    watch.go_on()
                elif "note" in told:
                    kind = FileNote if "message" in told["note"] else ColumnNote
                    options.on_note(kind(**told["note"]))
                elif "failure" in told:
                    raise unreadable(path, told["failure"])
                else:
                    return
        finally:
            watch.end()
            child.kill()
    if watch.is_late:
        raise unreadable(path, f"it was not read within {seconds:g} seconds")
    raise unreadable(path, f"its reader broke down (exit code {child.returncode}): it may be damaged, or too large")


class Watch:
    """Ends what takes too long, but for the time in which it is paused, or what nobody wants any more.

    Args:
        kill: Ends it.
        seconds: How long it may take from now on.
        over: Set when nobody wants it any more.
        now: Tells the time.
    """

    def __init__(
        self,
        kill: Callable[[], None],
        seconds: float,
        over: Event | None = None,
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.is_late = False
        self._kill = kill
        self._now = now
        self._left = seconds
        self._since: float | None = now()
        self._over = over or Event()

    def run(self) -> None:
        """Watch until it is over or late, and end it."""
        while not self._over.wait(left := self.left()):
            if left <= 0:
                self.is_late = True
                break
        self._kill()

    def left(self) -> float:
        """Return the seconds that are left, at least 0."""
        since = self._since
        return max(0.0, self._left - (0.0 if since is None else self._now() - since))

    def pause(self) -> None:
        """Stop counting; the thread that watches sleeps on, and looks again when it wakes."""
        left = self.left()
        self._since = None  # first, so that the thread never takes what was used off twice
        self._left = left

    def go_on(self) -> None:
        """Count again."""
        self._since = self._now()

    def end(self) -> None:
        """Say that it is over."""
        self._over.set()


def _document(told: dict[str, Any]) -> ParsedDocument:
    pages = tuple(ParsedPage(number, Span(start, end)) for number, start, end in told.pop("pages"))
    return ParsedDocument(pages=pages, **told)


def _plain(document: ParsedDocument) -> dict[str, Any]:
    return {
        "text": document.text,
        "markup": document.markup,
        "title": document.title,
        "pages": [(page.number, page.span.start, page.span.end) for page in document.pages],
        "metadata": document.metadata,
        "row": document.row,
        "key": document.key,
    }


def main() -> None:
    """Read the file, and write what it holds to standard output."""
    with suppress(ImportError, ValueError, OSError):  # no Unix, or bounded more tightly already
        import resource  # noqa: PLC0415 - of Unix alone

        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        # For a reader that never ends and whose parent was killed: nobody else would end it.
        resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS)))
    path = Path(sys.argv[1])
    told = sys.stdout.buffer
    asked: dict[str, Any] = json.load(sys.stdin.buffer)

    def tell(**content: object) -> None:
        told.write(json.dumps(content).encode() + b"\n")

    options = ReadOptions(asked["text_column"], asked["columns"], lambda note: tell(note=asdict(note)))
    try:
        for document in read_file(path, options):
            tell(document=_plain(document))
    except UnreadableFileError as error:
        tell(failure=error.reason)
    except RetrievalError as error:
        tell(failure=str(error))
    else:
        tell(end=True)
    told.flush()


if __name__ == "__main__":
    main()
