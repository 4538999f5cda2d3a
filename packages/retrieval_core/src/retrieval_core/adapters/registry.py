"""Build adapters from settings: one function for each port. :mod:`retrieval_core.config.kinds` lists the kinds.

An adapter is a class with these optional attributes:

- ``Settings``: a Pydantic model of its settings.
- ``from_settings(settings, parts)``: a class method that creates it. Without one, the class is called with its settings
  as keyword arguments.
- ``needs_llm = True``: it is left out if there is no language model.
- ``probe()``: as :meth:`retrieval_core.ports.Plugin.probe`, for ``retrieval doctor``.

A path can also lead to a function that returns an adapter.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pydantic import BaseModel, ValidationError

from retrieval_core import ports
from retrieval_core.adapters.parts import AdapterParts
from retrieval_core.config import kinds
from retrieval_core.config.adapters import UndeclaredTable
from retrieval_core.config.base import AdapterSettings, problems_of, refusal, without_secrets
from retrieval_core.config.kinds import CUSTOM, NONE, Port
from retrieval_core.config.loading import check_complete
from retrieval_core.errors import ConfigurationError, InvalidParameterError, RetrievalError
from retrieval_core.ports import as_plugin, as_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from retrieval_core.adapters.graph import GraphQueryTranslator
    from retrieval_core.config import (
        AnalysisConfig,
        AnswerConfig,
        CacheConfig,
        ContextConfig,
        EmbedderConfig,
        EvaluationConfig,
        GraphConfig,
        LLMConfig,
        PrunerConfig,
        RelevanceFilterConfig,
        RerankerConfig,
        RetrievalConfig,
        RewriterConfig,
        StoreConfig,
        TransformConfig,
    )
    from retrieval_core.text.analysis import Analyzer

BASES: Mapping[str, type[ports.Plugin]] = MappingProxyType(
    {
        "embedder": ports.Embedder,
        "llm": ports.LLM,
        "reranker": ports.Reranker,
        "relevance_filter": ports.RelevanceFilter,
        "pruner": ports.Pruner,
        "rewriter": ports.Rewriter,
        "transform": ports.QueryTransformer,
        "evaluation": ports.Evaluator,
        "answer": ports.Verifier,
        "cache": ports.ResultCache,
        "context": ports.TokenCounter,
    }
)
"""The base class of each port's adapters, by section; stores have :class:`~retrieval_core.ports.Store`."""


def local_cross_encoder(batch_size: int | None = None) -> ports.Reranker:
    """Return the cross-encoder of this machine, not yet loaded.

    Args:
        batch_size: Number of chunks in one call; ``None`` for its default.
    """
    from retrieval_core.adapters.rerankers.local import BATCH_SIZE, LocalCrossEncoder  # noqa: PLC0415

    return LocalCrossEncoder(batch_size=batch_size or BATCH_SIZE)


def make(port: Port, kind: str, section: Any, parts: AdapterParts, beside: tuple[str, ...] = (), **given: Any) -> Any:
    """Return an adapter, not yet loaded; ``None`` for ``none``, and if its language model is missing.

    Args:
        section: The section of the settings that names the kind.
        parts: Other components that it can use.
        beside: Further valid names, for the error.
        given: Further arguments for a class or function without ``from_settings``.

    Raises:
        ConfigurationError: The kind is unknown, its settings are wrong, or the object lacks a method.
    """
    if port.built_in.get(kind) == "":
        return None
    maker = port.find(kind, beside)
    if getattr(maker, "needs_llm", False) and parts.llm is None:
        return None
    settings, arguments = _settings(port, kind, maker, section)
    parts = replace(parts, kind=kind, section=section, cross_encoder=parts.cross_encoder or local_cross_encoder)
    has_maker = hasattr(maker, "from_settings")
    if kind in port.built_in:
        return maker.from_settings(settings, parts) if has_maker else maker(**arguments)
    try:
        made = maker.from_settings(settings, parts) if has_maker else _called(port, kind, maker, {**given, **arguments})
    except RetrievalError:
        raise
    except Exception as error:  # somebody else's class may raise anything
        msg = without_secrets(f"{port.setting}: {kind!r} could not be created ({type(error).__name__}: {error})")
        raise ConfigurationError(msg) from error
    try:
        return as_store(made) if port is kinds.STORE else as_plugin(made, BASES[port.section])
    except InvalidParameterError as error:
        # Its type, and not what it shows of itself, which may hold its settings.
        msg = f"{port.setting}: {kind!r} made an object of the type {type(made).__name__}: {error}"
        raise ConfigurationError(msg) from error


