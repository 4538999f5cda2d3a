"""What a pipeline runs on, as it is configured: embedder, store, analysis, language model and cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.errors import ConfigurationError, InvalidParameterError
from retrieval_core.index.builders.factories import (
    CACHE_ABILITIES,
    EMBEDDER_ABILITIES,
    LLM_ABILITIES,
    STORE_ABILITIES,
    call_factory,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from retrieval_core.config import (
        AnalysisConfig,
        CacheConfig,
        EmbedderConfig,
        LLMConfig,
        RetrievalConfig,
        StoreConfig,
        VectorsConfig,
    )
    from retrieval_core.ports import LLM, CataloguedStore, Embedder, ResultCache
    from retrieval_core.run.observe import UsageStats
    from retrieval_core.text.analysis import Analyzer


def build_embedder(config: EmbedderConfig) -> Embedder | None:
    """Return the configured embedder, not yet loaded; ``None`` for the kind ``none``."""
    if config.kind == "none":
        return None
    if config.kind == "local":
        from retrieval_core.adapters.embedders.local import LocalEmbedder  # noqa: PLC0415

        return LocalEmbedder(folder=config.model_folder, threads=config.threads)
    if config.kind == "openai":
        from retrieval_core.adapters.embedders.openai import OpenAIEmbedder  # noqa: PLC0415

        return OpenAIEmbedder(**dict(config.openai))
    built_in = ("local", "openai", "none")
    return cast("Embedder", call_factory("embedder.kind", config.kind, config.options, built_in, EMBEDDER_ABILITIES))


def lancedb_folder(location: Path) -> Path:
    """Return the folder of an index that LanceDB keeps: where ``index.db`` would be, ``index.lance``."""
    return location.with_suffix(".lance") if location.suffix == ".db" else location


def place_of(config: RetrievalConfig) -> Path:
    """Return the file or folder of the configured index, where it is one."""
    path = Path(config.index)
    return lancedb_folder(path) if config.store.kind == "lancedb" else path


def totals_of(config: RetrievalConfig) -> Path | None:
    """Return the file in which queries of the index are counted; ``None`` where it is not kept on this machine."""
    from retrieval_core.run.observe import totals_beside  # noqa: PLC0415 - most programs do not count

    return None if config.store.kind in {"memory", "pinecone"} else totals_beside(place_of(config))


def build_usage(config: RetrievalConfig) -> UsageStats | None:
    """Return what counts queries beside the index; ``None`` where it is not kept on this machine, or not there yet."""
    from retrieval_core.run.observe import UsageStats  # noqa: PLC0415 - most programs do not count

    file = totals_of(config)
    return UsageStats(file) if file is not None and place_of(config).exists() else None


def build_store(
    config: StoreConfig,
    location: Path,
    embedder: Embedder | None,
    *,
    analyzer: Analyzer | None = None,
    vectors: Iterable[str] = (),
) -> CataloguedStore:
    """Return the configured store, not yet opened.

    Args:
        location: The index file.
        embedder: Makes the vectors that it keeps.
        analyzer: How text becomes terms; the default one where it is not given.
        vectors: Names of the further vectors of chunks.
    """
    identity: dict[str, Any] = {
        "embedder_id": embedder.id if embedder is not None else None,
        "dimension": embedder.dimension if embedder is not None else None,
    }
    words: dict[str, Any] = {"analyzer": analyzer, "vectors": tuple(vectors)}
    if config.kind == "sqlite":
        from retrieval_core.adapters.stores.sqlite import SqliteStore  # noqa: PLC0415

        return SqliteStore(location, busy_timeout=config.busy_timeout, **identity, **words)
    if config.kind == "lancedb":
        from retrieval_core.adapters.stores.lancedb import LanceDBStore  # noqa: PLC0415

        folder = lancedb_folder(location)
        return LanceDBStore(folder, busy_timeout=config.busy_timeout, **dict(config.lancedb), **identity, **words)
    if config.kind == "memory":
        from retrieval_core.adapters.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore(**identity, **words)
    if config.kind == "pinecone":
        from retrieval_core.adapters.stores.pinecone import PineconeStore  # noqa: PLC0415

        return PineconeStore(**dict(config.pinecone), **identity, **words)
    from retrieval_core.text.analysis import Analyzer  # noqa: PLC0415 - the stores above load it too

    built_in = ("sqlite", "lancedb", "memory", "pinecone")
    # A factory need not know of what is as everywhere.
    own = {name: value for name, value in words.items() if value and getattr(value, "id", "") != Analyzer().id}
    store = call_factory("store.kind", config.kind, {**identity, **own, **config.options}, built_in, STORE_ABILITIES)
    return cast("CataloguedStore", store)


def build_llm(config: LLMConfig) -> LLM | None:
    """Return the configured language model; ``None`` for the kind ``none``."""
    if config.kind == "none":
        return None
    if config.kind == "openai":
        from retrieval_core.adapters.llms.openai import OpenAILLM  # noqa: PLC0415

        return OpenAILLM(**dict(config.openai))
    return cast("LLM", call_factory("llm.kind", config.kind, config.options, ("openai", "none"), LLM_ABILITIES))


def build_cache(config: CacheConfig) -> ResultCache | None:
    """Return the configured cache of results; ``None`` where caching is switched off."""
    if not config.enabled:
        return None
    if config.kind == "memory":
        from retrieval_core.adapters.caches.memory import MemoryCache  # noqa: PLC0415

        return MemoryCache(config.max_size, config.ttl_seconds)
    if config.kind == "redis":
        from retrieval_core.adapters.caches.redis import RedisCache  # noqa: PLC0415

        if config.url is None:
            msg = "cache.url: needed for the kind 'redis', for instance redis://localhost:6379/0"
            raise ConfigurationError(msg, missing_keys=("cache.url",))
        return RedisCache(config.url, ttl_seconds=config.ttl_seconds)
    made = call_factory("cache.kind", config.kind, config.options, ("memory", "redis"), CACHE_ABILITIES)
    return cast("ResultCache", made)


def build_analyzer(config: AnalysisConfig) -> Analyzer:
    """Return what turns text into terms, for stores and for highlighting.

    Raises:
        ConfigurationError: There is no such language, or its stop words are not installed.
    """
    from retrieval_core.text.analysis import Analyzer  # noqa: PLC0415

    try:
        return Analyzer(
            config.language,
            stop_words=config.stop_words,
            word_ngrams=config.word_ngrams,
            character_ngrams=config.character_ngrams,
        )
    except InvalidParameterError as error:
        msg = f"analysis: {error}"
        raise ConfigurationError(msg) from error


def build_word_analyzer(config: AnalysisConfig) -> Analyzer:
    """Return what turns text into the terms of single words, in the configured language; see :func:`build_analyzer`."""
    return build_analyzer(config.model_copy(update={"word_ngrams": 1, "character_ngrams": 0}))


def named_fields(config: VectorsConfig, embedder: Embedder | None) -> Mapping[str, str]:
    """Return what is embedded for each further vector, by its name; nothing without an embedder."""
    return {} if embedder is None else config.fields
