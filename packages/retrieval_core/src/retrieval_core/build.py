"""From configuration to objects: the only place that turns names into classes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.config import RetrievalConfig, check_complete, load_config
from retrieval_core.errors import ConfigurationError
from retrieval_core.factories import (
    CACHE_ABILITIES,
    COMPRESSOR_ABILITIES,
    EMBEDDER_ABILITIES,
    EVALUATOR_ABILITIES,
    LLM_ABILITIES,
    RERANKER_ABILITIES,
    REWRITER_ABILITIES,
    STORE_ABILITIES,
    call_factory,
)
from retrieval_core.index import Index
from retrieval_core.ingest.ingester import Ingester
from retrieval_core.pipeline import RetrievalPipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.config import (
        CacheConfig,
        CompressorConfig,
        ContextConfig,
        EmbedderConfig,
        EvaluationConfig,
        LLMConfig,
        RerankerConfig,
        RewriterConfig,
        StoreConfig,
    )
    from retrieval_core.observe import Observer
    from retrieval_core.ports import (
        LLM,
        CataloguedStore,
        Compressor,
        Embedder,
        Evaluator,
        Reranker,
        ResultCache,
        Rewriter,
        Store,
        TokenCounter,
    )


def open_index(
    path: str | Path | None = None,
    *,
    config: RetrievalConfig | str | Path | None = None,
    embedder: Embedder | None = None,
    store: CataloguedStore | None = None,
    reranker: Reranker | Sequence[Reranker] | None = None,
    token_counter: TokenCounter | None = None,
    observer: Observer | None = None,
) -> Index:
    """Open an index, to fill it and to ask it. Nothing is read or loaded before the first call needs it.

    Args:
        path: The index file; ``config.index`` where it is not given. The first write makes it.
        config: Settings, a TOML file, or the name of a preset; the defaults where it is not given. The environment is
            not looked at, see :func:`retrieval_core.load_config`.
        embedder: Used in place of the configured one.
        store: Used in place of the configured one.
        reranker: Used in place of the configured one; of several, each one stands in for those before it.
        token_counter: Used in place of the configured one.
        observer: Is told what happens to each query; see :mod:`retrieval_core.observe`.

    Raises:
        ConfigurationError: A name in the configuration stands for nothing; or something that it needs is not set, and
            then ``missing_keys`` has all that is missing.
    """
    if not isinstance(config, RetrievalConfig):
        config = load_config(config)
    check_complete(config, with_embedder=embedder is None, with_store=store is None)
    location = Path(path or config.index)
    if embedder is None:
        embedder = build_embedder(config.embedder)
    if store is None:
        store = build_store(config.store, location, embedder)
    pipeline = build_pipeline(
        config, store, embedder, reranker=reranker, token_counter=token_counter, observer=observer
    )
    return Index(pipeline, Ingester(store, embedder, chunking=config.chunking, base=base_folder(location)))


def base_folder(index: Path) -> Path:
    """Return the folder that names of documents are relative to: the one that holds ``.retrieval``, or the index."""
    parent = index.absolute().parent
    return parent.parent if parent.name == ".retrieval" else parent


def build_pipeline(
    config: RetrievalConfig,
    store: Store,
    embedder: Embedder | None,
    *,
    reranker: Reranker | Sequence[Reranker] | None = None,
    token_counter: TokenCounter | None = None,
    observer: Observer | None = None,
) -> RetrievalPipeline:
    """Return the configured pipeline over a store; the models of its stages are not yet loaded.

    Raises:
        ConfigurationError: A name in the configuration stands for nothing, or something that it needs is not set.
    """
    llm = build_llm(config.llm)
    local = cache(_local_cross_encoder)  # loaded once, whichever stages use it
    return RetrievalPipeline(
        store,
        embedder,
        reranker=build_rerankers(config.reranker, llm, local) if reranker is None else reranker,
        compressor=build_compressor(config.compressor, llm, local),
        rewriter=build_rewriter(config.rewriter, llm),
        evaluator=build_evaluator(config.evaluation, llm, embedder),
        cache=build_cache(config.cache),
        token_counter=build_token_counter(config.context) if token_counter is None else token_counter,
        observer=observer,
        config=config,
        owned=() if llm is None else (llm,),
    )


def _local_cross_encoder() -> Reranker:
    from retrieval_core.rerankers.local import LocalCrossEncoder  # noqa: PLC0415

    return LocalCrossEncoder()


def build_embedder(config: EmbedderConfig) -> Embedder | None:
    """Return the configured embedder, not yet loaded; ``None`` for the kind ``none``."""
    if config.kind == "none":
        return None
    if config.kind == "local":
        from retrieval_core.embedders.local import LocalEmbedder  # noqa: PLC0415

        return LocalEmbedder(folder=config.model_folder, threads=config.threads)
    if config.kind == "openai":
        from retrieval_core.embedders.openai import OpenAIEmbedder  # noqa: PLC0415

        return OpenAIEmbedder(**dict(config.openai))
    built_in = ("local", "openai", "none")
    return cast("Embedder", call_factory("embedder.kind", config.kind, config.options, built_in, EMBEDDER_ABILITIES))


def build_store(config: StoreConfig, location: Path, embedder: Embedder | None) -> CataloguedStore:
    """Return the configured store, not yet opened."""
    identity: dict[str, Any] = {
        "embedder_id": embedder.id if embedder is not None else None,
        "dimension": embedder.dimension if embedder is not None else None,
    }
    if config.kind == "sqlite":
        from retrieval_core.stores.sqlite import SqliteStore  # noqa: PLC0415

        return SqliteStore(location, busy_timeout=config.busy_timeout, **identity)
    if config.kind == "memory":
        from retrieval_core.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore(**identity)
    if config.kind == "pinecone":
        from retrieval_core.stores.pinecone import PineconeStore  # noqa: PLC0415

        return PineconeStore(**dict(config.pinecone), **identity)
    built_in = ("sqlite", "memory", "pinecone")
    store = call_factory("store.kind", config.kind, {**identity, **config.options}, built_in, STORE_ABILITIES)
    return cast("CataloguedStore", store)


def build_llm(config: LLMConfig) -> LLM | None:
    """Return the configured language model; ``None`` for the kind ``none``."""
    if config.kind == "none":
        return None
    if config.kind == "openai":
        from retrieval_core.llms.openai import OpenAILLM  # noqa: PLC0415

        return OpenAILLM(**dict(config.openai))
    return cast("LLM", call_factory("llm.kind", config.kind, config.options, ("openai", "none"), LLM_ABILITIES))


def build_rerankers(
    config: RerankerConfig, llm: LLM | None, local: Callable[[], Reranker] | None = None
) -> tuple[Reranker, ...]:
    """Return the configured reranker and those that stand in for it, in their order; none of them is loaded yet.

    The kind ``llm`` is left out where there is no LLM.

    Args:
        local: Makes the cross-encoder of this machine, which other stages may share; a new one where it is not given.
    """
    kinds = (config.kind, *config.fallbacks) if config.enabled else ()
    made = (_reranker(kind, config, llm, local or _local_cross_encoder) for kind in kinds)
    return tuple(reranker for reranker in made if reranker is not None)


def _reranker(kind: str, config: RerankerConfig, llm: LLM | None, local: Callable[[], Reranker]) -> Reranker | None:
    makers: dict[str, Callable[[], Reranker | None]] = {
        "local": local,
        "llm": lambda: None if llm is None else _llm_reranker(config, llm),
        "cohere": lambda: _cohere_reranker(config),
        "cross-encoder": lambda: _fastembed_cross_encoder(config),
        "late-interaction": lambda: _fastembed_late_interaction(config),
        "none": lambda: None,
    }
    if kind in makers:
        return makers[kind]()
    made = call_factory("reranker.kind", kind, config.options, tuple(makers), RERANKER_ABILITIES)
    return cast("Reranker", made)


def _llm_reranker(config: RerankerConfig, llm: LLM) -> Reranker:
    from retrieval_core.rerankers.llm import LLMReranker  # noqa: PLC0415

    return LLMReranker(
        llm,
        prompt=config.prompt,
        batch_size=config.batch_size,
        max_characters=config.max_characters,
        strict_json=config.strict_json,
    )


def _cohere_reranker(config: RerankerConfig) -> Reranker:
    from retrieval_core.rerankers.cohere import CohereReranker  # noqa: PLC0415

    return CohereReranker(**dict(config.cohere))


def _fastembed_cross_encoder(config: RerankerConfig) -> Reranker:
    from retrieval_core.rerankers.fastembed import FastembedCrossEncoder  # noqa: PLC0415

    return FastembedCrossEncoder(**dict(config.cross_encoder))


def _fastembed_late_interaction(config: RerankerConfig) -> Reranker:
    from retrieval_core.rerankers.fastembed import FastembedLateInteraction  # noqa: PLC0415

    return FastembedLateInteraction(**dict(config.late_interaction))


def build_token_counter(config: ContextConfig) -> TokenCounter | None:
    """Return what counts the tokens of contexts; ``None`` for ``auto``: the pipeline then asks its embedder."""
    from retrieval_core.token_counters import AUTO, ENCODINGS, named_counter  # noqa: PLC0415

    kind = config.token_counter
    if kind == AUTO:
        return None
    if kind in ENCODINGS:
        return named_counter(kind)
    counter = call_factory("context.token_counter", kind, {}, (AUTO, *ENCODINGS), ("__call__",))
    return cast("TokenCounter", counter)


def build_compressor(
    config: CompressorConfig, llm: LLM | None, local: Callable[[], Reranker] | None = None
) -> Compressor | None:
    """Return the configured compressor; ``None`` for the kind ``none``, and for ``llm`` where there is no LLM.

    Args:
        local: Makes the cross-encoder of this machine, which other stages may share; a new one where it is not given.
    """
    if config.kind == "none" or not config.enabled:
        return None
    if config.kind == "llm":
        from retrieval_core.compressors.llm import LLMCompressor  # noqa: PLC0415

        if llm is None:
            return None
        return LLMCompressor(llm, prompt=config.relevance_prompt, batch_size=config.batch_size)
    if config.kind == "local":
        from retrieval_core.compressors.cross_encoder import CrossEncoderCompressor  # noqa: PLC0415

        return CrossEncoderCompressor((local or _local_cross_encoder)(), threshold=config.relevance_threshold)
    built_in = ("llm", "local", "none")
    made = call_factory("compressor.kind", config.kind, config.options, built_in, COMPRESSOR_ABILITIES)
    return cast("Compressor", made)


def build_rewriter(config: RewriterConfig, llm: LLM | None) -> Rewriter | None:
    """Return the configured rewriter; ``None`` for the kind ``none``, and for ``llm`` where there is no LLM."""
    if config.kind == "none":
        return None
    if config.kind == "llm":
        from retrieval_core.rewriters.llm import LLMRewriter  # noqa: PLC0415

        return None if llm is None else LLMRewriter(llm, prompt=config.rewrite_prompt)
    made = call_factory("rewriter.kind", config.kind, config.options, ("llm", "none"), REWRITER_ABILITIES)
    return cast("Rewriter", made)


def build_cache(config: CacheConfig) -> ResultCache | None:
    """Return the configured cache of results; ``None`` where caching is switched off."""
    if not config.enabled:
        return None
    if config.kind == "memory":
        from retrieval_core.cache.memory import MemoryCache  # noqa: PLC0415

        return MemoryCache(config.max_size, config.ttl_seconds)
    if config.kind == "redis":
        from retrieval_core.cache.redis import RedisCache  # noqa: PLC0415

        if config.url is None:
            msg = "cache.url: needed for the kind 'redis', for instance redis://localhost:6379/0"
            raise ConfigurationError(msg, missing_keys=("cache.url",))
        return RedisCache(config.url, ttl_seconds=config.ttl_seconds)
    made = call_factory("cache.kind", config.kind, config.options, ("memory", "redis"), CACHE_ABILITIES)
    return cast("ResultCache", made)


def build_evaluator(config: EvaluationConfig, llm: LLM | None, embedder: Embedder | None) -> Evaluator | None:
    """Return the configured evaluator; ``None`` where evaluation is switched off."""
    if not config.enabled:
        return None
    if config.kind in {"auto", "ragas", "local"}:
        from retrieval_core.evaluators import choose_evaluator  # noqa: PLC0415

        return choose_evaluator(config.kind, llm, embedder)
    built_in = ("auto", "ragas", "local")
    made = call_factory("evaluation.kind", config.kind, config.options, built_in, EVALUATOR_ABILITIES)
    return cast("Evaluator", made)