def _settings(port: Port, kind: str, maker: Any, section: Any) -> tuple[BaseModel | None, dict[str, Any]]:
    """Return the settings of a kind, if its class declares any, and its keyword arguments."""
    custom: dict[str, Any] = getattr(section, CUSTOM, {})
    if ":" not in kind:
        settings = section.settings_of(kind) if hasattr(section, "settings_of") else None
        if isinstance(settings, UndeclaredTable):
            return None, dict(settings)
    elif (model := port.declared(maker, kind)) is not None:
        settings = _checked(port, model, custom)
    else:
        return None, custom
    return settings, {} if settings is None else dict(settings)


def _checked(port: Port, model: type[BaseModel], custom: Mapping[str, Any]) -> BaseModel:
    """Return the settings of a custom class. Errors show no values, since any of them may be a secret."""
    lines: list[str] = []
    missing: list[str] = []
    try:
        settings = model.model_validate(custom)
        names = settings.missing() if isinstance(settings, AdapterSettings) else ()
        missing = [f"{port.section}.{CUSTOM}.{name}" for name in names]
        if not missing:
            return settings
    except ValidationError as error:
        lines = problems_of(
            error,
            name=lambda key: f"{port.section}.{CUSTOM}.{key}",
            meant=lambda path: get_close_matches(str(path[-1]), model.model_fields, n=1),
            secrets=None,
        )
    lines += [f"{key}: not set" for key in missing]
    raise refusal("the settings of a custom class have", lines, missing)


def _called(port: Port, kind: str, factory: Callable[..., object], arguments: dict[str, Any]) -> object:
    if not callable(factory):
        msg = f"{port.setting}: {kind!r} is no class or function, but a value of type {type(factory).__name__}"
        raise ConfigurationError(msg)
    try:
        with suppress(ValueError):  # functions written in C need not tell what they take
            signature(factory).bind(**arguments)
    except TypeError as error:
        given = ", ".join(arguments) or "no arguments"
        msg = without_secrets(f"{port.setting}: {kind!r} cannot be called with {given} ({error})")
        raise ConfigurationError(msg) from None
    return factory(**arguments)


def build_embedder(config: EmbedderConfig) -> ports.Embedder | None:
    """Return the configured embedder, not yet loaded; ``None`` for the kind ``none``."""
    return make(kinds.EMBEDDER, config.kind, config, AdapterParts())


def model_source(config: EmbedderConfig) -> str | None:
    """Return which local embedding model is used and where its files come from; ``None`` for other embedders.

    Nothing is loaded, and nothing is downloaded.

    Raises:
        ConfigurationError: As of :func:`~retrieval_core.open_index`.
    """
    source = getattr(build_embedder(config), "model_source", None)
    return source if isinstance(source, str) else None


def preloaded_embedder(config: RetrievalConfig) -> ports.Embedder | None:
    """Return the configured embedder and load its model in the background, for a program that is about to search.

    Raises:
        ConfigurationError: As of :func:`~retrieval_core.open_index`.
    """
    check_complete(config)
    embedder = build_embedder(config.embedder)
    preload = getattr(embedder, "preload", None)
    if preload is not None:
        preload()
    return embedder


def build_llm(config: LLMConfig) -> ports.LLM | None:
    """Return the configured language model; ``None`` for the kind ``none``."""
    return make(kinds.LLM, config.kind, config, AdapterParts())


