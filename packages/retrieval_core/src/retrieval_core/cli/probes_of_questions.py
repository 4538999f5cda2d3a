"""What ``retrieval doctor`` asks of what looks at a question, of what shortens its passages, and of verifiers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core.cli.probing import AbsentError, ask, llm_for_a_stage, made_by

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig


def transformer(name: str, config: RetrievalConfig, _seconds: float) -> str:
    """Make a transformer; those that ask a language model say which, and whether that answers is another finding."""
    from retrieval_core.index.builders.transformers import NEED_AN_LLM, build_transformers, model_for  # noqa: PLC0415

    if name == "graph":
        return _graph(config)
    if name in NEED_AN_LLM:
        return f"asks {model_for(config.transform, llm_for_a_stage(config)).id}"
    build_transformers(config.transform.model_copy(update={"use": (name,)}), None)
    return made_by(name)


def _graph(config: RetrievalConfig) -> str:
    from retrieval_core.index.builders.graph import graph_files  # noqa: PLC0415

    files = graph_files(config.graph, Path(config.index))
    if files is None:
        msg = "there is no graph and it is left out without one; see graph.file"
        raise AbsentError(msg)
    graph = files.get()
    return f"{len(graph.entities):,} entities and {len(graph.relations):,} relations"


def condenser(config: RetrievalConfig, _seconds: float) -> str:
    """Say what makes a question of a conversation stand alone."""
    kind = config.transform.history
    if kind != "llm":
        return "the question stays as it is" if kind == "none" else "by a rule, without a language model"
    if config.llm.kind == "none":
        msg = "there is no language model, so a rule does it; set llm.kind"
        raise AbsentError(msg)
    from retrieval_core.index.builders.transformers import model_for  # noqa: PLC0415

    return f"asks {model_for(config.transform, llm_for_a_stage(config)).id}"


def pruner(config: RetrievalConfig, seconds: float) -> str:
    """Have two sentences judged."""
    from retrieval_core.index.builders.pruner import build_pruner  # noqa: PLC0415
    from retrieval_core.index.open import build_embedder, local_cross_encoder  # noqa: PLC0415

    made = build_pruner(config.pruner, build_embedder(config.embedder), local_cross_encoder)
    if made is None or ":" in config.pruner.kind:
        return made_by(config.pruner.kind)
    ask(seconds, lambda: made.keep("Does it work?", [["It works.", "It rains."]]), made)
    return f"{made.id} judges sentences"


def verifier(config: RetrievalConfig, _seconds: float) -> str:
    """Make what holds answers against their passages; one that asks a language model says which."""
    from retrieval_core.index.builders.answers import build_verifier  # noqa: PLC0415

    kind = config.answer.verifier
    if kind == "llm" or (kind == "auto" and config.llm.kind != "none"):
        return f"asks {llm_for_a_stage(config).id}"
    build_verifier(config.answer, None)
    return made_by(kind) if ":" in kind else "words and figures are compared on this machine"
