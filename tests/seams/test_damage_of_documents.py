"""Damage is looked for in the documents that are asked about, and in all if none is named."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.ports import Change
from retrieval_core.types import Chunk, Document, Section, Span, content_hash

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import StoredDamage


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("UPDATE documents SET title = 'other'", "title"),
        ("UPDATE sections SET path = '[\"other\"]'", "section's section"),
    ],
)
def test_records_of_some_documents(tmp_path: Path, statement: str, changed: str) -> None:
    """Those of documents and of their sections, each by its own id."""
    text = "The moon is far."
    change = Change(
        tuple(Chunk(f"{name}#0", name, text) for name in "ab"),
        documents=tuple(Document(name, text, f"{name}.md", content_hash(text), title="moon") for name in "ab"),
        sections=tuple(Section(f"{name}/s", name, "section", ("moon",), Span(0, len(text))) for name in "ab"),
    )

    async def found(*documents: str) -> StoredDamage:
        store = SqliteStore(tmp_path / "index.db")
        damage = await store.find_damage(documents or None)
        await store.aclose()
        return damage

    async def fill() -> None:
        store = SqliteStore(tmp_path / "index.db")
        await store.upsert(change)
        await store.aclose()

    asyncio.run(fill())
    with closing(sqlite3.connect(tmp_path / "index.db")) as connection, connection:
        connection.execute(statement)
    assert {name: entry.changed for name, entry in asyncio.run(found("b")).documents.items()} == {"b": (changed,)}
    assert asyncio.run(found()).documents.keys() == {"a", "b"}
    assert not asyncio.run(found("other")).documents
