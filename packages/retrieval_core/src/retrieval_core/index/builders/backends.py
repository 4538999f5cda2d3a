"""What a pipeline runs on, as it is configured: embedder, store, analysis, language model and cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from retrieval_core.adapters.registry import CACHES, EMBEDDERS, LLMS, STORES, AdapterParts
from retrieval_core.config import check_complete
from retrieval_core.errors import ConfigurationError, InvalidParameterError

if TYPE_CHECKING:
    from retrieval_core.config import (
        AnalysisConfig,
        CacheConfig,
        EmbedderConfig,
        LLMConfig,
        RetrievalConfig,
        StoreConfig,
    )
    from retrieval_core.ports import LLM, CataloguedStore, Embedder, ResultCache
    from retrieval_core.run.observe import UsageStats
    from retrieval_core.text.analysis import Analyzer


def build_embedder(config: EmbedderConfig) -> Embedder | None:
    """Return the configured embedder, not yet loaded; ``None`` for the kind ``none``."""
    return EMBEDDERS.make(config.kind, config, AdapterParts())


def model_source(config: EmbedderConfig) -> str | None:
    """Return which local embedding model is used and where its files come from; ``None`` for other embedders.

    Nothing is loaded, and nothing is downloaded.

    Raises:
        ConfigurationError: As of :func:`~retrieval_core.open_index`.
    """
    source = getattr(build_embedder(config), "model_source", None)
    return source if isinstance(source, str) else None


def preloaded_embedder(config: RetrievalConfig) -> Embedder | None:
    """Return the configured embedder, whose model loads beside what follows; for who is about to ask by meaning.

    Raises:
        ConfigurationError: As of :func:`~retrieval_core.open_index`.
    """
    check_complete(config)
    embedder = build_embedder(config.embedder)
    # As Preloading has it, which is not asked: importing the ports, and what they import, can wait until it loads.
    preload = getattr(embedder, "preload", None)
    if preload is not None:
        preload()
    return embedder


def build_llm(config: LLMConfig) -> LLM | None:
    """Return the configured language model; ``None`` for the kind ``none``."""
    return LLMS.make(config.kind, config, AdapterParts())


def build_cache(config: CacheConfig) -> ResultCache | None:
    """Return the configured cache of results; ``None`` where caching is switched off."""
    return CACHES.make(config.kind, config, AdapterParts()) if config.enabled else None


def lancedb_folder(location: Path) -> Path:
    """Return the folder of an index that LanceDB keeps: where ``index.db`` would be, ``index.lance``."""
    return location.with_suffix(".lance") if location.suffix == ".db" else location


def place_of(config: RetrievalConfig) -> Path:
    """Return the file or folder of the configured index, where it is one."""
    path = Path(config.index)
    return lancedb_folder(path) if config.store.kind == "lancedb" else path


def place_on_disk(config: RetrievalConfig, location: Path) -> Path | None:
    """Return the file or folder of an index; ``None`` if its store is none of ours that keep it on this machine."""
    if config.store.kind not in {"sqlite", "lancedb"}:
        return None
    return lancedb_folder(location) if config.store.kind == "lancedb" else location


def store_name(config: RetrievalConfig) -> str | None:
    """Return the name of the store that is filled, for people; ``None`` for a file or folder that is not there."""
    store = config.store
    match store.kind:
        case "sqlite" | "lancedb":
            place = place_of(config)
            return str(place) if place.exists() else None
        case "qdrant":
            where = store.qdrant.path or store.qdrant.url
            return f"the Qdrant collection {store.qdrant.collection} at {where}"
        case "pinecone":
            namespace = f", namespace {store.pinecone.namespace}" * bool(store.pinecone.namespace)
            return f"the Pinecone index {store.pinecone.index_name or store.pinecone.host}{namespace}"
        case "memory":
            return "memory, which is lost when the process ends"
        case kind:
            return f"the store {kind}"


def totals_of(config: RetrievalConfig) -> Path | None:
    """Return the file in which queries of the index are counted; ``None`` where it is not kept on this machine."""
    from retrieval_core.run.observe import totals_beside  # noqa: PLC0415 - most programs do not count

    return None if config.store.kind in {"memory", "pinecone", "qdrant"} else totals_beside(place_of(config))


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
) -> CataloguedStore:
    """Return the configured store, not yet opened.

    Args:
        location: The index file.
        embedder: Makes the vectors that it keeps.
        analyzer: How text becomes terms; the default one where it is not given.
    """
    if config.kind == "lancedb":
        location = lancedb_folder(location)
    parts = AdapterParts(embedder=embedder, location=location, analyzer=analyzer)
    given = parts.of_store
    if config.kind not in STORES.places:
        from retrieval_core.text.analysis import Analyzer  # noqa: PLC0415 - the other stores load it too

        # A factory need not know of what is as everywhere.
        if analyzer is None or analyzer.id == Analyzer().id:
            del given["analyzer"]
    return cast("CataloguedStore", STORES.make(config.kind, config, parts, **given))


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
        )
    except InvalidParameterError as error:
        msg = f"analysis: {error}"
        raise ConfigurationError(msg) from error


def build_word_analyzer(config: AnalysisConfig) -> Analyzer:
    """Return what turns text into the terms of single words, in the configured language; see :func:`build_analyzer`."""
    return build_analyzer(config.model_copy(update={"word_ngrams": 1}))
