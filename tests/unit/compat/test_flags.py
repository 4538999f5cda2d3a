"""The specification's names of settings, row by row, and what happens where they meet ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.compat.flags import load_flags, other_names
from retrieval_core.config import RetrievalConfig, load_config
from retrieval_core.config.moved import OTHER_SECTIONS as SECTIONS
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = "http://localhost:11434/v1"
QWEN = "Qwen/Qwen3-Embedding-0.6B"
COLBERT = {"reranker.kind": "late-interaction", "reranker.fallbacks": ("cross-encoder",)}
EMBEDDER = {
    "embedder.kind": "openai",
    "embedder.openai.model": "qwen3-embedding:0.6b",
    "embedder.openai.dimension": 1024,
    "embedder.openai.base_url": LOCAL,
}
LLM = {"llm.kind": "openai", "llm.openai.model": "qwen3:8b", "llm.openai.base_url": LOCAL}

ROWS: list[tuple[str, Any, dict[str, Any]]] = [
    *((name, True, {"answer.verify": True}) for name in ("verify", "verify_answers")),
    *((name, "fts", {"search.mode": "lexical"}) for name in ("searchType", "search_type", "retrievalMode")),
    *((name, "FTS", {"search.mode": "lexical"}) for name in ("searchType", "search_type", "retrievalMode")),
    *((name, "bm25", {"search.mode": "lexical"}) for name in ("searchType", "retrievalMode", "retriever")),
    *((name, "Dense", {"search.mode": "dense"}) for name in ("searchType", "retrievalMode", "retriever")),
    *((name, "hybrid", {"search.mode": "hybrid"}) for name in ("searchType", "retrievalMode", "retriever")),
    ("retriever", "multivector", {"search.mode": "hybrid"}),
    ("retrievalK", 10, {"search.candidates": 10}),
    ("retrieval_k", 20, {"search.candidates": 20}),
    ("denseWeight", 0.7, {"search.dense_weight": 0.7}),
    ("dense_weight", "0.7", {"search.dense_weight": 0.7}),
    ("contextWindowSize", 5, {"context.window": 5}),
    ("late_chunking", {"enabled": True, "window_size": 4}, {"context.window": 4}),
    ("late_chunking", {"enabled": True}, {"context.window": 5}),
    ("late_chunking", {"enabled": "false", "window_size": 4}, {"context.window": 0}),
    ("late_chunking.window_size", 3, {"context.window": 3}),
    ("rerankerTopK", 20, {"reranker.candidates": 20}),
    ("reranker_top_k", 10, {"reranker.candidates": 10}),
    ("aiRerank", True, COLBERT),
    ("ai_rerank", "true", COLBERT),
    ("aiRerank", False, {"reranker.kind": "none"}),
    ("ai_rerank", "false", {"reranker.kind": "none"}),
    ("cache_enabled", False, {"cache.kind": "none"}),
    ("cache_ttl", 60, {"cache.ttl_seconds": 60}),
    ("semantic_cache_threshold", 0.98, {"cache.semantic.threshold": 0.98, "cache.semantic.enabled": True}),
    ("cache_scope", "session", {"cache.semantic.scope": "session"}),
    ("embedding_model", QWEN, EMBEDDER),
    ("embedding_model_name", QWEN, EMBEDDER),
    ("embedding_model", "qwen3-embedding:4b", {**EMBEDDER, "embedder.openai.model": "qwen3-embedding:4b",
                                               "embedder.openai.dimension": 2560}),
    ("embedding_model", "mine", {**EMBEDDER, "embedder.openai.model": "mine", "embedder.openai.dimension": None}),
    ("generation_model", "qwen3:8b", LLM),
    ("enrichment_model", "qwen3:0.6b", {"transform.model": "qwen3:0.6b"}),
    ("reranker_model", "a/colbert", {"reranker.late_interaction.model": "a/colbert"}),
    ("fallback_reranker", "a/bge", {"reranker.cross_encoder.model": "a/bge"}),
    ("ollama_config", {"embedding_model": QWEN, "generation_model": "qwen3:8b", "enrichment_model": "qwen3:0.6b"},
     {**EMBEDDER, **LLM, "transform.model": "qwen3:0.6b"}),
    ("ollama_config", {"host": "http://gpu:11434/", "generation_model": "m"},
     {"llm.openai.base_url": "http://gpu:11434/v1", "embedder.kind": "local", "embedder.openai.base_url": None}),
    ("ollama_config", {"host": "http://gpu:1/v1", "embedding_model": QWEN},
     {**EMBEDDER, "embedder.openai.base_url": "http://gpu:1/v1", "llm.kind": "none"}),
    ("batch_sizes.embedding", 32, {"embedder.openai.batch_size": 32}),
    ("batch_sizes.reranking", 16, {"reranker.batch_size": 16}),
    ("batch_sizes.synthesis", 1, {}),
    ("timeouts.embedding", 30, {"timeouts.embedding": 30}),
    ("timeouts.retrieval", 60, {"timeouts.retrieval": 60}),
    ("timeouts.reranking", 30, {"timeouts.reranking": 30}),
    ("timeouts.synthesis", 120, {"timeouts.synthesis": 120}),
    ("memory_limits.max_cache_size", 7, {"cache.max_size": 7}),
    ("memory_limits.max_results_per_query", 99, {"limits.max_results": 99}),
    ("memory_limits.chunk_size_limit", 256, {"chunking.max_tokens": 256}),
]  # fmt: skip


def value_of(config: RetrievalConfig, key: str) -> Any:
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def problems_of(overrides: dict[str, Any], file: Path | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load_flags(file, overrides)
    return caught.value.problems


def test_every_name_has_a_row() -> None:
    """The table of tests leaves none out."""
    tables: list[tuple[str, dict[str, Any]]] = [(name, value) for name, value, _ in ROWS if isinstance(value, dict)]
    told = {name for name, *_ in ROWS} | {f"{name}.{key}" for name, value in tables for key in value}
    assert set(other_names()) <= told
    assert told - {"late_chunking", "ollama_config"} <= set(other_names())


@pytest.mark.parametrize("section", [None, *SECTIONS])
@pytest.mark.parametrize(("name", "value", "expected"), ROWS)
def test_each_row(name: str, value: Any, expected: dict[str, Any], section: str | None) -> None:
    """A name stands for what the table says, at the top level and in each section."""
    config = load_flags(overrides={f"{section}.{name}" if section else name: value})
    assert {key: value_of(config, key) for key in expected} == expected


def test_a_file_in_the_specifications_form(tmp_path: Path) -> None:
    """Its three dictionaries, as tables, are a configuration."""
    file = tmp_path / "settings.toml"
    file.write_text(
        """
