"""An index of two tenants, and a caller that asks for what is not its own, in every way there is."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

from retrieval_core import Chunk
from retrieval_core.config import ContextConfig
from retrieval_core.ports import Candidate, Linked, QueryContext, Transformed
from retrieval_core.testing.fakes_llm import FakeLLM
from support.http_service import hashed, opened

if TYPE_CHECKING:
    from pathlib import Path

    import httpx2

    from retrieval_core import Index
    from retrieval_core.ports import CompletionRequest
    from retrieval_core.run.observe import Observer
    from support.http_service import Service

    Request = tuple[str, str, dict[str, Any]]

TENANTS = ("acme", "globex")
TOKENS = {"acme": "a-key", "globex": "g-key", None: "operator"}
HASHED = tuple(hashed(token, tenant) for tenant, token in TOKENS.items())
WORDS = ("engine", "boiler", "valve", "pump", "filter", "motor", "wheel", "clutch")
BUDGETS = (50, 150)
PASSAGES = {"acme": 24, "globex": 211}
"""Passages that each has besides those of its files; more than any of :data:`BUDGETS`, as answers count tokens too."""
RUN_NUMBERS = frozenset({"latency_ms", "milliseconds", "ms", "started_ms", "qdrant_query_time_ms"})
MCP = {"accept": "application/json, text/event-stream"}
FILE = {"content-type": "application/octet-stream"}
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
        self.candidates = tuple(Candidate(chunk.id, 1.0, chunk) for chunk in chunks)
        led = ", ".join(sorted({chunk.title or "" for chunk in chunks}))
        linked = Linked("graph", led, tuple(Candidate(chunk.id, 1.0) for chunk in chunks))
        self.transformed = Transformed(linked=(linked,), reason=f"{led} of {len(chunks)} passages")

    async def search(self, query: str, limit: int) -> tuple[Candidate, ...]:
        return self.candidates[-limit:]

    async def transform(self, query: str, context: QueryContext) -> Transformed:
        return self.transformed


def passages(tenant: str, count: int) -> list[Chunk]:
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
        for row in range(count)
    ]


def words(text: str) -> int:
    """Count tokens without a model."""
    return len(text.split())


def repeated(request: CompletionRequest) -> str:
    """Return what a language model was asked, as one that can be talked into telling it would answer."""
    return "\n\n".join(message.content for message in request.messages)


async def filled(
    tmp_path: Path,
    counts: dict[str, int],
    *,
    graph: bool = True,
    writes: bool = False,
    observer: Observer | None = None,
    **settings: Any,
) -> Index:
    """Return an index of tenants: passages, so many of each, and files with sections.

    Args:
        graph: Whether a graph and a retriever that know no tenants add what they find, as an operator may have them.
        writes: Whether a language model writes answers; it tells all that it is asked. Else they are extracted.
    """
    folder = tmp_path / "files"
    for tenant in counts:
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
    chunks = [chunk for tenant, count in counts.items() for chunk in passages(tenant, count)]
    knowing = {"all": Everything(chunks)}
    parts: dict[str, Any] = {"retrievers": knowing, "transformers": knowing} if graph else {}
    parts |= {"observer": observer, "token_counter": words}
    if writes:
        parts["llm"] = FakeLLM(repeated)
    context = ContextConfig(max_tokens=BUDGETS[1])
    index = opened(tmp_path / "index.db", parts=parts, context=context, **settings)
    await index.aingest(folder)
    await index.aadd(chunks)
    return index


async def ids_of(index: Index) -> dict[str, list[str]]:
    """Return the ids of the passages of each tenant, as the index has them."""
    found: dict[str, list[str]] = {}
    for tenant in TENANTS:
        result = await index.aretrieve("pump", {"tenant": tenant}, top_k=1000)
        found[tenant] = [hit.id for hit in result.hits if hit.chunk.metadata["tenant"] == tenant]
    return found


class Questions:
    """Requests at random, each of the ways as often as any other.

    Args:
        ids: Of passages, by their tenant.
        names: Of the indexes that are asked together.
    """

    def __init__(self, seed: int, ids: dict[str, list[str]], names: tuple[str, ...] = ("index",)) -> None:
        self.random = random.Random(seed)
        self.ids = ids
        self.names = names
        self.ways = (
            *(self.search, self.context, self.answer, self.chunk, self.indexes, self.others),
            *(self.explain, self.explain, self.reading, self.reading),
            *(self.named, self.page, self.several, self.several),
            *(self.mcp_search, self.mcp_search, self.mcp_fetch, self.mcp_fetch),
            *(self.mcp_tool,) * 11,
            *(self.mcp_other,) * 5,
        )

    def next(self) -> Request:
        """Return a request: method, path, and what else there is of it."""
        return self.random.choice(self.ways)()

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

    def search(self) -> Request:
        threshold = self.random.choice((0.0, 0.0, 0.2))
        return "POST", "/v1/search", self.query(explain=self.random.random() < 0.5, similarity_threshold=threshold)

    def context(self) -> Request:
        return "POST", "/v1/context", self.query(max_tokens=self.random.choice(BUDGETS))

    def answer(self) -> Request:
        return "POST", "/v1/answer", self.query(max_tokens=self.random.choice(BUDGETS))

    def explain(self) -> Request:
        expected = {"chunk_id": self.an_id()} if self.random.random() < 0.7 else {}
        return "POST", "/v1/explain", self.query(**expected)

    def an_id(self) -> str:
        return self.random.choice(self.ids[self.random.choice(TENANTS)])

    def chunk(self) -> Request:
        path = f"/v1/chunks/{self.an_id().replace('#', '%23')}"
        return self.random.choice((("GET", path, {}), ("POST", f"{path}/validate", {})))

    def reading(self) -> Request:
        document = quote(self.an_id().rpartition("#")[0], safe="")
        return self.random.choice(
            (
                ("GET", f"/v1/documents?limit={self.random.choice((1, 10, 1000))}", {}),
                ("GET", f"/v1/documents?limit=5&cursor={document}", {}),
                ("GET", "/v1/indexes/index/fields", {}),
                ("GET", f"/v1/documents/{document}?limit=100", {}),
                ("GET", f"/v1/documents/{document}", {}),
            )
        )

    def named(self) -> Request:
        """Documents by a part of their name, their own and others'."""
        choose = self.random.choice
        part = choose(
            ("", ".md", "files/", *TENANTS, *(f"{each}/1" for each in TENANTS), *(each.upper() for each in TENANTS))
        )
        return "GET", f"/v1/documents?name={quote(part, safe='')}&limit={choose((1, 10, 1000))}", {}

    def page(self) -> Request:
        path = f"/v1/chunks/{self.an_id().replace('#', '%23')}"
        page = self.random.choice(("", "?page=1", "?page=1000000"))
        return "GET", f"{path}/{self.random.choice(('page', 'page.png'))}{page}", {}

    def several(self) -> Request:
        """A question to several indexes, also to some that are not there."""
        choose = self.random.choice
        names = choose(([*self.names], [*self.names, *self.names], [*reversed(self.names)], [*self.names, "none"]))
        path = choose(("search", "explain", "context", "answer"))
        more: dict[str, Any] = {"max_tokens": choose(BUDGETS)} if path in {"context", "answer"} else {}
        if path == "search":
            more["explain"] = choose((True, False))
        return "POST", f"/v1/{path}", self.query(indexes=names, **more)

    def indexes(self) -> Request:
        return "GET", self.random.choice(("/v1/indexes", "/v1/indexes/index")), {}

    def others(self) -> Request:
        return self.random.choice(
            (
                ("GET", "/metrics", {}),
                ("GET", "/readyz", {}),
                ("GET", "/v1/suite-report", {}),
                ("POST", f"/v1/files?name={quote(self.an_id(), safe='')}", {"content": b"a", "headers": FILE}),
                ("GET", "/mcp", {"headers": MCP}),
                ("DELETE", f"/v1/documents?id={self.an_id().replace('#', '%23')}", {}),
                ("POST", "/v1/documents", {"json": {"documents": [{"id": "a", "text": "a"}]}}),
            )
        )

    def mcp_search(self) -> Request:
        given = self.query()["json"]
        arguments = {"query": given["query_text"], "top_k": min(100, given["top_k"])}
        arguments |= {name: given[name] for name in ("filters", "mode") if name in given}
        return self.tool("search", arguments)

    def mcp_fetch(self) -> Request:
        name = self.an_id()
        return self.tool("fetch", {"id": self.random.choice((name, name.rpartition("#")[0]))})

    def mcp_tool(self) -> Request:
        """One of the further tools, also those that write, which no tenant may."""
        given = self.query()["json"]
        question = {"query": given["query_text"], **({"filters": given["filters"]} if "filters" in given else {})}
        name = self.an_id()
        return self.tool(
            *self.random.choice(
                (
                    ("retrieve_context", {**question, "max_tokens": self.random.choice(BUDGETS)}),
                    ("answer", question),
                    ("explain", {**question, "top_k": self.random.choice((1, 50))}),
                    ("explain", {**question, "id": name}),
                    ("get_neighbors", {"id": name, "before": 20, "after": 20, "max_characters": 20_000}),
                    ("fetch", {"id": name, "around": 20, "max_characters": 20_000}),
                    ("verify_citation", {"id": name, "quote": self.random.choice(WORDS)}),
                    ("list", {"max_characters": 50_000}),
                    ("list", {"path": self.random.choice((name, name.rpartition("#")[0], "*", "a"))}),
                    ("remove_document", {"id": name.rpartition("#")[0]}),
                    ("index_path", {"path": "files"}),
                )
            )
        )

    def mcp_other(self) -> Request:
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

    def tool(self, name: str, arguments: dict[str, Any]) -> Request:
        return self.asked("tools/call", {"name": name, "arguments": arguments}, name)

    def asked(self, method: str, params: dict[str, Any], name: str) -> Request:
        modern = self.random.random() < 0.5
        headers = {**MCP, **({**MODERN, "mcp-method": method} if modern else {})}
        if modern and name:
            headers["mcp-name"] = name
        call = {
            "jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, **({"_meta": META} if modern else {})},
        }  # fmt: skip
        return "POST", "/mcp", {"json": call, "headers": headers}


