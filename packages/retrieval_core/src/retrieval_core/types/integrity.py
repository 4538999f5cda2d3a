"""Whether what is stored is what was read: findings about chunks and documents, and the report on an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

IntegrityVerdict: TypeAlias = Literal["clean", "mismatch", "unverifiable"]


@dataclass(frozen=True, slots=True)
class TextDifference:
    """Where two texts part, in bytes of their UTF-8, which is never normalised.

    Attributes:
        first: Offset of the first byte that differs: where one text ends, or the length of both where they are equal.
        stored_bytes: Length of the stored text.
        original_bytes: Length of the original.
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
    """A stored chunk held against its original: the range of its document's text that it was made of.

    Attributes:
        chunk_id: Where a chunk is missing, the id that it would have.
        document_id: Of its document.
        source: Of its document; ``None`` where it has none.
        stored_text: Empty where no chunk is stored.
        original_text: Empty where the document has nothing at that place; ``None`` where nothing is known of it.
        problems: What else is wrong, for people: hash, range or position.
    """

    chunk_id: str
    document_id: str
    source: str | None
    stored_text: str
    original_text: str | None
    problems: tuple[str, ...] = ()

    @property
    def matches(self) -> bool:
        """Whether the stored text is the original, byte by byte."""
        return bool(self.stored_text) and self.stored_text == self.original_text

    @property
    def validation_passed(self) -> bool:
        """Whether it matches, and hash and place agree with it."""
        return self.matches and not self.problems

    @property
    def verdict(self) -> IntegrityVerdict:
        """``unverifiable`` where there is no original and nothing else is wrong."""
        if self.original_text is None and not self.problems:
            return "unverifiable"
        return "clean" if self.validation_passed else "mismatch"

    @property
    def difference(self) -> TextDifference | None:
        """Where the texts part; ``None`` where they do not, or there is no original."""
        if self.matches or self.original_text is None:
            return None
        return difference(self.stored_text, self.original_text)

    @property
    def mismatch_details(self) -> str | None:
        """What differs, in one line for people; ``None`` where it passed."""
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
    """A document that is no longer what its file says, or cannot be read from the index.

    Attributes:
        source: The file; ``None`` for a document that came from none, and for the index as a whole.
        document_id: ``None`` where it is not known which of the file's documents it is, and for the index as a whole.
        problem: For people.
        difference: Where the texts of index and file part; ``None`` where they do not, or one could not be read.
    """

    source: str | None
    document_id: str | None
    problem: str
    difference: TextDifference | None = None


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    """What comparing an index with its originals came to.

    Attributes:
        documents: How many were compared.
        chunks: How many of theirs were compared.
        mismatches: Chunks that are not what was read, missing ones and extra ones, in the order of their documents.
        differences: Documents whose file has another text than the index, such as one that was edited since.
        unverifiable: Chunks for which nothing is known to compare with: neither their document's text nor a file that
            can be read, or they belong to no file and were not named.
        absent_sources: Files that are not there any more; their chunks were compared with the text that is kept.
        repaired: Ids of the documents that differed before, and were repaired.
        seconds: Wall time.
        unsealed: Chunks without checksums, which an older version of this library wrote: their vectors, pages and
            sections could not be compared.
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
        """``mismatch`` where anything differs, else ``unverifiable`` where anything is."""
        if self.mismatches or self.differences:
            return "mismatch"
        return "unverifiable" if self.unverifiable or self.unsealed else "clean"

    @property
    def differing(self) -> frozenset[str]:
        """Ids of the documents of which something differs."""
        found = (*self.mismatches, *self.differences)
        return frozenset(each.document_id for each in found if each.document_id is not None)
