"""One tree of settings, from defaults, a TOML file, the environment and arguments, each overriding the one before.

In the environment a key is written ``RETRIEVAL_SEARCH__TOP_K``, on the command line ``search.top_k``. Every problem of
all sources is reported at once, with its key.
"""

from typing import Any

from retrieval_core.config.adapters import (
    AnswerConfig,
    CacheConfig,
    EmbedderConfig,
    EvaluationConfig,
    LLMConfig,
    PrunerConfig,
    RelevanceFilterConfig,
    RerankerConfig,
    RewriterConfig,
    SemanticCacheConfig,
    StoreConfig,
    TransformConfig,
)
from retrieval_core.config.base import AdapterSettings, checked_host, host_of, without_credentials, without_secrets
from retrieval_core.config.loading import (
    ENVIRONMENT_PREFIX,
    check_complete,
    load_config,
    missing_settings,
    parse_value,
    preset_names,
)
from retrieval_core.config.model import (
    AnalysisConfig,
    BreakerConfig,
    ChunkingConfig,
    ContextConfig,
    FederationConfig,
    FormatterConfig,
    GraphConfig,
    LimitsConfig,
    QueryConfig,
    RetrievalConfig,
    RetryConfig,
    SearchConfig,
    TimeoutsConfig,
)

__all__ = [
    "ENVIRONMENT_PREFIX", "AdapterSettings", "AnalysisConfig", "AnswerConfig", "BreakerConfig", "CacheConfig",
    "ChunkingConfig", "ContextConfig", "EmbedderConfig", "EvaluationConfig", "FederationConfig", "FormatterConfig",
    "GraphConfig", "LLMConfig", "LimitsConfig", "PrunerConfig", "QueryConfig", "RelevanceFilterConfig",
    "RerankerConfig", "RetrievalConfig", "RetryConfig", "RewriterConfig", "SearchConfig", "SemanticCacheConfig",
    "StoreConfig", "TimeoutsConfig", "TransformConfig", "check_complete", "checked_host", "host_of",
    "load_config", "missing_settings", "parse_value", "preset_names", "without_credentials", "without_secrets",
]  # fmt: skip

_MOVED = {
    "CohereEmbedderConfig": "embedders.cohere:CohereEmbedder",
    "CohereRerankerConfig": "rerankers.cohere:CohereReranker",
    "FastembedEmbedderConfig": "embedders.fastembed:FastembedEmbedder",
    "FastembedRerankerConfig": "rerankers.fastembed:FastembedCrossEncoder",
    "LanceDBConfig": "stores.lancedb.store:LanceDBStore",
    "LocalEmbedderConfig": "embedders.local:LocalEmbedder",
    "OpenAIEmbedderConfig": "embedders.openai:OpenAIEmbedder",
    "OpenAILLMConfig": "llms.openai:OpenAILLM",
    "PineconeConfig": "stores.pinecone.store:PineconeStore",
    "QdrantConfig": "stores.qdrant.store:QdrantStore",
}
"""The adapters that settings of former versions belong to, by the names that they had here."""


def __getattr__(name: str) -> Any:
    """Return the settings of an adapter by their former name."""
    if name not in _MOVED:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    import warnings  # noqa: PLC0415 - only for a former name
    from importlib import import_module  # noqa: PLC0415 - likewise

    module, _, adapter = _MOVED[name].partition(":")
    place = f"retrieval_core.adapters.{module}"
    warnings.warn(f"{name} is {adapter}.Settings of {place} now", DeprecationWarning, stacklevel=2)
    return getattr(import_module(place), adapter).Settings
