"""A first look into index files, quick enough for before the handshake."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core_mcp.fitting import in_one_line
from retrieval_core_mcp.tools.signals import signs_in

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_TITLES = 3
LONGEST_TITLE = 40
"""Names from documents get into an assistant's instructions, so they are short, and none that gives instructions."""
MOST_INDEXES = 10


def peek(named: Mapping[str, str]) -> str:
    """Return in a sentence or two what index files hold: how much, since when, and some titles.

    Args:
        named: The files by name. What is no index, or cannot be read at once, is passed over.
    """
    told = [_sentence(name, path, several=len(named) > 1) for name, path in list(named.items())[:MOST_INDEXES]]
    return " ".join(filter(None, told))


def _sentence(name: str, path: str, *, several: bool) -> str:
    try:
        address = f"{Path(path).absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=0)) as connection:
            (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
            if not documents:
                return ""
            step = max(1, documents // MOST_TITLES)
            rows = connection.execute(
                "SELECT coalesce(title, source) FROM documents ORDER BY number LIMIT ?", (step * MOST_TITLES,)
            ).fetchall()[::step]
            (last,) = connection.execute("SELECT max(timestamp) FROM documents").fetchone()
    except (sqlite3.Error, OSError, ValueError):
        return ""
    named = (str(row[0]) for row in rows if not signs_in(str(row[0])))
    titles = ", ".join(f'"{title}"' for text in named if (title := in_one_line(text, LONGEST_TITLE)))
    index = f"The index {in_one_line(name, LONGEST_TITLE)} contains " if several else ""
    day = f", indexed {last[:10]}" if isinstance(last, str) else ""
    count = f"{documents:,} document{'s' * (documents != 1)}"
    return f"{index}{count}{day}{f', such as {titles}' if titles else ''}."
