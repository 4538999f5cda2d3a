"""One tree of settings, from defaults, a TOML file, the environment and arguments, each overriding the one before.

In the environment a key is written ``RETRIEVAL_SEARCH__TOP_K``, on the command line ``search.top_k``. Every problem of
all sources is reported at once, with its key.
"""

from retrieval_core.config.addresses import checked_host, host_of, without_credentials, without_secrets
from retrieval_core.config.analysis import AnalysisConfig
from retrieval_core.config.answer import AnswerConfig
from retrieval_core.config.backends import (
    CohereRerankerConfig,
    EmbedderConfig,
    FastembedRerankerConfig,
    LanceDBConfig,
    LLMConfig,
    LocalRerankerConfig,
    OpenAIEmbedderConfig,
    OpenAILLMConfig,
    PineconeConfig,
    StoreConfig,
)
from retrieval_core.config.federation import FederationConfig
from retrieval_core.config.graph import GraphConfig
from retrieval_core.config.limits import LimitsConfig, TimeoutsConfig
from retrieval_core.config.loading import ENVIRONMENT_PREFIX, load_config, parse_value, preset_names
from retrieval_core.config.model import (
    BreakerConfig,
    CacheConfig,
    ChunkingConfig,
    ContextConfig,
    EvaluationConfig,
    FormatterConfig,
    QueryConfig,
    RelevanceFilterConfig,
    RerankerConfig,
    RetrievalConfig,
    RetryConfig,
    RewriterConfig,
    SearchConfig,
)
from retrieval_core.config.needs import check_complete, missing_settings
from retrieval_core.config.pruner import PrunerConfig
from retrieval_core.config.semantic_cache import SemanticCacheConfig
from retrieval_core.config.transform import TransformConfig
from retrieval_core.config.vectors import VectorsConfig

__all__ = [
    "ENVIRONMENT_PREFIX",
    "AnalysisConfig",
    "AnswerConfig",
    "BreakerConfig",
    "CacheConfig",
    "ChunkingConfig",
    "CohereRerankerConfig",
    "ContextConfig",
    "EmbedderConfig",
    "EvaluationConfig",
    "FastembedRerankerConfig",
    "FederationConfig",
    "FormatterConfig",
    "GraphConfig",
    "LLMConfig",
    "LanceDBConfig",
    "LimitsConfig",
    "LocalRerankerConfig",
    "OpenAIEmbedderConfig",
    "OpenAILLMConfig",
    "PineconeConfig",
    "PrunerConfig",
    "QueryConfig",
    "RelevanceFilterConfig",
    "RerankerConfig",
    "RetrievalConfig",
    "RetryConfig",
    "RewriterConfig",
    "SearchConfig",
    "SemanticCacheConfig",
    "StoreConfig",
    "TimeoutsConfig",
    "TransformConfig",
    "VectorsConfig",
    "check_complete",
    "checked_host",
    "host_of",
    "load_config",
    "missing_settings",
    "parse_value",
    "preset_names",
    "without_credentials",
    "without_secrets",
]
