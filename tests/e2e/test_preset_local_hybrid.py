"""The preset ``local-hybrid``: the specification's defaults, and a way through all of it."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import load_config, open_index
from retrieval_core.adapters.llms.openai import OpenAILLM
from retrieval_core.compat.flags import load_flags
from retrieval_core.config import RetrievalConfig
from retrieval_core.errors import ConfigurationError
from retrieval_core.ports import CompletionRequest, Message
from support.building import build_embedder, build_llm, build_rerankers

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from support.wire_server import WireServer

DEFAULTS: dict[str, Any] = {
    "search.mode": "hybrid",
    "search.candidates": 20,
    "search.dense_weight": 0.7,
    "search.fusion": "minmax",
    "reranker.kind": "late-interaction",
    "reranker.fallbacks": ("cross-encoder",),
    "reranker.candidates": 10,
    "reranker.late_interaction.model": "answerdotai/answerai-colbert-small-v1",
    "reranker.cross_encoder.model": "BAAI/bge-reranker-base",
    "reranker.batch_size": 16,
    "context.window": 5,
    "cache.kind": "memory",
    "cache.ttl_seconds": 300,
    "cache.max_size": 1000,
    "cache.embeddings": 500,
    "cache.semantic.enabled": True,
    "cache.semantic.threshold": 0.98,
    "embedder.kind": "openai",
    "embedder.openai.model": "qwen3-embedding:0.6b",
    "embedder.openai.dimension": 1024,
    "embedder.openai.batch_size": 32,
    "embedder.openai.base_url": "http://localhost:11434/v1",
    "llm.kind": "openai",
    "llm.openai.model": "qwen3:8b",
    "llm.openai.base_url": "http://localhost:11434/v1",
    "transform.model": "qwen3:0.6b",
    "transform.use": (),
    "timeouts.embedding": 30,
    "timeouts.retrieval": 60,
    "timeouts.reranking": 30,
    "timeouts.synthesis": 120,
    "limits.max_results": 100,
}
"""The specification's configuration reference, and what it means here."""
QUESTION = "how far away is the moon"
TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


def value_of(config: RetrievalConfig, key: str) -> Any:
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize("key", DEFAULTS)
def test_the_specifications_defaults(key: str) -> None:
    """Every default of the configuration reference holds."""
    assert value_of(load_config("local-hybrid"), key) == DEFAULTS[key]


def test_answers_are_not_verified_unless_asked() -> None:
    """The reference has it off; the setting is there once answers are."""
    if "answer" in RetrievalConfig.model_fields:
        assert value_of(load_config("local-hybrid"), "answer.verify") is False


def test_every_timeout_fits_into_the_deadline() -> None:
    """Each stage's part of the deadline lets the calls before it, and its own, have all of their time."""
    config = load_config("local-hybrid")
    timeouts, deadline = config.timeouts, config.deadline_seconds
    assert None not in (deadline, timeouts.embedding, timeouts.retrieval, timeouts.reranking, timeouts.synthesis)
    assert deadline is not None
    searched = (timeouts.embedding or 0) + (timeouts.retrieval or 0)
    read = searched + (timeouts.retrieval or 0)
    reranked = read + 2 * (timeouts.reranking or 0)
    # The parts are those of pipeline/rounds.py for a pipeline that reranks and neither compresses nor rewrites.
    assert searched <= 0.5 * deadline
    assert read <= 0.6 * deadline
    assert reranked <= 0.95 * deadline
    assert reranked + (timeouts.synthesis or 0) <= deadline


def test_no_key_is_needed() -> None:
    """A server of one's own wants none."""
    config = load_config("local-hybrid", {"index": "x.db"}, {"OPENAI_API_KEY": "not for Ollama"})
    assert config.embedder.openai.api_key is None
    assert config.llm.openai.api_key is None


needs_sdks = pytest.mark.skipif(
    not all(map(find_spec, ("openai", "fastembed"))), reason="one of the extras 'openai' and 'fastembed' is missing"
)


@needs_sdks
def test_what_is_configured_can_be_built() -> None:
    """Embedder, language model and both rerankers, in their order and with the reference's batch size."""
    config = load_config("local-hybrid")
    embedder = build_embedder(config.embedder)
    assert embedder is not None
    assert embedder.dimension == 1024
    rerankers = build_rerankers(config.reranker, build_llm(config.llm))
    assert [(one.id, one.batch_size) for one in rerankers] == [
        ("fastembed/answerdotai/answerai-colbert-small-v1", 16),
        ("fastembed/BAAI/bge-reranker-base", 16),
    ]


@pytest.fixture
def ollama() -> Generator[WireServer]:
    """A server that speaks OpenAI's protocol as Ollama does: no key, and models of its own."""
    from support.openai_service import OpenAIService
    from support.wire_server import WireServer

    service = OpenAIService(key=None, dimensions={"qwen3-embedding:0.6b": 1024})
    with WireServer(service) as server:
        yield server


@needs_sdks
@pytest.mark.model
def test_all_of_it_runs_at_a_server_of_ones_own(ollama: WireServer, tmp_path: Path) -> None:
    """Indexed, searched and reranked with the preset's own settings; only addresses and model files are the test's."""
    from support.tiny_colbert import write_model

    colbert = tmp_path / ".colbert"  # hidden, so it is not indexed
    colbert.mkdir()
    write_model(colbert, "vespa_colbert.onnx")
    for number in range(40):
        (tmp_path / f"page{number}.md").write_text(f"# Page {number}\n\nThis page is about the number {number}.\n")
    (tmp_path / "moon.md").write_text("# The moon\n\nThe moon is 384,400 km away from us.\n")
    overrides = {
        "index": str(tmp_path / ".retrieval/index.db"),
        "ollama_config.host": ollama.url,
        "reranker.late_interaction.model_folder": str(colbert),
    }
    config = load_flags("local-hybrid", overrides)
    with open_index(config=config) as index:
        assert index.ingest(tmp_path).documents == 41
        result = index.retrieve(QUESTION)
        pack = index.context(QUESTION)
    assert result.degraded == ()
    assert result.hits[0].chunk.title == "The moon"
    assert "384,400" in pack.context_pack
    asked = [request.json() for request in ollama.requests]
    assert {request.path for request in ollama.requests} == {"/v1/embeddings"}
    assert {one["model"] for one in asked} == {"qwen3-embedding:0.6b"}
    batches = [one["input"] for one in asked]
    assert max(len(batch) for batch in batches) == 32
    assert [f"{TASK}{QUESTION}"] in batches
    assert not any(text.startswith(TASK) for batch in batches[:-1] for text in batch if text != f"{TASK}{QUESTION}")
    scored = [record for record in result.trace if record.stage == "rerank"]
    assert any("answerai-colbert-small-v1" in (record.decision or "") for record in scored)


@needs_sdks
def test_the_language_model_is_asked_there_too(ollama: WireServer) -> None:
    """Each of the two by its name, at the same address."""
    config = load_flags("local-hybrid", {"ollama_config.host": ollama.url})
    llm = build_llm(config.llm)
    assert isinstance(llm, OpenAILLM)

    async def ask() -> str:
        try:
            small = llm.with_model(config.transform.model or "")
            asked = [one.complete(CompletionRequest((Message("user", "hello"),))) for one in (llm, small)]
            return " ".join([(await answer).text for answer in asked])
        finally:
            await llm.aclose()

    assert asyncio.run(ask()) == "hello hello"
    assert [request.json()["model"] for request in ollama.requests] == ["qwen3:8b", "qwen3:0.6b"]
    with pytest.raises(ConfigurationError, match="name of the language model is empty"):
        llm.with_model("")
