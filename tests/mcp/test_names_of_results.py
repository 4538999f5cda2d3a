"""The line above a result names its chunk for every tool."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp import Client
from retrieval_core import Chunk, Document, open_index
from retrieval_core.config import EmbedderConfig, RetrievalConfig
from retrieval_core_mcp import ServerSettings, create_server

if TYPE_CHECKING:
    from pathlib import Path

UUID = "0b6f0f4e-58cf-4d5e-9f4a-2f1f6f1f9a77"
PROSE = "The ferry leaves at nine, and the harbour is open. It has room for cars.\nA ferry is a ship. " * 40
LINE = "The ferry of the year {} is in the museum of the harbour. "
FILES = {
    "guide.md": f"# Ferries\n\n{PROSE}\n\n## Harbour\n\n{PROSE}\n",
    "old/guide.md": f"# Ferries\n\nOnce the ferry was slow.\n\n{PROSE}\n",
    "long.txt": "".join(LINE.format(year) for year in range(150)) + "\nThe ferry ends here.\n",
    "ship.py": "\n\n".join(f'def ferry_{n}():\n    """Return the ferry."""\n    return {n}' for n in range(90)),
    "fares.csv": "line,fare\nferry north,3\nferry south,4\n",
    "port:5.md": "# Port\n\nThe ferry is in port.\n",
    "a (id: b) · c.md": "# Odd\n\nAn odd ferry.\n",
}
_HEAD = re.compile(r"^\[\d+\] (?P<name>.+?)(?: \(id: (?P<id>.+?)\))?(?= · (?!c\.md)| \| |$)", re.MULTILINE)


async def read_names(client: Any) -> dict[str, tuple[str, str, str | None]]:
    """Return the text, the name and the ID in brackets of all results, by their IDs."""
    names: dict[str, tuple[str, str, str | None]] = {}
    asked: dict[str, Any] = {"query": "ferry"}
    while True:
        answer = await client.call_tool("search", {**asked, "detail": "full"})
        found = answer.structured_content
        heads = [*_HEAD.finditer(answer.content[0].text)]
        assert len(heads) == len(found["results"])
        for head, hit in zip(heads, found["results"], strict=True):
            names[hit["id"]] = (hit["text"], head["name"], head["id"])
        if "next_cursor" not in found:
            return names
        asked["cursor"] = found["next_cursor"]


async def check_name(client: Any, chunk_id: str, text: str, name: str) -> None:
    """Check that the tools take a name for the chunk, and nothing else."""
    quote = " ".join(text.split()[:8])
    fetched = (await client.call_tool("fetch", {"id": name})).structured_content
    assert fetched["id"] == chunk_id
    assert " ".join(text.split())[:200] in " ".join(fetched["text"].split())
    checked = (await client.call_tool("verify_citation", {"id": name, "quote": quote})).structured_content
    assert (checked["verdict"], checked.get("where")) in {("exact", "passage"), ("equivalent", "passage")}
    beside = (await client.call_tool("get_neighbors", {"id": name})).structured_content
    assert [each["id"] for each in beside["passages"] if each["position"] == 0] == [chunk_id]
    around = (await client.call_tool("fetch", {"id": name, "around": 1, "max_characters": 50_000})).structured_content
    assert len(around["text"]) >= len(text)
    assert text.strip() in around["text"]


def test_the_line_above_a_result_names_its_chunk(tmp_path: Path) -> None:
    for path, text in FILES.items():
        if sys.platform == "win32" and ":" in path:
            continue  # no such names there
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    config = RetrievalConfig(index=str(tmp_path / "index.db"), embedder=EmbedderConfig(kind="none"))
    settings = ServerSettings(retrieval=config, tools=("all",), structured=True)

    async def conversation() -> None:
        async with open_index(config=config) as index:
            await index.aingest(tmp_path)
            await index.aadd([Chunk("own", "added", "A ferry without lines."), Chunk("next#1", "next", "Its ferry.")])
        async with Client(create_server(settings)) as opened:
            client: Any = opened
            await client.list_tools()
            names = await read_names(client)
            long = {chunk_id for chunk_id in names if chunk_id.startswith("long.txt#")}
            assert len(long) > 2
            for chunk_id, (text, name, own) in names.items():
                assert own in {None, chunk_id}
                await check_name(client, chunk_id, text, own or name)
                assert own is None or chunk_id == "own" or chunk_id in long
                assert re.search(r":\d+(-\d+)?$", name) or own or name == chunk_id
            shared = await client.call_tool("get_neighbors", {"id": "long.txt:1"})
            assert "several have these lines: long.txt#0, long.txt#1" in shared.content[0].text
            inside = await client.call_tool("get_neighbors", {"id": "guide.md:5"})
            assert "no chunk has these lines; there are guide.md:" in inside.content[0].text
            explained = await client.call_tool("explain", {"query": "ferry", "id": names["own"][2], "top_k": 1})
            assert not explained.is_error
            place = names[next(each for each in names if each.startswith("ship.py#"))][1]
            explained = await client.call_tool("explain", {"query": "harbour", "id": place, "top_k": 1})
            assert not explained.is_error
            assert place.startswith("ship.py:")

    asyncio.run(conversation())


def test_grep_names_a_document_as_search_does(tmp_path: Path) -> None:
    """If its ID is a UUID, by its source, with the ID that the tools take. The cursor is understood too."""
    config = RetrievalConfig(index=str(tmp_path / "index.db"), embedder=EmbedderConfig(kind="none"))
    text = "The ferry leaves at nine.\nThe ferry returns at ten."

    async def conversation() -> None:
        async with open_index(config=config) as index:
            await index.aadd_documents([Document(UUID, text, source="web/ferry.md"), Document("plain.md", text)])
        async with Client(create_server(ServerSettings(retrieval=config, structured=True))) as client:

            async def lines_of(tool: str, **given: Any) -> list[str]:
                answer: Any = await client.call_tool(tool, given)
                return answer.content[0].text.splitlines()

            found = await lines_of("search", query="ferry")
            assert {line.split(":")[0].split(" ")[1] for line in found if line.startswith("[")} == {
                "web/ferry.md",
                "plain.md",
            }
            name = f"web/ferry.md (id: {UUID})"
            assert await lines_of("grep", pattern="nine") == [
                name,
                "1: The ferry leaves at nine.",
                "",
                "plain.md",
                "1: The ferry leaves at nine.",
            ]
            assert await lines_of("grep", pattern="ferry", output="counts") == [f"{name}: 2", "plain.md: 2"]
            assert (await lines_of("fetch", id=f"{UUID}:2-"))[-1] == "The ferry returns at ten."

    asyncio.run(conversation())