def build_cache(config: CacheConfig) -> ports.ResultCache | None:
    """Return the configured cache of results; ``None`` for the kind ``none``."""
    return make(kinds.CACHE, config.kind, config, AdapterParts())


def build_store(
    config: StoreConfig,
    location: Path,
    embedder: ports.Embedder | None,
    *,
    analyzer: Analyzer | None = None,
) -> ports.Store:
    """Return the configured store, not yet opened.

    Args:
        location: The index file.
        embedder: The embedder of the index.
        analyzer: Splits text into terms. Default: English.
    """
    parts = AdapterParts(embedder=embedder, location=location, analyzer=analyzer)
    given = parts.of_store
    if config.kind not in kinds.STORE.built_in:
        from retrieval_core.text.analysis import Analyzer  # noqa: PLC0415 - the other stores load it too

        # A function need not know of what is as everywhere.
        if analyzer is None or analyzer.id == Analyzer().id:
            del given["analyzer"]
    return make(kinds.STORE, config.kind, config, parts, **given)


def build_analyzer(config: AnalysisConfig) -> Analyzer:
    """Return the analyzer, which splits text into terms, for stores and for highlighting.

    Raises:
        ConfigurationError: There is no such language, or its stop words are not installed.
    """
    from retrieval_core.text.analysis import Analyzer  # noqa: PLC0415

    try:
        return Analyzer(config.language, stop_words=config.stop_words, word_ngrams=config.word_ngrams)
    except InvalidParameterError as error:
        msg = f"analysis: {error}"
        raise ConfigurationError(msg) from error


def build_word_analyzer(config: AnalysisConfig) -> Analyzer:
    """Return the analyzer for single words, in the configured language."""
    return build_analyzer(config.model_copy(update={"word_ngrams": 1}))


def build_rerankers(
    config: RerankerConfig,
    llm: ports.LLM | None,
    local: Callable[[], ports.Reranker] = local_cross_encoder,
    analyzer: Analyzer | None = None,
) -> tuple[ports.Reranker, ...]:
    """Return the configured reranker and its fallbacks, in their order; none of them is loaded yet.

    The kind ``llm`` is left out if there is no LLM.

    Args:
        analyzer: Chooses the sentences that the kind ``local`` reads. Default: English.
    """
    parts = AdapterParts(llm, cross_encoder=local, analyzer=analyzer)
    made = (make(kinds.RERANKER, kind, config, parts) for kind in config.kinds)
    return tuple(reranker for reranker in made if reranker is not None)


def build_relevance_filter(
    config: RelevanceFilterConfig, llm: ports.LLM | None, local: Callable[[], ports.Reranker] = local_cross_encoder
) -> ports.RelevanceFilter | None:
    """Return the configured relevance filter; ``None`` for ``none``, and for ``llm`` if there is no LLM."""
    return make(kinds.RELEVANCE_FILTER, config.kind, config, AdapterParts(llm, cross_encoder=local))


def build_pruner(
    config: PrunerConfig, embedder: ports.Embedder | None, local: Callable[[], ports.Reranker]
) -> ports.Pruner | None:
    """Return the configured pruner, not yet loaded; ``None`` for the kind ``none``.

    Raises:
        ConfigurationError: The kind is unknown, or a setting is missing; ``missing_keys`` names it.
    """
    return make(kinds.PRUNER, config.kind, config, AdapterParts(embedder=embedder, cross_encoder=local))


def build_rewriter(config: RewriterConfig, llm: ports.LLM | None) -> ports.Rewriter | None:
    """Return the configured rewriter; ``None`` for ``none``, and for ``llm`` if there is no LLM."""
    return make(kinds.REWRITER, config.kind, config, AdapterParts(llm))


