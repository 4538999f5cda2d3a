"""What holds for any request and any failure; ``REQUESTS`` sets how many are drawn, 1,000 by default."""

from __future__ import annotations

import asyncio
import json
import os
import re
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core.compat.service import RetrievalResponse
from retrieval_core.errors import (
    ConfigurationError,
    DeadlineExceededError,
    EmbeddingError,
    IndexBusyError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
    StoreError,
)
from retrieval_core.testing.fakes import FakeEmbedder
from support.http_service import DOCUMENTS, opened, serving

if TYPE_CHECKING:
    from pathlib import Path

    import httpx2

    from support.http_service import Service

pytestmark = pytest.mark.slow

REQUESTS = int(os.environ.get("REQUESTS", "1000"))
WORDS = (
    *("moon", "sun", "sea", "ships", "earth", "air", "light", "how", "far", "is", "the", "?"),
    *("\u6708", "\U0001f311", "\ud800", "\x00", "\u202e"),
)
PLACE = "/srv/secret/index.db"
FAULTS = (
    ServiceError(f"refused; see {PLACE}", "cohere", status=401),
    ServiceConnectionError("https://user:secret@qdrant.example:6333 cannot be reached", "qdrant"),
    ServiceTimeoutError("no answer in time", "qdrant"),
    DeadlineExceededError("the time is up", "qdrant"),
    StoreError(f"{PLACE} is damaged"),
    IndexBusyError(f"{PLACE} is written to"),
    EmbeddingError(f"no model at {PLACE}"),
    ConfigurationError(f"nothing is set up at {PLACE}"),
    ZeroDivisionError(f"of {PLACE}"),
    MemoryError(),
)
FILTERS: list[Any] = [{"kind": "rock"}, {"kind": {"$near": 1}}, {}, None, {"$or": []}, {"a": None}]
STATUSES = {200: "success"} | dict.fromkeys((400, 404, 413, 415, 500, 501, 503), "error")


class Faulty:
    """Raises what it was told to, once for each thing that is called."""

    def __init__(self) -> None:
        self.where: str | None = None
        self.error: Exception | None = None

    def wrap(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            if self.where == name and self.error is not None:
                raise self.error
            return await original(*arguments, **options)

        object.__setattr__(owner, name, call)


def drawn(random: Random) -> Any:
    """Draw a body: mostly a right one, with some fields wrong."""
    if random.random() < 0.04:
        nothing: list[Any] = [None, 5, [], "moon", {}]
        return random.choice(nothing)
    body: dict[str, Any] = {"query_text": " ".join(random.choices(WORDS, k=random.randint(0, 8)))}
    if random.random() < 0.5:
        body["top_k"] = random.choice([1, 2, 3, 5, 1000, 5.0, 0, -1, 1001, "5", True, None, 2.5])
    if random.random() < 0.4:
        body["similarity_threshold"] = random.choice([0, 0.0, 0.1, 0.3, 0.5, 0.999, 1.0, -0.1, "0.5", None])
    if random.random() < 0.3:
        body["mode"] = random.choice(["hybrid", "dense", "lexical", "fuzzy"])
    if random.random() < 0.2:
        body["filters"] = random.choice(FILTERS)
    if random.random() < 0.2:
        body["allow_degraded"] = random.choice([True, False, 1])
    if random.random() < 0.1:
        body["explain"] = True
    if random.random() < 0.05:
        body[random.choice(["index", "querytext", "history"])] = random.choice(["docs", "other", [], 5])
    if random.random() < 0.02:
        body["query_text"] = "x" * random.choice([10_000, 10_001, 2_000_000])
    return body


def sent(random: Random, body: Any) -> dict[str, Any]:
    """Return a request: mostly as it should be."""
    content = json.dumps(body).encode()
    kind = "application/json"
    chance = random.random()
    if chance < 0.02:
        content = content[: random.randint(0, len(content))]
    elif chance < 0.04:
        content = content.replace(b"}", b', "top_k": NaN}')
    elif chance < 0.06:
        kind = "text/plain"
    elif chance < 0.08:
        content = content[:-1] + b', "query_text": "again"}' if content.endswith(b"}") else content
    return {"content": content, "headers": {"content-type": kind}}


def check(answer: httpx2.Response, body: Any) -> None:
    told = answer.json()  # always valid
    assert answer.status_code in STATUSES, answer.text
    assert told["status"] == STATUSES[answer.status_code]
    RetrievalResponse.model_validate_json(re.sub(rb"\\ud[89a-f]..", b"?", answer.content))  # ranks, order, counts
    for secret in (PLACE, "/srv", "Traceback", "user:secret", 'File "'):
        assert secret not in answer.text
    if told["status"] == "error":
        assert told["errors"]
        assert all(message.strip() for message in told["errors"])
        return
    assert len(told["results"]) <= body.get("top_k", 5)
    threshold = body.get("similarity_threshold", 0.0)
    assert told["execution"]["threshold_applied"] == threshold
    assert all(result["similarity_score"] >= threshold for result in told["results"])
    assert told["query"] == body["query_text"]
    assert told["errors"] == []


def test_any_request_has_an_answer_that_holds_what_it_promises(tmp_path: Path) -> None:
    async def run() -> set[int]:
        embedder, faulty = FakeEmbedder(), Faulty()
        docs = opened(
            tmp_path / "docs.db", parts={"embedder": embedder}, retry={"max_retries": 0}, cache={"kind": "none"}
        )
        await docs.aadd_documents(DOCUMENTS)
        faulty.wrap(embedder, "embed_query")
        faulty.wrap(docs.store, "search")
        faulty.wrap(docs.store, "fetch")
        faulty.wrap(docs, "aretrieve")
        async with serving({"docs": docs}) as service:
            return await ask_all(service, faulty)

    async def ask_all(service: Service, faulty: Faulty) -> set[int]:
        random = Random(2026)
        seen: set[int] = set()
        for number in range(REQUESTS):
            faulty.where = random.choice(["embed_query", "search", "fetch", "aretrieve"]) if number % 3 == 0 else None
            faulty.error = random.choice(FAULTS)
            body = drawn(random)
            answer = await service.ask("POST", "/v1/search", **sent(random, body))
            check(answer, body)
            seen.add(answer.status_code)
        return seen

    assert asyncio.run(run()) == set(STATUSES)
