"""The stages that leave the process, each with a provider that can be made to fail; all else is in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import SecretStr

from retrieval_core.adapters.caches.redis import RedisCache
from retrieval_core.adapters.embedders.openai import OpenAIEmbedder
from retrieval_core.adapters.evaluators.local import Calibration, LocalEvaluator
from retrieval_core.adapters.llms.openai import OpenAILLM
from retrieval_core.adapters.relevance_filters.llm import LLMRelevanceFilter
from retrieval_core.adapters.rerankers.llm import LLMReranker
from retrieval_core.adapters.stores.pinecone import PineconeStore
from retrieval_core.adapters.transformers.rewrite import LLMRewriter
from retrieval_core.config import load_config
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Change
from retrieval_core.testing.fakes import FakeEmbedder
from support import openai_service, pinecone_service
from support.fault_providers import DIMENSION, READING, WRITING, HttpProvider, PartlyRemote, RedisProvider
from support.openai_service import OpenAIService
from support.pinecone_service import PineconeService
from support.pipelines import PHONES
from support.redis_server import HAS_SERVER, RedisServer
from support.wire_server import Response, WireServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from retrieval_core.ports import Embedder, Store
    from retrieval_core.run.clock import Clock
    from support.fault_providers import Provider

DEADLINE = 0.2
MAX_RETRIES = 3
SECRETS = (openai_service.KEY, pinecone_service.KEY)
HAS_REDIS = HAS_SERVER


Build: TypeAlias = Callable[[str], "dict[str, Any]"]
"""Makes what is not in memory, by the arguments of a pipeline, for a provider's address.

``ours`` is what the pipeline does not close.
"""
Alter: TypeAlias = Callable[[Response], Response]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes:
        path: Where its requests go; of Redis the command that it sends.
        build: Makes its parts.
        lost: What becomes of a query where the stage fails in a way that may pass.
        entries: The stages that are listed as degraded then.
        service: Answers; ``None`` for Redis.
        share: The part of the deadline by which it has to be done.
        is_retried: Whether it is called again where that can help.
        wrong_dimension: The path of the answer in which vectors of another dimension can come, and how it is changed.
        settings: Keys with ``__`` for the dot.
    """

    name: str
    path: str
    build: Build
    lost: str
    entries: tuple[str, ...]
    service: Callable[[], Any] | None
    share: float
    is_retried: bool = True
    wrong_dimension: tuple[str, Alter] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


async def filled(store: Store) -> None:
    vectors = await FakeEmbedder(DIMENSION).embed_texts([chunk.indexed_text for chunk in PHONES])
    await store.upsert(Change(chunks=PHONES, vectors=vectors))


@asynccontextmanager
async def opened(stage: Stage, clock: Clock) -> AsyncGenerator[tuple[RetrievalPipeline, Provider]]:
    """Run a stage's provider, and a pipeline that uses it and has everything else in memory."""
    if stage.service is not None:
        with WireServer(stage.service()) as server:
            async with _pipeline(stage, server.url, clock) as pipeline:
                yield pipeline, HttpProvider(server, stage.path)
        return
    with TemporaryDirectory(prefix="redis-") as folder:
        redis = await asyncio.to_thread(RedisServer, Path(folder))
        provider = RedisProvider(redis.socket, stage.path)
        await provider.listen()
        try:
            async with _pipeline(stage, f"redis://127.0.0.1:{provider.port}/0", clock) as pipeline:
                yield pipeline, provider
        finally:
            await provider.close()
            await asyncio.to_thread(redis.kill)


@asynccontextmanager
async def _pipeline(stage: Stage, url: str, clock: Clock) -> AsyncGenerator[RetrievalPipeline]:
    settings = {
        "deadline_seconds": DEADLINE,
        "retry__max_retries": MAX_RETRIES,
        "retry__base_delay": 0.001,
        "cache__embeddings": 0,
        "search__top_k": 2,
        **stage.settings,
    }
    config = load_config(overrides={key.replace("__", "."): value for key, value in settings.items()})
    parts: dict[str, Any] = {"store": PartlyRemote("", None), "embedder": FakeEmbedder(DIMENSION)}
    parts |= stage.build(url)
    ours = parts.pop("ours", None)
    store: PartlyRemote = parts["store"]
    await filled(store)
    if store.is_remote:
        other = _pinecone(url)  # what it learns of the index is not known to the one that is tested
        await filled(other)
        await other.aclose()
    try:
        async with RetrievalPipeline(**parts, config=config, clock=clock) as pipeline:
            yield pipeline
    finally:
        if ours is not None:
            await ours.aclose()


def _pinecone(url: str) -> PineconeStore:
    return PineconeStore(
        api_key=SecretStr(pinecone_service.KEY),
        host=url,
        embedder_id=FakeEmbedder(DIMENSION).id,
        dimension=DIMENSION,
        sparse=True,
    )


def _store(verb: str, **settings: Any) -> Build:
    return lambda url: {"store": PartlyRemote(verb, _pinecone(url), **settings)}


def _embedder(url: str) -> Embedder:
    key = SecretStr(openai_service.KEY)
    return OpenAIEmbedder("mine", dimension=DIMENSION, api_key=key, base_url=f"{url}/v1")


def _llm(url: str) -> OpenAILLM:
    return OpenAILLM("gpt-4.1-mini", api_key=SecretStr(openai_service.KEY), base_url=f"{url}/v1")


