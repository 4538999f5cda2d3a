"""Tables whose rows are documents: their text, title and key columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.parsed import ParsedDocument
from retrieval_core.ingest.readers.base import unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions

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
