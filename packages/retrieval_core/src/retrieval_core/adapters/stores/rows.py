"""Values to rows and back, for the stores that keep them as columns: texts, integers, and JSON as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeGuard, TypeVar, cast

from retrieval_core.errors import IndexFormatError
from retrieval_core.ports import SourceState
from retrieval_core.types import Chunk, Document, FrozenDict, PageSpan, Section, Span, freeze

if TYPE_CHECKING:
    from retrieval_core.types import JSON, Metadata

T = TypeVar("T")
Row: TypeAlias = Sequence[Any]


@dataclass(frozen=True, slots=True)
class RowForm(Generic[T]):
    """How values of one type are kept.

    Attributes:
        columns: Their names; the first one names the value.
        to_row: Returns a value's row, in the order of the columns.
        made_of: Returns the value of a sound row.
        kinds: The types that each column may have.
    """

    columns: tuple[str, ...]
    to_row: Callable[[T], Row]
    made_of: Callable[[Row], T]
    kinds: tuple[tuple[type, ...], ...]

    def from_row(self, row: Row) -> T:
        """Return the value of a row.

        Raises:
            IndexFormatError: The row is damaged, or another program wrote it.
        """
        try:
            if not all(map(isinstance, row, self.kinds)):
                wrong = next(at for at, kind in enumerate(self.kinds) if not isinstance(row[at], kind))
                msg = f"its {self.columns[wrong]} is {row[wrong]!r:.40}"
                raise TypeError(msg)  # noqa: TRY301 - told as what cannot be read is
            return self.made_of(row)
        except (AttributeError, TypeError, ValueError) as error:
            msg = f"the record of {row[0]!r:.80} is damaged ({error!s:.80}); index its document anew"
            raise IndexFormatError(msg) from error


def _names(names: str) -> tuple[str, ...]:
    return tuple(names.split())


FIELD_COLUMNS = _names(
    "id document_id chunk_index page_first page_last section_path parent_id title source timestamp metadata"
)
"""The columns of a chunk that filters see."""
INTEGER_COLUMNS = frozenset(
    _names(
        "chunk_index total_chunks page_first page_last span_start span_end row_first row_last item_first item_last "
        "line_first line_last documents"
    )
)
"""All others hold text."""
_LOCATION = "\x1f"
"""Separates the recipe of a file from its location, in one column."""


class FieldReader:
    """Makes what :func:`~retrieval_core.types.filters.chunk_fields` says of a chunk from its row alone.

    That is for reading many chunks; JSON that several of them share is read once.
    """

    def __init__(self) -> None:
        self._decoded: dict[str, Any] = {}

    def __call__(self, row: Row) -> Mapping[str, JSON]:
        """Return the fields of a row that has :data:`FIELD_COLUMNS`."""
        first_page, last_page = row[3], row[4]
        return {
            "id": row[0],
            "document_id": row[1],
            "chunk_index": row[2],
            "page": None if first_page is None else tuple(range(first_page, last_page + 1)),
            "section": self._decode(row[5]),
            "parent_id": row[6],
            "title": row[7],
            "source": row[8],
            "timestamp": row[9],
            **self._decode(row[10]),
        }

    def _decode(self, text: str) -> Any:
        known = self._decoded.get(text)
        if known is None:
            known = self._decoded[text] = json.loads(text)
        return known


def _chunk_to_row(chunk: Chunk) -> Row:
    pages, span = chunk.page_span, chunk.span
    return (
        chunk.id,
        chunk.document_id,
        chunk.chunk_index,
        chunk.total_chunks,
        *((pages.first, pages.last) if pages else (None, None)),
        _to_json(chunk.section_path),
        *((span.start, span.end) if span else (None, None)),
        chunk.parent_id,
        *(chunk.row_range or (None, None)),
        *(chunk.item_range or (None, None)),
        chunk.title,
        chunk.source,
        chunk.content_hash,
        chunk.timestamp.isoformat() if chunk.timestamp else None,
        chunk.embedding_model,
        _to_json(chunk.metadata),
        chunk.text,
        *(chunk.lines or (None, None)),
    )


def _chunk_from_row(row: Row) -> Chunk:
    return Chunk(
        id=row[0],
        document_id=row[1],
        chunk_index=row[2],
        total_chunks=row[3],
        page_span=None if (pages := _pair(row[4:6])) is None else PageSpan(*pages),
        section_path=tuple(json.loads(row[6])),
        span=None if (span := _pair(row[7:9])) is None else Span(*span),
        parent_id=row[9],
        row_range=_pair(row[10:12]),
        item_range=_pair(row[12:14]),
        title=row[14],
        source=row[15],
        content_hash=row[16],
        timestamp=_to_time(row[17]),
        embedding_model=row[18],
        metadata=_from_json(row[19]),
        text=row[20],
        lines=_pair(row[21:23]),
    )


def indexed_text_of(title: object, section_path: object, text: object) -> str:
    """Return :attr:`Chunk.indexed_text` of three columns; what is damaged of them is left out."""
    path: tuple[str, ...] = ()
    with suppress(TypeError, ValueError):
        path = tuple(filter(_is_text, json.loads(cast("str", section_path))))
    chunk = Chunk("", "", text if _is_text(text) else "", title=title if _is_text(title) else None, section_path=path)
    return chunk.indexed_text


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _document_to_row(document: Document) -> Row:
    return (
        document.id,
        document.source,
        document.content_hash,
        document.title,
        document.timestamp.isoformat() if document.timestamp else None,
        _to_json(document.metadata),
        document.text,
    )


def _document_from_row(row: Row) -> Document:
    return Document(
        id=row[0],
        source=row[1],
        content_hash=row[2],
        title=row[3],
        timestamp=_to_time(row[4]),
        metadata=_from_json(row[5]),
        text=row[6],
    )


def _section_to_row(section: Section) -> Row:
    pages = section.page_span
    return (
        section.id,
        section.document_id,
        section.kind,
        _to_json(section.path),
        section.span.start,
        section.span.end,
        *((pages.first, pages.last) if pages else (None, None)),
    )


def _section_from_row(row: Row) -> Section:
    return Section(
        id=row[0],
        document_id=row[1],
        kind=row[2],
        path=tuple(json.loads(row[3])),
        span=Span(row[4], row[5]),
        page_span=None if (pages := _pair(row[6:8])) is None else PageSpan(*pages),
    )


def _source_to_row(state: SourceState) -> Row:
    # The location is kept with the recipe, so that tables of earlier versions need no new column.
    recipe = state.recipe if state.location == state.source else f"{state.recipe}{_LOCATION}{state.location}"
    return state.source, state.content_hash, recipe, state.documents


def _source_from_row(row: Row) -> SourceState:
    source, digest, recipe, documents = row
    recipe, _, location = recipe.partition(_LOCATION)
    return SourceState(source, digest, recipe, documents, location)


def _pair(numbers: Row) -> tuple[int, int] | None:
    """Return first and last; ``None`` where there is neither."""
    first, last = numbers
    if (first is None) != (last is None):
        msg = f"{first} to {last} is no range"
        raise ValueError(msg)
    return None if first is None else (first, last)


def _to_json(value: Mapping[str, Any] | Sequence[str]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _from_json(text: str) -> Metadata:
    return FrozenDict() if text == "{}" else freeze(json.loads(text))


def _to_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _form(columns: str, to_row: Callable[[T], Row], made_of: Callable[[Row], T]) -> RowForm[T]:
    """Return the form of columns, of which those with a question mark may be null."""
    names = _names(columns.replace("?", ""))
    types = (int if name in INTEGER_COLUMNS else str for name in names)
    kinds = ((kind, type(None)) if "?" in name else (kind,) for name, kind in zip(_names(columns), types, strict=True))
    return RowForm(names, to_row, made_of, tuple(kinds))


CHUNKS = _form(
    "id document_id chunk_index total_chunks page_first? page_last? section_path span_start? span_end? parent_id? "
    "row_first? row_last? item_first? item_last? title? source? content_hash timestamp? embedding_model? metadata text "
    "line_first? line_last?",
    _chunk_to_row,
    _chunk_from_row,
)
DOCUMENTS = _form("id source content_hash title? timestamp? metadata text", _document_to_row, _document_from_row)
SECTIONS = _form(
    "id document_id kind path span_start span_end page_first? page_last?", _section_to_row, _section_from_row
)
SOURCES = _form("source content_hash recipe documents", _source_to_row, _source_from_row)