def build_evaluator(
    config: EvaluationConfig, llm: ports.LLM | None, embedder: ports.Embedder | None
) -> ports.Evaluator | None:
    """Return the configured evaluator; ``None`` for the kind ``none``."""
    if config.kind != NONE and config.kind in kinds.EVALUATOR.built_in:
        from retrieval_core.adapters.evaluators import choose_evaluator  # noqa: PLC0415 - it is off by default

        return choose_evaluator(config.kind, llm, embedder)
    return make(kinds.EVALUATOR, config.kind, config, AdapterParts(llm, embedder))


def build_token_counter(config: ContextConfig) -> ports.TokenCounter | None:
    """Return the token counter of contexts; ``None`` for ``auto``, which uses that of the embedder."""
    return make(kinds.TOKEN_COUNTER, config.token_counter, config, AdapterParts())


def build_verifier(config: AnswerConfig, llm: ports.LLM | None) -> ports.Verifier | None:
    """Return the configured verifier of answers; ``None`` if it needs a language model and there is none."""
    return make(kinds.VERIFIER, config.verifier, config, AdapterParts(llm))


@runtime_checkable
class OffersModels(Protocol):
    """A language model that can also return other models of its provider, over the same connection."""

    def with_model(self, model: str) -> ports.LLM:
        """Return another model of the provider. It doesn't need to be closed."""
        ...


def build_transformers(
    config: TransformConfig, llm: ports.LLM | None, given: Mapping[str, ports.QueryTransformer] | None = None
) -> Mapping[str, ports.QueryTransformer]:
    """Return all available query transformers by name.

    Built-in ones that need an LLM are left out if there is none. ``graph`` is left out if it is not given. This is
    also the case if ``use`` names them.

    Args:
        llm: Of the configuration; ``transform.model`` is another model of its provider.
        given: Ready-made ones, such as the graph's and those of a program. They go before those with the same name.

    Raises:
        ConfigurationError: ``use`` names something else, a factory fails, or the provider has no other models.
    """
    parts = AdapterParts(None if llm is None else model_for(config, llm))
    made: dict[str, ports.QueryTransformer] = dict(given or {})
    built_in = kinds.TRANSFORMER.built_in if llm is not None else ()  # all of them ask it
    for name in dict.fromkeys((*built_in, *config.use)):
        if name not in made:
            transformer = make(kinds.TRANSFORMER, name, config, parts, tuple(made))
            made |= {} if transformer is None else {name: transformer}
    return made


def build_graph_translator(config: GraphConfig, store: ports.Store) -> GraphQueryTranslator | None:
    """Return the translator of the configured graph, whose file is not yet read; ``None`` without a graph."""
    if config.file is None:
        return None
    from retrieval_core.adapters.graph import GraphQueryTranslator  # noqa: PLC0415 - only if it is configured

    return GraphQueryTranslator(config.file, store)


def build_condenser(config: TransformConfig, llm: ports.LLM | None) -> ports.QueryTransformer | None:
    """Return the transformer that completes follow-up questions; ``None`` if ``transform.history`` is ``none``.

    Without an LLM, it is the heuristic.

    Raises:
        ConfigurationError: The provider has no other models, and ``transform.model`` names one.
    """
    if config.history == "none":
        return None
    if llm is None or config.history == "heuristic":
        from retrieval_core.adapters.transformers.heuristic import HeuristicCondenser  # noqa: PLC0415

        return HeuristicCondenser()
    from retrieval_core.adapters.transformers.condense import LLMCondenser  # noqa: PLC0415

    return LLMCondenser(model_for(config, llm), prompt=config.prompts.get("history"))


def model_for(config: TransformConfig, llm: ports.LLM) -> ports.LLM:
    """Return the language model that transformers ask.

    Raises:
        ConfigurationError: ``transform.model`` is set, and the LLM offers no other models.
    """
    if config.model is None:
        return llm
    if not isinstance(llm, OffersModels):
        msg = f"transform.model: {llm.id} offers no other models. Remove it, or give the LLM a method with_model"
        raise ConfigurationError(msg)
    return llm.with_model(config.model)