[RETRIEVAL_CONFIG]
retriever = "multivector"
search_type = "hybrid"
retrieval_k = 20
reranker_top_k = 10
dense_weight = 0.7
late_chunking = { enabled = true, window_size = 5 }
ai_rerank = true
cache_enabled = true
cache_ttl = 300
semantic_cache_threshold = 0.98

[MODEL_CONFIG]
embedding_model = "Qwen/Qwen3-Embedding-0.6B"
generation_model = "qwen3:8b"
enrichment_model = "qwen3:0.6b"
reranker_model = "answerdotai/answerai-colbert-small-v1"
fallback_reranker = "BAAI/bge-reranker-base"

[PERFORMANCE_CONFIG]
batch_sizes = { embedding = 32, reranking = 16, synthesis = 1 }
timeouts = { embedding = 30, retrieval = 60, reranking = 30, synthesis = 120 }
memory_limits = { max_cache_size = 1000, max_results_per_query = 100, chunk_size_limit = 2048 }
"""
    )
    config, preset = load_flags(file), load_config("local-hybrid")
    own = {
        "deadline_seconds": preset.deadline_seconds,  # the specification has none of these
        "embedder.openai.query_prefix": preset.embedder.openai.query_prefix,
        "search.fusion": "minmax",
        "cache.embeddings": 500,
    }
    assert load_flags(file, own) == preset
    assert config.search.fusion == "adaptive"


@pytest.mark.parametrize(
    ("overrides", "key", "expected"),
    [
        ({"retrieval_k": 20, "search.candidates": 30}, "search.candidates", 30),
        ({"search": {"mode": "dense"}, "searchType": "fts"}, "search.mode", "dense"),
        ({"ai_rerank": True, "reranker.kind": "local"}, "reranker.kind", "local"),
        ({"ai_rerank": True, "reranker.kind": "none"}, "reranker.kind", "none"),
        ({"embedding_model": QWEN, "embedder.openai.dimension": 512}, "embedder.openai.dimension", 512),
        ({"generation_model": "m", "llm.openai.base_url": "http://x/v1"}, "llm.openai.base_url", "http://x/v1"),
        ({"embedding_model": QWEN, "embedder.kind": "none"}, "embedder.kind", "none"),
    ],
)
def test_our_own_names_win(overrides: dict[str, Any], key: str, expected: Any) -> None:
    """In whatever order one source has them."""
    for ordered in (overrides, dict(reversed(overrides.items()))):
        assert value_of(load_flags(overrides=ordered), key) == expected


def test_a_switch_wins_over_the_kind_that_it_switches_off() -> None:
    """In one source and over another one."""
    assert load_flags(overrides={"ai_rerank": False, "reranker.kind": "local"}).reranker.kind == "none"
    assert load_flags(overrides={"cache_enabled": False, "cache.kind": "redis"}).cache.kind == "none"
    assert load_flags("local-hybrid", {"aiRerank": "false"}).reranker.kinds == ()
    on = load_flags(overrides={"ai_rerank": True, "reranker.fallbacks": ["local"]}).reranker
    assert on.kinds == ("late-interaction", "local")


def test_a_later_source_wins_whatever_its_names(tmp_path: Path) -> None:
    """What a file says by our name gives way to an argument by another one."""
    file = tmp_path / "settings.toml"
    file.write_text('retrievalK = 5\n[search]\ndense_weight = 0.1\n[reranker]\nkind = "local"\n')
    config = load_flags(file, {"denseWeight": 0.9, "ai_rerank": True}, {"RETRIEVAL_SEARCH__CANDIDATES": "7"})
    assert (config.search.dense_weight, config.search.candidates) == (0.9, 7)
    assert (config.reranker.kind, config.reranker.fallbacks) == ("local", ())


def test_a_host_moves_the_models_of_a_preset() -> None:
    """Those at a server of one's own; a model named alone stays where the others are."""
    moved = load_flags("local-hybrid", {"ollama_config.host": "http://gpu:11434"})
    assert moved.embedder.openai.base_url == moved.llm.openai.base_url == "http://gpu:11434/v1"
    other = load_flags("local-hybrid", {"generation_model": "llama3", "embedding_model": "Qwen/Qwen3-Embedding-4B"})
    assert (other.llm.openai.model, other.llm.openai.base_url) == ("llama3", LOCAL)
    assert (other.embedder.openai.model, other.embedder.openai.dimension) == ("qwen3-embedding:4b", 2560)


