"""The reader of CSV and TSV; each row is a document."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from retrieval_core.ingest.readers.base import clean, unreadable
from retrieval_core.ingest.readers.cells import TypeGuess, convert
from retrieval_core.ingest.readers.columns import SAMPLE_ROWS, Layout, UniqueKey, find_columns
from retrieval_core.ingest.readers.csv_cells import RowError, parse_rows
from retrieval_core.ingest.readers.encoding import detect_encoding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from retrieval_core.ingest.parsed import ParsedDocument
    from retrieval_core.ingest.readers.base import ReadOptions
    from retrieval_core.ingest.readers.cells import ColumnType

_DELIMITERS = ",;\t|"
_PROBE_LINES = 20
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")


def read_csv(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a table whose first row names the columns.

    The file is read twice, a row at a time: the types of columns and the uniqueness of keys need all rows.
    """
    table = _Table(path)
    types, layout = _survey(table, options)
    for number, cells in table.rows():
        row = {name: convert(cell, types[name]) for name, cell in zip(table.header, cells, strict=True)}
        document = layout.document(row, number)
        if document is not None:
            yield document


def _survey(table: _Table, options: ReadOptions) -> tuple[dict[str, ColumnType], Layout]:
    guesses = {name: TypeGuess(decimal_comma=table.delimiter != ",") for name in table.header}
    key = UniqueKey()
    sample: list[dict[str, str]] = []
    for number, cells in table.rows():
        row = dict(zip(table.header, cells, strict=True))
        for name, cell in row.items():
            guesses[name].see(cell, number)
        key.see(row)
        if number <= SAMPLE_ROWS:
            sample.append(row)
    if not sample:
        raise unreadable(table.path, "there is no row below its header")
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

    def __init__(self, path: Path) -> None:
        self.path = path
        self._encoding = detect_encoding(path)
        self.delimiter = "\t" if path.suffix.lower() == ".tsv" else self._find_delimiter()
        self.header = self._find_header()

    def rows(self) -> Iterator[tuple[int, Sequence[str]]]:
        """Yield the rows below the header with their numbers, from 1, each with a cell for every column.

        Raises:
            UnreadableFileError: A row has more cells than there are columns, or cannot be parsed.
        """
        lines = self._lines()
        next(lines)
        width = len(self.header)
        for number, (line, cells) in enumerate(lines, start=1):
            if len(cells) > width:
                raise unreadable(self.path, f"line {line}: {len(cells)} cells in a table of {width} columns")
            yield number, [*map(clean, cells), *[""] * (width - len(cells))]

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
        if names and not names[0]:
            names[0] = "column 1"  # data frames write their index without a name
        seen: set[str] = set()
        for position, name in enumerate(names):
            if not name:
                raise unreadable(self.path, f"its first row names no columns: cell {position + 1} is empty")
            if name in seen:
                raise unreadable(self.path, f"its first row names no columns: {name!r} is there twice")
            seen.add(name)
            guess = TypeGuess()
            guess.see(name)
            if guess.type != "text" and not _YEAR.fullmatch(name):
                raise unreadable(self.path, f"its first row names no columns: {name!r} is a value")
        if not names:
            raise unreadable(self.path, "it has no header")
        return names
