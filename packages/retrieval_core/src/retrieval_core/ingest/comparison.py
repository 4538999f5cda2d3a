"""Holding the chunks of a document against its text.

Splitting leaves nothing out and says nothing twice: every character that is no white space is in exactly one chunk, in
order. So a text alone tells whether all of its chunks are there, whatever settings or tokenizer they were cut with:
before, between and after them there is nothing but white space.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from retrieval_core.types import content_hash
from retrieval_core.types.integrity import ChunkValidation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.ports import RecordDamage
    from retrieval_core.types import Chunk, Document, Section, Span


def compare_chunks(
    document_id: str, source: str | None, text: str | None, chunks: Iterable[Chunk]
) -> tuple[ChunkValidation, ...]:
    """Compare all chunks of a document with its text.

    Args:
        document_id: The document's.
        source: The document's.
        text: The document's; ``None`` where it is not known, and then a chunk has nothing but its own hash to agree
            with. The same holds for a chunk without a range, which was made elsewhere.
        chunks: All that are stored of it, in any order.

    Returns:
        One result for each chunk, and one for each part of the text that no chunk holds.
    """
    alone: list[ChunkValidation] = []
    walk = _Walk(document_id, source, text or "")
    placed: list[tuple[Chunk, Span]] = []
    for chunk in chunks:
        if text is None or chunk.span is None:
            alone.append(ChunkValidation(chunk.id, document_id, source, chunk.text, None, _problems_of_hash(chunk)))
        else:
            placed.append((chunk, chunk.span))
    # Of two at one place, the one that is not named as this library does is the one too many.
    for chunk, span in sorted(placed, key=lambda item: (item[1].start, item[0].id != _name(item[0]), item[0].id)):
        walk.compare(chunk, span)
    return (*alone, *walk.finished())


def compare_fields(document: Document, chunks: Iterable[Chunk]) -> dict[str, tuple[str, ...]]:
    """Return, by chunk id, which fields of chunks are not those of the record of their document, a file's."""
    found: dict[str, tuple[str, ...]] = {}
    for chunk in chunks:
        same = {
            "source": chunk.source == document.source,
            "metadata": chunk.metadata == document.metadata,
            "timestamp": chunk.timestamp == document.timestamp,
            "title": _is_title(chunk.title, document.title),
        }
        if differing := [f"its {name} is not that of its document" for name, is_same in same.items() if not is_same]:
            found[chunk.id] = tuple(differing)
    return found


def restore_chunk(
    chunk: Chunk, damage: RecordDamage, document: Document | None, section: Section | None
) -> Chunk | None:
    """Return a damaged chunk as it was; ``None`` if that takes more than the index has.

    Args:
        chunk: As it is stored.
        damage: What is wrong with it.
        document: Its document; ``None`` if that is not there, or is damaged too.
        section: Its section; ``None`` if that is not there.
    """
    changed = {*damage.changed} - {"vector", "postings"}
    values: dict[str, Any] = {}
    if section is not None and section.path:
        values["section_path"] = section.path
    if document is not None:
        values |= {"title": document.title, "source": document.source, "metadata": document.metadata}
        if chunk.span is not None:
            values["text"] = document.text[chunk.span.start : chunk.span.end]
    fields = {"section_path" if claim == "section" else claim for claim in changed}
    if damage.is_stray or not fields <= values.keys():
        return None
    restored = replace(chunk, **{name: values[name] for name in fields})
    return restored if content_hash(restored.text) == chunk.content_hash else None


def _is_title(kept: str | None, whole: str | None) -> bool:
    """Whether a chunk's title is that of its document, shortened or left out where the embedder reads no more."""
    if kept is None or kept == whole:
        return True
    return kept.endswith("…") and (whole or "").startswith(kept[:-1])


class _Walk:
    """Goes through a text chunk by chunk."""

    def __init__(self, document_id: str, source: str | None, text: str) -> None:
        self._document_id = document_id
        self._source = source
        self._text = text
        self._results: list[ChunkValidation] = []
        self._totals: dict[int, int] = {}
        """What chunks say of how many there are, by the place of their result."""
        self._covered = 0
        self._position = 0
        """That the next chunk should have."""
        self._has_gaps = False

    def compare(self, chunk: Chunk, span: Span) -> None:
        """Compare the next chunk."""
        problems = _problems_of_hash(chunk)
        original = ""
        if not 0 <= span.start < span.end <= len(self._text):
            size = len(self._text)
            problems += (f"its range, {span.start} to {span.end}, is not in its document, which has {size} chars",)
        else:
            original = self._text[span.start : span.end]
            problems += self._problems_of_place(chunk, span)
        self._add(chunk.id, chunk.text, original, problems)

    def finished(self) -> list[ChunkValidation]:
        """Return the results, after the last chunk."""
        self._is_gap_before(len(self._text))
        for place, total in self._totals.items():
            if total != self._position and not self._has_gaps:
                told = f"it says that its document has {total} chunks, which has {self._position}"
                result = self._results[place]
                self._results[place] = replace(result, problems=(*result.problems, told))
        return self._results

    def _problems_of_place(self, chunk: Chunk, span: Span) -> tuple[str, ...]:
        if span.start < self._covered:
            return ("it is one too many: another chunk holds this part of its document",)
        if chunk.id != _name(chunk):
            return (f"it is one too many: chunk {chunk.chunk_index} of its document is named {_name(chunk)}",)
        after_gap = self._is_gap_before(span.start)
        expected, self._covered = self._position, span.end
        self._totals[len(self._results)] = chunk.total_chunks
        if chunk.chunk_index == expected or (after_gap and chunk.chunk_index > expected):
            self._position = chunk.chunk_index + 1
            return ()
        self._position += 1
        return (f"it says that it is chunk {chunk.chunk_index} of its document, and is {expected}",)

    def _is_gap_before(self, end: int) -> bool:
        """Whether no chunk holds some text before an offset; it is told as the chunk that should be here."""
        missing = self._text[self._covered : end].strip()
        if missing:
            self._has_gaps = True
            told = f"no chunk holds the text from {self._covered} to {end} of its document"
            self._add(f"{self._document_id}#{self._position}", "", missing, (told,))
        return bool(missing)

    def _add(self, chunk_id: str, stored: str, original: str, problems: tuple[str, ...]) -> None:
        self._results.append(ChunkValidation(chunk_id, self._document_id, self._source, stored, original, problems))


def _problems_of_hash(chunk: Chunk) -> tuple[str, ...]:
    if content_hash(chunk.text) == chunk.content_hash:
        return ()
    return ("its hash is that of another text",)


def _name(chunk: Chunk) -> str:
    """Return what this library names the chunk of a document at its position."""
    return f"{chunk.document_id}#{chunk.chunk_index}"
