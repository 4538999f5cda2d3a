"""Several indexes, asked as one."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core import Document
from retrieval_core.config import EmbedderConfig
from retrieval_core.testing.fakes import FakeEmbedder
from support.http_service import hashed, opened, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from support.http_service import Service

TEXTS = {
    "manual": {"a.md": "A refund is paid within five days.", "b.md": "Lamps are sold in pairs."},
    "tickets": {"a.md": "The customer waits for the refund.", "c.md": "The lamp is broken."},
    "wiki": {"d.md": "A refund needs a form."},
}
FIELDS = {"x": {"tenant": "x"}, "y": {"tenant": "y", "margin": 3}}
NEEDS_TOKENS = pytest.mark.skipif(
    find_spec("tokenizers") is None, reason="contexts are counted in tokens: the extra 'local'"
)
REFUND = {"query_text": "how long does a refund take", "top_k": 3}


def served(tmp_path: Path, test: Callable[[Service], Awaitable[None]], **settings: Any) -> None:
    """Run a test against a service over three indexes; every second document is of a tenant."""

    async def run() -> None:
        indexes = {name: opened(tmp_path / f"{name}.db") for name in TEXTS}
        for name, texts in TEXTS.items():
            await indexes[name].aadd_documents(
                Document(each, text, source=each, content_hash="", metadata=FIELDS["x" if each == "a.md" else "y"])
                for each, text in texts.items()
            )
        async with serving(indexes, **settings) as service:
            await test(service)

    asyncio.run(run())


@NEEDS_TOKENS
def test_results_say_which_index_they_are_from(tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        both = {**REFUND, "indexes": ["manual", "tickets"]}
        found = (await service.ask("POST", "/v1/search", json={**both, "explain": True})).json()
        told = {(result["metadata"]["index"], result["metadata"]["chunk_id"]) for result in found["results"]}
        assert {("manual", "a.md#0"), ("tickets", "a.md#0")} <= told
        assert {hit["index"] for hit in found["trace"]["hits"]} == {"manual", "tickets"}
        assert found["results"][0]["metadata"]["url"].startswith("urn:retrieval:")
        explained = (await service.ask("POST", "/v1/explain", json=both)).json()
        assert {(hit["index"], hit["id"]) for hit in explained["results"]} == told
        assert {"index manual", "index tickets", "merge"} <= {stage["stage"] for stage in explained["stages"]}
        assert 0 <= explained["relevance"]["value"] <= 1
        pack = (await service.ask("POST", "/v1/context", json=both)).json()
        assert any("manual:a.md" in citation for citation in pack["citations"])
        events = (await service.ask("POST", "/v1/answer", json=both)).text.strip().split("\n\n")
        passages = json.loads(events[0].splitlines()[1].removeprefix("data: "))["passages"]
        assert {passage["chunk_ids"][0].partition(":")[0] for passage in passages} == {"manual", "tickets"}
        done = json.loads(events[-1].splitlines()[1].removeprefix("data: "))
        assert done["type"] == "done"
        assert [each["verdict"] for each in done["answer"]["checks"]] == ["exact"] * len(done["answer"]["sources"])
        assert done["answer"]["sources"]

    served(tmp_path, check)


def test_one_of_them_is_asked_as_by_its_name(tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        one = (await service.ask("POST", "/v1/search", json={**REFUND, "indexes": ["wiki"]})).json()
        named = (await service.ask("POST", "/v1/search", json={**REFUND, "index": "wiki"})).json()
        assert one["results"] == named["results"] != []
        assert "index" not in one["results"][0]["metadata"]

    served(tmp_path, check)


@pytest.mark.parametrize(
    ("more", "status", "message"),
    [
        ({"indexes": ["manual", "none"]}, 404, "Index none not found"),
        (
            {"indexes": ["manual", "wiki"], "index": "wiki"},
            400,
            "not both: index is wiki",
        ),
        ({"indexes": []}, 400, "indexes"),
        ({"indexes": "manual"}, 400, "indexes"),
        ({"indexes": ["manual", "wiki"], "chunk_id": "a.md#0"}, 400, "Set index, not indexes"),
    ],
)
def test_what_is_refused(tmp_path: Path, more: dict[str, Any], status: int, message: str) -> None:
    async def check(service: Service) -> None:
        answer = await service.ask("POST", "/v1/explain", json={**REFUND, **more})
        assert answer.status_code == status
        assert message in answer.json()["errors"][0]

    served(tmp_path, check)


@NEEDS_TOKENS
@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_one_that_cannot_be_read_is_left_out_without_its_place(tmp_path: Path, how: str) -> None:
    """The others answer, and say what is missing; nobody is told where it is."""

    async def run() -> None:
        indexes = {name: opened(tmp_path / f"{name}.db") for name in ("manual", "tickets", "wiki")}
        for name in ("manual", "tickets"):
            text = TEXTS[name]["a.md"]
            await indexes[name].aadd_documents([Document("a.md", text, source="a.md", content_hash="")])
        if how == "damaged":
            (tmp_path / "wiki.db").write_bytes(b"no database" * 1000)
        async with serving(indexes) as service:
            for path in ("search", "explain", "context", "answer"):
                asked = {**REFUND, "indexes": ["wiki", "manual", "tickets"]}
                answer = await service.ask("POST", f"/v1/{path}", json=asked)
                assert answer.status_code == 200, answer.text
                assert "index wiki" in answer.text
                assert "refund" in answer.text
                assert str(tmp_path) not in answer.text

    asyncio.run(run())


def test_the_one_without_vectors_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        indexes = {
            "manual": opened(tmp_path / "manual.db"),
            "words": opened(tmp_path / "words.db", embedder=EmbedderConfig(kind="none")),
        }
        async with serving(indexes) as service:
            answer = await service.ask("POST", "/v1/search", json={**REFUND, "indexes": list(indexes)})
            assert answer.status_code == 400
            assert "the index words contains no vectors" in answer.json()["errors"][0]

    asyncio.run(run())


def test_a_tenant_sees_its_own_passages_of_each(tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        every = {**REFUND, "top_k": 10, "indexes": list(TEXTS)}
        for path in ("/v1/search", "/v1/explain"):
            told = (await service.ask("POST", path, "x", json=every)).json()["results"]
            assert {hit["metadata"]["chunk_id"] if "metadata" in hit else hit["id"] for hit in told} == {"a.md#0"}
            assert len(told) == 2
        pack = (await service.ask("POST", "/v1/context", "x", json=every)).json()
        assert "form" not in json.dumps(pack)
        assert "refund" in json.dumps(pack)
        assert "form" not in (await service.ask("POST", "/v1/answer", "x", json=every)).text

    served(tmp_path, check, tokens=(hashed("all"), hashed("x", "x")))


@NEEDS_TOKENS
def test_a_tenant_is_not_told_of_the_fields_of_others(tmp_path: Path) -> None:
    """A warning about an unknown field suggests one of all chunks."""

    async def check(service: Service) -> None:
        asked = {**REFUND, "indexes": ["manual", "tickets"], "filters": {"margim": 3}}
        for path in ("search", "explain", "context", "answer"):
            assert "margin" in (await service.ask("POST", f"/v1/{path}", "all", json=asked)).text
            assert "margin" not in (await service.ask("POST", f"/v1/{path}", "x", json=asked)).text

    served(tmp_path, check, tokens=(hashed("all"), hashed("x", "x")))


def test_a_chunk_is_expected_of_the_only_index_of_several(tmp_path: Path) -> None:
    async def check(service: Service) -> None:
        asked = {**REFUND, "indexes": ["wiki"], "filters": {"tenant": "x"}, "chunk_id": "d.md#0"}
        answer = await service.ask("POST", "/v1/explain", json=asked)
        assert answer.json().get("why") == "The filter excludes it.", answer.text

    served(tmp_path, check)


class UnreachableEmbedder(FakeEmbedder):
    """An embedder whose service can't embed a query."""

    async def _embed_query(self, text: str) -> Any:
        msg = f"no answer for {text}"
        raise RuntimeError(msg)


def test_keyword_search_of_several_is_refused_if_the_caller_wants_none(tmp_path: Path) -> None:
    async def run() -> None:
        indexes = {
            name: opened(tmp_path / f"{name}.db", parts={"embedder": UnreachableEmbedder()}) for name in ("a", "b")
        }
        for index in indexes.values():
            await index.aadd_documents([Document("a.md", TEXTS["manual"]["a.md"], source="a.md", content_hash="")])
        async with serving(indexes) as service:
            for several in (["a"], ["a", "b"]):
                asked = {**REFUND, "indexes": several}
                degraded = await service.ask("POST", "/v1/search", json={**asked, "allow_degraded": True})
                assert degraded.status_code == 200
                assert degraded.json()["results"]
                refused = await service.ask("POST", "/v1/search", json=asked)
                assert refused.status_code == 503

    asyncio.run(run())
