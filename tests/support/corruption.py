"""Damaging what an index holds, through the store's port alone, so that it works for every store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retrieval_core.config import load_config
from retrieval_core.ports import Change, ChunkRange, FetchRequest
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from retrieval_core import Index
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.ports import Fetched
    from retrieval_core.types import Chunk

_LEXICAL = {"embedder.kind": "none", "search.mode": "lexical", "chunking.min_tokens": 0}
LEXICAL = load_config(overrides=_LEXICAL)
"""Needs no model, and gives each section its own chunk."""
MODULES = {"sqlite": "sqlite3", "lancedb": "lancedb", "qdrant": "qdrant_client"}
"""The stores that keep an index on a disk, Qdrant's in its client's local mode, and what each needs."""
LAST = 2**31 - 1


def lexical(folder: Path, kind: str) -> RetrievalConfig:
    """Return :data:`LEXICAL` for an index below a folder, in a store of a kind."""
    place = folder / ".retrieval"
    overrides = {
        "index": str(place / ("index" if kind == "lancedb" else "index.db")),
        "store.kind": kind,
        "store.qdrant.path": str(place / "qdrant"),
    }
    return load_config(overrides=_LEXICAL | overrides)


def bytes_below(folder: Path) -> dict[Path, bytes]:
    """Return the bytes of every file of an index below a folder."""
    files = [path for path in (folder / ".retrieval").rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files}


@dataclass
class Damage:
    """Damages an index without vectors."""

    index: Index

    def stored(self, document_id: str) -> Fetched:
        """Return a document with all its chunks."""
        request = FetchRequest(document_ids=(document_id,), ranges=(ChunkRange(document_id, 0, LAST),))
        return self.index.sync.run(self.index.store.fetch(request))

    def chunks(self, document_id: str) -> list[Chunk]:
        """Return the chunks of a document, in order."""
        return sorted(self.stored(document_id).chunks.values(), key=lambda chunk: chunk.chunk_index)

    def replace(self, document_id: str, chunks: Sequence[Chunk]) -> None:
        """Store a document and its sections as they are with other chunks."""
        stored = self.stored(document_id)
        named = {chunk.parent_id for chunk in (*stored.chunks.values(), *chunks) if chunk.parent_id is not None}
        request = FetchRequest(section_ids=tuple(sorted(named)))
        sections = tuple(self.index.sync.run(self.index.store.fetch(request)).sections.values())
        change = Change(chunks=tuple(chunks), documents=tuple(stored.documents.values()), sections=sections)
        self.index.sync.run(self.index.store.upsert(change))


def swapped(chunks: list[Chunk], place: int, _offset: int) -> list[Chunk]:
    """Swap the texts of a chunk and the one after it."""
    other = (place + 1) % len(chunks)
    made = list(chunks)
    made[place] = replace(chunks[place], text=chunks[other].text)
    made[other] = replace(chunks[other], text=chunks[place].text)
    return made


def _with(chunks: list[Chunk], place: int, chunk: Chunk) -> list[Chunk]:
    return [*chunks[:place], chunk, *chunks[place + 1 :]]


def changed(chunks: list[Chunk], place: int, offset: int) -> list[Chunk]:
    """Change one character."""
    chunk = chunks[place]
    other = "x" if chunk.text[offset] != "x" else "y"
    return _with(chunks, place, replace(chunk, text=chunk.text[:offset] + other + chunk.text[offset + 1 :]))


def decomposed(chunks: list[Chunk], place: int, offset: int) -> list[Chunk]:
    """Add an accent behind a character: what Unicode may normalise is another text."""
    chunk = chunks[place]
    return _with(chunks, place, replace(chunk, text=f"{chunk.text[: offset + 1]}\u0301{chunk.text[offset + 1 :]}"))


def truncated(chunks: list[Chunk], place: int, offset: int) -> list[Chunk]:
    """Keep the beginning alone, which may be nothing."""
    return _with(chunks, place, replace(chunks[place], text=chunks[place].text[:offset]))


def rehashed(chunks: list[Chunk], place: int, offset: int) -> list[Chunk]:
    """Change one character, and the hash with it."""
    made = changed(chunks, place, offset)
    return _with(made, place, replace(made[place], content_hash=""))


def lost(chunks: list[Chunk], place: int, _offset: int) -> list[Chunk]:
    """Remove a chunk."""
    return [*chunks[:place], *chunks[place + 1 :]]


def doubled(chunks: list[Chunk], place: int, _offset: int) -> list[Chunk]:
    """Add a chunk with another name and an index of its own."""
    chunk = chunks[place]
    return [*chunks, replace(chunk, id=f"{chunk.document_id}#{len(chunks)}", chunk_index=len(chunks))]


def moved(chunks: list[Chunk], place: int, offset: int) -> list[Chunk]:
    """Have a chunk point to another range of the text, which may not even be in it."""
    chunk = chunks[place]
    span = chunk.span or Span(0, 0)
    return _with(chunks, place, replace(chunk, span=Span(span.start + 1 + offset, span.end + 1 + offset)))


def renumbered(chunks: list[Chunk], place: int, offset: int) -> list[Chunk]:
    """Have a document believe in another number of chunks."""
    chunk = chunks[place]
    return _with(chunks, place, replace(chunk, total_chunks=chunk.total_chunks + 1 + offset))


KINDS: dict[str, Callable[[list[Chunk], int, int], list[Chunk]]] = {
    made.__name__: made
    for made in (changed, decomposed, truncated, rehashed, lost, doubled, swapped, moved, renumbered)
}
"""Each returns the chunks of a document after something happened to one of them, at an offset of its text."""
