"""From a file to its documents: each with the hash that tells whether it has changed."""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING

from pydantic import ValidationError

from retrieval_core.config import ChunkingConfig
from retrieval_core.errors import RetrievalError, UnreadableFileError, as_exception
from retrieval_core.ingest.isolated import read_isolated
from retrieval_core.ingest.readers import ReadOptions, read_file
from retrieval_core.types import Document, content_hash

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Sequence
    from datetime import datetime

    from retrieval_core.ingest.files import FoundFile
    from retrieval_core.ingest.readers.base import ParsedDocument
    from retrieval_core.ingest.report import Note
    from retrieval_core.run.threads import ThreadPool
    from retrieval_core.types import Metadata

READING_VERSION = 5
"""Part of each file's recipe; grows when readers or splitter make other chunks of the same bytes."""

DOCUMENTS_PER_READ = 32
"""Rows of a table read at a time."""


def recipe_of(chunking: ChunkingConfig, vectors: str) -> str:
    """Return the recipe of an index: this version of the readers, how documents are split, and their vectors."""
    return f"{READING_VERSION} {chunking.model_dump_json()} {vectors}"


def chunking_of(recipe: str) -> ChunkingConfig | None:
    """Return the settings in a recipe; ``None`` for one of readers that would not read the same today."""
    version, _, rest = recipe.partition(" ")
    try:
        settings, _ = json.JSONDecoder().raw_decode(rest)
        return ChunkingConfig.model_validate(settings) if version == str(READING_VERSION) else None
    except (json.JSONDecodeError, ValidationError):
        return None


def document_hash(
    recipe: str,
    text: str,
    title: str | None,
    pages: Sequence[tuple[int, int, int]],
    metadata: Metadata,
    *,
    first_line: int | None = None,
) -> str:
    """Return the hash of a file's document: of everything that its chunks are made from.

    Args:
        recipe: Of its index.
        pages: Number, start and end of each, in the document's text.
        first_line: Line of the file at which the text begins.
    """
    made_from = [recipe, text, title, pages, metadata, *([first_line] if (first_line or 1) > 1 else [])]
    return content_hash(json.dumps(made_from, sort_keys=True))


class DocumentReader:
    """Reads files as a recipe says.

    Args:
        chunking: Has the columns of tables.
        recipe: Of the index; a part of the documents' hashes.
        pool: Runs the readers.
        now: The time stamped on documents.
    """

    def __init__(self, chunking: ChunkingConfig, recipe: str, pool: ThreadPool, now: Callable[[], datetime]) -> None:
        self._chunking = chunking
        self._recipe = recipe
        self._pool = pool
        self._now = now

    async def read(
        self, file: FoundFile, notes: list[Note], *, isolated: bool = False
    ) -> AsyncIterator[tuple[Document, ParsedDocument]]:
        """Yield a file's documents, read in slices: a large table neither fills the memory nor holds a thread.

        Args:
            notes: Warnings are added to it.
            isolated: Whether it is read in a process of its own.

        Raises:
            UnreadableFileError: The file cannot be read.
        """
        chunking = self._chunking

        def add_note(note: Note) -> None:
            if note not in notes:  # a book repeats it in each chapter
                notes.append(note)

        options = ReadOptions(chunking.text_column, columns=chunking.columns, on_note=add_note)
        over = Event()
        parsed_documents = read_isolated(file.path, options, over=over) if isolated else read_file(file.path, options)

        def next_documents() -> list[tuple[Document, ParsedDocument]]:
            with blamed_on(file):  # a format that cannot be read for want of an extra leaves the others alone
                parsed = islice(parsed_documents, DOCUMENTS_PER_READ)
                return [(self._document(file, item), item) for item in parsed]

        try:
            while documents := await self._pool.run(next_documents):
                for document, parsed in documents:
                    yield document, parsed
        finally:
            over.set()  # a thread that waits for the process cannot be cancelled

    def _document(self, file: FoundFile, parsed: ParsedDocument) -> Document:
        row = parsed.key if parsed.key is not None else parsed.row
        # What a piece of code is for is often said by the names of its file and folders alone.
        title = file.source if parsed.markup == "code" else parsed.title
        pages = [(page.number, page.span.start, page.span.end) for page in parsed.pages]
        return Document(
            id=file.source if row is None else f"{file.source}#{row}",
            text=parsed.text,
            source=file.source,
            content_hash=document_hash(
                self._recipe, parsed.text, title, pages, parsed.metadata, first_line=parsed.first_line
            ),
            title=title,
            metadata=parsed.metadata,
            timestamp=self._now(),
        )


@contextmanager
def blamed_on(file: FoundFile, passing: tuple[type[Exception], ...] = ()) -> Generator[None]:
    """Turn any error in one file into an :class:`UnreadableFileError` that names it, and so stops only that file."""
    try:
        yield
    except (UnreadableFileError, OSError, *passing):
        raise
    except RetrievalError as error:
        raise UnreadableFileError(str(file.path), str(error)) from error
    except BaseException as error:
        told = as_exception(error)
        reason = f"its content cannot be read ({type(told).__name__}: {told!s:.200})"
        raise UnreadableFileError(str(file.path), reason) from error
