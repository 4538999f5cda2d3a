"""Documents, sections and chunks of an index, with immutable metadata."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf, isfinite
from reprlib import repr  # noqa: A004 - shortens long values
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias, cast

from retrieval_core.errors import InvalidParameterError
from retrieval_core.types.escapes import Display, escape_name, valid_unicode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime  # not at run time: the cache's codec puts its own form of it in this place

    import numpy as np
    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[np.float32]
    """One embedding, shape ``(dimension,)``."""
    Matrix: TypeAlias = NDArray[np.float32]
    """Several embeddings, shape ``(count, dimension)``."""

_UUID_OR_HASH = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}", re.IGNORECASE)

JSON: TypeAlias = "str | int | float | bool | list[JSON] | tuple[JSON, ...] | Mapping[str, JSON] | None"
Metadata: TypeAlias = "Mapping[str, JSON]"
LARGEST_FLOAT = 3.4028234663852886e38
"""The largest finite float32."""


class FrozenDict(dict[str, Any]):
    """An immutable dictionary that :mod:`json` and comparisons treat like a ``dict``."""

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        msg = "this mapping is frozen; make a new one with {**mapping, key: value}"
        raise TypeError(msg)

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]
    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)


MAX_METADATA_DEPTH = 150
"""Maximum depth of lists and objects in metadata, which every store and cache can write as JSON."""

MAX_BITS = 1023
"""Maximum size of an integer in metadata and filters; larger ones can't be compared with floating point numbers."""


def freeze_metadata(value: Any) -> FrozenDict:
    """Return metadata made immutable; see :func:`freeze`.

    Raises:
        InvalidParameterError: It is no mapping, or holds something that JSON cannot express.
    """
    if not isinstance(value, dict):
        told = f"got {repr(value)} ({type(value).__name__})"
        msg = f"metadata is a mapping of names to values, such as {{'price': 9.9}}, {told}"
        raise InvalidParameterError(msg)
    return freeze(value)


def _checked_number(value: float) -> float:
    if isinstance(value, float) and not isfinite(value):
        msg = f"metadata numbers must be finite, got {value}; leave the field out if there is no value"
        raise InvalidParameterError(msg)
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        msg = f"metadata numbers must be below 2 to the {MAX_BITS}, got {value.bit_length()} bits; keep it as text"
        raise InvalidParameterError(msg)
    return value


def freeze(value: Any, _depth: int = 0) -> Any:
    """Return an immutable copy of a JSON value, with valid Unicode in all texts.

    Raises:
        InvalidParameterError: The value contains something that JSON can't express, or nests deeper than
            :data:`MAX_METADATA_DEPTH`.
    """
    if isinstance(value, str):
        return value if value.isascii() else valid_unicode(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return _checked_number(value)
    if isinstance(value, FrozenDict) and not _depth:
        return value
    if _depth > MAX_METADATA_DEPTH:
        msg = f"metadata may nest at most {MAX_METADATA_DEPTH} levels deep"
        raise InvalidParameterError(msg)
    if isinstance(value, dict):
        frozen: dict[str, Any] = {}
        for key, item in cast("dict[Any, Any]", value).items():
            if not isinstance(key, str):
                kinds = sorted(
                    {type(key).__name__ for key in cast("dict[Any, Any]", value) if not isinstance(key, str)}
                )
                msg = f"metadata keys must be text, got keys of the type {', '.join(kinds)}"
                raise InvalidParameterError(msg)
            frozen[key if key.isascii() else valid_unicode(key)] = freeze(item, _depth + 1)
        return FrozenDict(frozen)
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item, _depth + 1) for item in cast("list[Any]", value))
    msg = (
        f"metadata values must be JSON (text, number, boolean, null, list, object), got {type(value).__name__}. "
        "Convert dates and other objects to text or numbers first."
    )
    raise InvalidParameterError(msg)


_CHUNK_TEXTS = ("id", "document_id", "text", "parent_id", "title", "source", "content_hash", "embedding_model")


