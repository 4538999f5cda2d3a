"""Excel workbooks: one sheet with a text column as rows, all others as Markdown tables."""

from __future__ import annotations

import re
import warnings
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.errors import UnreadableFileError
from retrieval_core.ingest.readers.base import (
    MOST_CHARACTERS,
    ParsedDocument,
    ParsedPage,
    RefusedError,
    author_metadata,
    clean,
    vendor,
)
from retrieval_core.ingest.readers.office import (
    MOST_NODES,
    MOST_PART_NODES,
    core_properties,
    count_nodes,
    open_archive,
    zipped,
)
from retrieval_core.ingest.readers.rows import Table, read_table
from retrieval_core.ingest.report import FileNote
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions

    Rows = list[tuple[int, list[str]]]

MOST_CELLS = 4_000_000
"""The most cells of a workbook, with the empty ones to the left of the last one in a row."""
MOST_ROWS = 1_048_576
"""The most rows of a sheet, as in Excel."""
_ADVICE = "; split it, or save its sheets as CSV"
_TABLE_CHARACTERS = 1_000
"""About how long a table becomes before its header is repeated, so that each chunk says what its columns are."""
_PIECE = re.compile(rb"<(?:\w+:)?(?:row|si)\b")
_GAP = "\n\n"
_CELL_PART = re.compile(
    rb"<(?:\w+:)?(?:(?P<cell>c)(?P<said>\s[^<>]*)?(?<!/)>|(?P<formula>f)[\s/>]|v(?:\s[^<>]*)?>[^<])|(?P<end></(?:\w+:)?c>)"
)
"""A cell with something in it, its formula, its value unless that is empty, and its end."""
_HAS_FORMULA = re.compile(rb"[<:]f[\s/>]")
_IS_TEXT = re.compile(rb"""\st\s*=\s*["']str["']""")
_EMPTY_FORMULAS = (
    "without a stored result became empty. Open the workbook in a spreadsheet program and save it, so that it "
    "stores the results"
)


def read_xlsx(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read the values of all sheets, hidden ones too.

    A single sheet whose header names a text column gives a document for each row, like a CSV file. Any other workbook
    is one document: a heading and a table for each sheet, which is also a page.
    """
    with vendor(path, "Reading XLSX files", "it is no Excel workbook, or is damaged"):
        with open_archive(path) as archive:
            parts = archive.office_parts(MOST_NODES)
        _refuse_large_pieces(parts)
        if empty := sum(map(_count_empty_formulas, parts.values())):
            options.on_note(FileNote(str(path), f"{empty:,} formula{'s' * (empty > 1)} {_EMPTY_FORMULAS}"))
        title, author = core_properties(parts)
        package = zipped(parts)
        del parts
        sheets = _sheets(_openpyxl().load_workbook(package, read_only=True, data_only=True, keep_links=False))
    filled = [rows for _, rows in sheets if rows]
    if len(filled) == 1 and (table := _table(path, filled[0], options)) is not None:
        yield from read_table(table, options)
        return
    texts = [_sheet(name, rows) for name, rows in sheets]
    yield ParsedDocument(
        text=_GAP.join(filter(None, texts)),
        markup="markdown",
        title=title or None,
        pages=tuple(_pages(texts)),
        metadata=author_metadata(author),
    )


def _count_empty_formulas(sheet: bytes) -> int:
    """Return how many formulas of a sheet have no stored result, as programs write that don't compute them."""
    if not _HAS_FORMULA.search(sheet):
        return 0
    count, can_be_empty, is_open = 0, False, False
    for part in _CELL_PART.finditer(sheet):
        if part["cell"]:  # an empty result of a text cell is an empty text
            can_be_empty, is_open = _IS_TEXT.search(part["said"] or b"") is None, False
        elif part["end"]:
            count += is_open
            can_be_empty = is_open = False
        else:
            is_open = can_be_empty and part["formula"] is not None
    return count


def _openpyxl() -> Any:
    import openpyxl  # noqa: PLC0415 # pyright: ignore[reportMissingModuleSource] - an extra

    # It warns of each feature that it does not keep when it writes, which is never done.
    warnings.filterwarnings("ignore", category=UserWarning, module="openpyxl")
    return openpyxl


def _refuse_large_pieces(parts: Mapping[str, bytes]) -> None:
    """Raise :class:`RefusedError` for markup that is parsed at once and too large: a row, a text, any other part."""
    for data in parts.values():
        starts = [0, *(match.start() for match in _PIECE.finditer(data)), len(data)]
        if count_nodes(data) > MOST_PART_NODES and any(
            end - start > MOST_PART_NODES and count_nodes(data[start:end]) > MOST_PART_NODES
            for start, end in pairwise(starts)
        ):
            msg = f"it has more elements and attributes than are parsed at once{_ADVICE}"
            raise RefusedError(msg)


def _sheets(workbook: Any) -> list[tuple[str, Rows]]:
    """Return the name of each sheet, and its rows that are not blank with their numbers.

    Raises:
        RefusedError: They have too many cells, or too much text.
    """
    cells, characters = MOST_CELLS, MOST_CHARACTERS
    sheets: list[tuple[str, Rows]] = []
    for sheet in workbook.worksheets:
        sheet.reset_dimensions()  # those that the file declares may be wrong
        rows: Rows = []
        for number, values in enumerate(cast("Iterator[Sequence[object]]", sheet.iter_rows(values_only=True)), start=1):
            texts = [_text(value) for value in values]
            cells -= len(texts)
            characters -= sum(map(len, texts))
            if cells < 0 or characters < 0 or number > MOST_ROWS:
                msg = f"it has more than {MOST_CELLS:,} cells or {MOST_CHARACTERS:,} characters{_ADVICE}"
                raise RefusedError(msg)
            while texts and not texts[-1]:
                texts.pop()
            if texts:
                rows.append((number, texts))
        sheets.append((sheet.title, rows))
    return sheets


def _text(value: object) -> str:
    """Return a cell's value as it would be written in a CSV file; dates in ISO format."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ", "seconds")
    if isinstance(value, (date, time)):
        return value.isoformat()
    return str(value) if isinstance(value, timedelta) else clean(str(value)).strip()


def _table(path: Path, rows: Rows, options: ReadOptions) -> Table | None:
    """Return a sheet as a table whose rows are documents; ``None`` if its header does not name a text column."""
    try:
        table = Table(path, lambda: iter(rows))
    except UnreadableFileError:
        return None
    return table if len(rows) > 1 and table.names_text(options) else None


def _sheet(name: str, rows: Rows) -> str:
    """Return a sheet as Markdown, empty for an empty one. A long table is several, each with the header."""
    if not rows:
        return ""
    width = max(len(cells) for _, cells in rows)
    first = next(at for at in range(width) if any(len(cells) > at and cells[at] for _, cells in rows))
    header, *lines = (_line(cells[first:], width - first) for _, cells in rows)
    header += "\n|" + " --- |" * (width - first)
    tables, length = [[header]], 0
    for line in lines:
        if length > _TABLE_CHARACTERS:
            tables.append([header])
            length = 0
        tables[-1].append(line)
        length += len(line)
    return _GAP.join([f"# {' '.join(name.split())}", *("\n".join(table) for table in tables)])


def _line(cells: Sequence[str], width: int) -> str:
    texts = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return "| " + " | ".join([*texts, *[""] * (width - len(cells))]) + " |"


def _pages(texts: Sequence[str]) -> Iterator[ParsedPage]:
    start = 0
    for number, text in enumerate(texts, start=1):
        if text:
            yield ParsedPage(number, Span(start, start + len(text)))
            start += len(text) + len(_GAP)