def test_a_model_at_another_server_keeps_its_name() -> None:
    """The hub's name is what vLLM calls it; its dimension is known all the same."""
    overrides = {"embedder.kind": "openai", "embedder.openai.base_url": "http://x:8000/v1", "embedding_model": QWEN}
    openai = load_flags(overrides=overrides).embedder.openai
    assert (openai.model, openai.dimension, openai.base_url) == (QWEN, 1024, "http://x:8000/v1")


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (
            {"retrievalK": 10, "retrieval_k": 20},
            "retrieval_k: says that search.candidates is 20, but retrievalK says 10",
        ),
        (
            {"retrieval_k": 10, "RETRIEVAL_CONFIG": {"retrieval_k": 20}},
            "RETRIEVAL_CONFIG.retrieval_k: given twice, as 10 and as 20",
        ),
        (
            {"retriever": "dense", "searchType": "hybrid"},
            "searchType: says that search.mode is 'hybrid', but retriever says 'dense'",
        ),
        (
            {"contextWindowSize": 5, "late_chunking": {"enabled": False}},
            "late_chunking.enabled: says that context.window is 0, but contextWindowSize says 5",
        ),
        ({"searchType": "fuzzy"}, "searchType: must be fts, bm25, lexical, dense or hybrid, got 'fuzzy'"),
        ({"ai_rerank": "perhaps"}, "ai_rerank: must be true or false, got 'perhaps'"),
        (
            {"batch_sizes.synthesis": 4},
            "batch_sizes.synthesis: must be 1, as a question has one answer, which is written in one request, got 4",
        ),
        ({"ollama_config.host": 7}, "ollama_config.host: must be an address such as http://localhost:11434, got 7"),
        ({"embedding_model": None}, "embedding_model: must be the name of a model, got None"),
        (
            {"ollama_config": {"embedding_model": ["a"]}},
            "ollama_config.embedding_model: must be the name of a model, got a list",
        ),
        ({"late_chunking": {1: 2}}, "late_chunking.1: unknown setting"),
        ({"RETRIEVAL_CONFIG": {1: 2}}, "RETRIEVAL_CONFIG.1: unknown setting"),
        ({"RETRIEVAL_CONFIG": 5}, "RETRIEVAL_CONFIG: is a table, got 5"),
        ({"late_chunking": 5}, "late_chunking: is a table, got 5"),
        (
            {"RETRIEVAL_CONFIG.retrievel_k": 5},
            "RETRIEVAL_CONFIG.retrievel_k: unknown setting; did you mean retrieval_k?",
        ),
        ({"MODEL_CONFIG.zzzzzz": 5}, "MODEL_CONFIG.zzzzzz: unknown setting"),
        (
            {"memory_limits.max_cashe_size": 5},
            "memory_limits.max_cashe_size: unknown setting; did you mean max_cache_size?",
        ),
        ({"retreivalK": 5}, "retreivalK: unknown setting; did you mean retrievalK?"),
        (
            {"retrievalK": 0},
            "search.candidates (given as retrievalK): Input should be greater than or equal to 1, got 0",
        ),
        (
            {"chunking.max_tokens": 4096, "memory_limits.chunk_size_limit": 2048},
            "memory_limits.chunk_size_limit: chunking.max_tokens is 4096, which is more, got 2048",
        ),
        ({"search.top_k": 101, "memory_limits.max_results_per_query": 100}, None),
    ],
)
def test_what_is_wrong_is_told_by_the_name_that_was_used(overrides: dict[str, Any], problem: str | None) -> None:
    """One line each, beginning with a name that the user can find."""
    (told,) = problems_of(overrides)
    if problem is not None:
        assert told == problem
    else:
        assert told.startswith("limits: ")
        assert str(next(iter(overrides.values()))) in told


