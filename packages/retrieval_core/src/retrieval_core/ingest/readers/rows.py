"""Files whose rows are documents: CSV and JSON lines."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.readers.base import MOST_NESTING, RefusedError, clean, unreadable
from retrieval_core.ingest.readers.encoding import detect_encoding
from retrieval_core.ingest.readers.tables import (
    SAMPLE_ROWS,
    Layout,
    RowError,
    TypeGuess,
    UniqueKey,
    convert,
    find_columns,
    parse_rows,
)
from retrieval_core.ingest.report import FileNote

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ParsedDocument, ReadOptions
    from retrieval_core.ingest.readers.tables import ColumnType

_DELIMITERS = ",;\t|"
_PROBE_LINES = 20
_MOST_NAMES = 5
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")


def read_csv(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a table whose first row names the columns.

    The file is read twice, a row at a time: the types of columns and the uniqueness of keys need all rows.
    """
    table = _Table(path, options)
    types, layout = _survey_table(table, options)
    for number, cells in table.rows():
        row = {name: convert(cell, types.get(name, "text")) for name, cell in cells.items()}
        document = layout.document(row, number)
        if document is not None:
            yield document


def _survey_table(table: _Table, options: ReadOptions) -> tuple[dict[str, ColumnType], Layout]:
    guesses: dict[str, TypeGuess] = {}
    key = UniqueKey()
    sample: list[dict[str, str]] = []
    for number, row in table.rows():
        for name, cell in row.items():
            if name not in guesses:
                guesses[name] = TypeGuess(decimal_comma=table.delimiter != ",")
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


class _Table:
    """A file of rows, opened anew each time that it is read."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._encoding = detect_encoding(path, options)
        self.delimiter = "\t" if path.suffix.lower() == ".tsv" else self._find_delimiter()
        self._header = self._find_header()
        self._names = _ColumnNames(self._header)
        self._longer = 0
        self._first_longer = (0, 0)

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
        for number, (line, cells) in enumerate(lines, start=1):
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
            self._note(
                f"{count} more cells than the header: line {line} has {cells} instead of {width}. The other cells are "
                f"in {_listed(extra)}; put text that contains {self.delimiter!r} in quotation marks",
                options,
            )

    def _note(self, message: str, options: ReadOptions) -> None:
        options.on_note(FileNote(str(self.path), message))

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        with self.path.open(encoding=self._encoding, errors="replace", newline="") as file:
            try:
                yield from parse_rows(file, self.delimiter)
            except RowError as exc:
                raise unreadable(self.path, f"{exc} (is a quotation mark left open?)") from exc

    def _find_delimiter(self) -> str:
        """Return the delimiter that gives the first rows the most columns, preferring one that gives all as many."""

        def quality(delimiter: str) -> tuple[bool, int]:
            widths: list[int] = []
            with self.path.open(encoding=self._encoding, errors="replace", newline="") as file, suppress(RowError):
                for _, cells in parse_rows(islice(file, _PROBE_LINES), delimiter):
                    widths.append(len(cells))
            return len(set(widths)) == 1 and widths[0] > 1, widths[0] if widths else 0

        return max(_DELIMITERS, key=quality)

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
