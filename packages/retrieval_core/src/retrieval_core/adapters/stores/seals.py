"""Checksums that stores write beside their records, by which damage is found later."""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from zlib import crc32

from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, SECTIONS
from retrieval_core.ports import RecordDamage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from retrieval_core.adapters.stores.rows import Row
    from retrieval_core.types import Vector

SEED = 20_251
"""Of the random numbers that vectors are multiplied by."""
CLOSE = 1e-3
"""How far a sketch may be from that of the vector that was written."""
_CLAIMS = {
    "text": "text",
    "title": "title",
    "metadata": "metadata",
    "section_path": "section",
    "path": "section",
    "source": "source",
    "page_first": "page",
    "page_last": "page",
    **dict.fromkeys(("id", "document_id", "kind", "content_hash", "timestamp", "embedding_model"), "identity"),
}
"""A word for people for each column; columns without one describe the position."""
UNSEALED = frozenset({"line_first", "line_last"})
"""Older versions of this library did not write them, and their checksums stay valid."""


def _checksum_of(count: int) -> Callable[[Any], int]:
    """Return the function that computes the checksum of so many values."""
    form = "\x1f".join(["%s"] * count)

    def compute(values: Any) -> int:
        return crc32((form % values).encode("utf-8", "surrogatepass"))

    return compute


class Seal:
    """Computes and compares the checksums of one kind of record: one CRC-32 for each claim that it makes.

    Args:
        columns: The columns of its rows.

    Attributes:
        claims: The names of the claims.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        places: dict[str, list[int]] = {}
        for position, column in enumerate(columns):
            if column in UNSEALED:
                continue
            places.setdefault(_CLAIMS.get(column, "place"), []).append(position)
        self.claims = tuple(places)
        self._parts = tuple((itemgetter(*at), _checksum_of(len(at))) for at in places.values())
        self._form = struct.Struct(f"<{len(self.claims)}I")
        self.size = self._form.size

    def of(self, row: Row) -> bytes:
        """Return the checksums of a row."""
        return self._form.pack(*[compute(values_of(row)) for values_of, compute in self._parts])

    def changed(self, row: Row, seal: bytes) -> tuple[str, ...]:
        """Return the claims of a row that are not those that were written.

        Args:
            row: As it is now.
            seal: As it was written; what follows the checksums of the row is ignored.
        """
        now = self.of(row)
        if seal[: self.size] == now:
            return ()
        if len(seal) < self.size:
            return self.claims
        pairs = zip(self.claims, self._form.unpack(now), self._form.unpack(seal[: self.size]), strict=True)
        return tuple(claim for claim, is_now, was in pairs if is_now != was)


CHUNK_SEAL = Seal(CHUNKS.columns)
DOCUMENT_SEAL = Seal(DOCUMENTS.columns)
SECTION_SEAL = Seal(SECTIONS.columns)


def checksum(content: bytes, start: int = 0) -> int:
    """Return the CRC-32 of bytes.

    Args:
        content: Such as a vector.
        start: Makes equal bytes of two records differ, such as a record's number.
    """
    return crc32(content, start & 0xFFFFFFFF)


def sketch(vector: Vector) -> list[float]:
    """Return four numbers that another vector hardly has, for services that return vectors a little rounded."""
    import numpy as np  # noqa: PLC0415 - only those who have vectors pay for numpy

    probes = np.random.default_rng(SEED).standard_normal((4, len(vector)))
    return [round(float(number), 5) for number in probes @ np.asarray(vector, np.float64)]


def is_like(vector: Vector, kept: Sequence[float]) -> bool:
    """Whether a vector is the one that a sketch was made of."""
    return all(abs(now - was) < CLOSE for now, was in zip(sketch(vector), kept, strict=False))


def damage_of(
    document_id: str, seal: Seal, row: Row, kept: bytes, parts: Mapping[str, bool | None]
) -> RecordDamage | None:
    """Return the damage of a record, or ``None``.

    Args:
        document_id: Of its document.
        seal: Of its kind.
        row: As it is now.
        kept: The checksums that were written with it.
        parts: Whether its vector and its postings are those that were written; ``None`` if they are missing.
    """
    changed = (*seal.changed(row, kept), *(name for name, is_same in parts.items() if is_same is False))
    missing = tuple(name for name, is_same in parts.items() if is_same is None)
    return RecordDamage(document_id, changed, missing) if changed or missing else None
