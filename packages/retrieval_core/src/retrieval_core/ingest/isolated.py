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
from tempfile import TemporaryFile
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import RetrievalError, UnreadableFileError
from retrieval_core.ingest.readers import ReadOptions, read_file
from retrieval_core.ingest.readers.base import ParsedDocument, ParsedPage, unreadable
from retrieval_core.ingest.report import ColumnNote, FileNote
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECONDS = 300.0
"""How long a file may be read."""
MOST_MEMORY = 4 << 30
"""Bytes of address space that the process may take, and bytes that it may write, where the system can bound that."""
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
            It is set at the end, too.
        seconds: How long the process may take.
        command: Starts the process; the path is added.

    Raises:
        UnreadableFileError: The file cannot be read, or its reader broke down or was not done in time.
    """
    options = options or ReadOptions()
    over = over or Event()
    is_late = False
    asked = json.dumps({"text_column": options.text_column, "columns": dict(options.columns)}).encode()
    with TemporaryFile() as told:
        with subprocess.Popen(  # noqa: S603 - this interpreter, and a path that no shell reads
            [*command, str(path)], stdin=subprocess.PIPE, stdout=told, stderr=subprocess.DEVNULL
        ) as child:

            def end() -> None:
                nonlocal is_late
                is_late = not over.wait(seconds)
                child.kill()

            ending = Thread(target=end, name="retrieval-reader-end", daemon=True)
            ending.start()
            try:
                child.communicate(asked)
            finally:
                over.set()
                ending.join()
        told.seek(0)
        for line in told:
            if not line.endswith(b"\n"):
                break  # it ended in the midst of a line
            item: dict[str, Any] = json.loads(line)
            if "document" in item:
                yield _document(item["document"])
            elif "note" in item:
                kind = FileNote if "message" in item["note"] else ColumnNote
                options.on_note(kind(**item["note"]))
            elif "failure" in item:
                raise unreadable(path, item["failure"])
            else:
                return
    if is_late:
        raise unreadable(path, f"it was not read within {seconds:g} seconds")
    raise unreadable(path, f"its reader broke down (exit code {child.returncode}): it may be damaged, or too large")


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
        "first_line": document.first_line,
        "language": document.language,
    }


def main() -> None:
    """Read the file, and write what it holds to standard output."""
    with suppress(ImportError, ValueError, OSError):  # no Unix, or bounded more tightly already
        import resource  # noqa: PLC0415 - of Unix alone

        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_MEMORY, MOST_MEMORY))
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
