"""One tree of settings, from defaults, a TOML file, the environment and arguments, each overriding the one before.

In the environment a key is written ``RETRIEVAL_SEARCH__TOP_K``, on the command line ``search.top_k``. Every problem of
all sources is reported at once, with its key.
"""

from retrieval_core.config.adapters import (
    AnswerConfig,
    CacheConfig,
    CohereEmbedderConfig,
    CohereRerankerConfig,
    EmbedderConfig,
    EvaluationConfig,
    FastembedEmbedderConfig,
    FastembedRerankerConfig,
    LanceDBConfig,
    LLMConfig,
    LocalEmbedderConfig,
    OpenAIEmbedderConfig,
    OpenAILLMConfig,
    PineconeConfig,
    PrunerConfig,
    QdrantConfig,
    RelevanceFilterConfig,
    RerankerConfig,
    RewriterConfig,
    SemanticCacheConfig,
    StoreConfig,
    TransformConfig,
)
from retrieval_core.config.addresses import checked_host, host_of, without_credentials, without_secrets
from retrieval_core.config.loading import ENVIRONMENT_PREFIX, load_config, parse_value, preset_names
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
from retrieval_core.config.needs import check_complete, missing_settings

__all__ = [
    "ENVIRONMENT_PREFIX", "AnalysisConfig", "AnswerConfig", "BreakerConfig", "CacheConfig", "ChunkingConfig",
    "CohereEmbedderConfig", "CohereRerankerConfig", "ContextConfig", "EmbedderConfig",
    "EvaluationConfig", "FastembedEmbedderConfig", "FastembedRerankerConfig", "FederationConfig", "FormatterConfig",
    "GraphConfig", "LLMConfig", "LanceDBConfig", "LimitsConfig", "LocalEmbedderConfig",
    "OpenAIEmbedderConfig", "OpenAILLMConfig", "PineconeConfig", "PrunerConfig", "QdrantConfig",
    "QueryConfig", "RelevanceFilterConfig", "RerankerConfig", "RetrievalConfig", "RetryConfig", "RewriterConfig",
    "SearchConfig", "SemanticCacheConfig", "StoreConfig", "TimeoutsConfig", "TransformConfig",
    "check_complete", "checked_host", "host_of", "load_config", "missing_settings", "parse_value", "preset_names",
    "without_credentials", "without_secrets",
]  # fmt: skip
