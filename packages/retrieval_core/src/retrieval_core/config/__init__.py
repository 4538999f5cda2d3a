"""One tree of settings, from defaults, a TOML file, the environment and arguments, each overriding the one before.

In the environment a key is written ``RETRIEVAL_SEARCH__TOP_K``, on the command line ``search.top_k``. Every problem of
all sources is reported at once, with its key.
"""

from retrieval_core.config.addresses import checked_host, host_of, without_credentials
from retrieval_core.config.backends import (
    CohereRerankerConfig,
    EmbedderConfig,
    FastembedRerankerConfig,
    LLMConfig,
    OpenAIEmbedderConfig,
    OpenAILLMConfig,
    PineconeConfig,
    StoreConfig,
)
from retrieval_core.config.loading import ENVIRONMENT_PREFIX, load_config, parse_value, preset_names
from retrieval_core.config.model import (
    BreakerConfig,
    CacheConfig,
    ChunkingConfig,
    CompressorConfig,
    ContextConfig,
    EvaluationConfig,
    FormatterConfig,
    QueryConfig,
    RerankerConfig,
    RetrievalConfig,
    RetryConfig,
    RewriterConfig,
    SearchConfig,
)
from retrieval_core.config.needs import check_complete, missing_settings

__all__ = [
    "ENVIRONMENT_PREFIX",
    "BreakerConfig",
    "CacheConfig",
    "ChunkingConfig",
    "CohereRerankerConfig",
    "CompressorConfig",
    "ContextConfig",
    "EmbedderConfig",
    "EvaluationConfig",
    "FastembedRerankerConfig",
    "FormatterConfig",
    "LLMConfig",
    "OpenAIEmbedderConfig",
    "OpenAILLMConfig",
    "PineconeConfig",
    "QueryConfig",
    "RerankerConfig",
    "RetrievalConfig",
    "RetryConfig",
    "RewriterConfig",
    "SearchConfig",
    "StoreConfig",
    "check_complete",
    "checked_host",
    "host_of",
    "load_config",
    "missing_settings",
    "parse_value",
    "preset_names",
    "without_credentials",
]
