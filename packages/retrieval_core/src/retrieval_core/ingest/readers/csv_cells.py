"""The cells of a CSV file, as RFC 4180 has them.

The standard library's reader refuses cells of more than 128 KiB, a limit of the whole process and so not ours to
change. It is used for rows without such a cell.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST_CELL = 10_000_000
"""The most code points of a quoted cell; a longer one is most likely a quotation mark that was left open."""


class RowError(ValueError):
    """A row cannot be parsed; the message has the line and the reason."""


def parse_rows(  # noqa: C901, PLR0912, PLR0915
    lines: Iterable[str], delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row that is not blank, and the number of its last line, from 1.

    A cell in quotation marks may hold delimiters, line ends, and quotation marks that are doubled. In another cell,
    a quotation mark is a character.

    Args:
        lines: With their line ends.
        delimiter: One character.

    Raises:
        RowError: Something stands behind a closing quotation mark, one is not closed, or a cell is too long.
    """
    cells: list[str] = []
    quoted: list[str] | None = None  # the pieces of the cell in quotation marks that is open, if one is
    length = number = 0
    for number, line in enumerate(lines, start=1):
        content = line.rstrip("\r\n")
        if quoted is None and '"' not in content:
            if content:
                yield number, content.split(delimiter)
            continue
        if quoted is None and content.count('"') % 2 == 0:
            # Most rows end with their line, and the standard library's reader is many times as fast. It raises where
            # a cell goes on, is too long for it, or is wrong.
            try:
                whole = next(csv.reader((content,), delimiter=delimiter, strict=True))
            except csv.Error:
                pass
            else:
                yield number, whole
                continue
        at = 0
        while True:
            if quoted is None and not content.startswith('"', at):
                end = content.find(delimiter, at)
                cells.append(content[at:] if end < 0 else content[at:end])
            else:
                if quoted is None:
                    quoted = []
                    at += 1
                end = line.find('"', at)
                quoted.append(line[at:] if end < 0 else line[at:end])
                length += len(quoted[-1])
                if length > LONGEST_CELL:
                    msg = f"line {number}: a cell is longer than {LONGEST_CELL:,} characters"
                    raise RowError(msg)
                if end < 0:
                    break  # it goes on in the next line
                at = end + 1
                if content.startswith('"', at):
                    quoted.append('"')
                    at += 1
                    continue
                cells.append("".join(quoted))
                quoted, length, end = None, 0, at if at < len(content) else -1
                if end >= 0 and content[at] != delimiter:
                    msg = f"line {number}: {content[at]!r} stands behind a closing quotation mark"
                    raise RowError(msg)
            if end < 0:
                yield number, cells
                cells = []
                break
            at = end + 1
    if quoted is not None:
        msg = f"line {number}: the file ends inside a cell"
        raise RowError(msg)