def content_hash(text: str) -> str:
    """Return the SHA-256 of the UTF-8 bytes of a text, in hexadecimal; lone surrogates are kept."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def clean_texts(record: object, *names: str) -> None:
    """Replace the lone surrogates in the named fields of a frozen value that is being made.

    Raises:
        InvalidParameterError: One of them is neither text nor ``None``.
    """
    for name in names:
        text = getattr(record, name)
        if not isinstance(text, str):
            if text is not None:
                raise wrong_type(record, name, "text")
        elif not text.isascii():
            object.__setattr__(record, name, valid_unicode(text))


def wrong_type(record: object, name: str, expected: str) -> InvalidParameterError:
    """Return the error for a field of a value that is being made.

    Args:
        expected: What it takes, such as ``a whole number``.
    """
    kind, value, own_id = type(record).__name__.lower(), getattr(record, name), getattr(record, "id", None)
    whose = f"the {kind} {own_id!r}" if isinstance(own_id, str) and own_id else f"a {kind}"
    return InvalidParameterError(f"{name} of {whose} is {expected}, got {repr(value)} ({type(value).__name__})")


def _checked_pair(record: object, name: str) -> None:
    """Check a field with two whole numbers, which a list may have."""
    value = getattr(record, name)
    numbers: tuple[Any, ...] = tuple(cast("list[Any]", value)) if isinstance(value, (tuple, list)) else ()
    if len(numbers) != 2 or not all(isinstance(number, int) for number in numbers):
        raise wrong_type(record, name, "a pair of whole numbers or None")
    object.__setattr__(record, name, numbers)


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a document's text in code points: ``text[span.start : span.end]``."""

    start: int
    end: int


