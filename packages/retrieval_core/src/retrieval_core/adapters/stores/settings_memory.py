"""The text of the settings that an index remembers, read without opening its store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from sqlite3 import Connection

KEY = "settings"
"""Of the row in a SQLite index's table ``manifest``."""
_APPLICATION_ID = 0x52455452
_PATIENCE = 5.0
"""Seconds to wait for a process that locks the whole file, as none of ours does."""


def lancedb_folder(location: Path) -> Path:
    """Return the folder of an index that LanceDB keeps: where ``index.db`` would be, ``index.lance``."""
    return location.with_suffix(".lance") if location.suffix == ".db" else location


def file_beside_table(folder: Path, table: str) -> Path:
    """Return the file with the settings of an index that LanceDB keeps in a folder."""
    return folder / f"{table}.settings.json"


def read_from_folder(folder: Path, table: str) -> str | None:
    """Return the settings of an index that LanceDB keeps; ``None`` if it remembers none."""
    try:
        return file_beside_table(folder, table).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def write_to_folder(folder: Path, table: str, settings: str) -> None:
    """Replace the settings of an index that LanceDB keeps."""
    file = file_beside_table(folder, table)
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    new.write_text(settings, encoding="utf-8")
    new.replace(file)


def read_from_file(path: Path) -> str | None:
    """Return the settings of a SQLite index; ``None`` if it remembers none, or if the file can't be used.

    The store that opens it then says what is wrong with it.
    """
    if not path.is_file():
        return None
    import sqlite3  # noqa: PLC0415 - an index that is new has no settings

    for mode in ("rw", "ro&immutable=1"):
        try:
            uri = f"{path.absolute().as_uri()}?mode={mode}"
            connection = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
            try:
                return _read(connection)
            finally:
                connection.close()
        except sqlite3.Error:
            continue
    return None


def _read(connection: Connection) -> str | None:
    connection.execute("PRAGMA query_only = ON")
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id != _APPLICATION_ID:
        return None
    row = connection.execute("SELECT value FROM manifest WHERE key = ?", (KEY,)).fetchone()
    return row[0] if row is not None and isinstance(row[0], str) else None
