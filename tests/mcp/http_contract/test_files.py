"""Files that are sent to be indexed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp.server", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core.errors import EmbeddingError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core_mcp.http.files import FOLDER
from support.http_service import hashed

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_service import Served, Service

MARS = b"# Mars\n\nMars has two moons, Phobos and Deimos.\n"


async def send(service: Service, name: str, content: bytes, token: str | None = None, **more: str) -> Any:
    headers = {"content-type": "application/octet-stream", **more}
    return await service.ask("POST", "/v1/files", token, params={"name": name}, content=content, headers=headers)


async def events(service: Service, name: str, content: bytes) -> list[dict[str, Any]]:
    answer = await send(service, name, content)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    blocks = [block.splitlines() for block in answer.text.strip().split("\n\n")]
    told = [json.loads(block[1].removeprefix("data: ")) for block in blocks]
    assert [block[0] for block in blocks] == [f"event: {each['type']}" for each in told]
    return told


async def found(service: Service, question: str) -> list[str]:
    answer = await service.ask("POST", "/v1/search", json={"query_text": question, "top_k": 50})
    return [result["metadata"]["chunk_id"] for result in answer.json()["results"]]


def below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_a_file_is_received_indexed_and_found(served: Served, tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        told = await events(service, "mars.md", MARS)
        assert told[0] == {"type": "received", "name": "mars.md", "source": f"{FOLDER}/mars.md", "bytes": len(MARS)}
        assert told[1] == {"type": "progress", "passages": 1, "embedded": 0, "to_embed": 0}
        assert told[-1] == {
            "type": "done", "name": "mars.md", "source": f"{FOLDER}/mars.md", "passages": 1,
            "added": 1, "updated": 0, "unchanged": 0, "removed": 0,
        }  # fmt: skip
        assert f"{FOLDER}/mars.md#0" in await found(service, "moons of Mars")
        assert (tmp_path / FOLDER / "mars.md").read_bytes() == MARS
        valid = await service.ask("POST", f"/v1/chunks/{FOLDER}%2Fmars.md%230/validate")
        assert valid.json()["validation_passed"] is True
        assert (await events(service, "mars.md", MARS))[-1]["unchanged"] == 1
        assert (await events(service, "mars.md", MARS + b"It is red.\n"))[-1]["updated"] == 1
        assert [file.name for file in (tmp_path / FOLDER).iterdir()] == ["mars.md"]

    served(check, allow_writes=True)


def test_what_cannot_be_read_says_why_and_leaves_the_former_file(served: Served, tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        for name, content, reason in (
            ("damaged.pdf", b"%PDF-1.7 no more", "it is no PDF, or is damaged or incomplete"),
            ("photo.jpg", b"\xff\xd8", "files of type '.jpg' are not supported"),
            ("notes", b"text", "it has no suffix"),
            ("blank.md", b"  \n", "it holds no text"),
        ):
            last = (await events(service, name, content))[-1]
            assert (last["type"], last["name"]) == ("failed", name)
            assert reason in last["reason"]
            assert str(tmp_path) not in last["reason"]
        assert list((tmp_path / FOLDER).iterdir()) == []
        await events(service, "mars.md", MARS)
        assert (await events(service, "mars.md", b" "))[-1]["type"] == "failed"
        assert (tmp_path / FOLDER / "mars.md").read_bytes() == MARS
        assert f"{FOLDER}/mars.md#0" in await found(service, "moons of Mars")

    served(check, allow_writes=True)


def test_a_model_that_is_down_leaves_the_former_file(served: Served, tmp_path: Path) -> None:
    """What was indexed and what is kept stay the same; nothing else lies about."""

    async def check(service: Service) -> None:
        await events(service, "mars.md", MARS)
        embedder = service.indexes.named(None).index.embedder
        assert isinstance(embedder, FakeEmbedder)
        embedder.failure = EmbeddingError("the model is down")
        last = (await events(service, "mars.md", b"# Venus\n\nAnother planet.\n"))[-1]
        embedder.failure = None
        assert last == {
            "type": "failed",
            "name": "mars.md",
            "reason": "its passages could not be embedded: the model is down",
        }
        assert [file.read_bytes() for file in below(tmp_path / FOLDER)] == [MARS]
        assert (await events(service, "mars.md", MARS))[-1]["unchanged"] == 1

    served(check, allow_writes=True)


def test_several_at_once(served: Served) -> None:
    async def check(service: Service) -> None:
        names = [f"note {number}.md" for number in range(4)]
        told = await asyncio.gather(*(events(service, name, b"# N\n\n" + name.encode()) for name in names))
        assert {each[-1]["type"] for each in told} == {"done"}
        assert {f"{FOLDER}/{name}#0" for name in names} <= set(await found(service, "note"))

    served(check, allow_writes=True)


@pytest.mark.parametrize(
    "name", ["../mars.md", "/etc/mars.md", "a/b.md", "a\\b.md", ".hidden.md", "..", "", "a\x00.md", "a\n.md", "m" * 201]
)
def test_a_name_cannot_leave_its_folder(served: Served, tmp_path: Path, name: str) -> None:
    async def check(service: Service) -> None:
        before = below(tmp_path)
        answer = await send(service, name, MARS)
        assert answer.status_code == 400
        assert "name must" in answer.json()["errors"][0]
        assert below(tmp_path) == before

    served(check, allow_writes=True)


def test_what_is_refused_before_anything_is_kept(served: Served, tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        assert (await send(service, "mars.md", b"m" * 101)).status_code == 413
        assert (await send(service, "mars.md", b"")).status_code == 400
        assert (await send(service, "mars.md", MARS, **{"content-type": "text/markdown"})).status_code == 415
        assert (await service.ask("POST", "/v1/files?name=a.md&index=none", content=b"a")).status_code == 404
        assert (await service.ask("POST", "/v1/files", content=b"a")).status_code == 400
        assert not any((tmp_path / FOLDER).glob("*"))

    served(check, allow_writes=True, max_file_bytes=100)


def test_only_who_may_write_sends_files(served: Served, tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        assert (await send(service, "mars.md", MARS, "tenant")).status_code == 403
        assert "files" not in (await service.ask("GET", "/v1/indexes", "tenant")).json()
        assert not (tmp_path / FOLDER).exists()
        accepted = (await service.ask("GET", "/v1/indexes", "all")).json()["files"]
        assert {".md", ".pdf", ".pptx"} <= set(accepted["suffixes"])
        assert accepted["max_bytes"] == 67_108_864
        assert (await send(service, "mars.md", MARS, "all")).status_code == 200

    served(check, allow_writes=True, tokens=(hashed("all"), hashed("tenant", "a")))


def test_a_service_that_reads_takes_none(served: Served) -> None:
    async def check(service: Service) -> None:
        assert (await send(service, "mars.md", MARS)).status_code == 403
        assert "files" not in (await service.ask("GET", "/v1/indexes")).json()

    served(check)
