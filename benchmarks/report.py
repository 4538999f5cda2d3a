"""What a benchmark found: one table, printed as Markdown and written as JSON and as a picture."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from benchmarks.plot import draw

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

Cell: TypeAlias = str | float | None
"""``None`` where there is nothing to measure."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    Attributes:
        name: In JSON.
        title: In the table, with the unit.
    """

    name: str
    title: str


@dataclass(slots=True)
class Report:
    """The figures of one run.

    Attributes:
        title: What was measured, in two or three words.
        details: With what.
        columns: In their order.
        group: The column by which rows belong together, and its unit.
        label: The column that names a row within its group.
        drawn: The column that the picture shows.
        settings: How it was measured.
        versions: Of each distribution that took part.
        notes: What could not be measured, and why.
    """

    title: str
    details: str
    columns: Sequence[Column]
    group: str
    label: str
    drawn: str
    settings: Mapping[str, object]
    versions: dict[str, str] = field(default_factory=dict[str, str])
    rows: list[dict[str, Cell]] = field(default_factory=list[dict[str, Cell]])
    notes: list[str] = field(default_factory=list[str])
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())

    def markdown(self) -> str:
        """Return the table, with what it was measured on beneath it."""
        lines = ["| " + " | ".join(column.title for column in self.columns) + " |", "|---" * len(self.columns) + "|"]
        lines += ["| " + " | ".join(shown(row.get(column.name)) for column in self.columns) + " |" for row in self.rows]
        versions = ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items()))
        lines += ["", f"{self.title}, {self.details}. {self.date}, {machine()}. {versions}."]
        return "\n".join([*lines, *(f"Left out: {note}" for note in self.notes)])

    def json(self) -> str:
        """Return everything as JSON."""
        told = {
            "title": self.title,
            "details": self.details,
            "date": self.date,
            "machine": machine(),
            "versions": self.versions,
            "settings": self.settings,
            "rows": self.rows,
            "left_out": self.notes,
        }
        return json.dumps(told, indent=2, ensure_ascii=False) + "\n"

    def svg(self) -> str:
        """Return a picture of one column: bars for the rows of each group."""
        titles = {column.name: column.title for column in self.columns}
        groups: dict[str, dict[str, float]] = {}
        for row in self.rows:
            value = row.get(self.drawn)
            if isinstance(value, (int, float)):
                name = f"{titles.get(self.group, self.group)}: {shown(row[self.group])}"
                groups.setdefault(name, {})[str(row[self.label])] = value
        beneath = (self.details, f"{self.date}, {machine()}")
        return draw(f"{self.title}: {titles[self.drawn]}", beneath, groups)

    def give(self, options: argparse.Namespace) -> int:
        """Print the table, write the files that were asked for, and return the exit code: 1 if some is left out."""
        print(self.markdown())
        if options.json is not None:
            Path(options.json).write_text(self.json(), "utf-8")
        if options.svg is not None:
            Path(options.svg).write_text(self.svg(), "utf-8")
        return 1 if self.notes else 0


def shown(value: Cell) -> str:
    """Return a cell's text: three digits of a fraction, all of a larger number."""
    if value is None:
        return "–"  # noqa: RUF001  # an empty cell, as in all tables of the documentation
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def machine() -> str:
    """Return what the figures depend on, beside the code."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
