"""Open several indexes that share their models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core.adapters.registry import (
    build_cache,
    build_condenser,
    build_embedder,
    build_llm,
    build_transformers,
)
from retrieval_core.config import check_complete
from retrieval_core.errors import ConfigurationError, InvalidParameterError
from retrieval_core.index.federated import FederatedIndex
from retrieval_core.index.open import assemble_index, build_stages, loaded
from retrieval_core.index.settings import base_folder, config_for, load_shared_config
from retrieval_core.ports.checks import check_components

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline import RetrievalPipeline, Stage
    from retrieval_core.ports import LLM, Embedder, QueryTransformer, Reranker, TokenCounter, Verifier
    from retrieval_core.run.observe import Observer

IN_FILES = frozenset({"sqlite", "lancedb", "memory"})
"""Kinds of stores that a path says everything about."""
GRAPH = "graph"
"""The name of the transformer that each index has for itself, since its chunks are the index's."""
MAKE_AN_INDEX = ("store", "embedder", "chunking", "analysis")
"""Sections of the settings that say how an index is made."""


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
    token_counter: TokenCounter | None = None,
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
    check_components(embedder=embedder, llm=llm, reranker=reranker, token_counter=token_counter, observer=observer)
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
    made, condenser = build_transformers(config.transform, llm, transformers), build_condenser(config.transform, llm)
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
    return FederatedIndex(
        opened,
        weights=weights,
        transformers=made,
        condenser=condenser,
        joined=frozenset(paths),
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