def test_the_same_thing_said_twice_is_no_problem() -> None:
    """Also where one of them is text, as from the command line."""
    config = load_flags(overrides={"retrievalK": "20", "retrieval_k": 20, "RETRIEVAL_CONFIG": {"retrieval_k": 20}})
    assert config.search.candidates == 20


def test_all_problems_are_told_together() -> None:
    """Those of other names beside those of ours."""
    problems = problems_of({"searchType": "fuzzy", "search.top_k": 0, "RETRIEVAL_CONFIG.x": 1})
    names = sorted(problem.partition(":")[0] for problem in problems)
    assert names == ["RETRIEVAL_CONFIG.x", "search.top_k", "searchType"]


def test_what_was_given_stays_as_it_was() -> None:
    """The caller's own tables are not written to."""
    given: dict[str, Any] = {"search": {"top_k": 3}, "RETRIEVAL_CONFIG": {"retrieval_k": 20, "late_chunking": {}}}
    load_flags(overrides=given)
    assert given == {"search": {"top_k": 3}, "RETRIEVAL_CONFIG": {"retrieval_k": 20, "late_chunking": {}}}


def test_no_message_shows_a_password() -> None:
    """An address with one is refused without it."""
    for overrides in (
        {"ollama_config.host": "http://me:secret@gpu", "generation_model": "m"},
        {"ollama_config.host": "http://me:secret@gpu", "RETRIEVAL_CONFIG": {"ollama_config": {"host": "http://x"}}},
        {"ollama_config": "http://me:secret@gpu"},
    ):
        assert "secret@" not in "".join(problems_of(overrides)).replace("[secret]@", "")
