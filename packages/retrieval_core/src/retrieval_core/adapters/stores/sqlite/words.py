"""The words of an index: postings in segments as tables of SQLite, and exact keyword search by BM25 over them.

A segment holds some of the chunks: its postings say for each term which chunks have it, and how often. Each write adds
a segment, in the write's own transaction, and neighbouring segments are merged into larger ones as they come to be
many, so that a chunk is merged at most once for each power of :data:`FANOUT` in the number of chunks. Segments are
never changed; the postings of removed chunks stay, and do not count, until their segment is merged.

A segment's terms are in order, cut into blocks of about :data:`BLOCK` postings, so that a search reads one block for
each term, and those of an index of any size are merged in little memory. A block has, little-endian: a header, the
number of postings of each term, the chunks' positions in the segment, the frequencies, and the terms as lines.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

import numpy as np

from retrieval_core.adapters.stores.held import Postings, Vocabulary, checksums_of, count_terms_of, sort_postings
from retrieval_core.adapters.stores.rows import indexed_text_of
from retrieval_core.adapters.stores.scoring import best_rows, length_norms, saturated, weight_of
from retrieval_core.adapters.stores.segments import segments_to_merge, small_segments
from retrieval_core.adapters.stores.sqlite.connections import DamagedError
from retrieval_core.adapters.stores.sqlite.read import count_written_chunks, matches_of
from retrieval_core.ports import TermCounts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from sqlite3 import Connection

    from numpy.typing import NDArray

    from retrieval_core.adapters.stores.local import Match
    from retrieval_core.adapters.stores.sqlite.read import Snapshot
    from retrieval_core.text.analysis import Analyzer

    Numbers: TypeAlias = NDArray[np.int64]
    Unsigned: TypeAlias = NDArray[np.unsignedinteger]
    Rows: TypeAlias = NDArray[np.int32]
    _Found: TypeAlias = tuple[Rows, NDArray[np.unsignedinteger]]

BLOCK = 1024
"""Postings of a block, about; those of one term are never parted."""
BLOCKS_AT_ONCE = 64
"""How many blocks are merged at a time, about."""
REBUILT_AT_ONCE = 1000
"""Chunks whose words are analysed at a time when all postings are built again."""

CACHED_BYTES = 64 * 1024 * 1024
"""The most memory for the postings of terms that were searched for."""
ENTRY_BYTES = 400
"""What the entry of a term takes, beside its postings."""

_HEADER = struct.Struct("<4I")
"""The numbers of terms and of postings, and the bytes of a position and of a frequency."""
_UNREADABLE = (AttributeError, IndexError, TypeError, ValueError, struct.error)
"""What reading bytes raises that are not what they must be."""
_SEGMENTS = "SELECT id, numbers, lengths, first_terms FROM word_segments ORDER BY first"
_SIZES = """
SELECT id, chunks, (SELECT count(*) FROM stale_words WHERE number BETWEEN first AND last)
FROM word_segments ORDER BY first
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment, without its postings.

    Attributes:
        numbers: The chunks' numbers, ascending.
        lengths: How many terms each chunk has, repeated ones included.
        first_terms: The first term of each block.
    """

    id: int
    numbers: Numbers
    lengths: Unsigned
    first_terms: Sequence[str]

    def find(self, connection: Connection, term: str) -> tuple[Unsigned, Unsigned] | None:
        """Return the positions of the chunks that have a term, and how often each has it.

        Raises:
            DamagedError: The block is damaged.
        """
        place = bisect_right(self.first_terms, term) - 1
        if place < 0:
            return None
        block = _block(connection, self.id, place)
        try:
            found = _found(block, term.encode())
            is_sound = found is None or found[0][-1] < len(self.numbers)
        except _UNREADABLE as error:
            raise _damaged() from error
        if not is_sound:
            raise _damaged()
        return found


def read_segments(connection: Connection) -> list[Segment]:
    """Return all segments, in the order of their chunks' numbers.

    Raises:
        DamagedError: A segment is damaged.
    """
    segments: list[Segment] = []
    for name, numbers, lengths, first_terms in connection.execute(_SEGMENTS).fetchall():
        try:
            blocks = first_terms.split("\n") if first_terms else ()
            segment = Segment(name, np.frombuffer(numbers, "<i8"), np.frombuffer(lengths, "<u4"), blocks)
        except _UNREADABLE as error:
            raise _damaged() from error
        if len(segment.numbers) != len(segment.lengths):
            raise _damaged()
        segments.append(segment)
    return segments


def read_stale(connection: Connection) -> Numbers:
    """Return the numbers of removed chunks whose postings are still there."""
    rows = connection.execute("SELECT number FROM stale_words").fetchall()
    return np.array(rows, dtype=np.int64).reshape(-1)


def add_postings(connection: Connection, chunks: Sequence[tuple[int, Sequence[str]]]) -> list[int]:
    """Add a segment, and return the checksum of each chunk's postings.

    Args:
        chunks: Number and terms of each chunk; the numbers ascend, and are above those of all segments.
    """
    if not chunks:
        return []
    lengths = np.array([len(terms) for _, terms in chunks], np.uint32)
    postings = count_terms_of([terms for _, terms in chunks])
    numbers = np.array([number for number, _ in chunks], np.int64)
    _write(connection, numbers, lengths, [postings])
    bags = np.zeros(len(chunks), np.uint32)
    np.add.at(bags, postings.positions, checksums_of(postings))
    return bags.tolist()


def bag_of(terms: Iterable[str]) -> int:
    """Return the checksum of a chunk's postings: the sum of its terms' checksums, modulo 2 to the 32."""
    return sum(map(crc32, map(str.encode, terms))) & 0xFFFFFFFF


def read_bags(connection: Connection) -> dict[int, int]:
    """Return the checksums of the postings that are stored, by the number of the chunk.

    Raises:
        DamagedError: A segment is damaged; of a block that is, the postings are missing.
    """
    found: dict[int, int] = {}
    stale = set(read_stale(connection).tolist())
    for segment in read_segments(connection):
        bags = np.zeros(len(segment.numbers), np.uint32)
        lengths = np.zeros(len(segment.numbers), np.int64)
        for place, first_term in enumerate(segment.first_terms):
            with suppress(DamagedError, *_UNREADABLE):
                block = _unpacked(_block(connection, segment.id, place))
                if block.terms[:1] != [first_term]:  # no search would find its terms
                    continue
                np.add.at(bags, block.positions, checksums_of(block))
                np.add.at(lengths, block.positions, block.frequencies)
        bags[lengths != segment.lengths] ^= np.uint32(1)
        found.update(zip(segment.numbers.tolist(), bags.tolist(), strict=True))
    return {number: bag for number, bag in found.items() if number not in stale}


def rebuild_postings(connection: Connection, analyzer: Analyzer) -> None:
    """Replace all postings by those of the chunks' texts."""
    for table in ("word_segments", "word_blocks", "stale_words"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608
    chunks = connection.execute("SELECT number, title, section_path, text FROM chunks ORDER BY number")
    while rows := chunks.fetchmany(REBUILT_AT_ONCE):
        add_postings(connection, [(number, analyzer.terms(indexed_text_of(*row))) for number, *row in rows])
        merge_segments(connection)


def merge_segments(connection: Connection) -> None:
    """Merge neighbouring segments that together are large enough, and rewrite those with many removed chunks."""
    while group := segments_to_merge(connection.execute(_SIZES).fetchall()):
        _merge(connection, group)


def has_small_segments(connection: Connection) -> bool:
    """Whether :func:`merge_small_segments` has anything to do."""
    return len(small_segments(connection.execute(_SIZES).fetchall())) > 1


def merge_small_segments(connection: Connection) -> None:
    """Merge the last segments, so that each one that is left is some times as large as all behind it."""
    _merge(connection, set(small_segments(connection.execute(_SIZES).fetchall())))


def _merge(connection: Connection, group: Collection[int]) -> None:
    segments = [segment for segment in read_segments(connection) if segment.id in group]
    first, last = int(segments[0].numbers[0]), int(segments[-1].numbers[-1])
    stale = read_stale(connection)
    alive = [~np.isin(segment.numbers, stale) for segment in segments]
    numbers = np.concatenate([segment.numbers[kept] for segment, kept in zip(segments, alive, strict=True)])
    lengths = np.concatenate([segment.lengths[kept] for segment, kept in zip(segments, alive, strict=True)])
    if len(numbers):
        _write(connection, numbers, lengths, merged_postings(connection, segments, alive))
    old = [(segment.id,) for segment in segments]
    connection.executemany("DELETE FROM word_blocks WHERE segment = ?", old)
    connection.executemany("DELETE FROM word_segments WHERE id = ?", old)
    connection.execute("DELETE FROM stale_words WHERE number BETWEEN ? AND ?", (first, last))


def merged_postings(
    connection: Connection, segments: Sequence[Segment], alive: Sequence[NDArray[np.bool_]]
) -> Iterator[Postings]:
    """Yield the postings of all segments, some terms at a time, with the positions that the chunks then have."""
    borders = sorted({term for segment in segments for term in segment.first_terms})[::BLOCKS_AT_ONCE]
    begins = accumulate((int(np.count_nonzero(kept)) for kept in alive), initial=-1)
    moved = [np.cumsum(kept) + begin for kept, begin in zip(alive, begins, strict=False)]
    for first, end in pairwise([*borders, None]):
        vocabulary = Vocabulary()
        ids: list[Numbers] = []
        positions: list[Numbers] = []
        frequencies: list[Numbers] = []
        for segment, kept, place in zip(segments, alive, moved, strict=True):
            for block in _between(connection, segment, first, end):
                remain = kept[block.positions]
                ids.append(np.repeat(vocabulary.ids(block.terms, len(block.terms)), block.counts)[remain])
                positions.append(place[block.positions[remain]])
                frequencies.append(block.frequencies[remain])
        if vocabulary:
            yield sort_postings(vocabulary, np.concatenate(ids), np.concatenate(positions), np.concatenate(frequencies))


def _between(connection: Connection, segment: Segment, first: str | None, end: str | None) -> Iterator[Postings]:
    """Yield the postings of the terms from the first on, and before the end, block by block."""
    places = range(
        0 if first is None else max(0, bisect_right(segment.first_terms, first) - 1),
        len(segment.first_terms) if end is None else bisect_left(segment.first_terms, end),
    )
    for place in places:
        block = _unpacked(_block(connection, segment.id, place))
        low = 0 if first is None else bisect_left(block.terms, first)
        high = len(block.terms) if end is None else bisect_left(block.terms, end)
        begins, ends = int(block.counts[:low].sum()), int(block.counts[:high].sum())
        yield Postings(
            block.terms[low:high],
            block.counts[low:high],
            block.positions[begins:ends],
            block.frequencies[begins:ends],
        )


def _write(connection: Connection, numbers: Numbers, lengths: Unsigned, parts: Iterable[Postings]) -> None:
    """Write a segment."""
    name = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM word_segments").fetchone()[0]
    first_terms: list[str] = []
    for part in parts:
        for block in _cut(part) if part.terms else ():
            row = (name, len(first_terms), _packed(block))
            connection.execute("INSERT INTO word_blocks VALUES (?, ?, ?)", row)
            first_terms.append(block.terms[0])
    ends = int(numbers[0]), int(numbers[-1])
    arrays = numbers.astype("<i8").tobytes(), lengths.astype("<u4").tobytes()
    row = (name, *ends, len(numbers), *arrays, "\n".join(first_terms))
    connection.execute("INSERT INTO word_segments VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _cut(postings: Postings) -> Iterator[Postings]:
    ends = np.cumsum(postings.counts)
    borders = [*np.unique((ends - postings.counts) // BLOCK, return_index=True)[1].tolist(), len(ends)]
    places = [0, *ends.tolist()]
    for low, high in pairwise(borders):
        begin, end = places[low], places[high]
        yield Postings(
            postings.terms[low:high],
            postings.counts[low:high],
            postings.positions[begin:end],
            postings.frequencies[begin:end],
        )


def _packed(postings: Postings) -> bytes:
    positions, frequencies = _narrow(postings.positions), _narrow(postings.frequencies)
    header = len(postings.terms), len(positions), positions.itemsize, frequencies.itemsize
    lines = "\n".join(["", *postings.terms, ""]).encode()
    counts = postings.counts.astype("<u4")
    return b"".join([_HEADER.pack(*header), counts.tobytes(), positions.tobytes(), frequencies.tobytes(), lines])


def _narrow(values: Numbers) -> Unsigned:
    return values.astype(np.min_scalar_type(int(values.max())).newbyteorder("<"))


def _block(connection: Connection, segment: int, place: int) -> bytes:
    row = connection.execute(
        "SELECT block FROM word_blocks WHERE segment = ? AND place = ?", (segment, place)
    ).fetchone()
    if row is None or not isinstance(row[0], bytes):
        raise _damaged()
    return row[0]


def _found(block: bytes, term: bytes) -> tuple[Unsigned, Unsigned] | None:
    """Return the positions and frequencies of a term in a block, without looking at those of the others."""
    terms, postings, wide, broad = _HEADER.unpack_from(block)
    first = _HEADER.size + 4 * terms
    second = first + wide * postings
    lines = second + broad * postings
    if not block.startswith(b"\n", lines) or not block.endswith(b"\n"):
        msg = "the terms are not where they must be"
        raise ValueError(msg)
    place = block.find(b"\n" + term + b"\n", lines)
    if place < 0:
        return None
    rank = block.count(b"\n", lines, place)
    counts = np.frombuffer(block, "<u4", terms, _HEADER.size)
    begin, count = int(counts[:rank].sum()), int(counts[rank])
    return (
        np.frombuffer(block, f"<u{wide}", count, first + wide * begin),
        np.frombuffer(block, f"<u{broad}", count, second + broad * begin),
    )


def _unpacked(block: bytes) -> Postings:
    try:
        terms, postings, wide, broad = _HEADER.unpack_from(block)
        first = _HEADER.size + 4 * terms
        second = first + wide * postings
        return Postings(
            block[second + broad * postings :].decode().split("\n")[1:-1],
            np.frombuffer(block, "<u4", terms, _HEADER.size).astype(np.int64),
            np.frombuffer(block, f"<u{wide}", postings, first).astype(np.int64),
            np.frombuffer(block, f"<u{broad}", postings, second).astype(np.int64),
        )
    except _UNREADABLE as error:
        raise _damaged() from error


def _damaged() -> DamagedError:
    return DamagedError("the words' postings cannot be read")


class InvertedIndex:
    """The words of an index at one state: a row for each chunk. Several threads may search it.

    Args:
        connection: Its open transaction is at that state.
        most_bytes: The most memory for the postings of terms that were searched for.

    Attributes:
        numbers: The chunks' numbers, ascending; some of the chunks may be removed.
        chunks: How many chunks have postings.
        missing: How many chunks should have postings and have none.

    Raises:
        DamagedError: The words are damaged.
    """

    def __init__(self, connection: Connection, most_bytes: int = CACHED_BYTES) -> None:
        self._segments = read_segments(connection)
        self._begins = np.cumsum([0, *(len(segment.numbers) for segment in self._segments)])[:-1].tolist()
        self.numbers = np.concatenate([np.zeros(0, np.int64), *(segment.numbers for segment in self._segments)])
        lengths = np.concatenate([np.zeros(0, np.uint32), *(segment.lengths for segment in self._segments)])
        stale = read_stale(connection)
        self._alive = ~np.isin(self.numbers, stale) if len(stale) else None
        counted = lengths if self._alive is None else lengths[self._alive]
        self.chunks = len(counted)
        self.missing = count_written_chunks(connection) - len(counted)
        self._norms = length_norms(lengths, float(counted.mean()) if len(counted) else 0.0)
        self._lock = Lock()
        self._postings: dict[str, _Found] = {}
        self._most_bytes = most_bytes
        self._cached_bytes = 0

    @property
    def loaded_bytes(self) -> int:
        """Bytes of all arrays; read without a lock."""
        return self.numbers.nbytes + self._norms.nbytes + self._cached_bytes

    def search(
        self, connection: Connection, terms: Sequence[str], limit: int, allowed: Snapshot | None = None
    ) -> list[Match]:
        """Return the best chunks by BM25, best first; equal scores are ordered by chunk id.

        Args:
            terms: Each counts as often as it is repeated.
            allowed: The chunks that match the filter.
        """
        scores = np.zeros(len(self.numbers))
        for term, repeats in Counter(terms).items():
            rows, frequencies = self._find(connection, term)
            scores[rows] += repeats * weight_of(self.chunks, len(rows)) * saturated(frequencies, self._norms[rows])
        if allowed is not None:
            scores *= self._passing(allowed)
        rows = best_rows(scores, limit)
        rows = rows[scores[rows] > 0]
        return matches_of(connection, self.numbers[rows], scores[rows], limit) if len(rows) else []

    def count_chunks(self, connection: Connection, term: str) -> int:
        """Return how many chunks contain a term."""
        return len(self._find(connection, term)[0])

    def count_terms(self, connection: Connection, terms: Sequence[str], allowed: Snapshot | None) -> TermCounts:
        """Return how many chunks there are, and how many of them contain each term.

        Args:
            allowed: The chunks that match the filter; only these count.
        """
        if allowed is None:
            return TermCounts(self.chunks, {term: len(self._find(connection, term)[0]) for term in terms})
        passing = self._passing(allowed)
        having = {term: int(np.count_nonzero(passing[self._find(connection, term)[0]])) for term in terms}
        return TermCounts(int(np.count_nonzero(passing)), having)

    def _find(self, connection: Connection, term: str) -> _Found:
        """Return the rows of the chunks that have a term, and how often each has it."""
        known = self._postings.get(term)
        if known is None:
            known = self._read(connection, term)
            with self._lock:
                self._postings[term] = known
                self._cached_bytes += _bytes_of(known)
                while self._cached_bytes > self._most_bytes:
                    self._cached_bytes -= _bytes_of(self._postings.pop(next(iter(self._postings))))
        return known

    def _read(self, connection: Connection, term: str) -> _Found:
        rows: list[Rows] = [np.zeros(0, np.int32)]
        frequencies: list[NDArray[np.unsignedinteger]] = [np.zeros(0, np.uint8)]
        for segment, begin in zip(self._segments, self._begins, strict=True):
            if found := segment.find(connection, term):
                rows.append(found[0].astype(np.int32) + np.int32(begin))
                frequencies.append(found[1])
        joined, counts = np.concatenate(rows), np.concatenate(frequencies)
        if self._alive is None:
            return joined, counts
        alive = self._alive[joined]
        return joined[alive], counts[alive]

    def _passing(self, allowed: Snapshot) -> NDArray[np.bool_]:
        """Return which rows are among the chunks of a snapshot that match its filter."""
        if np.array_equal(allowed.numbers, self.numbers):
            return allowed.passing
        passing = allowed.numbers[allowed.passing]
        passes = np.zeros(1 + max([0, *passing[-1:].tolist(), *self.numbers[-1:].tolist()]), np.bool_)
        passes[passing] = True
        return passes[self.numbers]


def _bytes_of(found: _Found) -> int:
    return found[0].nbytes + found[1].nbytes + ENTRY_BYTES
