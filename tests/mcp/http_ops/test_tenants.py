"""Two tenants in one index: nothing of one ever reaches the other, by whatever way it asks."""

from __future__ import annotations

import asyncio
import json
import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core import Chunk, Document
from retrieval_core.config import CacheConfig, EmbedderConfig, SearchConfig, SemanticCacheConfig
from retrieval_core.evaluate.suite import CaseResult, CaseStatus, SuiteResult
from retrieval_core.ports import Change
from retrieval_core.run.observe import Metrics
from support.http_service import FAKE, hashed, opened, serving
from support.suites import PerformanceMetrics, Subject, to_json
from support.tenants import (
    HASHED,
    MCP,
    META,
    MODERN,
    PASSAGES,
    TENANTS,
    TOKENS,
    Caller,
    Questions,
    contents_of,
    filled,
    ids_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import httpx2

    from support.http_service import Service

pytestmark = pytest.mark.slow

CALLS = int(os.environ.get("CALLS", "4000"))
"""As many each night as the variable says."""
NEEDS_TOKENS = pytest.mark.skipif(
    find_spec("tokenizers") is None, reason="contexts are counted in tokens: the extra 'local'"
)
SIDE_BY_SIDE = 4
"""Requests under way at a time."""


@NEEDS_TOKENS
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("semantic", [False, True], ids=["cache", "semantic cache"])
def test_random_calls_of_two_tenants_never_meet(tmp_path: Path, semantic: bool, seed: int) -> None:
    """Whatever is asked, with caches that an operator and both tenants fill: no word, id or count of the other.

    Once with a graph and a retriever that know no tenants, then with a language model that tells all that it is asked.
    """
    calls = CALLS // 8

    async def run() -> None:
        cache = CacheConfig(semantic=SemanticCacheConfig(enabled=semantic))
        metrics = Metrics()
        index = await filled(tmp_path, PASSAGES, cache=cache, observer=metrics, graph=not seed, writes=bool(seed))
        other = await filled(tmp_path / "more", PASSAGES, cache=cache, graph=False)
        everything = (await index.adescribe()).chunks
        ids = await ids_of(index)
        others = everything - len(ids["acme"])
        indexes = {"index": index, "more": other}
        async with serving(indexes, tokens=HASHED, allow_writes=False, suite_report=report_of(tmp_path)) as service:
            # What is plugged in from outside, as the graph, is not there where several are asked as one.
            questions = Questions(seed, ids, tuple(indexes) if seed else ("index",))
            caller = Caller(service, questions, frozenset({PASSAGES["globex"], others, everything}))
            left = iter(range(calls))

            async def ask_again_and_again() -> None:
                for _ in left:
                    await caller.ask()

            await asyncio.gather(*(ask_again_and_again() for _ in range(SIDE_BY_SIDE)))
            # The calls that found something of the caller's own: else there would be nothing to keep apart.
            assert all(count > calls // 20 for count in caller.found.values()), caller.found
        assert metrics.snapshot().cache_hits > calls // 100

    asyncio.run(run())


def report_of(folder: Path) -> Path:
    """Write the report of a suite over the documents of all, and return its file."""
    cases = tuple(
        CaseResult(f"{tenant}secret", f"{tenant}secret", CaseStatus.FAILED, documents=(f"{tenant}/1",))
        for tenant in TENANTS
    )
    result = SuiteResult("all", Subject("index", 1), cases, (), PerformanceMetrics(), 0.0, "2026-01-02T03:04:05+00:00")
    (folder / "report.json").write_text(to_json(result), "utf-8")
    return folder / "report.json"


TIMES = frozenset(
    {"latency_ms", "milliseconds", "ms", "started_ms", "timestamp", "query_embedded_at", "qdrant_query_time_ms"}
)


def comparable(value: Any) -> Any:
    """Return what an answer says without how long it took, and without the order in which two sides were done.

    Whether chunks and the version were read from the file says only whether the index is in memory yet, which takes
    its time.
    """
    if isinstance(value, dict):
        told = cast("dict[str, Any]", value)
        return {name: comparable(inner) for name, inner in told.items() if name not in TIMES}
    if isinstance(value, list):
        parts = [comparable(inner) for inner in cast("list[Any]", value)]
        are_stages = bool(parts) and all(isinstance(part, dict) and "stage" in part for part in parts)
        return sorted([part for part in parts if not _is_reading(part)], key=repr) if are_stages else parts
    if isinstance(value, str):
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "MOMENT", re.sub(r"[\d.]+ ms", "SOME ms", value))
        lines = [line for line in text.splitlines() if not re.search("fetch|version", line)]
        return sorted(lines) if " ms" in text else text
    return value


def _is_reading(part: Any) -> bool:
    return str(part["stage"]).endswith(("fetch", "version"))


def test_an_answer_does_not_depend_on_what_others_have(tmp_path: Path) -> None:
    """To the last digit of a score: the same requests to an index with the other tenant's passages, and without.

    The other one has the same words, each twice as often, so that what is rarer than what, and so the order, is as
    before.
    """

    async def run() -> None:
        # With weights that are fixed: how far a side's best passage stands out rests on the words of all.
        fixed = SearchConfig(fusion="zscore", on_unscored="keep")
        both = await filled(tmp_path / "both", {"acme": 64, "globex": 128}, graph=False, search=fixed)
        alone = await filled(tmp_path / "alone", {"acme": 64}, graph=False, search=fixed)
        ids, _ = [await ids_of(each) for each in (both, alone)]  # so that both have embedded its question
        questions = Questions(6, ids)
        tokens = {"tokens": HASHED, "allow_writes": False}
        async with serving({"index": both}, **tokens) as one, serving({"index": alone}, **tokens) as other:
            for _ in range(400):
                method, path, request = questions.next()
                answers = [await each.ask(method, path, TOKENS["acme"], **dict(request)) for each in (one, other)]
                assert answers[0].status_code == answers[1].status_code
                if path != "/metrics":
                    first, second = (comparable(contents_of(answer)) for answer in answers)
                    assert first == second, (path, request)

    asyncio.run(run())


def served(tmp_path: Path, test: Callable[[Service], Awaitable[None]], **settings: Any) -> None:
    """Serve four passages of two documents, one of which both tenants have passages of."""

    async def run() -> None:
        index = opened(tmp_path / "index.db")
        await index.aadd_documents(
            [
                Document(f"{tenant}.md", f"All of {tenant}.", source="a", content_hash="", metadata={"tenant": tenant})
                for tenant in TENANTS
            ]
        )
        await index.aadd(
            [Chunk(f"shared#{tenant}", "shared", f"Of {tenant}.", metadata={"tenant": tenant}) for tenant in TENANTS]
        )
        tokens = tuple(hashed(token, tenant) for tenant, token in TOKENS.items())
        async with serving({"index": index}, tokens=tokens, **settings) as service:
            await test(service)

    asyncio.run(run())


def without_latency(answer: httpx2.Response) -> str:
    return re.sub(r'"latency_ms":\d+', "", answer.text)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/chunks/{}"),
        ("POST", "/v1/chunks/{}/validate"),
        ("GET", "/v1/chunks/{}/page?page=1"),
        ("GET", "/v1/chunks/{}/page.png?page=1"),
        ("GET", "/v1/documents/{}"),
        ("GET", "/v1/documents?name={}"),
    ],
)
def test_a_passage_of_another_tenant_is_as_one_that_is_not_there(method: str, path: str, tmp_path: Path) -> None:
    """The same status, bytes and headers, headers and all; only how long it took may differ."""

    async def check(service: Service) -> None:
        for name in ("globex.md%230", "shared%23globex"):
            theirs = await service.ask(method, path.format(name), TOKENS["acme"])
            missing = await service.ask(method, path.format(name.replace("globex", "nobody")), TOKENS["acme"])
            assert theirs.status_code == missing.status_code == (200 if "name=" in path else 404)
            assert without_latency(theirs).replace("globex", "nobody") == without_latency(missing)
            unlike = {"x-request-id", "content-length"}
            assert {k: v for k, v in theirs.headers.items() if k not in unlike} == {
                k: v for k, v in missing.headers.items() if k not in unlike
            }
        own = await service.ask("GET", "/v1/chunks/acme.md%230", TOKENS["acme"])
        assert own.json()["text"] == "All of acme."
        assert (await service.ask("GET", "/v1/chunks/globex.md%230", TOKENS[None])).status_code == 200

    served(tmp_path, check)


