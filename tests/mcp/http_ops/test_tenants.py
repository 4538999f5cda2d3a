"""Two tenants in one index: nothing of one ever reaches the other, by whatever way it asks."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

import pytest

pytest.importorskip("retrieval_core_mcp.server", reason="the server's tests need it: pip install retrieval-core-mcp")
pytest.importorskip("tokenizers", reason="contexts are counted in tokens: pip install 'retrieval-core[local]'")

from retrieval_core import Chunk, Document
from retrieval_core.config import CacheConfig
from retrieval_core.config.adapters import SemanticCacheConfig
from retrieval_core.ports import Candidate, Change, Linked, QueryContext, Transformed
from retrieval_core.run.observe import Metrics
from support.http_service import hashed, opened, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import httpx2

    from retrieval_core import Index
    from support.http_service import Service

CALLS = int(os.environ.get("CALLS", "2000"))
"""As many each night as the variable says."""
TENANTS = ("acme", "globex")
TOKENS = {"acme": "a-key", "globex": "g-key", None: "operator"}
WORDS = ("engine", "boiler", "valve", "pump", "filter", "motor", "wheel", "clutch")
PASSAGES = {"acme": 24, "globex": 1009}
"""Passages that each has besides those of its files; so many that their number is found nowhere by chance."""
RUN_NUMBERS = frozenset({"latency_ms", "milliseconds"})
MCP = {"accept": "application/json, text/event-stream"}
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "a test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Everything:
    """A retriever, and a transformer like a graph of all documents: they find all passages, and say what led there."""

    id = "everything"

    def __init__(self, chunks: list[Chunk]) -> None:
        self.chunks = chunks

    async def search(self, query: str, limit: int) -> tuple[Candidate, ...]:
        return tuple(Candidate(chunk.id, 1.0, chunk) for chunk in self.chunks[-limit:])

    async def transform(self, query: str, context: QueryContext) -> Transformed:
        led = ", ".join(sorted({chunk.title or "" for chunk in self.chunks}))
        linked = Linked("graph", led, tuple(Candidate(chunk.id, 1.0) for chunk in self.chunks))
        return Transformed(linked=(linked,), reason=f"{led} of {len(self.chunks)} passages")


def passages(tenant: str) -> list[Chunk]:
    """Return passages whose every part has a word that no request says: title, text, a field and its value."""
    return [
        Chunk(
            f"{tenant}/{row}#0",
            f"{tenant}/{row}",
            f"The {WORDS[row % 8]} of {tenant} and its {WORDS[row // 8 % 8]}, kept by {tenant}secret.",
            title=f"{tenant}secret",
            source=f"{tenant}/{row}.md",
            metadata={"tenant": tenant, f"{tenant}_field": f"{tenant}secret", f"{tenant}secret": 1, "kind": "note"},
        )
        for row in range(PASSAGES[tenant])
    ]


async def filled(tmp_path: Path, metrics: Metrics, **settings: Any) -> Index:
    """Return an index of both tenants: passages, and files with sections."""
    folder = tmp_path / "files"
    for tenant in TENANTS:
        for number, word in enumerate(WORDS):
            text = "".join(
                f"# The {part} of {tenant}secret\n\n"
                + f"How the {part} of a {word} of {tenant}secret is mended. " * 20
                + "\n\n"
                for part in ("case", "shaft", "seal")
            )
            path = folder / tenant / f"{number}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"---\ntenant: {tenant}\n{tenant}secret: {tenant}secret\n---\n{text}")
    chunks = [chunk for tenant in TENANTS for chunk in passages(tenant)]
    knowing = {"all": Everything(chunks)}
    parts = {"retrievers": knowing, "transformers": knowing, "observer": metrics}
    index = opened(tmp_path / "index.db", parts=parts, **settings)
    await index.aingest(folder)
    await index.aadd(chunks)
    return index


class Caller:
    """Asks at random, as somebody might who looks for what is not theirs."""

    def __init__(self, service: Service, seed: int, ids: dict[str, list[str]], counts: frozenset[int]) -> None:
        self.service = service
        self.random = random.Random(seed)
        self.ids = ids
        self.counts = counts
        self.found: dict[str, int] = dict.fromkeys(TENANTS, 0)
        self.recent: list[tuple[str, str, dict[str, Any]]] = []

    async def ask(self) -> None:
        """Send one request, half of the time one that somebody sent just before, and check its answer."""
        choose = self.random.choice
        tenant = choose((*TENANTS, *TENANTS, None))
        ways = (self.search, self.search, self.context, self.answer, self.chunk, self.indexes, self.mcp_search)
        by_mcp = (self.mcp_search, self.mcp_fetch, self.mcp_tool, self.mcp_tool, self.mcp_other)
        if not self.recent or self.random.random() < 0.5:
            self.recent = [*self.recent[-4:], choose((*ways, *by_mcp, self.others))()]
        method, path, request = choose(self.recent)
        answer = await self.service.ask(method, path, TOKENS[tenant], **dict(request))
        if tenant is not None:
            self.check(tenant, path, request, answer)

    def check(self, tenant: str, path: str, request: dict[str, Any], answer: httpx2.Response) -> None:
        """Nothing of the other is in an answer: no secret word, no id but one that was asked for, no count."""
        other = next(name for name in TENANTS if name != tenant)
        asked = unquote(f"{path} {request}")
        shown = f"{asked}\n{answer.text}"
        assert answer.status_code in {200, 400, 403, 404, 405}, shown
        assert f"{other}secret" not in answer.text, shown
        for named in re.findall(rf"{other}/\w+", answer.text):
            assert named in asked, shown
        if tenant == "acme":
            assert not self.counts & numbers_of(answer), shown
        self.found[tenant] += f"{tenant}secret" in answer.text

    def question(self) -> str:
        choose = self.random.choice
        return choose(
            (
                f"the {choose(WORDS)} and its {choose(WORDS)}",
                f"its {choose(WORDS)} and the {choose(WORDS)}, please",
                f"what does {choose(TENANTS)} keep",
                choose(WORDS),
            )
        )

    def filters(self) -> dict[str, Any] | None:
        name = self.random.choice(TENANTS)
        return self.random.choice(
            (
                None,
                None,
                {"tenant": name},
                {"$or": [{"tenant": each} for each in TENANTS]},
                {"$not": {"tenant": name}},
                {"tenant": {"$exists": True}},
                {"tenant": {"$in": list(TENANTS)}},
                {"tenant": 1},
                {f"{name}_field": 1},
                {f"{name}_field": f"{name} value"},
                {"no_such_field": 1},
                {"kind": "note"},
            )
        )

    def query(self, **more: Any) -> dict[str, Any]:
        told = {"query_text": self.question(), "top_k": self.random.choice((1, 3, 20, 1000)), **more}
        if (filters := self.filters()) is not None:
            told["filters"] = filters
        if self.random.random() < 0.3:
            told["mode"] = self.random.choice(("hybrid", "dense", "lexical"))
        return {"json": told}

    def search(self) -> tuple[str, str, dict[str, Any]]:
        threshold = self.random.choice((0.0, 0.0, 0.2))
        return "POST", "/v1/search", self.query(explain=self.random.random() < 0.5, similarity_threshold=threshold)

    def context(self) -> tuple[str, str, dict[str, Any]]:
        return "POST", "/v1/context", self.query(max_tokens=self.random.choice((50, 900)))

    def answer(self) -> tuple[str, str, dict[str, Any]]:
        return "POST", "/v1/answer", self.query(max_tokens=self.random.choice((50, 900)))

    def an_id(self) -> str:
        return self.random.choice(self.ids[self.random.choice(TENANTS)])

    def chunk(self) -> tuple[str, str, dict[str, Any]]:
        return "GET", f"/v1/chunks/{self.an_id().replace('#', '%23')}", {}

    def indexes(self) -> tuple[str, str, dict[str, Any]]:
        return "GET", self.random.choice(("/v1/indexes", "/v1/indexes/index")), {}

    def others(self) -> tuple[str, str, dict[str, Any]]:
        return self.random.choice(
            (
                ("GET", "/metrics", {}),
                ("GET", "/readyz", {}),
                ("GET", "/mcp", {"headers": MCP}),
                ("DELETE", f"/v1/documents?id={self.an_id().replace('#', '%23')}", {}),
                ("POST", "/v1/documents", {"json": {"documents": [{"id": "a", "text": "a"}]}}),
            )
        )

    def mcp_search(self) -> tuple[str, str, dict[str, Any]]:
        given = self.query()["json"]
        arguments = {"query": given["query_text"], "top_k": min(100, given["top_k"])}
        arguments |= {name: given[name] for name in ("filters", "mode") if name in given}
        return self.tool("search", arguments)

    def mcp_fetch(self) -> tuple[str, str, dict[str, Any]]:
        name = self.an_id()
        return self.tool("fetch", {"id": self.random.choice((name, name.rpartition("#")[0]))})

    def mcp_tool(self) -> tuple[str, str, dict[str, Any]]:
        """One of the further tools, also those that write, which no tenant may."""
        given = self.query()["json"]
        question = {"query": given["query_text"], **({"filters": given["filters"]} if "filters" in given else {})}
        name = self.an_id()
        return self.tool(
            *self.random.choice(
                (
                    ("retrieve_context", {**question, "max_tokens": self.random.choice((50, 900))}),
                    ("answer", question),
                    ("explain", {**question, "top_k": self.random.choice((1, 50))}),
                    ("explain", {**question, "id": name}),
                    ("get_neighbors", {"id": name, "before": 20, "after": 20, "max_characters": 20_000}),
                    ("fetch", {"id": name, "around": 20, "max_characters": 20_000}),
                    ("verify_citation", {"id": name, "quote": self.random.choice(WORDS)}),
                    ("list_indexes", {}),
                    ("describe_index", {"max_characters": 50_000}),
                    ("remove_document", {"id": name.rpartition("#")[0]}),
                    ("index_path", {"path": "files"}),
                )
            )
        )

    def mcp_other(self) -> tuple[str, str, dict[str, Any]]:
        """Resources and completions."""
        name = quote(self.an_id(), safe="")
        document = quote(self.an_id().rpartition("#")[0], safe="")
        prompt = {"type": "ref/prompt", "name": "compare"}
        template = {"type": "ref/resource", "uri": "document://{index}/{id}"}
        field = self.random.choice(("tenant", "title", *(f"{each}_field" for each in TENANTS)))
        completing: tuple[tuple[dict[str, str], str, str], ...] = (
            (prompt, "field", self.random.choice(("", "a", "g"))),
            (prompt, "value", self.random.choice(("", *TENANTS))),
            (template, "id", self.random.choice(("", "files/", *(f"{each}/" for each in TENANTS)))),
            (template, "index", ""),
        )
        ref, argument, begin = self.random.choice(completing)
        told = {"name": argument, "value": begin}
        completion = {"ref": ref, "argument": told, "context": {"arguments": {"field": field}}}
        ways: tuple[tuple[str, dict[str, Any], str], ...] = (
            ("resources/list", {}, ""),
            ("resources/templates/list", {}, ""),
            ("resources/read", {"uri": f"chunk://index/{name}"}, f"chunk://index/{name}"),
            ("resources/read", {"uri": f"document://index/{document}"}, f"document://index/{document}"),
            ("completion/complete", completion, ""),
        )
        return self.asked(*self.random.choice(ways))

    def tool(self, name: str, arguments: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        return self.asked("tools/call", {"name": name, "arguments": arguments}, name)

    def asked(self, method: str, params: dict[str, Any], name: str) -> tuple[str, str, dict[str, Any]]:
        modern = self.random.random() < 0.5
        headers = {**MCP, **({**MODERN, "mcp-method": method} if modern else {})}
        if modern and name:
            headers["mcp-name"] = name
        call = {
            "jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, **({"_meta": META} if modern else {})},
        }  # fmt: skip
        return "POST", "/mcp", {"json": call, "headers": headers}


def numbers_of(answer: httpx2.Response) -> set[int]:
    """Return all whole numbers of an answer in JSON, also those in its texts, but for how long things took."""
    found: list[int] = []

    def walk(value: Any, key: str = "") -> None:
        if isinstance(value, dict):
            for name, inner in cast("dict[str, Any]", value).items():
                walk(inner, name)
        elif isinstance(value, list):
            for inner in cast("list[Any]", value):
                walk(inner, key)
        elif isinstance(value, int) and key not in RUN_NUMBERS:
            found.append(value)
        elif isinstance(value, str):
            found.extend(int(number.replace(",", "")) for number in re.findall(r"\b\d[\d,]*\b", value))

    for line in answer.text.splitlines() if "event-stream" in answer.headers.get("content-type", "") else [answer.text]:
        if line.startswith(("data: ", "{")):
            walk(json.loads(line.removeprefix("data: ")))
    return set(found)


async def ids_of(index: Index) -> dict[str, list[str]]:
    """Return the ids of the passages of each tenant, as the index has them."""
    found: dict[str, list[str]] = {}
    for tenant in TENANTS:
        result = await index.aretrieve("pump", {"tenant": tenant}, top_k=1000)
        found[tenant] = [hit.id for hit in result.hits if hit.chunk.metadata["tenant"] == tenant]
    return found


@pytest.mark.parametrize("semantic", [False, True], ids=["cache", "semantic cache"])
def test_random_calls_of_two_tenants_never_meet(tmp_path: Path, semantic: bool) -> None:
    """Whatever is asked, with caches that an operator and both tenants fill: no word, id or count of the other."""

    async def run() -> None:
        cache = CacheConfig(semantic=SemanticCacheConfig(enabled=semantic))
        metrics = Metrics()
        index = await filled(tmp_path, metrics, cache=cache)
        ids = await ids_of(index)
        everything = (await index.adescribe()).chunks
        others = everything - len(ids["acme"])
        assert others > 1000
        tokens = [hashed(token, tenant) for tenant, token in TOKENS.items()]
        async with serving({"index": index}, tokens=tuple(tokens), allow_writes=False) as service:
            caller = Caller(service, 17, ids, frozenset({PASSAGES["globex"], others, everything}))
            for _ in range(CALLS // 2):
                await caller.ask()
            # The calls that found something of the caller's own: else there would be nothing to keep apart.
            assert all(count > CALLS // 20 for count in caller.found.values()), caller.found
        assert metrics.snapshot().cache_hits > CALLS // 40

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


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/chunks/{}"), ("POST", "/v1/chunks/{}/validate")])
def test_a_passage_of_another_tenant_is_as_one_that_is_not_there(method: str, path: str, tmp_path: Path) -> None:
    """The same status, bytes and headers, headers and all; only how long it took may differ."""

    async def check(service: Service) -> None:
        for name in ("globex.md%230", "shared%23globex"):
            theirs = await service.ask(method, path.format(name), TOKENS["acme"])
            missing = await service.ask(method, path.format(name.replace("globex", "nobody")), TOKENS["acme"])
            assert theirs.status_code == missing.status_code == 404
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
            assert "vectors for 33 % of the passages" in note["reason"]
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


def test_why_nothing_was_found_is_told_to_those_who_may_see_all(tmp_path: Path) -> None:
    """Fields of other passages stand in that note; the field by which tenants are told apart may be any."""

    async def check(service: Service) -> None:
        asked = {"query_text": "all", "filters": {"no_such_field": 1}}
        everybody = await service.ask("POST", "/v1/context", TOKENS[None], json=asked)
        assert "no passage has a field 'no_such_field'" in everybody.json()["note"]
        tenant = await service.ask("POST", "/v1/context", TOKENS["acme"], json=asked)
        assert tenant.json()["note"] is None
        events = (await service.ask("POST", "/v1/answer", TOKENS["acme"], json=asked)).text
        assert "no passage has" not in events
        told = await called(service, TOKENS[None], "search", query="all", filters={"no_such_field": 1})
        assert "no passage has" in json.dumps(told)
        told = await called(service, TOKENS["acme"], "search", query="all", filters={"no_such_field": 1})
        assert "no passage has" not in json.dumps(told)

    served(tmp_path, check)


def test_a_tenant_may_neither_write_nor_see_the_counters_of_all(tmp_path: Path) -> None:
    """Who writes could take another's id; the counters are of everybody's questions."""

    async def check(service: Service) -> None:
        written = {"documents": [{"id": "globex.md", "text": "Mine.", "metadata": {"tenant": "acme"}}]}
        for method, path, request in (
            ("POST", "/v1/documents", {"json": written}),
            ("DELETE", "/v1/documents?id=globex.md", {}),
            ("GET", "/metrics", {}),
        ):
            refused = await service.ask(method, path, TOKENS["acme"], **request)
            assert refused.status_code == 403
            assert refused.json()["errors"]
        assert (await service.ask("GET", "/metrics", TOKENS[None])).status_code == 200
        read = await service.ask("GET", "/v1/chunks/globex.md%230", TOKENS["globex"])
        assert read.json()["text"] == "All of globex."

    served(tmp_path, check, allow_writes=True)
