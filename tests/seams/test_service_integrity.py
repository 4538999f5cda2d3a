"""Who may compare a whole index with its files through the service, and what such a caller is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import RetrievalConfig, open_index
from retrieval_core.errors import NotPermittedError
from retrieval_core.service.checking import IntegrityRequest, IntegrityResponse, check_integrity
from retrieval_core.service.served import OpenedIndex, ServedIndexes
from retrieval_core.service.service_context import ServiceContext
from retrieval_core.types.filters import Eq

if TYPE_CHECKING:
    from pathlib import Path


def config_in(folder: Path) -> RetrievalConfig:
    settings = {"index": str(folder / "index.db"), "embedder": {"kind": "none"}}
    return RetrievalConfig.model_validate({**settings, "search": {"mode": "lexical"}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an index, whose file was edited afterwards."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/moon.md").write_text("The moon is far.\n")
    with open_index(config=config_in(tmp_path)) as index:
        index.ingest(tmp_path / "notes")
    (tmp_path / "notes/moon.md").write_text("The moon is near.\n")
    return tmp_path


def checked(folder: Path, *, repair: bool = False, **caller: Any) -> IntegrityResponse:
    """Return what a caller is told."""

    async def call() -> IntegrityResponse:
        async with open_index(config=config_in(folder)) as index:
            context = ServiceContext(ServedIndexes(OpenedIndex(index)), **caller)
            return await check_integrity(context, IntegrityRequest(repair=repair))

    return asyncio.run(call())


def test_only_who_sees_the_whole_index_may_check_it(folder: Path) -> None:
    """The differences are those of all documents."""
    with pytest.raises(NotPermittedError, match="whole index"):
        checked(folder, tenant=Eq("team", "red"))


def test_only_who_may_write_repairs(folder: Path) -> None:
    """Everyone else finds the same differences."""
    with pytest.raises(NotPermittedError, match="only read"):
        checked(folder, repair=True)
    found = checked(folder)
    assert (found.verdict, [each.source for each in found.differences]) == ("mismatch", ["notes/moon.md"])
    repaired = checked(folder, repair=True, may_write=True)
    assert (repaired.verdict, repaired.repaired) == ("clean", ("notes/moon.md",))