def test_counts_are_the_tenants_own(tmp_path: Path) -> None:
    """An index has as many points as the tenant's passages; whoever has no tenant sees them all."""

    async def check(service: Service) -> None:
        for tenant, count in (("acme", 2), ("globex", 2), (None, 4)):
            one = (await service.ask("GET", "/v1/indexes/index", TOKENS[tenant])).json()
            (listed,) = (await service.ask("GET", "/v1/indexes", TOKENS[tenant])).json()["indexes"]
            assert one == listed
            assert (one["points_count"], one["indexed_vectors_count"]) == (count, count)

    served(tmp_path, check)


def test_vectors_to_come_are_the_tenants_own(tmp_path: Path) -> None:
    """An index is yellow for those some of whose passages have no vector yet; the others do not hear of it."""

    async def run() -> None:
        index = opened(tmp_path / "index.db")
        names = {"acme": ("a", "b", "c"), "globex": ("d",)}
        chunks = tuple(
            Chunk(each, each, f"All of {tenant}.", metadata={"tenant": tenant})
            for tenant, owned in names.items()
            for each in owned
        )
        await index.aadd([chunks[0], chunks[3]])
        await index.store.upsert(Change(chunks[1:3], unembedded=frozenset({"b", "c"})))
        async with serving({"index": index}, tokens=(hashed("one", "acme"), hashed("two", "globex"))) as service:
            found = await service.ask("POST", "/v1/search", "one", json={"query_text": "all of acme"})
            (note,) = found.json()["degraded"]
            assert "indexing in progress, 33% embedded" in note["reason"]
            found = await service.ask("POST", "/v1/search", "two", json={"query_text": "all of globex"})
            assert "degraded" not in found.json()
            for token, count, embedded, status in (("one", 3, 1, "yellow"), ("two", 1, 1, "green")):
                told = (await service.ask("GET", "/v1/indexes/index", token)).json()
                assert (told["points_count"], told["indexed_vectors_count"], told["status"]) == (
                    count,
                    embedded,
                    status,
                )

    asyncio.run(run())


