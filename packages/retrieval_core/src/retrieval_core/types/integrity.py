"""Results of checking an index: damage, and differences from the original files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

IntegrityVerdict: TypeAlias = Literal["clean", "mismatch", "unverifiable"]


@dataclass(frozen=True, slots=True)
class TextDifference:
    """The first difference of two texts, in bytes of their UTF-8.

    Attributes:
        first: Offset of the first byte that differs: the length of the shorter text, if the longer one begins with it.
        stored_bytes: Length of the stored text.
        original_bytes: Length of the original text.
    """

    first: int
    stored_bytes: int
    original_bytes: int


def difference(stored: str, original: str) -> TextDifference:
    """Compare two texts byte by byte."""
    one, other = stored.encode("utf-8", "surrogatepass"), original.encode("utf-8", "surrogatepass")
    alike, end = 0, min(len(one), len(other))
    if one[:end] == other[:end]:
        alike = end
    while alike + 1 < end:  # the first `end` bytes are not all alike, so half of what is left is looked at
        middle = (alike + end) // 2
        if one[alike:middle] == other[alike:middle]:
            alike = middle
        else:
            end = middle
    return TextDifference(alike, len(one), len(other))


@dataclass(frozen=True, slots=True)
class ChunkValidation:
    """The result of comparing a stored chunk with its original, a range of its document's text.

    Attributes:
        chunk_id: ID of the chunk; for a missing chunk, the expected ID.
        document_id: ID of the document.
        source: Path or URL of the document; ``None`` if it has none.
        stored_text: The stored text; empty if the chunk is missing.
        original_text: The original text; empty if the document has no such range, ``None`` if it is unknown.
        problems: Other problems, for people: hash, range or position.
    """

    chunk_id: str
    document_id: str
    source: str | None
    stored_text: str
    original_text: str | None
    problems: tuple[str, ...] = ()

    @property
    def matches(self) -> bool:
        """Whether the stored text equals the original, byte by byte."""
        return bool(self.stored_text) and self.stored_text == self.original_text

    @property
    def validation_passed(self) -> bool:
        """Whether text, hash and position match."""
        return self.matches and not self.problems

    @property
    def verdict(self) -> IntegrityVerdict:
        """``clean``, ``mismatch``, or ``unverifiable`` if there is no original and no other problem."""
        if self.original_text is None and not self.problems:
            return "unverifiable"
        return "clean" if self.validation_passed else "mismatch"

    @property
    def difference(self) -> TextDifference | None:
        """The first difference of the texts; ``None`` if they are equal or there is no original."""
        if self.matches or self.original_text is None:
            return None
        return difference(self.stored_text, self.original_text)

    @property
    def mismatch_details(self) -> str | None:
        """The differences in one line for people; ``None`` if there are none."""
        told: list[str] = []
        if self.original_text is None:
            told.append("There is no original to compare with")
        elif (parted := self.difference) is not None:
            stored, original = len(self.stored_text), len(self.original_text)
            told.append(
                f"Stored text truncated or corrupted (length mismatch: {stored} vs {original} chars)"
                if stored != original
                else f"Stored text corrupted (both {stored} chars)"
            )
            told.append(f"first difference at byte {parted.first} ({parted.stored_bytes} vs {parted.original_bytes})")
        return "; ".join((*told, *self.problems)) or None


@dataclass(frozen=True, slots=True)
class SourceDifference:
    """A document that differs from its file, or can't be read from the index.

    Attributes:
        source: The file; ``None`` for a document without a file, and for the index as a whole.
        document_id: ID of the document; ``None`` if unknown, and for the index as a whole.
        problem: The problem, for people.
        difference: The first difference of the texts; ``None`` if they are equal, or one can't be read.
    """

    source: str | None
    document_id: str | None
    problem: str
    difference: TextDifference | None = None


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    """The result of checking an index.

    Attributes:
        documents: Number of documents compared.
        chunks: Number of chunks compared.
        mismatches: Changed, missing and extra chunks, in the order of their documents.
        differences: Documents that differ from their files, for example because the file was edited.
        unverifiable: Number of chunks without an original: the document's text is not stored, and there is no readable
            file.
        absent_sources: Files that no longer exist; their chunks were compared with the stored text.
        repaired: IDs of the documents that were repaired.
        seconds: Duration.
        unsealed: Number of chunks without checksums, from an older version of this library. Their vectors, pages and
            sections can't be compared.
    """

    documents: int
    chunks: int
    mismatches: tuple[ChunkValidation, ...]
    differences: tuple[SourceDifference, ...]
    unverifiable: int
    absent_sources: tuple[str, ...]
    repaired: tuple[str, ...]
    seconds: float
    unsealed: int = 0

    @property
    def verdict(self) -> IntegrityVerdict:
        """``mismatch`` if anything differs, otherwise ``unverifiable`` if any chunk is, otherwise ``clean``."""
        if self.mismatches or self.differences:
            return "mismatch"
        return "unverifiable" if self.unverifiable or self.unsealed else "clean"

    @property
    def differing(self) -> frozenset[str]:
        """IDs of the documents with differences."""
        found = (*self.mismatches, *self.differences)
        return frozenset(each.document_id for each in found if each.document_id is not None)
