"""The transformers of questions as they are configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from retrieval_core.adapters.registry import TRANSFORMERS, Parts
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.config import TransformConfig
    from retrieval_core.ports import LLM, QueryTransformer


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
    parts = Parts(None if llm is None else model_for(config, llm))
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

        return HeuristicCondenser(turns=config.history_turns)
    from retrieval_core.adapters.transformers.condense import LLMCondenser  # noqa: PLC0415

    return LLMCondenser(model_for(config, llm), turns=config.history_turns, prompt=config.prompts.get("history"))


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
