"""Tools that write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core import RetrievalConfig
from retrieval_core.config import EmbedderConfig
from retrieval_core.service.service_context import ServiceContext
from retrieval_core.types.filters import Eq
from retrieval_core_mcp import ServerSettings, serve_indexes
from retrieval_core_mcp.tools.calling import Tools

if TYPE_CHECKING:
    from pathlib import Path

FAKE = EmbedderConfig(kind="retrieval_core.testing.fakes:FakeEmbedder")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with two notes, beside one with a secret."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("The ferry leaves at nine.\n")
    (folder / "b.md").write_text("The ferry has a bar.\n")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret.md").write_text("The password is swordfish.\n")
    return folder


def settings_of(notes: Path, **given: Any) -> ServerSettings:
    config = RetrievalConfig(index=str(notes / ".retrieval" / "index.db"), embedder=FAKE)
    return ServerSettings.model_validate({"retrieval": config, "allow_writes": True, **given})


def test_who_sees_a_part_does_not_write(notes: Path) -> None:
    """A file belongs to no tenant, and what a tenant cannot see it cannot remove."""
    settings = settings_of(notes)

    async def conversation() -> None:
        indexes = serve_indexes(settings)
        tools, caller = Tools(settings, indexes), ServiceContext(indexes, Eq("tenant", "acme"), may_write=True)
        for name, given in (("index_path", {"path": "."}), ("remove_document", {"id": "a.md"})):
            answer: Any = await tools.call(name, given, caller)
            assert answer.is_error
            assert "may not write" in answer.content[0].text
        await indexes.aclose()

    asyncio.run(conversation())
