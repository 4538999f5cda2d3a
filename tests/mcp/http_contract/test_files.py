"""Files that are sent to be indexed."""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core.errors import EmbeddingError
from retrieval_core.testing.fakes import FakeEmbedder
from support.http_files import events_of_file, send_file
from support.http_service import hashed, opened, serving

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_service import Served, Service

FOLDER = "uploads"
MARS = b"# Mars\n\nMars has two moons, Phobos and Deimos.\n"


async def found(service: Service, question: str) -> list[str]:
    answer = await service.ask("POST", "/v1/search", json={"query_text": question, "top_k": 50})
    return [result["metadata"]["chunk_id"] for result in answer.json()["results"]]


def below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_a_file_is_received_indexed_and_found(served: Served, tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        told = await events_of_file(service, "mars.md", MARS)
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
        assert (await events_of_file(service, "mars.md", MARS))[-1]["unchanged"] == 1
        assert (await events_of_file(service, "mars.md", MARS + b"It is red.\n"))[-1]["updated"] == 1
        assert [file.name for file in (tmp_path / FOLDER).iterdir()] == ["mars.md"]

    served(check, allow_writes=True)


@pytest.mark.skipif(find_spec("pypdfium2") is None, reason="PDF files are read with the extra 'documents'")
def test_what_cannot_be_read_says_why_and_leaves_the_former_file(served: Served, tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        for name, content, reason in (
            ("damaged.pdf", b"%PDF-1.7 no more", "it is no PDF, or is damaged or incomplete"),
            ("photo.jpg", b"\xff\xd8", "files of type '.jpg' are not supported"),
            ("notes", b"text", "it has no suffix"),
            ("blank.md", b"  \n", "it contains no text"),
        ):
            last = (await events_of_file(service, name, content))[-1]
            assert (last["type"], last["name"]) == ("failed", name)
            assert reason in last["reason"]
            assert str(tmp_path) not in last["reason"]
        assert list((tmp_path / FOLDER).iterdir()) == []
        await events_of_file(service, "mars.md", MARS)
        assert (await events_of_file(service, "mars.md", b" "))[-1]["type"] == "failed"
        assert (tmp_path / FOLDER / "mars.md").read_bytes() == MARS
        assert f"{FOLDER}/mars.md#0" in await found(service, "moons of Mars")

    served(check, allow_writes=True)


def test_a_model_that_is_down_leaves_the_former_file(served: Served, tmp_path: Path) -> None:
    """What was indexed and what is kept stay the same; nothing else lies about."""

    async def check(service: Service) -> None:
        await events_of_file(service, "mars.md", MARS)
        embedder = (await service.indexes.named(None).index()).embedder
        assert isinstance(embedder, FakeEmbedder)
        embedder.failure = EmbeddingError("the model is down")
        last = (await events_of_file(service, "mars.md", b"# Venus\n\nAnother planet.\n"))[-1]
        embedder.failure = None
        assert last == {
            "type": "failed",
            "name": "mars.md",
            "reason": "its chunks could not be embedded: the model is down",
        }
        assert [file.read_bytes() for file in below(tmp_path / FOLDER)] == [MARS]
        assert (await events_of_file(service, "mars.md", MARS))[-1]["unchanged"] == 1

    served(check, allow_writes=True)


def test_several_at_once(served: Served) -> None:
    async def check(service: Service) -> None:
        names = [f"note {number}.md" for number in range(4)]
        told = await asyncio.gather(*(events_of_file(service, name, b"# N\n\n" + name.encode()) for name in names))
        assert {each[-1]["type"] for each in told} == {"done"}
        assert {f"{FOLDER}/{name}#0" for name in names} <= set(await found(service, "note"))

    served(check, allow_writes=True)


@pytest.mark.parametrize(
    "name", ["../mars.md", "/etc/mars.md", "a/b.md", "a\\b.md", ".hidden.md", "..", "", "a\x00.md", "a\n.md", "m" * 201]
)
def test_a_name_cannot_leave_its_folder(served: Served, tmp_path: Path, name: str) -> None:
    async def check(service: Service) -> None:
        before = below(tmp_path)
        answer = await send_file(service, name, MARS)
        assert answer.status_code == 400
        assert "name must" in answer.json()["errors"][0]
        assert below(tmp_path) == before

    served(check, allow_writes=True)


def test_what_is_refused_before_anything_is_kept(served: Served, tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        assert (await send_file(service, "mars.md", b"m" * 101)).status_code == 413
        assert (await send_file(service, "mars.md", b"")).status_code == 400
        assert (await send_file(service, "mars.md", MARS, **{"content-type": "text/markdown"})).status_code == 415
        assert (await service.ask("POST", "/v1/files?name=a.md&index=none", content=b"a")).status_code == 404
        assert (await service.ask("POST", "/v1/files", content=b"a")).status_code == 400
        assert not any((tmp_path / FOLDER).glob("*"))

    served(check, allow_writes=True, max_file_bytes=100)


def test_a_service_that_cannot_keep_files_says_so(served: Served, tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_bytes(b"no folder")

    async def check(service: Service) -> None:
        answer = await send_file(service, "mars.md", MARS)
        assert answer.status_code == 501
        assert answer.json()["errors"] == [
            f"the service cannot keep files: its folder {FOLDER} cannot be written (File exists)"
        ]

    served(check, allow_writes=True)


def test_files_leave_half_of_the_places_to_those_who_ask(served: Served) -> None:
    """What is too many is told to come again, before it is received; afterwards all places are free."""

    async def check(service: Service) -> None:
        names = [f"{number}.md" for number in range(6)]
        sent = await asyncio.gather(*(send_file(service, name, MARS) for name in names))
        assert sorted(answer.status_code for answer in sent) == [200, 200, 200, 503, 503, 503]
        refused = next(answer for answer in sent if answer.status_code == 503)
        assert "too many files are on their way" in refused.json()["errors"][0]
        assert refused.headers["retry-after"] == "1"
        assert [(await send_file(service, name, b"")).status_code for name in names] == [400] * 6
        assert (await events_of_file(service, "mars.md", MARS))[-1]["type"] == "done"

    served(check, allow_writes=True, max_requests=6)


def test_only_who_may_write_sends_files(served: Served, tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        assert (await send_file(service, "mars.md", MARS, "tenant")).status_code == 403
        assert "files" not in (await service.ask("GET", "/v1/indexes", "tenant")).json()
        assert not (tmp_path / FOLDER).exists()
        accepted = (await service.ask("GET", "/v1/indexes", "all")).json()["files"]
        assert {".md", ".pdf", ".pptx"} <= set(accepted["suffixes"])
        assert accepted["max_bytes"] == 67_108_864
        assert (await send_file(service, "mars.md", MARS, "all")).status_code == 200

    served(check, allow_writes=True, tokens=(hashed("all"), hashed("tenant", "a")))


def test_a_service_that_reads_takes_none(served: Served) -> None:
    async def check(service: Service) -> None:
        assert (await send_file(service, "mars.md", MARS)).status_code == 403
        assert "files" not in (await service.ask("GET", "/v1/indexes")).json()

    served(check)


def test_a_folder_of_that_name_is_not_replaced(served: Served, tmp_path: Path) -> None:
    kept = tmp_path / FOLDER / "notes.md" / "own.md"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(MARS)

    async def check(service: Service) -> None:
        answer = await send_file(service, "notes.md", MARS)
        assert answer.status_code == 400
        assert "must not be that of a folder, got notes.md" in answer.json()["errors"][0]
        assert below(tmp_path / FOLDER) == [kept.parent, kept]

    served(check, allow_writes=True)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_of_that_name_is_replaced_and_not_followed(served: Served, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_bytes(b"# Own\n")
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "mars.md").symlink_to(elsewhere)

    async def check(service: Service) -> None:
        assert (await events_of_file(service, "mars.md", MARS))[-1]["type"] == "done"
        assert elsewhere.read_bytes() == b"# Own\n"
        assert not (tmp_path / FOLDER / "mars.md").is_symlink()

    served(check, allow_writes=True)


def test_letters_with_accents_are_one_name_however_they_are_composed(served: Served) -> None:
    composed, decomposed = "M\u00fcller.md", "Mu\u0308ller.md"

    async def check(service: Service) -> None:
        assert (await events_of_file(service, decomposed, MARS))[0]["source"] == f"{FOLDER}/{composed}"
        assert (await events_of_file(service, composed, MARS))[-1]["unchanged"] == 1
        for name in (composed, decomposed):
            listed = (await service.ask("GET", "/v1/documents", params={"name": name})).json()
            assert [each["id"] for each in listed["documents"]] == [f"{FOLDER}/{composed}"]
        long = await send_file(service, "\u6708" * 100, MARS)
        assert long.status_code == 400
        assert "got 100 and 300" in long.json()["errors"][0]

    served(check, allow_writes=True)


def test_two_indexes_in_a_folder_take_a_name_one_after_the_other(tmp_path: Path) -> None:
    """Each has the passages of the file that was sent to it, not those of the other."""

    async def run() -> None:
        indexes = {name: opened(tmp_path / f"{name}.db") for name in ("first", "second")}
        async with serving(indexes, allow_writes=True) as service:

            async def send_to(name: str) -> None:
                answer = await service.ask(
                    *("POST", "/v1/files"),
                    params={"name": "a.md", "index": name},
                    content=b"# A\n\nThe text of " + name.encode(),
                    headers={"content-type": "application/octet-stream"},
                )
                assert '"type":"done"' in answer.text

            await asyncio.gather(*map(send_to, indexes))
            for name in indexes:
                read = await service.ask("GET", f"/v1/documents/{FOLDER}%2Fa.md", params={"index": name})
                assert f"The text of {name}" in read.json()["text"]

    asyncio.run(run())


@pytest.mark.parametrize("taken", [0, 1])
def test_a_client_that_takes_no_event_leaves_nothing_behind(served: Served, tmp_path: Path, taken: int) -> None:
    """It stays and does not read: neither is anything indexed nor kept."""

    async def check(service: Service) -> None:
        given = iter([{"type": "http.request", "body": MARS, "more_body": False}])
        sent: list[Any] = []

        async def receive() -> Any:
            return next(given, None) or await asyncio.Event().wait()

        async def to_nobody(message: Any) -> None:
            sent.append(message)
            if len(sent) > taken:
                await asyncio.Event().wait()

        scope = {
            "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": "/v1/files",
            "raw_path": b"/v1/files", "query_string": b"name=mars.md", "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/octet-stream")],
        }  # fmt: skip
        await service.app(scope, receive, to_nobody)
        assert len(sent) == taken + 1
        while any((tmp_path / FOLDER).iterdir()):  # noqa: ASYNC110 - removed by a thread
            await asyncio.sleep(0.01)

    served(check, allow_writes=True, request_seconds=0.2)
