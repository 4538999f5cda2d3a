"""Files whose rows are documents: CSV and JSON lines."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from retrieval_core.ingest.readers.base import (
    MOST_NESTING,
    ParsedDocument,
    RefusedError,
    clean,
    detect_encoding,
    unreadable,
)
from retrieval_core.ingest.report import ColumnNote, FileNote

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
        RowError: There is text after a closing quotation mark, one is not closed, or a cell is too long.
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
        key: The column with a different value in each row, ``None`` if there is none.
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


_DELIMITERS = ",;\t|"
_PROBE_LINES = 20
_MOST_NAMES = 5
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")


def read_csv(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a table whose first row names the columns.

    The file is read twice, a row at a time: the types of columns and the uniqueness of keys need all rows.
    """
    encoding = detect_encoding(path, options)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else _find_delimiter(path, encoding)
    yield from read_table(Table(path, partial(_csv_lines, path, encoding, delimiter), delimiter), options)


def read_table(table: Table, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Yield the rows of a table as documents."""
    types, layout = _survey_table(table, options)
    for number, cells in table.rows():
        row = {name: convert(cell, types.get(name, "text")) for name, cell in cells.items()}
        document = layout.document(row, number)
        if document is not None:
            yield document


def _survey_table(table: Table, options: ReadOptions) -> tuple[dict[str, ColumnType], Layout]:
    guesses: dict[str, TypeGuess] = {}
    key = UniqueKey()
    sample: list[dict[str, str]] = []
    for number, row in table.rows():
        for name, cell in row.items():
            if name not in guesses:
                guesses[name] = TypeGuess(decimal_comma=table.delimiter not in {",", None})
            guesses[name].see(cell, number)
        key.see(row)
        if number <= SAMPLE_ROWS:
            sample.append(row)
    if not sample:
        raise unreadable(table.path, "there is no row below its header")
    table.note_repairs(guesses, options)
    types: dict[str, ColumnType] = {name: guess.type for name, guess in guesses.items()}
    typed = [{name: convert(cell, types[name]) for name, cell in row.items()} for row in sample]
    text, title = find_columns(typed, table.path, options)
    named = {name: types[name] for name in (text, title, key.column) if name is not None}
    # 1.5 and 1.50 are one number, but two names.
    types |= {name: kind if kind == "integer" and name == key.column else "text" for name, kind in named.items()}
    for name, guess in guesses.items():
        if name not in named and (note := guess.note(table.path, name)) is not None:
            options.on_note(note)
    return types, Layout(text, title, key.column, options.columns)


class Table:
    """Rows below a header, read anew each time.

    Args:
        path: The file.
        lines: Returns the cells of each row that is not blank, with its number in the file; the first is the header.
        delimiter: Separates the cells in the file; ``None`` if it has no delimiters. Its rows are then known by their
            numbers in the file.

    Raises:
        UnreadableFileError: It has no header.
    """

    def __init__(
        self, path: Path, lines: Callable[[], Iterator[tuple[int, list[str]]]], delimiter: str | None = None
    ) -> None:
        self.path = path
        self.delimiter = delimiter
        self._lines = lines
        self._header = self._find_header()
        self._names = _ColumnNames(self._header)
        self._longer = 0
        self._first_longer = (0, 0)

    def names_text(self, options: ReadOptions) -> bool:
        """Return whether the header has a usual name of a text column, or the one of the options."""
        return options.text_column in self._header or _well_known(TEXT_COLUMNS, self._header) is not None

    def rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the rows below the header with their numbers, from 1, as cells by the names of their columns.

        Each row has a cell for every column that the header names, and for other columns if the cell has content.

        Raises:
            UnreadableFileError: A row cannot be parsed.
        """
        lines = self._lines()
        next(lines)
        self._longer = 0
        width = len(self._header)
        for position, (line, cells) in enumerate(lines, start=1):
            number = line if self.delimiter is None else position
            row = {
                self._names[at]: clean(cell)
                for at, cell in enumerate([*cells, *[""] * (width - len(cells))])
                if cell.strip() or (at < width and self._header[at])
            }
            if any(map(str.strip, cells[width:])):
                self._first_longer = self._first_longer if self._longer else (line, len(cells))
                self._longer += 1
            yield number, row

    def note_repairs(self, present: Collection[str], options: ReadOptions) -> None:
        """Report columns whose names the file doesn't have, once all rows were read.

        Args:
            present: Names of the columns that are in a row.
            options: Receive the notes.
        """
        width = len(self._header)
        empty = [self._names[at] for at in range(width) if not self._header[at] and self._names[at] in present]
        if any(name != "column 1" for name in empty):  # data frames write their index without a name
            self._note(f"its header has empty names; the columns are now {_listed(empty)}", options)
        repeated = [self._names[at] for at in range(width) if self._header[at] not in ("", self._names[at])]
        if repeated:
            self._note(f"its header repeats names; the repeated columns are now {_listed(repeated)}", options)
        if self._longer:
            line, cells = self._first_longer
            count = "1 row has" if self._longer == 1 else f"{self._longer:,} rows have"
            extra = [self._names[at] for at in range(width, cells) if self._names[at] in present]
            place = "row" if self.delimiter is None else "line"
            advice = f"; put text that contains {self.delimiter!r} in quotation marks" if self.delimiter else ""
            self._note(
                f"{count} more cells than the header: {place} {line} has {cells} instead of {width}. The other cells "
                f"are in {_listed(extra)}{advice}",
                options,
            )

    def _note(self, message: str, options: ReadOptions) -> None:
        options.on_note(FileNote(str(self.path), message))

    def _find_header(self) -> list[str]:
        _, cells = next(self._lines(), (0, list[str]()))
        names = [clean(cell).strip() for cell in cells]
        if not any(names):
            raise unreadable(self.path, "it has no header")
        for name in filter(None, names):
            guess = TypeGuess()
            guess.see(name)
            if guess.type != "text" and not _YEAR.fullmatch(name):
                raise unreadable(self.path, f"its first row names no columns: {name!r} is a value")
        return names


def _csv_lines(path: Path, encoding: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    with path.open(encoding=encoding, errors="replace", newline="") as file:
        try:
            yield from parse_rows(file, delimiter)
        except RowError as exc:
            raise unreadable(path, f"{exc} (is a quotation mark left open?)") from exc


def _find_delimiter(path: Path, encoding: str) -> str:
    """Return the delimiter that gives the first rows the most columns, preferring one that gives all as many."""

    def quality(delimiter: str) -> tuple[bool, int]:
        widths: list[int] = []
        with path.open(encoding=encoding, errors="replace", newline="") as file, suppress(RowError):
            for _, cells in parse_rows(islice(file, _PROBE_LINES), delimiter):
                widths.append(len(cells))
        return len(set(widths)) == 1 and widths[0] > 1, widths[0] if widths else 0

    return max(_DELIMITERS, key=quality)


class _ColumnNames:
    """A different name for each column, by its position from 0: those of the header, or made up.

    A column without a name becomes ``column 3``, a second ``price`` becomes ``price 2``.
    """

    def __init__(self, header: Sequence[str]) -> None:
        self._names: dict[int, str] = {}
        self._taken = set(header)
        self._counts = Counter[str]()
        first: set[str] = set()
        for at, name in enumerate(header):
            is_usable = name and name not in first
            self._names[at] = name if is_usable else self._new(name or f"column {at + 1}")
            first.add(name)

    def __getitem__(self, at: int) -> str:
        if at not in self._names:
            self._names[at] = self._new(f"column {at + 1}")
        return self._names[at]

    def _new(self, base: str) -> str:
        name = base
        while name in self._taken:
            self._counts[base] += 1
            name = f"{base} {self._counts[base] + 1}"
        self._taken.add(name)
        return name


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_MOST_NAMES]))
    return shown + f" and {len(names) - _MOST_NAMES:,} more" * (len(names) > _MOST_NAMES)


