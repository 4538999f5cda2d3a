"""An index for the tests of other frameworks, and a query that it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core import Document, Index, open_index

if TYPE_CHECKING:
    from pathlib import Path

QUERY = "how far away is the moon"
ANSWER = "The moon is 384,400 km away."
DOCUMENTS = (
    Document(
        "notes/moon.md", ANSWER, source="notes/moon.md", title="The moon", metadata={"team": "night", "year": 1969}
    ),
    Document("notes/sun.md", "The sun is 150 million km away.", source="notes/sun.md", metadata={"team": "day"}),
    Document("notes/mars.md", "Mars is far away, and red.", source="notes/mars.md", metadata={"team": "night"}),
)


def index_of_notes(folder: Path) -> Index:
    """Return an index of three notes that is searched by keyword, so that no model is loaded."""
    index = open_index(folder / "notes.db", config="lexical")
    index.add_documents(DOCUMENTS)
    return index
