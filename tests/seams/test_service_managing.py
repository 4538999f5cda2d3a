"""Who may manage an index of this machine through the service, and what such a caller gets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import RetrievalConfig, open_index
from retrieval_core.errors import InvalidParameterError, NotPermittedError
from retrieval_core.service import managing, searching
from retrieval_core.service.contents import IndexRequest
from retrieval_core.service.served import OpenedIndex, ServedIndexes
from retrieval_core.service.service_context import ServiceContext
from retrieval_core.types.filters import Eq

if TYPE_CHECKING:
    from pathlib import Path

OWNER: dict[str, Any] = {"is_local": True, "may_write": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/moon.md").write_text("# Moon\n\nThe moon is far.\n")
    rows = [f"A lamp.,{price}\n" for price in (*range(40), "call us")]
    (tmp_path / "notes/prices.csv").write_text(f"text,price\n{''.join(rows)}")
    return tmp_path


def call(folder: Path, *calls: tuple[Any, Any], **caller: Any) -> list[Any]:
    """Return the responses to the calls of one caller."""
    settings = {"index": str(folder / "index.db"), "embedder": {"kind": "none"}, "search": {"mode": "lexical"}}
    config = RetrievalConfig.model_validate(settings)

    async def answers() -> list[Any]:
        async with open_index(config=config) as index:
            context = ServiceContext(ServedIndexes(OpenedIndex(index)), **caller)
            return [await function(context, request) for function, request in calls]

    return asyncio.run(answers())


def test_an_owner_indexes_lists_and_removes(folder: Path) -> None:
    """Everything that a command prints is in the responses."""
    report, found, details = call(
        folder,
        (managing.ingest_paths, managing.IngestPathsRequest(paths=(folder / "notes",))),
        (managing.find_documents, managing.FindRequest(filters={"source": {"$glob": "notes/*.md"}})),
        (managing.describe_details, IndexRequest()),
        **OWNER,
    )
    assert (report.added, report.store) == (details.documents, str(folder / "index.db"))
    assert [(note["column"], note["numbers"], note["cells"]) for note in report.model_dump()["notes"]] == [
        ("price", 40, 41)
    ]
    assert [(each.id, each.title) for each in found.documents] == [("notes/moon.md", "Moon")]
    with pytest.raises(InvalidParameterError, match="Nothing was removed"):
        call(folder, (managing.remove_named, managing.RemoveNamedRequest(names=("notes/moon.md", "absent"))), **OWNER)
    (removal,) = call(folder, (managing.remove_named, managing.RemoveNamedRequest(names=("notes/moon.md",))), **OWNER)
    assert (removal.count, removal.chunks) == (1, 1)


@pytest.mark.parametrize("caller", [{"may_write": True}, {**OWNER, "tenant": Eq("team", "red")}])
def test_nobody_else_does(folder: Path, caller: dict[str, Any]) -> None:
    """Neither a caller of another machine, nor one who sees only some of the documents."""
    for each in (
        (managing.ingest_paths, managing.IngestPathsRequest(paths=(folder / "notes",))),
        (managing.find_documents, managing.FindRequest()),
        (managing.describe_details, IndexRequest()),
        (managing.remove_named, managing.RemoveNamedRequest(names=("notes/moon.md",))),
    ):
        with pytest.raises(NotPermittedError):
            call(folder, each, **caller)


def test_a_tenant_checks_no_citations(folder: Path) -> None:
    """A citation may name chunks of others."""
    request = searching.SourcesRequest(sources=())
    with pytest.raises(NotPermittedError, match="each quote"):
        call(folder, (searching.check_sources, request), tenant=Eq("team", "red"))


def test_a_filter_on_a_field_of_chunks_says_so(folder: Path) -> None:
    """An empty list alone would look as if no document matched."""
    answers = call(
        folder,
        (managing.ingest_paths, managing.IngestPathsRequest(paths=(folder / "notes",))),
        (managing.find_documents, managing.FindRequest(filters={"page": 1})),
        (managing.find_documents, managing.FindRequest(filters={"source": "absent.md"})),
        **OWNER,
    )
    assert (answers[1].count, answers[2].count) == (0, 0)
    assert "no document has the field page" in answers[1].note
    assert answers[2].note is None
