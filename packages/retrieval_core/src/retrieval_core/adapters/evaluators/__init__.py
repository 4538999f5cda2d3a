"""Evaluators, and the choice between them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from retrieval_core.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from retrieval_core.ports import LLM, Embedder, Evaluator


def choose_evaluator(kind: str, llm: LLM | None, embedder: Embedder | None) -> Evaluator:
    """Return the evaluator that a configuration names.

    Args:
        kind: ``ragas``; ``local``; or ``auto``, which is ``ragas`` where its extra is installed and there are both a
            language model and an embedder, and ``local`` otherwise.
        llm: Stays the caller's to close.
        embedder: Stays the caller's to close.

    Raises:
        MissingExtraError: ``ragas`` was asked for and is not installed.
        ConfigurationError: ``ragas`` was asked for and lacks a language model or an embedder.
    """
    is_installed = kind != "local" and find_spec("ragas") is not None
    if kind == "ragas" and not is_installed:
        raise MissingExtraError("ragas", "the evaluation of the kind 'ragas'")
    if is_installed and llm is not None and embedder is not None:
        from retrieval_core.adapters.evaluators.ragas import RagasEvaluator  # noqa: PLC0415

        return RagasEvaluator(llm, embedder)
    if kind == "ragas":
        missing = [key for key, part in (("llm.kind", llm), ("embedder.kind", embedder)) if part is None]
        msg = (
            f"evaluation.kind 'ragas' needs a language model and an embedder; set {' and '.join(missing)}, "
            "or use evaluation.kind = 'local'"
        )
        raise ConfigurationError(msg, missing_keys=missing)
    from retrieval_core.adapters.evaluators.local import LocalEvaluator  # noqa: PLC0415

    return LocalEvaluator(embedder)