def lines_of(text: str, start: int, end: int, lines: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the first and last line of a part of a text, without the white space around the part.

    Args:
        text: Such as that of a chunk.
        start: Start of the part in the text, in code points.
        end: End of the part in the text, in code points.
        lines: First and last line of the whole text, with or without the white space around it. If the text has another
            number of lines, each of its parts has all of these.
    """
    if lines is None:
        return None
    origin, count, words = 0, text.count("\n"), text.strip()
    if lines[1] - lines[0] not in {count, count - text.endswith("\n")}:
        if lines[1] - lines[0] != words.count("\n"):
            return lines
        origin = text.find(words)
    kept = text[start:end].strip()
    first = lines[0] + text.count("\n", origin, text.find(kept, start))
    return first, first + kept.count("\n")


def first_line_of(text: str, chunks: Iterable[Chunk]) -> int | None:
    """Return the number of the first line of a document's text; above 1 if its file has front matter above it.

    Args:
        text: Of the document.
        chunks: Any of its chunks; ``None`` is returned if their lines are unknown.
    """
    for chunk in chunks:
        if chunk.lines is not None and chunk.span is not None:
            return chunk.lines[0] - text.count("\n", 0, chunk.span.start)
    return None


@dataclass(frozen=True, slots=True)
class PageSpan:
    """The first and the last page, from 1."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, repr=False)
class Document(Display):
    """A text to index, or an indexed text; ``Document("faq", "Refunds take five days.")`` is enough.

    Attributes:
        id: Unique in its index. For files, the path relative to the index; for table rows, that path, ``#`` and the
            row.
        text: The whole text. The spans of chunks and sections point into it. Lone surrogates become U+FFFD.
        source: Path or URL; the rows of a table share one. Default: the ID.
        content_hash: Hash that detects changes. Default: :func:`content_hash` of ``text``.
        title: The title. Default: none.
        metadata: Your own fields as JSON values, for filters. Default: none.
        timestamp: When the document was indexed. Default: not known.

    Raises:
        InvalidParameterError: A field has the wrong type, or the metadata is not JSON.
    """

    id: str
    text: str
    source: str = ""
    content_hash: str = ""
    title: str | None = None
    metadata: Metadata = field(default_factory=FrozenDict)
    timestamp: datetime | None = None

    def __post_init__(self) -> None:
        clean_texts(self, "id", "text", "source", "content_hash", "title")
        for name, value in (("id", self.id), ("text", self.text)):
            if value is None:  # pyright: ignore[reportUnnecessaryComparison]
                raise wrong_type(self, name, "text")
        if not self.source:
            object.__setattr__(self, "source", self.id)
        if not self.content_hash:
            object.__setattr__(self, "content_hash", content_hash(self.text))
        if not isinstance(self.timestamp, (dt.datetime, NoneType)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong_type(self, "timestamp", "a datetime or None")
        object.__setattr__(self, "metadata", freeze_metadata(self.metadata))

    def _facts(self) -> Mapping[str, object]:
        source = None if self.source == self.id else self.source
        return {"id": self.id, "title": self.title, "source": source, "text": self.text}


@dataclass(frozen=True, slots=True, repr=False)
class DocumentInfo(Display):
    """A document of an index without its text, as ``index.documents()`` lists it.

    Attributes:
        id: Unique in its index.
        title: The title, if the document has one.
        source: Path or URL of the file; ``None`` for chunks that were added without a document.
        chunks: Number of chunks, from 0.
        metadata: The metadata fields of the document.
        timestamp: When the document was indexed, if known.
        source_index: Name of the index, if several indexes are searched as one.
    """

    id: str
    title: str | None = None
    source: str | None = None
    chunks: int = 0
    metadata: Metadata = field(default_factory=FrozenDict)
    timestamp: datetime | None = None
    source_index: str | None = None

    def _facts(self) -> Mapping[str, object]:
        return {
            "id": self.id,
            "title": self.title,
            "source": self.source,
            "chunks": self.chunks,
            "metadata": dict(self.metadata),
            "source_index": self.source_index,
        }


@dataclass(frozen=True, slots=True)
class Section:
    """The parent of chunks: the text under one heading, or a page.

    Attributes:
        id: Unique in its index.
        document_id: ID of the document.
        kind: ``section`` or ``page``.
        path: Headings, from the outermost to the section's heading; empty for pages and text without headings.
        span: Range of the document's text.
        page_span: First and last page, if the document has pages.
    """

    id: str
    document_id: str
    kind: Literal["section", "page"]
    path: tuple[str, ...]
    span: Span
    page_span: PageSpan | None = None

    def __post_init__(self) -> None:
        clean_texts(self, "id", "document_id")
        object.__setattr__(self, "path", tuple(map(valid_unicode, self.path)))


@dataclass(frozen=True, slots=True, repr=False)
class Chunk(Display):
    """A piece of a document, the unit of search; ``Chunk("faq-1", "faq", "Refunds take five days.")`` is enough.

    Attributes:
        id: Unique in its index; ``<document id>#<chunk index>`` for chunks made by this library.
        document_id: ID of the document.
        text: The text.
        chunk_index: Position in the document, from 0.
        total_chunks: Number of chunks of the document.
        page_span: First and last page, if the document has pages.
        section_path: Headings above the chunk, the outermost first.
        span: Range of the document's text; ``None`` for chunks that were added without a document.
        parent_id: ID of the :class:`Section` that contains it.
        row_range: First and last table row, from 1, for chunks of table rows.
        item_range: First and last list item, from 1, for chunks of list items.
        title: Title of the document.
        source: Path or URL.
        content_hash: Hash that detects changes. Default: :func:`content_hash` of ``text``.
        timestamp: When the chunk was indexed.
        embedding_model: ID of the embedder of its vector.
        metadata: Your own fields as JSON values, for filters.
        missing_fields: Fields that a record of another program lacks, of ``source_url``, ``chunk_id``, ``chunk_index``
            and ``total_chunks``. Empty for chunks made by this library.
        lines: First and last line, from 1: of the file for plain text, Markdown and source code, of the indexed text
            for other formats. ``None`` for table rows and for chunks that were added without a document.

    Raises:
        InvalidParameterError: A field has the wrong type, or the metadata is not JSON.
    """

    id: str
    document_id: str
    text: str
    chunk_index: int = 0
    total_chunks: int = 1
    page_span: PageSpan | None = None
    section_path: tuple[str, ...] = ()
    span: Span | None = None
    parent_id: str | None = None
    row_range: tuple[int, int] | None = None
    item_range: tuple[int, int] | None = None
    title: str | None = None
    source: str | None = None
    content_hash: str = ""
    timestamp: datetime | None = None
    embedding_model: str | None = None
    metadata: Metadata = field(default_factory=FrozenDict)
    missing_fields: tuple[str, ...] = ()
    lines: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        clean_texts(self, *_CHUNK_TEXTS)
        self._check_types()
        if self.section_path != ():
            object.__setattr__(self, "section_path", tuple(map(valid_unicode, self.section_path)))
        if type(self.metadata) is not FrozenDict:
            object.__setattr__(self, "metadata", freeze_metadata(self.metadata))
        if not self.content_hash:
            object.__setattr__(self, "content_hash", content_hash(self.text))

    def _check_types(self) -> None:  # noqa: C901 - one check for each field
        """Check the fields that are no text; written out, since it runs for each chunk that is read.

        Raises:
            InvalidParameterError: One is of another type.
        """
        if self.id is None or self.document_id is None or self.text is None:  # pyright: ignore[reportUnnecessaryComparison]
            names = ("id", "document_id", "text")
            raise wrong_type(self, next(name for name in names if getattr(self, name) is None), "text")
        if not isinstance(self.chunk_index, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong_type(self, "chunk_index", "a whole number")
        if not isinstance(self.total_chunks, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong_type(self, "total_chunks", "a whole number")
        if (pages := self.page_span) is not None and not (
            isinstance(pages, PageSpan) and isinstance(pages.first, int) and isinstance(pages.last, int)  # pyright: ignore[reportUnnecessaryIsInstance]
        ):
            raise wrong_type(self, "page_span", "a PageSpan of whole numbers or None")
        if (span := self.span) is not None and not (
            isinstance(span, Span) and isinstance(span.start, int) and isinstance(span.end, int)  # pyright: ignore[reportUnnecessaryIsInstance]
        ):
            raise wrong_type(self, "span", "a Span of whole numbers or None")
        if self.section_path != () and not (
            isinstance(self.section_path, (tuple, list)) and all(isinstance(part, str) for part in self.section_path)  # pyright: ignore[reportUnnecessaryIsInstance]
        ):
            raise wrong_type(self, "section_path", "a tuple of texts")
        if not isinstance(self.missing_fields, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong_type(self, "missing_fields", "a tuple of names")
        if self.row_range is not None:
            _checked_pair(self, "row_range")
        if self.item_range is not None:
            _checked_pair(self, "item_range")
        if self.lines is not None:
            _checked_pair(self, "lines")
        if self.timestamp is not None and not isinstance(self.timestamp, dt.datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong_type(self, "timestamp", "a datetime or None")

    @property
    def has_position(self) -> bool:
        """Whether ``chunk_index`` is known; records of another program may lack it."""
        return "chunk_index" not in self.missing_fields

    @property
    def indexed_text(self) -> str:
        """The text that is embedded and searched: title and headings, then the text of the chunk.

        Text from the middle of a document often lacks the words of its topic; the headings contain them.
        """
        heading = " > ".join(dict.fromkeys(part for part in (self.title, *self.section_path) if part))
        return f"{heading}\n{self.text}" if heading else self.text

    def _facts(self) -> Mapping[str, object]:
        source = self.source or self.document_id
        return {"id": self.id, "source": source, "section": " > ".join(self.section_path), "text": self.text}


class Place(Protocol):
    """What has a place in a document: a chunk or a citation."""

    @property
    def document_id(self) -> str:
        """ID of the document."""
        ...

    @property
    def source(self) -> str | None:
        """Path or URL."""
        ...

    @property
    def page_span(self) -> PageSpan | None:
        """First and last page, if the document has pages."""
        ...

    @property
    def section_path(self) -> tuple[str, ...]:
        """Headings above it, the outermost first."""
        ...

    @property
    def row_range(self) -> tuple[int, int] | None:
        """First and last table row, from 1."""
        ...

    @property
    def item_range(self) -> tuple[int, int] | None:
        """First and last list item, from 1."""
        ...

    @property
    def lines(self) -> tuple[int, int] | None:
        """First and last line, from 1."""
        ...


_LINES_AT_END = re.compile(r":(?=\d+(?:-\d+)?\Z)")


def format_citation(place: Place) -> str:
    """Return a citation as one line, such as ``Doc: guide.md:12-18 | Section: Setup > Linux``.

    The first and last line follow the document's name; a single line is one number, as in ``guide.md:12``. A document
    whose ID is a UUID is named by its source, if known. Pages, table rows and list items follow, such
    as ``Page: 3-4``. Names are escaped, so they can't forge parts of the line.

    Args:
        place: A chunk or a citation.

    Example::

        with open_index("notes.db") as index:
            print(format_citation(index.retrieve("how far away is the moon").hits[0].chunk))
    """
    shown = escape_name(name_document(place.document_id, place.source))
    shown = f"{shown}:{format_range(*place.lines)}" if place.lines else _LINES_AT_END.sub(r"\\u003a", shown)
    parts = [f"Doc: {shown}"]
    if place.page_span:
        parts.append(f"Page: {format_range(place.page_span.first, place.page_span.last)}")
    if place.section_path:
        parts.append(f"Section: {' > '.join(map(escape_name, place.section_path))}")
    if place.row_range:
        parts.append(f"Rows: {format_range(*place.row_range)}")
    if place.item_range:
        parts.append(f"Items: {format_range(*place.item_range)}")
    return " | ".join(parts)


def name_document(document_id: str, source: str | None) -> str:
    """Return what results call a document: its ID, or the source, if known, of one whose ID is a UUID or a SHA-256."""
    return (_UUID_OR_HASH.fullmatch(document_id) and source) or document_id


def format_range(first: int, last: int) -> str:
    """Return a range of lines, pages or rows as text: ``12-18``, or ``12`` for a single one."""
    return str(first) if first == last else f"{first}-{last}"


def as_vectors(values: object) -> NDArray[Any]:
    """Return one vector, or several, as an array; an array is not copied.

    Raises:
        InvalidParameterError: They are not real numbers, not finite, or beyond the range of float32.
    """
    import numpy as np  # noqa: PLC0415 - only those who have vectors pay for numpy

    try:
        array = np.asarray(values)
    except Exception as error:  # whatever a foreign object does when it is asked for its numbers
        msg = f"vectors must be arrays of numbers, got {type(values).__name__}"
        raise InvalidParameterError(msg) from error
    if array.dtype.kind not in "fiu":
        what = array.dtype.name if array.dtype.kind != "O" else type(values).__name__
        msg = f"vectors must consist of real numbers, got {what}"
        raise InvalidParameterError(msg)
    # Comparisons with NaN are false, so NaN is refused as well. Of one vector a sum of squares tells in a third of the
    # time; those of float32 are within the range of float64.
    if array.ndim == 1 and array.dtype == np.float32:
        wide = array.astype(np.float64)
        if wide.dot(wide) < inf:
            return array
    if array.size and not (array.max() <= LARGEST_FLOAT and array.min() >= -LARGEST_FLOAT):
        msg = "vectors must consist of finite numbers, which float32 can hold"
        raise InvalidParameterError(msg)
    return array


def is_zero(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return whether a vector consists of zeros, as float32 has them; of several, an array with an answer for each."""
    import numpy as np  # noqa: PLC0415 - whoever has a vector has loaded it

    return np.logical_not(np.any(vectors.astype(np.float32, copy=False), axis=-1))


def unit_rows(vectors: Matrix) -> Matrix:
    """Return float32 vectors of length 1, so that a product of two is their cosine; zero vectors stay as they are."""
    import numpy as np  # noqa: PLC0415 - only those who have vectors pay for numpy

    wide = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    lengths[(lengths == 0) | (abs(lengths - 1) < 1e-6)] = 1  # what has unit length already is kept bit by bit
    return np.ascontiguousarray(wide / lengths, dtype=np.float32)
