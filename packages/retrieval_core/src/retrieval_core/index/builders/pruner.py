"""The pruner as it is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from retrieval_core.errors import ConfigurationError
from retrieval_core.index.builders.factories import PRUNER_ABILITIES, call_factory

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.config import PrunerConfig
    from retrieval_core.ports import Embedder, Pruner, Reranker

BUILT_IN = ("embedder", "local", "provence", "none")


def build_pruner(config: PrunerConfig, embedder: Embedder | None, local: Callable[[], Reranker]) -> Pruner | None:
    """Return the configured pruner, not yet loaded; ``None`` for the kind ``none``.

    Args:
        embedder: The index's.
        local: Makes the cross-encoder of this machine, which other stages may share.

    Raises:
        ConfigurationError: The kind stands for nothing, or something that it needs is missing; ``missing_keys`` has it.
    """
    if config.kind == "none":
        return None
    chosen: dict[str, Any] = {} if config.threshold is None else {"threshold": config.threshold}
    if config.kind == "embedder":
        return _by_embedder(embedder, config.threshold)
    if config.kind == "local":
        from retrieval_core.adapters.pruners.cross_encoder import CrossEncoderPruner  # noqa: PLC0415

        return CrossEncoderPruner(local(), **chosen)
    if config.kind == "provence":
        from retrieval_core.adapters.pruners.provence import ProvencePruner  # noqa: PLC0415

        if unknown := sorted(config.options.keys() - {"model", "revision"}):
            msg = f"pruner.options: there is no {', '.join(unknown)} for provence; there are model and revision"
            raise ConfigurationError(msg)
        return ProvencePruner(**chosen, **config.options)
    return cast("Pruner", call_factory("pruner.kind", config.kind, config.options, BUILT_IN, PRUNER_ABILITIES))


def _by_embedder(embedder: Embedder | None, threshold: float | None) -> Pruner:
    from retrieval_core.adapters.embedders.local import BGE_SMALL_EN  # noqa: PLC0415
    from retrieval_core.adapters.pruners.embedder import DEFAULT_THRESHOLD, EmbedderPruner  # noqa: PLC0415

    if embedder is None:
        msg = "pruner.kind is 'embedder', and embedder.kind is 'none': set either of them to another kind"
        raise ConfigurationError(msg, missing_keys=("embedder.kind",))
    if threshold is None:
        if not embedder.id.startswith(f"{BGE_SMALL_EN.files.name}@"):
            msg = (
                f"pruner.threshold: needed for the embedder {embedder.id}; the least cosine of a sentence that bears "
                "on a question depends on the model"
            )
            raise ConfigurationError(msg, missing_keys=("pruner.threshold",))
        threshold = DEFAULT_THRESHOLD
    return EmbedderPruner(embedder, threshold=threshold)
