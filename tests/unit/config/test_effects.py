"""No setting is without effect: each is read by what it is for, and refused where nothing is there to read it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import load_config, open_index, open_indexes
from retrieval_core.config import RerankerConfig, RetrievalConfig, preset_names
from retrieval_core.config.adapters import PortConfig
from retrieval_core.config.base import AdapterSettings, Settings
from retrieval_core.config.kinds import PORTS
from retrieval_core.errors import ConfigurationError, ServiceConnectionError
from retrieval_core.index.open import build_pipeline
from retrieval_core.testing.fakes import CountingFakeEmbedder, FakeEmbedder
from retrieval_core.testing.fakes_llm import FakeLLM
from support.pipelines import TroubledStore, filled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core import Index

FAKES = "retrieval_core.testing.fakes"
OPENAI = {"model": "m", "dimension": 4, "api_key": "k"}
KINDS: tuple[dict[str, Any], ...] = (
    {"embedder.kind": "openai", "embedder.openai": OPENAI},
    {"embedder.kind": "cohere", "embedder.cohere.api_key": "k"},
    {"embedder.kind": "fastembed"},
    {"embedder.local.source": "hub"},
    {"llm.kind": "openai", "llm.openai.api_key": "k", "transform.model": "m"},
    {"store.kind": "lancedb"},
    {"store.kind": "pinecone", "store.pinecone": {"api_key": "k", "host": "h"}},
    {"store.kind": "postgres", "store.postgres": {"url": "postgresql://h/d"}},
    {"store.kind": "qdrant", "store.qdrant": {"path": ":memory:"}},
    {"reranker.kind": "llm", "reranker.fallbacks": ["local", "cohere", "cross-encoder", "late-interaction"],
     "reranker.cohere.api_key": "k"},
    {"relevance_filter.kind": "llm", "rewriter.kind": "llm", "evaluation.kind": "auto"},
    {"relevance_filter.kind": "local", "pruner.kind": "local"},
    {"pruner.kind": "provence"},
    {"cache.kind": "redis", "cache.redis.url": "redis://localhost:1/0"},
    {"graph.file": "facts.jsonl"},
    {"embedder.kind": f"{FAKES}:FakeEmbedder", "store.kind": "retrieval_core.adapters.stores.memory:MemoryStore",
     "llm.kind": f"{FAKES}_llm:FakeLLM", "llm.custom.answer": "yes", "reranker.kind": f"{FAKES}:FakeReranker",
     "relevance_filter.kind": f"{FAKES}:FakeRelevanceFilter", "rewriter.kind": f"{FAKES}:FakeRewriter",
     "rewriter.custom.answer": [], "pruner.kind": f"{FAKES}:FakePruner",
     "answer.verifier": f"{FAKES}:FakeVerifier", "transform.use": [f"{FAKES}:FakeTransformer"],
     "cache.kind": "retrieval_core.adapters.caches.memory:MemoryCache",
     "cache.custom": {"max_size": 1, "ttl_seconds": 1},
     "evaluation.kind": "retrieval_core.adapters.evaluators.local:LocalEvaluator",
     "evaluation.custom.embedder": None},
)  # fmt: skip
"""What opens all kinds of everything; none of it is connected to or loaded."""
QUERIES: tuple[dict[str, Any], ...] = (
    {},
    {"search.search_type": "mmr", "search.score_threshold": 0.0, "cache.semantic.enabled": True,
     "query.max_length": 8, "context.max_tokens": 3},
    {"reranker.kind": f"{FAKES}:FakeReranker", "relevance_filter.kind": f"{FAKES}:FakeRelevanceFilter",
     "rewriter.kind": f"{FAKES}:FakeRewriter", "rewriter.custom.answer": [],
     "pruner.kind": f"{FAKES}:FakePruner"},
)  # fmt: skip
"""What questions are asked with."""


def sections(model: type[Settings] = RetrievalConfig) -> Iterator[type[Settings]]:
    """Yield every section of the settings once."""
    yield model
    for field in model.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            yield from sections(field.annotation)
    if issubclass(model, PortConfig):
        tables = (model.port.settings_of(kind) for kind in model.port.built_in)
        yield from (table for table in tables if table is not None and issubclass(table, Settings))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[tuple[type[Settings], str]]:
    """Which settings the library has read, those reads apart that only load, check or name them."""
    names: set[tuple[type[Settings], str]] = set()

    def by_library() -> bool:
        module = str(sys._getframe(2).f_globals["__name__"])
        return module.startswith("retrieval_core.") and not module.startswith("retrieval_core.config")

    def one(self: Settings, name: str) -> Any:
        if name in type(self).model_fields and by_library():
            names.add((type(self), name))
        return object.__getattribute__(self, name)

    def all_of(method: Any) -> Any:
        def recorded(self: Settings, *args: Any, **options: Any) -> Any:
            if by_library() and not options:
                names.update((type(self), name) for name in type(self).model_fields)
            return method(self, *args, **options)

        return recorded

    for name in ("__iter__", "model_dump"):
        monkeypatch.setattr(Settings, name, all_of(getattr(Settings, name)))
    monkeypatch.setattr(Settings, "__getattribute__", one)
    return names


READ_OTHERWISE: dict[tuple[type[Settings], str], str] = {
    (RerankerConfig, "kind"): "RerankerConfig.kinds has it",
    (RerankerConfig, "fallbacks"): "likewise",
}
"""Settings that are at work within the configuration itself, and how."""


def ask(index: Index, folder: Path | None = None) -> None:
    if folder is not None:
        index.ingest(folder)
    index.retrieve("sturdy phone")
    index.context("sturdy phone")
    index.answer("Is the phone sturdy?")


@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="everything is built: pip install 'retrieval-core[local]'")
def test_every_setting_is_read(tmp_path: Path, read: set[tuple[type[Settings], str]]) -> None:
    """By what is built, or by a run over an index; a setting that nothing reads changes nothing."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "a.csv").write_text("text,price\nA sturdy phone.,3\nRain.,4\n", "utf-8")
    for at, overrides in enumerate(KINDS):
        config = load_config(overrides={"index": str(tmp_path / f"{at}.db"), **overrides})
        open_index(config=config, llm=FakeLLM("yes") if config.llm.kind == "none" else None).close()
    embedder = CountingFakeEmbedder()
    for at, overrides in enumerate(QUERIES):
        config = load_config(overrides={"index": str(tmp_path / f"asked{at}.db"), **overrides})
        with open_index(config=config, embedder=embedder) as index:
            ask(index, folder)
    llm = FakeLLM(lambda _: "It is sturdy [1].")
    with open_index(tmp_path / "asked0.db", embedder=embedder, llm=llm) as index:
        ask(index)
    store = TroubledStore()
    filled(store)
    store.failures = dict.fromkeys(("dense", "lexical"), ServiceConnectionError("it is down"))
    config = load_config(overrides={"retry.max_retries": 0})
    with build_pipeline(config, store, FakeEmbedder(), llm=llm) as pipeline:
        pipeline.answer("Is the phone sturdy?")
    with open_indexes([tmp_path / "asked0.db", tmp_path / "asked1.db"], embedder=embedder) as both:
        both.retrieve("sturdy phone")
    unread = {(section, name) for section in sections() for name in section.model_fields} - read - READ_OTHERWISE.keys()
    assert not unread, ", ".join(sorted(f"{section.__name__}.{name}" for section, name in unread))


