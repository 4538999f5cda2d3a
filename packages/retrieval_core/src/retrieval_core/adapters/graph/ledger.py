"""The file of extracted facts: which were extracted from which chunk."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from retrieval_core.adapters.graph.source import read_file, stamp_of
from retrieval_core.adapters.graph.triples import (
    MOST_BYTES,
    MOST_TRIPLES,
    ExtractionRecord,
    Triple,
    read_lines,
    write_lines,
)
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from retrieval_core.types import Chunk


@dataclass(slots=True)
class _Entry:
    content_hash: str
    triples: list[Triple] = field(default_factory=list["Triple"])


@dataclass(slots=True)
class _Document:
    content_hash: str | None = None
    chunks: dict[str, _Entry] = field(default_factory=dict[str, "_Entry"])


class Ledger:
    """The extracted facts of each chunk, by document. Not for several threads at once.

    Args:
        path: The file; it need not be there.

    Raises:
        ConfigurationError: The file holds something else.
        OSError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._documents: dict[str, _Document] = {}
        self._count = 0
        self._stamp = stamp_of(path)  # before it is read: what changes meanwhile is found at the next look
        try:
            data = read_file(path)
        except FileNotFoundError:
            return
        for item in read_lines(data, path):
            if isinstance(item, ExtractionRecord):
                document = self._documents.setdefault(item.document_id, _Document())
                if item.chunk_id is None:
                    document.content_hash = item.content_hash
                else:
                    document.chunks[item.chunk_id] = _Entry(item.content_hash)
            else:
                self._add(item)

    def _add(self, triple: Triple) -> None:
        document = self._documents.get(triple.document_id or "")
        entry = document.chunks.get(triple.chunk_id or "") if document else None
        if entry is None:
            msg = (
                f"{self._path}: the triple {triple!s:.200} is not of a chunk that the file records. Indexing writes "
                "this file. Keep your own triples in another file (graph.file), or delete this one to rebuild it"
            )
            raise ConfigurationError(msg)
        entry.triples.append(triple)
        self._count += 1

    @property
    def is_current(self) -> bool:
        """Whether the file has not changed since this read or wrote it."""
        return stamp_of(self._path) == self._stamp

    @property
    def is_full(self) -> bool:
        """Whether there are as many triples as a graph may have."""
        return self._count >= MOST_TRIPLES

    def documents(self) -> dict[str, tuple[str | None, str | None]]:
        """Return the content hash of each document, ``None`` where not all chunks are done, and one of its chunks."""
        return {
            document_id: (document.content_hash, next(iter(document.chunks), None))
            for document_id, document in self._documents.items()
        }

    def known(self, chunk: Chunk) -> list[Triple] | None:
        """Return the facts of a chunk with this text in this document; ``None`` where it was not read yet."""
        document = self._documents.get(chunk.document_id)
        if document is None:
            return None
        entry = document.chunks.get(chunk.id)
        if entry is not None and entry.content_hash == chunk.content_hash:
            return entry.triples
        same = (entry for entry in document.chunks.values() if entry.content_hash == chunk.content_hash)
        return next((entry.triples for entry in same), None)

    def forget(self, document_ids: Iterable[str]) -> None:
        """Drop documents with all their facts."""
        for document_id in document_ids:
            document = self._documents.pop(document_id, None)
            self._count -= sum(len(entry.triples) for entry in document.chunks.values()) if document else 0

    def put(self, chunk: Chunk, triples: Iterable[Triple]) -> None:
        """Set the facts of a chunk, which get its id."""
        document = self._documents.setdefault(chunk.document_id, _Document())
        former = document.chunks.get(chunk.id)
        made = [
            Triple(triple.subject, triple.relation, triple.object, chunk.id, chunk.document_id) for triple in triples
        ]
        document.chunks[chunk.id] = _Entry(chunk.content_hash, made)
        self._count += len(made) - (len(former.triples) if former else 0)

    def drop(self, chunk: Chunk) -> None:
        """Drop the facts of a chunk that changed, and mark its document as not done."""
        document = self._documents.get(chunk.document_id)
        if document is not None:
            document.content_hash = None
            former = document.chunks.pop(chunk.id, None)
            self._count -= len(former.triples) if former else 0

    def finish(self, documents: Mapping[str, str]) -> None:
        """Note the content hashes of documents whose chunks are all done, by document id."""
        for document_id, content_hash in documents.items():
            self._documents.setdefault(document_id, _Document()).content_hash = content_hash

    def write(self) -> None:
        """Replace the file atomically.

        Raises:
            ConfigurationError: It would exceed :data:`MOST_BYTES`; the old one stays.
            OSError: It cannot be written.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            with new.open("wb") as file:
                size = sum(map(file.write, write_lines(self._items())))
                if size > MOST_BYTES:
                    msg = f"{self._path} would have {size / 2**20:.0f} MB, and may have {MOST_BYTES // 2**20}"
                    raise ConfigurationError(msg)
                file.flush()
                os.fsync(file.fileno())
            stamp = stamp_of(new)
            new.replace(self._path)
            self._stamp = stamp
        finally:
            new.unlink(missing_ok=True)

    def _items(self) -> Iterator[Triple | ExtractionRecord]:
        for document_id, document in self._documents.items():
            if document.content_hash is not None:
                yield ExtractionRecord(document_id, document.content_hash)
            for chunk_id, entry in document.chunks.items():
                yield from chain((ExtractionRecord(document_id, entry.content_hash, chunk_id),), entry.triples)