def test_a_tenant_without_passages_sees_an_empty_index(tmp_path: Path) -> None:
    """The tenant of a token need not be known to the index."""

    async def check(service: Service) -> None:
        assert (await service.ask("GET", "/v1/indexes/index", "new")).json()["points_count"] == 0
        for mode in ("hybrid", "dense", "lexical"):
            found = await service.ask("POST", "/v1/search", "new", json={"query_text": "all of acme", "mode": mode})
            assert found.json()["results"] == []

    async def run() -> None:
        index = opened(tmp_path / "index.db")
        await index.aadd([Chunk("a", "a", "All of acme.", metadata={"tenant": "acme"}), Chunk("b", "b", "All of all.")])
        async with serving({"index": index}, tokens=(hashed("new", "new"),)) as service:
            await check(service)

    asyncio.run(run())


async def called(service: Service, token: str, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": META}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {**MCP, **MODERN, "mcp-name": name}
    return (await service.ask("POST", "/mcp", token, json=call, headers=headers)).json()["result"]


def test_a_document_of_both_is_read_by_each_without_the_others_part(tmp_path: Path) -> None:
    """The tool fetch puts a document together of what the caller may see; one of another tenant is not there."""

    async def check(service: Service) -> None:
        for tenant in TENANTS:
            read = await called(service, TOKENS[tenant], "fetch", id="shared")
            assert read["structuredContent"]["text"] == f"Of {tenant}."
            read = await called(service, TOKENS[tenant], "fetch", id=f"{tenant}.md")
            assert read["structuredContent"]["text"] == f"All of {tenant}."
        for name in ("globex.md", "globex.md#0", "shared#globex"):
            theirs = await called(service, TOKENS["acme"], "fetch", id=name)
            missing = await called(service, TOKENS["acme"], "fetch", id=name.replace("globex", "nobody"))
            assert theirs["isError"]
            assert json.dumps(theirs).replace("globex", "nobody") == json.dumps(missing)

    served(tmp_path, check)


@NEEDS_TOKENS
def test_why_nothing_was_found_is_told_to_those_who_may_see_all(tmp_path: Path) -> None:
    """Fields of other passages stand in that note; the field by which tenants are told apart may be any."""

    async def check(service: Service) -> None:
        asked = {"query_text": "all", "filters": {"no_such_field": 1}}
        everybody = await service.ask("POST", "/v1/context", TOKENS[None], json=asked)
        assert "no chunk has a field 'no_such_field'" in everybody.json()["note"]
        tenant = await service.ask("POST", "/v1/context", TOKENS["acme"], json=asked)
        assert tenant.json()["note"] is None
        events = (await service.ask("POST", "/v1/answer", TOKENS["acme"], json=asked)).text
        assert "no chunk has" not in events
        assert '"checks"' not in events  # which compare with the whole index
        told = await called(service, TOKENS[None], "search", query="all", filters={"no_such_field": 1})
        assert "no chunk has" in json.dumps(told)
        told = await called(service, TOKENS["acme"], "search", query="all", filters={"no_such_field": 1})
        assert "no chunk has" not in json.dumps(told)

    served(tmp_path, check)


def test_a_tenant_may_neither_write_nor_see_the_counters_of_all(tmp_path: Path) -> None:
    """Who writes could take another's id; the counters are of everybody's questions."""

    async def check(service: Service) -> None:
        written = {"documents": [{"id": "globex.md", "text": "Mine.", "metadata": {"tenant": "acme"}}]}
        for method, path, request in (
            ("POST", "/v1/documents", {"json": written}),
            ("DELETE", "/v1/documents?id=globex.md", {}),
            ("POST", "/v1/files?name=a.md", {"content": b"a", "headers": {"content-type": "application/octet-stream"}}),
            ("GET", "/metrics", {}),
            ("GET", "/v1/suite-report", {}),
        ):
            refused = await service.ask(method, path, TOKENS["acme"], **request)
            assert refused.status_code == 403
            assert refused.json()["errors"]
        assert (await service.ask("GET", "/metrics", TOKENS[None])).status_code == 200
        read = await service.ask("GET", "/v1/chunks/globex.md%230", TOKENS["globex"])
        assert read.json()["text"] == "All of globex."

    served(tmp_path, check, allow_writes=True)


async def listed(service: Service, token: str) -> list[str]:
    """Return the names of all resources."""
    names: list[str] = []
    cursor: str | None = None
    while True:
        params = {"_meta": META, **({"cursor": cursor} if cursor else {})}
        call = {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": params}
        headers = {**MCP, **MODERN, "mcp-method": "resources/list"}
        part = (await service.ask("POST", "/mcp", token, json=call, headers=headers)).json()["result"]
        names += [resource["name"] for resource in part["resources"]]
        if (cursor := part.get("nextCursor")) is None:
            return names


@pytest.mark.parametrize("kind", [FAKE.kind, "none"], ids=["with vectors", "words alone"])
def test_a_tenant_is_told_of_all_of_its_documents(kind: str, tmp_path: Path) -> None:
    """However many others have, whose names come before, and however many there are."""
    for tenant, count in {"acme": 230, "aaa": 260}.items():
        folder = tmp_path / "files" / tenant
        folder.mkdir(parents=True)
        for number in range(count):
            (folder / f"{number:03}.md").write_text(f"---\ntenant: {tenant}\n---\nNote {number} of {tenant}.\n")

    async def run() -> None:
        index = opened(tmp_path / "index.db", embedder=EmbedderConfig(kind=kind))
        await index.aingest(tmp_path / "files")
        if kind != "none":  # which did not come from a file
            await index.aadd([Chunk("acme#0", "acme", "One more of acme.", metadata={"tenant": "acme"})])
        async with serving({"index": index}, tokens=HASHED) as service:
            own = [f"files/acme/{number:03}.md" for number in range(230)]
            others = [f"files/aaa/{number:03}.md" for number in range(260)]
            more = [] if kind == "none" else ["acme"]
            assert await listed(service, TOKENS["acme"]) == [*more, *own]
            assert await listed(service, TOKENS[None]) == [*more, *others, *own]
            told = (await called(service, TOKENS["acme"], "list"))["structuredContent"]
            assert told["sampled"] == 200

    asyncio.run(run())