def _answer(asked: dict[str, Any]) -> str:
    """Rewrite a question or score passages where that is asked for, and find each passage relevant otherwise."""
    wanted = asked["response_format"]["json_schema"]["schema"]["properties"]
    if "query" in wanted:
        return json.dumps({"reason": "in full", "query": "earlier revision of an application"})
    if "results" in wanted:
        numbers = wanted["results"]["items"]["properties"]["id"]["enum"]
        grades = {"key_evidence": "", "answerability": True}
        return json.dumps({"results": [{"id": number, "relevance_score": number, **grades} for number in numbers]})
    return json.dumps({number: {"reason": "it helps", "relevant": True, "score": 0.8} for number in wanted})


def _openai() -> OpenAIService:
    return OpenAIService(answer=_answer, dimensions={"mine": DIMENSION})


def _pinecone_service() -> PineconeService:
    return PineconeService(DIMENSION, "dotproduct")


def _other_vectors(response: Response) -> Response:
    data = [{**item, "embedding": [1.0] * (DIMENSION - 1)} for item in response.body["data"]]
    return replace(response, body={**response.body, "data": data})


def _other_index(response: Response) -> Response:
    return replace(response, body={**response.body, "dimension": DIMENSION - 1})


def _other_records(response: Response) -> Response:
    vectors = {name: {**item, "values": item["values"][1:]} for name, item in response.body["vectors"].items()}
    return replace(response, body={**response.body, "vectors": vectors})


_EMBEDDINGS, _CHAT = "/v1/embeddings", "/v1/chat/completions"
_STATISTICS = ("/describe_index_stats", _other_index)
_RECORDS = ("/vectors/fetch", _other_records)
_VECTORS = (_EMBEDDINGS, _other_vectors)
_DENSE: dict[str, Any] = {"search__mode": "dense"}
_DIVERSE: dict[str, Any] = {"search__mode": "dense", "search__search_type": "mmr"}
_SCORED: dict[str, Any] = {"search__mode": "lexical", "search__score_threshold": 0.0}
_REWRITING: dict[str, Any] = {"rewriter__relevance_threshold": 1.0, "rewriter__max_attempts": 1}


def _embed_without_words(url: str) -> dict[str, Any]:
    return {"embedder": _embedder(url), "store": PartlyRemote("", None, sides=frozenset({"dense"}))}


def _rerank(url: str) -> dict[str, Any]:
    llm = _llm(url)
    return {"reranker": LLMReranker(llm, batch_size=100), "ours": llm}


def _compress(url: str) -> dict[str, Any]:
    llm = _llm(url)
    return {"relevance_filter": LLMRelevanceFilter(llm, batch_size=10), "ours": llm}


def _rewrite(url: str) -> dict[str, Any]:
    llm = _llm(url)
    return {"rewriter": LLMRewriter(llm), "ours": llm}


def _evaluate(url: str) -> dict[str, Any]:
    embedder = _embedder(url)
    return {"evaluator": LocalEvaluator(embedder, calibration=Calibration(0.5, 10)), "ours": embedder}


def _cache(url: str) -> dict[str, Any]:
    return {"cache": RedisCache(SecretStr(url))}


STAGES = {
    stage.name: stage
    for stage in (
        Stage("embed", _EMBEDDINGS, _embed_without_words, "raises", (), _openai, 0.8, wrong_dimension=_VECTORS),
        Stage(
            "embed beside words",
            _EMBEDDINGS,
            lambda url: {"embedder": _embedder(url)},
            "degraded",
            ("embed",),
            _openai,
            0.8,
            wrong_dimension=_VECTORS,
        ),
        Stage(
            "dense",
            "/query",
            _store("dense"),
            "empty",
            ("dense",),
            _pinecone_service,
            0.8,
            wrong_dimension=_STATISTICS,
            settings=_DENSE,
        ),
        Stage(
            "dense beside words",
            "/query",
            _store("dense"),
            "degraded",
            ("dense",),
            _pinecone_service,
            0.8,
            wrong_dimension=_STATISTICS,
        ),
        Stage(
            "lexical beside dense",
            "/query",
            _store("lexical"),
            "degraded",
            ("lexical",),
            _pinecone_service,
            0.8,
            wrong_dimension=_STATISTICS,
        ),
        Stage(
            "fetch of chunks",
            "/vectors/fetch",
            _store("fetch", brings_chunks=False),
            "empty",
            ("fetch",),
            _pinecone_service,
            1.0,
            settings=_DENSE,
        ),
        Stage(
            "fetch of vectors",
            "/vectors/fetch",
            _store("fetch"),
            "degraded",
            ("fetch", "diversify"),
            _pinecone_service,
            1.0,
            wrong_dimension=_RECORDS,
            settings=_DIVERSE,
        ),
        Stage(
            "fetch of scores",
            "/vectors/fetch",
            _store("fetch"),
            "empty",
            ("fetch", "threshold"),
            _pinecone_service,
            1.0,
            wrong_dimension=_RECORDS,
            settings=_SCORED,
        ),
        Stage(
            "rerank",
            _CHAT,
            _rerank,
            "degraded",
            ("rerank",),
            _openai,
            0.95,
        ),
        Stage(
            "relevance",
            _CHAT,
            _compress,
            "degraded",
            ("relevance",),
            _openai,
            0.9,
        ),
        Stage(
            "rewrite",
            _CHAT,
            _rewrite,
            "degraded",
            ("rewrite",),
            _openai,
            0.95,
            settings=_REWRITING,
        ),
        Stage(
            "evaluate",
            _EMBEDDINGS,
            _evaluate,
            "degraded",
            ("evaluate",),
            _openai,
            1.0,
            wrong_dimension=_VECTORS,
        ),
        Stage("cache, reading", READING, _cache, "degraded", ("cache",), None, 0.05, is_retried=False),
        Stage("cache, writing", WRITING, _cache, "degraded", ("cache",), None, 0.05, is_retried=False),
    )
}
