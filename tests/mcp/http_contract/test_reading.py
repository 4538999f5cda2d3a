"""Documents over HTTP: their list, and each in parts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core import Chunk, Document
from retrieval_core.types import PageSpan
from support.http_service import hashed, opened, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from support.http_service import Served, Service


async def read(service: Service, path: str, token: str | None = None) -> Any:
    answer = await service.ask("GET", path, token)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_documents_are_listed_in_parts(served: Served) -> None:
    async def check(service: Service) -> None:
        whole = await read(service, "/v1/documents")
        assert whole == {
            "documents": [
                {"id": "moon.md", "title": "The moon", "source": "notes/moon.md", "chunks": 1},
                {"id": "sea.md", "source": "notes/sea.md", "chunks": 1},
                {"id": "sun #1.md", "title": "T" * 600, "source": "notes/sun.md", "chunks": 1},
            ],
            "total": 3,
        }
        first = await read(service, "/v1/documents?limit=2")
        assert first == {"documents": whole["documents"][:2], "total": 3, "next_cursor": "sea.md"}
        # What comes and goes in between moves nothing.
        await (await service.indexes.named(None).index()).adelete("sea.md")
        assert await read(service, "/v1/documents?limit=2&cursor=sea.md") == {
            "documents": whole["documents"][2:],
            "total": 2,
        }

    served(check)


def test_documents_are_found_by_a_part_of_their_ids(served: Served) -> None:
    async def check(service: Service) -> None:
        found = await read(service, "/v1/documents?name=S&limit=1")
        assert [each["id"] for each in found["documents"]] == ["sea.md"]
        assert (found["total"], found["next_cursor"]) == (2, "sea.md")
        found = await read(service, "/v1/documents?name=%23&cursor=sea.md")
        assert ([each["id"] for each in found["documents"]], found["total"]) == (["sun #1.md"], 1)
        assert await read(service, "/v1/documents?name=mars") == {"documents": [], "total": 0}

    served(check)


def test_documents_are_found_by_their_titles(served: Served) -> None:
    """In any case; a glob is for IDs only."""

    async def check(service: Service) -> None:
        found = await read(service, "/v1/documents?name=THE+moon")
        assert ([each["id"] for each in found["documents"]], found["total"]) == (["moon.md"], 1)
        found = await read(service, "/v1/documents?name=ttt")
        assert [each["id"] for each in found["documents"]] == ["sun #1.md"]
        assert await read(service, "/v1/documents?name=*the+moon*") == {"documents": [], "total": 0}

    served(check)


def test_a_document_is_read_in_parts_with_its_passages(tmp_path: Path) -> None:
    text = "\n\n".join(
        f"Note {number}: the \U0001f311 rises over the hills at {number} o'clock." for number in range(400)
    )

    async def check(service: Service) -> None:
        whole = await read(service, "/v1/documents/notes%2Fa%20%231.md")
        assert (whole["text"], whole["length"], whole["offset"]) == (text, len(text), 0)
        assert whole["metadata"] == {"kind": "log", "deep": {"list": [1, "two", None]}}
        assert whole["title"] == "Notes"
        assert whole["source"] == "notes/a #1.md"
        assert len(whole["chunks"]) > 3
        for placed in whole["chunks"]:
            chunk = await read(service, f"/v1/chunks/{placed['id'].replace('#', '%23')}")
            assert text[placed["start"] : placed["end"]] == chunk["text"]
        middle = whole["chunks"][1]
        part = await read(service, f"/v1/documents/notes%2Fa%20%231.md?offset={middle['start'] + 5}&limit=10")
        assert part["text"] == text[middle["start"] + 5 : middle["start"] + 15]
        assert middle in part["chunks"]
        assert len(part["chunks"]) <= 2
        behind = await read(service, f"/v1/documents/notes%2Fa%20%231.md?offset={len(text)}")
        assert (behind["text"], behind["chunks"], behind["length"]) == ("", [], len(text))

    document = Document(
        *("notes/a #1.md", text, "notes/a #1.md", ""),
        title="Notes",
        metadata={"kind": "log", "deep": {"list": [1, "two", None]}},
    )
    with_documents(tmp_path, [document], [], check)


def test_a_document_without_its_text_is_joined_from_its_passages(tmp_path: Path) -> None:
    chunks = [
        Chunk(f"d{number}", "d", f"Part {number}.", number, metadata={"kind": "log", "number": number})
        for number in range(3)
    ]

    async def check(service: Service) -> None:
        told = await read(service, "/v1/documents/d")
        assert told["text"] == "Part 0.\n\nPart 1.\n\nPart 2."
        assert [told["text"][each["start"] : each["end"]] for each in told["chunks"]] == [c.text for c in chunks]
        assert told["metadata"] == {"kind": "log"}

    with_documents(tmp_path, [], chunks, check)


def test_fields_have_their_values_and_ranges(tmp_path: Path) -> None:
    documents = [
        Document(
            *(f"{number}.md", f"Note {number}.", f"{number}.md", ""),
            metadata={
                "size": number, "day": f"2026-01-{number + 10}", "kind": f"kind {number % 12}", "deep": {"is": True},
            },
        )
        for number in range(20)
    ]  # fmt: skip

    async def check(service: Service) -> None:
        told = await read(service, "/v1/indexes/docs/fields")
        fields = {field["name"]: field for field in told["fields"]}
        size, day, kind = fields["size"], fields["day"], fields["kind"]
        assert (size["types"], size["count"], size["min"], size["max"]) == (["number"], 20, 0, 19)
        assert (day["min"], day["max"]) == ("2026-01-10", "2026-01-29")
        assert "min" not in kind
        assert len(kind["examples"]) == 10
        assert set(kind["examples"][:8]) == {f"kind {number}" for number in range(8)}  # each twice
        assert fields["deep.is"]["examples"] == [True]
        assert told["sampled"] == 20
        assert told["modes"] == ["hybrid", "dense", "lexical"]
        assert (await service.ask("GET", "/v1/indexes/other/fields")).status_code == 404

    with_documents(tmp_path, documents, [], check)


def test_a_tenant_sees_its_own_documents_alone(tmp_path: Path) -> None:
    documents = [
        Document(f"{tenant}.md", f"All of {tenant}.", f"{tenant}.md", "", metadata={"tenant": tenant})
        for tenant in ("a", "b")
    ]
    chunks = [Chunk(f"shared#{name}", "shared", f"Of {name}.", metadata={"tenant": name}) for name in ("a", "b")]

    async def check(service: Service) -> None:
        listed = await read(service, "/v1/documents", "one")
        assert [each["id"] for each in listed["documents"]] == ["a.md", "shared"]
        assert "total" not in listed
        assert (await read(service, "/v1/documents/shared", "one"))["text"] == "Of a."
        assert (await read(service, "/v1/documents/a.md", "one"))["text"] == "All of a."
        theirs = await service.ask("GET", "/v1/documents/b.md", "one")
        missing = await service.ask("GET", "/v1/documents/c.md", "one")
        assert theirs.status_code == missing.status_code == 404
        assert theirs.json()["errors"] == ["Document b.md not found"]
        assert missing.json()["errors"] == ["Document c.md not found"]

    with_documents(tmp_path, documents, chunks, check, tokens=(hashed("one", "a"),))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v1/documents?limit=0", "limit must be a whole number from 1 to 1,000, got 0"),
        ("/v1/documents?limit=1001", "limit must be a whole number from 1 to 1,000, got 1001"),
        ("/v1/documents?limit=ten", "limit must be a whole number from 1 to 1,000, got ten"),
        ("/v1/documents?limit=5&limit=6", "name one limit, got 2"),
        ("/v1/documents/moon.md?limit=200001", "limit must be a whole number from 1 to 200,000, got 200001"),
        ("/v1/documents/moon.md?offset=-1", "offset must be a whole number from 0 to 2,147,483,647, got -1"),
        ("/v1/documents/", "document_id cannot be empty"),
    ],
)
def test_a_wrong_number_is_400_and_named(served: Served, path: str, message: str) -> None:
    async def check(service: Service) -> None:
        answer = await service.ask("GET", path)
        assert answer.status_code == 400
        assert answer.json()["errors"] == [message]

    served(check)


def test_the_page_of_a_passage(tmp_path: Path) -> None:
    """With boxes and a picture, for those who may see the whole document; an id that ends so is read as ever."""
    canvas_module = pytest.importorskip("reportlab.pdfgen.canvas", reason="a PDF is written")
    canvas = canvas_module.Canvas(str(tmp_path / "tides.pdf"), pagesize=(400, 300))
    canvas.drawString(100, 200, "The moon pulls at the water.")
    canvas.save()
    chunks = [
        Chunk("x/page", "x", "Of an id.", metadata={"tenant": "a"}),
        Chunk("more", "tides.pdf", "Of a tenant.", 7, metadata={"tenant": "a"}, page_span=PageSpan(1, 1)),
    ]

    no_file = "there is no page to show: the passage is of no page of a PDF file that was indexed"

    async def check(service: Service) -> None:
        told = await read(service, "/v1/chunks/tides.pdf%230/page", "all")
        assert told.keys() == {"page", "pages", "width", "height", "boxes"}
        assert (told["page"], told["pages"], told["width"], told["height"]) == (1, 1, 400, 300)
        ((left, top, right, bottom),) = told["boxes"]
        assert 99 < left < right < 300
        assert 85 < top < bottom < 105
        quote = await read(service, "/v1/chunks/tides.pdf%230/page?start=4&end=14", "all")
        ((quote_left, _, quote_right, _),) = quote["boxes"]
        assert left < quote_left < quote_right < right  # around "moon pulls"
        outside = await read(service, "/v1/chunks/tides.pdf%230/page?start=900&end=999", "all")
        assert outside["boxes"] == told["boxes"]
        answer = await service.ask("GET", "/v1/chunks/tides.pdf%230/page.png?width=100", "all")
        assert answer.headers["content-type"] == "image/png"
        assert answer.content.startswith(b"\x89PNG")
        assert (await read(service, "/v1/chunks/x%2Fpage", "all"))["text"] == "Of an id."
        for path, token, message in (
            ("x%2Fpage/page", "all", no_file),
            ("x/page", "all", "Chunk x not found"),
            ("tides.pdf%230/page", "one", "Chunk tides.pdf#0 not found"),
            ("tides.pdf%230/page.png", "one", "Chunk tides.pdf#0 not found"),
            ("more/page", "one", "there is no page to show: the caller may see only some of the document"),
        ):
            refused = await service.ask("GET", f"/v1/chunks/{path}", token)
            assert (refused.status_code, refused.json()["errors"]) == (404, [message])
        assert (await service.ask("GET", "/v1/chunks/more/page.png?width=99", "all")).status_code == 400
        assert (await service.ask("GET", "/v1/chunks/more/page?page=0", "all")).status_code == 400
        assert (await read(service, "/v1/chunks/tides.pdf%230/page?page=1", "all"))["page"] == 1
        assert (await read(service, "/v1/documents/tides.pdf", "all"))["last_page"] == 1
        for ending in ("page", "page.png"):
            other = await service.ask("GET", f"/v1/chunks/tides.pdf%230/{ending}?page=2", "all")
            assert other.status_code == 404
            assert "page must be one of the passage, from 1 to 1, got 2" in other.json()["errors"][0]
        (tmp_path / "tides.pdf").unlink()
        gone = await service.ask("GET", "/v1/chunks/tides.pdf%230/page", "all")
        assert gone.status_code == 404
        reason = "the file is gone, or cannot be read; put it back, or index it again"
        assert gone.json()["errors"] == [f"there is no page to show: {reason}"]

    async def run() -> None:
        index = opened(tmp_path / "index.db")
        assert not (await index.aingest(tmp_path / "tides.pdf")).failed
        await index.aadd(chunks)
        async with serving({"docs": index}, tokens=(hashed("all"), hashed("one", "a"))) as service:
            await check(service)

    asyncio.run(run())


def with_documents(
    tmp_path: Path,
    documents: list[Document],
    chunks: list[Chunk],
    test: Callable[[Service], Awaitable[None]],
    **settings: Any,
) -> None:
    async def run() -> None:
        index = opened(tmp_path / "index.db")
        if documents:
            await index.aadd_documents(documents)
        if chunks:
            await index.aadd(chunks)
        async with serving({"docs": index}, **settings) as service:
            await test(service)

    asyncio.run(run())
