"""Types of columns and values of cells, in tables that are all text."""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.ingest.report import ColumnNote

if TYPE_CHECKING:
    from pathlib import Path

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