def test_tables_of_other_kinds_are_read_and_not_used() -> None:
    """So that one variable of the environment can switch the kind; what is wrong in them is told all the same."""
    tables = {"llm.openai.model": "m", "store.qdrant.collection": "c", "reranker.cohere.model": "m"}
    config = load_config(overrides=tables)
    assert (config.llm.kind, config.store.kind, config.reranker.kind) == ("none", "sqlite", "none")
    assert config.llm.openai.model == "m"
    assert load_config(overrides=tables, environment={"RETRIEVAL_STORE__KIND": "qdrant"}).store.kind == "qdrant"
    with pytest.raises(ConfigurationError, match=r"store.qdrant.colection: unknown setting; did you mean collection\?"):
        load_config(overrides={"store.qdrant.colection": "c"})
    with pytest.raises(ConfigurationError, match=r"store.quadrant: unknown setting; did you mean qdrant\?"):
        load_config(overrides={"store.quadrant.collection": "c"})


def test_every_service_is_known_as_one() -> None:
    """Variables of the environment are looked for only for those kinds of ours, without importing the others."""
    for port in PORTS.values():
        for kind in port.built_in:
            settings = port.settings_of(kind)
            needs: dict[str, str] = {}
            if settings is not None and issubclass(settings, AdapterSettings):
                needs = settings.variables() | settings.required
            assert bool(needs) == (kind in port.services), (port.setting, kind)


def test_keys_of_services_that_are_not_used_may_be_in_the_environment() -> None:
    """The vendors' own names are for other programs too, and a blank name sets nothing."""
    environment = {"OPENAI_API_KEY": "k", "PINECONE_API_KEY": "k", "RETRIEVAL_LLM__OPENAI__BASE_URL": " "}
    assert load_config(environment=environment).llm.kind == "none"


@pytest.mark.parametrize("preset", preset_names())
def test_presets_are_complete(preset: str) -> None:
    """None of them has a setting that is refused."""
    load_config(preset)
