"""Tables: the cells of a CSV file as RFC 4180 has them, the types of columns, and which columns are text."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from retrieval_core.ingest.readers.base import ParsedDocument, unreadable
from retrieval_core.ingest.report import ColumnNote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions

LONGEST_CELL = 10_000_000
"""The most code points of a quoted cell; a longer one is most likely a quotation mark that was left open."""


class RowError(ValueError):
    """A row cannot be parsed; the message has the line and the reason."""


def parse_rows(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row that is not blank, and the number of its last line, from 1.

    A cell in quotation marks may hold delimiters, line ends, and quotation marks that are doubled. In another cell,
    a quotation mark is a character.

    Args:
        lines: With their line ends.
        delimiter: One character.

    Raises:
        RowError: Something stands behind a closing quotation mark, one is not closed, or a cell is too long.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))  # of the process, so it is never lowered
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for cells in rows:
            if cells:
                yield rows.line_num, cells
    except csv.Error as error:
        msg = f"line {rows.line_num}: {error}"
        raise RowError(msg) from error


ColumnType: TypeAlias = Literal["integer", "number", "boolean", "text"]

MOSTLY = 0.9
"""A text column with at least this share of numbers was probably meant to be one of numbers."""
LONGEST_EXAMPLE = 60
"""Code points shown of a cell."""

_MISSING = frozenset({"", "null", "none", "nan", "na", "n/a", "-", "\N{EN DASH}", "\N{EM DASH}"})
# As JSON writes them: 007, 1_000 and +49 are text, since they are codes and telephone numbers.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_GROUPED = re.compile(r"-?[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_CODE = re.compile(r"\+[0-9].*|0[0-9]+")
_BOOLEANS = {"true": True, "false": False}
_LONGEST_NUMBER = 400
"""No finite number needs more characters before its point."""


class TypeGuess:
    """Finds the narrowest type that holds all cells of a column, one cell at a time.

    ``1,249`` is a thousand and more where people write a decimal point, and little more than one where they write a
    decimal comma. It counts as a number only if the column leaves no doubt: a cell in it has both signs or several
    groups (``1,249.00``, ``1,249,000``), or a decimal point that cannot separate thousands (``99.50``). Whole numbers
    beside it are enough too, if none of them has a fourth digit, which would have been separated as well.

    Args:
        decimal_comma: Whether the table may have decimal commas, as one whose cells are not separated by commas; then
            whole numbers are not enough.
    """

    def __init__(self, *, decimal_comma: bool = False) -> None:
        self._decimal_comma = decimal_comma
        self._cells = self._integers = self._decimals = self._grouped = self._booleans = 0
        self._only_whole_groups = True
        self._groups_are_certain = False
        self._points_are_unclear = False
        self._most_digits = 0
        self._has_codes = False
        self._first_other: tuple[int, str] | None = None
        self._first_grouped: tuple[int, str] | None = None

    def see(self, cell: str, row: int = 0) -> None:
        """Take one more cell into account, of row ``row``."""
        value = cell.strip()
        if len(value) > _LONGEST_NUMBER:
            self._see_other(value, row)
            return
        if value.lower() in _MISSING:
            return
        if _INTEGER.fullmatch(value):
            self._integers += 1
            self._most_digits = max(self._most_digits, len(value.lstrip("-")))
        elif _is_number(value):
            self._decimals += 1
            self._see_point(value)
        elif _GROUPED.fullmatch(value) and isfinite(float(_ungrouped(value))):
            self._grouped += 1
            self._only_whole_groups &= _INTEGER.fullmatch(_ungrouped(value)) is not None
            self._groups_are_certain |= "." in value or value.count(",") > 1
            self._first_grouped = self._first_grouped or (row, value)
        else:
            self._booleans += value.lower() in _BOOLEANS
            self._see_other(value, row)
            return
        self._cells += 1

    def _see_other(self, value: str, row: int) -> None:
        self._cells += 1
        self._has_codes = self._has_codes or _CODE.fullmatch(value) is not None
        self._first_other = self._first_other or (row, value)

    def _see_point(self, value: str) -> None:
        """Learn what a point is for: ``1.249`` may have a point between thousands, ``99.50`` and ``0.125`` have not."""
        whole, point, fraction = value.lstrip("-").partition(".")
        if point and (whole == "0" or len(whole) > 3 or len(fraction) != 3):
            self._groups_are_certain = True
        elif point:
            self._points_are_unclear = True
        else:
            self._most_digits = max(self._most_digits, len(whole))

    @property
    def type(self) -> ColumnType:
        """The type of all cells seen so far; ``"text"`` for a column without a value."""
        if not self._cells:
            return "text"
        if self._numbers == self._cells:
            return "integer" if not self._decimals and self._only_whole_groups else "number"
        return "boolean" if self._booleans == self._cells else "text"

    def note(self, path: Path, column: str) -> ColumnNote | None:
        """Return a warning where nearly all cells of a text column are numbers and none is a code (``007``)."""
        if self.type != "text" or self._has_codes or not self._cells or self._numbers < MOSTLY * self._cells:
            return None
        doubtful = None if self._commas_are_groups else self._first_grouped
        row, example = min(cell for cell in (self._first_other, doubtful) if cell is not None)
        return ColumnNote(str(path), column, self._numbers, self._cells, example[:LONGEST_EXAMPLE], row)

    @property
    def _numbers(self) -> int:
        return self._integers + self._decimals + (self._grouped if self._commas_are_groups else 0)

    @property
    def _commas_are_groups(self) -> bool:
        if self._groups_are_certain or self._decimal_comma or self._points_are_unclear:
            return self._groups_are_certain
        return self._integers > 0 and self._most_digits <= 3


def _is_number(value: str) -> bool:
    return _NUMBER.fullmatch(value) is not None and isfinite(float(value))


def _ungrouped(value: str) -> str:
    return value.replace(",", "")


def convert(cell: str, kind: ColumnType) -> str | int | float | bool | None:
    """Return a cell as a value of its column's type, ``None`` where it has no value.

    An empty cell never has one. In columns of numbers and booleans, neither have a dash alone, ``null``, ``none``,
    ``nan``, ``na`` and ``n/a``, in any case; in columns of text these are words.
    """
    value = cell.strip()
    if not value:
        return None
    if kind == "text":
        return cell
    if value.lower() in _MISSING:
        return None
    if kind == "boolean":
        return _BOOLEANS[value.lower()]
    number = _ungrouped(value)
    return int(number) if _INTEGER.fullmatch(number) else float(number)


TEXT_COLUMNS = (
    "text", "review text", "content", "contents", "body", "page content", "passage", "abstract", "description",
)  # fmt: skip
"""Usual names of a text column, the likelier first."""
TITLE_COLUMNS = ("title", "headline", "subject", "name", "product title", "product name")
"""Usual names of a title column, the likelier first."""
KEY_COLUMNS = ("_id", "id")
"""Names of a key column."""

SAMPLE_ROWS = 1_000
"""Rows that the text column is found by."""


def find_columns(rows: Sequence[Mapping[str, object]], path: Path, options: ReadOptions) -> tuple[str, str | None]:
    """Return the names of the text column and of the title column, if there is one.

    They are known by their names (:data:`TEXT_COLUMNS`, :data:`TITLE_COLUMNS`, in any case, ``_`` for a space); the
    text column may be an option. Without either, it is that, other than title and key, whose texts have the longest
    median length.

    Args:
        rows: The first :data:`SAMPLE_ROWS` rows, with their values typed: numbers and booleans are no texts.

    Raises:
        UnreadableFileError: The option names no column, or no column contains text.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    if options.text_column is not None and options.text_column not in names:
        columns = ", ".join(map(repr, names))
        raise unreadable(path, f"there is no column {options.text_column!r}; its columns are {columns}")
    title = _well_known(TITLE_COLUMNS, names)
    text = options.text_column or _well_known(TEXT_COLUMNS, names)
    if text is None:
        lengths = {name: _median_length(row.get(name) for row in rows) for name in names}
        others = [name for name in names if name != title and name not in KEY_COLUMNS and lengths[name]]
        text = max(others, key=lambda name: lengths[name], default=title)
    if text is None:
        raise unreadable(path, "no column contains text")
    return text, None if title == text else title


