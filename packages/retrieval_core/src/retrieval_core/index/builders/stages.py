"""The stages of a pipeline that are models, as they are configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from retrieval_core.index.builders.factories import (
    EVALUATOR_ABILITIES,
    RELEVANCE_FILTER_ABILITIES,
    RERANKER_ABILITIES,
    REWRITER_ABILITIES,
    call_factory,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.config import (
        ContextConfig,
        EvaluationConfig,
        RelevanceFilterConfig,
        RerankerConfig,
        RewriterConfig,
    )
    from retrieval_core.ports import LLM, Embedder, Evaluator, RelevanceFilter, Reranker, Rewriter, TokenCounter


def local_cross_encoder(batch_size: int = 32) -> Reranker:
    """Return the cross-encoder of this machine, not yet loaded.

    Args:
        batch_size: Passages of one call.
    """
    from retrieval_core.adapters.rerankers.local import LocalCrossEncoder  # noqa: PLC0415

    return LocalCrossEncoder(batch_size=batch_size)


def build_rerankers(
    config: RerankerConfig, llm: LLM | None, local: Callable[[], Reranker] | None = None
) -> tuple[Reranker, ...]:
    """Return the configured reranker and those that stand in for it, in their order; none of them is loaded yet.

    The kind ``llm`` is left out where there is no LLM.

    Args:
        local: Makes the cross-encoder of this machine, which other stages may share; a new one where it is not given.
    """
    kinds = (config.kind, *config.fallbacks) if config.enabled else ()
    made = (_reranker(kind, config, llm, local or local_cross_encoder) for kind in kinds)
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
    from retrieval_core.adapters.rerankers.llm import LLMReranker  # noqa: PLC0415

    return LLMReranker(
        llm,
        prompt=config.prompt,
        batch_size=config.batch_size,
        max_characters=config.max_characters,
        strict_json=config.strict_json,
    )


def _cohere_reranker(config: RerankerConfig) -> Reranker:
    from retrieval_core.adapters.rerankers.cohere import CohereReranker  # noqa: PLC0415

    return CohereReranker(**dict(config.cohere))


def _fastembed_cross_encoder(config: RerankerConfig) -> Reranker:
    from retrieval_core.adapters.rerankers.fastembed import FastembedCrossEncoder  # noqa: PLC0415

    return FastembedCrossEncoder(**dict(config.cross_encoder))


def _fastembed_late_interaction(config: RerankerConfig) -> Reranker:
    from retrieval_core.adapters.rerankers.fastembed import FastembedLateInteraction  # noqa: PLC0415

    return FastembedLateInteraction(**dict(config.late_interaction))


def build_token_counter(config: ContextConfig) -> TokenCounter | None:
    """Return what counts the tokens of contexts; ``None`` for ``auto``: the pipeline then asks its embedder."""
    from retrieval_core.adapters.token_counters import AUTO, ENCODINGS, named_counter  # noqa: PLC0415

    kind = config.token_counter
    if kind == AUTO:
        return None
    if kind in ENCODINGS:
        return named_counter(kind)
    counter = call_factory("context.token_counter", kind, {}, (AUTO, *ENCODINGS), ("__call__",))
    return cast("TokenCounter", counter)


def build_relevance_filter(
    config: RelevanceFilterConfig, llm: LLM | None, local: Callable[[], Reranker] | None = None
) -> RelevanceFilter | None:
    """Return the configured relevance filter; ``None`` for the kind ``none``, and for ``llm`` where there is no LLM.

    Args:
        local: Makes the cross-encoder of this machine, which other stages may share; a new one where it is not given.
    """
    if config.kind == "none" or not config.enabled:
        return None
    if config.kind == "llm":
        from retrieval_core.adapters.relevance_filters.llm import LLMRelevanceFilter  # noqa: PLC0415

        if llm is None:
            return None
        return LLMRelevanceFilter(llm, prompt=config.relevance_prompt, batch_size=config.batch_size)
    if config.kind == "local":
        from retrieval_core.adapters.relevance_filters.cross_encoder import CrossEncoderRelevanceFilter  # noqa: PLC0415

        return CrossEncoderRelevanceFilter((local or local_cross_encoder)(), threshold=config.relevance_threshold)
    built_in = ("llm", "local", "none")
    made = call_factory("relevance_filter.kind", config.kind, config.options, built_in, RELEVANCE_FILTER_ABILITIES)
    return cast("RelevanceFilter", made)


def build_rewriter(config: RewriterConfig, llm: LLM | None) -> Rewriter | None:
    """Return the configured rewriter; ``None`` for the kind ``none``, and for ``llm`` where there is no LLM."""
    if config.kind == "none":
        return None
    if config.kind == "llm":
        from retrieval_core.adapters.transformers.rewrite import LLMRewriter  # noqa: PLC0415

        return None if llm is None else LLMRewriter(llm, prompt=config.rewrite_prompt)
    made = call_factory("rewriter.kind", config.kind, config.options, ("llm", "none"), REWRITER_ABILITIES)
    return cast("Rewriter", made)


def build_evaluator(config: EvaluationConfig, llm: LLM | None, embedder: Embedder | None) -> Evaluator | None:
    """Return the configured evaluator; ``None`` where evaluation is switched off."""
    if not config.enabled:
        return None
    if config.kind in {"auto", "ragas", "local"}:
        from retrieval_core.adapters.evaluators import choose_evaluator  # noqa: PLC0415

        return choose_evaluator(config.kind, llm, embedder)
    built_in = ("auto", "ragas", "local")
    made = call_factory("evaluation.kind", config.kind, config.options, built_in, EVALUATOR_ABILITIES)
    return cast("Evaluator", made)
