"""What a citation names can be read, whether it is a chunk or the section around one."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from support.http_service import hashed, opened, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from support.http_service import Service

pytestmark = pytest.mark.skipif(
    find_spec("tokenizers") is None, reason="contexts are counted in tokens: the extra 'local'"
)

TIDES = "\n\n".join(
    f"Tide {number} is made by the moon, which pulls at the water of the sea on both sides of the earth at once."
    for number in range(60)
)
PAGE = f"# Seas\n\nWhat this page is about.\n\n## Tides\n\n{TIDES}\n"


def check(tmp_path: Path, test: Callable[[Service], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        (tmp_path / "seas.md").write_text(PAGE)
        index = opened(tmp_path / "index.db")
        assert not (await index.aingest(tmp_path / "seas.md")).failed
        async with serving({"docs": index}, **settings) as service:
            await test(service)

    asyncio.run(run())


async def cited(service: Service, token: str | None = None) -> tuple[list[dict[str, Any]], set[str]]:
    """Return what a context considered, and the IDs of its sections."""
    asked = {"query_text": "what makes tide 59", "max_tokens": 20_000, "top_k": 1}
    told = (await service.ask("POST", "/v1/context", token, json=asked)).json()
    return told["ledger"], {each["id"] for each in told["ledger"] if each["role"] == "parent"}


def test_every_chunk_and_section_of_a_context_is_read_and_validated(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        ledger, sections = await cited(service)
        assert sections
        for each in ledger:
            path = f"/v1/chunks/{quote(each['id'], safe='')}"
            read = (await service.ask("GET", path)).json()
            start, end = read["fields"]["span"]
            assert read["text"] == PAGE[start:end]
            assert read["fields"]["document_id"] == "seas.md"
            first, last = read["fields"]["lines"]
            assert read["text"].strip() in "\n".join(PAGE.split("\n")[first - 1 : last])
            validated = (await service.ask("POST", f"{path}/validate")).json()
            assert (validated["chunk_id"], validated["validation_passed"]) == (each["id"], True)

    check(tmp_path, test)


def test_a_section_whose_chunk_was_damaged_is_not_valid(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        section = (await service.ask("GET", "/v1/chunks/seas.md%232")).json()["fields"]["parent_id"]
        with closing(sqlite3.connect(tmp_path / "index.db")) as connection, connection:
            connection.execute("UPDATE chunks SET text = 'The moon is a cheese.' WHERE id = 'seas.md#2'")
        validated = (await service.ask("POST", f"/v1/chunks/{quote(section, safe='')}/validate")).json()
        assert (validated["chunk_id"], validated["validation_passed"]) == ("seas.md#2", False)

    check(tmp_path, test)


def test_a_section_is_read_by_nobody_who_may_see_only_some_of_its_document(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        _, sections = await cited(service, "all")
        for name in sections:
            path = f"/v1/chunks/{quote(name, safe='')}"
            assert (await service.ask("GET", path, "all")).status_code == 200
            for ending, method in (("", "GET"), ("/validate", "POST")):
                assert (await service.ask(method, f"{path}{ending}", "one")).status_code == 404

    check(tmp_path, test, tokens=(hashed("all"), hashed("one", "a")))