def read_json_lines(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a file with one JSON object a line; blank lines do not count.

    The file is read twice, a line at a time, since a broken line or a repeated key must be known before the first row.
    """
    encoding = detect_encoding(path, options)
    layout = _survey_lines(path, encoding, options)
    for number, row in _rows(path, encoding):
        document = layout.document(row, number)
        if document is not None:
            yield document


def _survey_lines(path: Path, encoding: str, options: ReadOptions) -> Layout:
    key = UniqueKey()
    sample: list[dict[str, Any]] = []
    for number, row in _rows(path, encoding):
        key.see(row)
        if number <= SAMPLE_ROWS:
            sample.append(row)
    if not sample:
        raise unreadable(path, "it contains no rows")
    text, title = find_columns(sample, path, options)
    return Layout(text, title, key.column, options.columns)


def _rows(path: Path, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    # Only \n ends a line: JSON text may hold every other separator as it is.
    with path.open(encoding=encoding, errors="replace", newline="\n") as file:
        for line_number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row: object = _value(json.loads(line))
            except (RefusedError, ValueError, RecursionError) as exc:
                reason = exc.msg if isinstance(exc, json.JSONDecodeError) else "nested too deeply, or a number too long"
                raise unreadable(path, f"line {line_number} is not JSON: {reason}") from exc
            if not isinstance(row, dict):
                raise unreadable(path, f"line {line_number} is not a JSON object")
            number += 1
            yield number, cast("dict[str, Any]", row)


def _value(value: Any, level: int = 0) -> Any:
    """Return a parsed value with clean text, and ``None`` for NaN and Infinity, which Python reads and JSON lacks."""
    if level > MOST_NESTING:
        raise RefusedError
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {clean(name): _value(item, level + 1) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_value(item, level + 1) for item in cast("list[Any]", value)]
    return value
