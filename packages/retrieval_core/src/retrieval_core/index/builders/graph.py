"""The knowledge graph as it is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.adapters.graph import GraphFiles, GraphQueryTranslator
    from retrieval_core.adapters.graph.builder import GraphBuilder
    from retrieval_core.config import GraphConfig
    from retrieval_core.ports import LLM, Store
    from retrieval_core.run.runner import Guard


def extracted_file(location: Path) -> Path:
    """Return where the facts of an index are kept that were extracted from it: beside it."""
    return location.with_name(f"{location.name}.graph.jsonl")


def graph_files(config: GraphConfig, location: Path) -> GraphFiles | None:
    """Return the files of the configured graph, not yet read; ``None`` where there is no graph.

    Args:
        location: The index file.
    """
    if config.file is None and not config.extract:
        return None
    from retrieval_core.adapters.graph import GraphFiles  # noqa: PLC0415

    required = () if config.file is None else (config.file,)
    optional = (extracted_file(location),) if config.extract else ()
    return GraphFiles(*required, optional=optional)


def build_graph_translator(config: GraphConfig, store: Store, location: Path) -> GraphQueryTranslator | None:
    """Return what leads questions to chunks by the configured graph, not yet read; ``None`` where there is no graph.

    Args:
        location: The index file.
    """
    files = graph_files(config, location)
    if files is None:
        return None
    from retrieval_core.adapters.graph import GraphQueryTranslator  # noqa: PLC0415

    return GraphQueryTranslator(files, store)


def build_graph_builder(
    config: GraphConfig, llm: LLM | None, location: Path, guard: Guard | None = None
) -> GraphBuilder | None:
    """Return what extracts facts as chunks are indexed; ``None`` where that is switched off.

    Args:
        guard: How often failed requests are made again.

    Raises:
        ConfigurationError: There is no language model for it, or its prompt is blank.
    """
    if not config.extract:
        return None
    if llm is None:
        msg = "graph.extract needs a language model: set llm.kind, or provide your own triples with graph.file"
        raise ConfigurationError(msg, missing_keys=("llm.kind",))
    from retrieval_core.adapters.graph.builder import GraphBuilder  # noqa: PLC0415
    from retrieval_core.adapters.graph.extract import TripleExtractor  # noqa: PLC0415

    return GraphBuilder(extracted_file(location), TripleExtractor(llm, prompt=config.prompt), guard=guard)
