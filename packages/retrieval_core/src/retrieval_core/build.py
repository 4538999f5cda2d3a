"""From configuration to objects: the only place that turns names into classes."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.config import RetrievalConfig, load_config
from retrieval_core.errors import ConfigurationError
from retrieval_core.index import Index
from retrieval_core.ingest.ingester import Ingester
from retrieval_core.pipeline import RetrievalPipeline

if TYPE_CHECKING:
    from retrieval_core.config import EmbedderConfig, StoreConfig
    from retrieval_core.ports import CataloguedStore, Embedder


EMBEDDER_ABILITIES = ("id", "dimension", "embed_query", "embed_texts")
STORE_ABILITIES = ("describe", "upsert", "delete", "search", "fetch", "aclose", "sources", "documents_of")
"""What a factory's product must have, so that a wrong one is told at once."""


def open_index(
    path: str | Path | None = None,
    *,
    config: RetrievalConfig | str | Path | None = None,
    embedder: Embedder | None = None,
    store: CataloguedStore | None = None,
) -> Index:
    """Open an index, to fill it and to ask it. Nothing is read or loaded before the first call needs it.

    Args:
        path: The index file; ``config.index`` where it is not given. The first write makes it.
        config: Settings, a TOML file, or the name of a preset; the defaults where it is not given. The environment is
            not looked at, see :func:`retrieval_core.load_config`.
        embedder: Used in place of the configured one.
        store: Used in place of the configured one.

    Raises:
        ConfigurationError: A name in the configuration stands for nothing.
    """
    if not isinstance(config, RetrievalConfig):
        config = load_config(config)
    location = Path(path or config.index)
    if embedder is None:
        embedder = build_embedder(config.embedder)
    if store is None:
        store = build_store(config.store, location, embedder)
    pipeline = RetrievalPipeline(store, embedder, config=config)
    return Index(pipeline, Ingester(store, embedder, chunking=config.chunking, base=base_folder(location)))


def base_folder(index: Path) -> Path:
    """Return the folder that names of documents are relative to: the one that holds ``.retrieval``, or the index."""
    parent = index.absolute().parent
    return parent.parent if parent.name == ".retrieval" else parent


def build_embedder(config: EmbedderConfig) -> Embedder | None:
    """Return the configured embedder, not yet loaded; ``None`` for the kind ``none``."""
    if config.kind == "none":
        return None
    if config.kind == "local":
        from retrieval_core.embedders.local import LocalEmbedder  # noqa: PLC0415

        return LocalEmbedder(folder=config.model_folder, threads=config.threads)
    return cast(
        "Embedder", _call_factory("embedder.kind", config.kind, config.options, ("local", "none"), EMBEDDER_ABILITIES)
    )


def build_store(config: StoreConfig, location: Path, embedder: Embedder | None) -> CataloguedStore:
    """Return the configured store, not yet opened."""
    identity: dict[str, Any] = {
        "embedder_id": embedder.id if embedder is not None else None,
        "dimension": embedder.dimension if embedder is not None else None,
    }
    if config.kind == "sqlite":
        from retrieval_core.stores.sqlite import SqliteStore  # noqa: PLC0415

        return SqliteStore(location, busy_timeout=config.busy_timeout, **identity)
    if config.kind == "memory":
        from retrieval_core.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore(**identity)
    store = _call_factory(
        "store.kind", config.kind, {**identity, **config.options}, ("sqlite", "memory"), STORE_ABILITIES
    )
    return cast("CataloguedStore", store)


def _call_factory(
    key: str, name: str, options: dict[str, Any], built_in: tuple[str, ...], abilities: tuple[str, ...]
) -> object:
    module_name, colon, attribute = name.partition(":")
    if not colon:
        msg = f'{key}: {name!r} is none of {", ".join(built_in)}; a factory of your own is "package.module:factory"'
        raise ConfigurationError(msg)
    try:
        factory = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        msg = f"{key}: {name!r} cannot be imported ({error})"
        raise ConfigurationError(msg) from error
    try:
        with suppress(ValueError):  # functions written in C need not tell what they take
            signature(factory).bind(**options)
    except TypeError as error:
        msg = f"{key}: {name!r} cannot be called with {', '.join(options) or 'no arguments'} ({error})"
        raise ConfigurationError(msg) from error
    made = factory(**options)
    if missing := [ability for ability in abilities if not hasattr(made, ability)]:
        msg = f"{key}: {name!r} made {made!r:.80}, which has no {', '.join(missing)}; see retrieval_core.ports"
        raise ConfigurationError(msg)
    return made