def _well_known(known: Sequence[str], names: Sequence[str]) -> str | None:
    present = {name.strip().lower().replace("_", " "): name for name in reversed(names)}
    return next((present[name] for name in known if name in present), None)


def _median_length(cells: Iterable[object]) -> float:
    return median([len(cell.strip()) if isinstance(cell, str) else 0 for cell in cells] or [0])


@dataclass(frozen=True, slots=True)
class Layout:
    """The roles of a table's columns.

    Attributes:
        key: The column with a value of its own for each row, ``None`` if there is none.
        fields: The metadata field that a column becomes, where that is not its own name.
    """

    text: str
    title: str | None
    key: str | None
    fields: Mapping[str, str] = field(default_factory=dict[str, str])

    def document(self, row: Mapping[str, Any], number: int) -> ParsedDocument | None:
        """Return a row as a document; ``None`` for one without text.

        A row that has only a title has that as its text. All columns but the text's own become metadata; an object in
        a column ``metadata`` gives its fields, save those that have a column of their own.
        """
        title = _words(row.get(self.title)) if self.title else ""
        text = _words(row.get(self.text)) or title
        if not text:
            return None
        fields = {name: value for name, value in row.items() if name != self.text}
        if isinstance(fields.get("metadata"), dict):
            fields = {**cast("dict[str, Any]", fields.pop("metadata")), **fields}
        return ParsedDocument(
            text=text,
            markup="plain",
            title=title or None,
            metadata=self._renamed(fields),
            row=number,
            key=None if self.key is None else str(row[self.key]),
        )

    def _renamed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields under their new names; two columns are never one field, so the second keeps its own."""
        renamed: dict[str, Any] = {}
        for name, value in fields.items():
            new = self.fields.get(name, name)
            renamed[name if new in fields or new in renamed else new] = value
        return renamed


def _words(cell: object) -> str:
    words = "" if cell is None else str(cell)
    return words if words.strip() else ""


class UniqueKey:
    """Finds out whether a column ``_id`` or ``id`` has a different value in every row."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {name: set() for name in KEY_COLUMNS}

    def see(self, row: Mapping[str, object]) -> None:
        """Take one more row into account."""
        for name in list(self._seen):
            value = row.get(name)
            key = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
            if not key.strip() or key in self._seen[name]:
                del self._seen[name]
            else:
                self._seen[name].add(key)

    @property
    def column(self) -> str | None:
        """The unique column, ``None`` if there is none."""
        return next(iter(self._seen), None)