class Caller:
    """Asks at random, as somebody might who looks for what is not theirs.

    Args:
        counts: Numbers of passages that acme must not be told.
    """

    def __init__(self, service: Service, questions: Questions, counts: frozenset[int]) -> None:
        self.service = service
        self.questions = questions
        self.counts = counts
        self.found: dict[str, int] = dict.fromkeys(TENANTS, 0)
        self.recent: list[Request] = []

    async def ask(self) -> None:
        """Send one request, mostly one that somebody sent just before, and check its answer."""
        random = self.questions.random
        tenant = random.choice((*TENANTS, *TENANTS, None))
        if not self.recent or random.random() < 0.3:
            self.recent = [*self.recent[-4:], self.questions.next()]
        method, path, request = random.choice(self.recent)
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


def contents_of(answer: httpx2.Response) -> list[Any]:
    """Return what an answer says in JSON: one object, or one for each event."""
    events = "event-stream" in answer.headers.get("content-type", "")
    lines = answer.text.splitlines() if events else [answer.text]
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith(("data: ", "{"))]


def numbers_of(answer: httpx2.Response) -> set[int]:
    """Return all whole numbers of an answer in JSON, also those in its texts, but for how long things took."""
    found: set[int] = set()

    def walk(value: Any, key: str = "") -> None:
        if isinstance(value, dict):
            for name, inner in cast("dict[str, Any]", value).items():
                walk(inner, name)
        elif isinstance(value, list):
            for inner in cast("list[Any]", value):
                walk(inner, key)
        elif isinstance(value, int) and key not in RUN_NUMBERS:
            found.add(value)
        elif isinstance(value, str):
            whole = re.findall(r"(?<![\d.])\d[\d,]*\b(?!\.\d)", value)
            found.update(int(number.replace(",", "")) for number in whole)

    for content in contents_of(answer):
        walk(content)
    return found
