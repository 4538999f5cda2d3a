"""Where an index is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core.adapters.stores.settings_memory import lancedb_folder

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.run.observe import UsageStats


def place_of(config: RetrievalConfig) -> Path:
    """Return the file or folder of the configured index, where it is one."""
    path = Path(config.index)
    return lancedb_folder(path) if config.store.kind == "lancedb" else path


def place_on_disk(config: RetrievalConfig, location: Path) -> Path | None:
    """Return the file or folder of an index; ``None`` if its store is none of ours that keep it on this machine."""
    if config.store.kind not in {"sqlite", "lancedb"}:
        return None
    return lancedb_folder(location) if config.store.kind == "lancedb" else location


def store_name(config: RetrievalConfig) -> str | None:
    """Return the name of the store that is filled, for people; ``None`` for a file or folder that is not there."""
    store = config.store
    match store.kind:
        case "sqlite" | "lancedb":
            place = place_of(config)
            return str(place) if place.exists() else None
        case "qdrant":
            where = store.qdrant.path or store.qdrant.url
            return f"the Qdrant collection {store.qdrant.collection} at {where}"
        case "pinecone":
            namespace = f", namespace {store.pinecone.namespace}" * bool(store.pinecone.namespace)
            return f"the Pinecone index {store.pinecone.index_name or store.pinecone.host}{namespace}"
        case "memory":
            return "memory, which is lost when the process ends"
        case kind:
            return f"the store {kind}"


def totals_of(config: RetrievalConfig) -> Path | None:
    """Return the file in which queries of the index are counted; ``None`` where it is not kept on this machine."""
    from retrieval_core.run.observe import totals_beside  # noqa: PLC0415 - most programs do not count

    return None if config.store.kind in {"memory", "pinecone", "qdrant"} else totals_beside(place_of(config))


def build_usage(config: RetrievalConfig) -> UsageStats | None:
    """Return what counts queries beside the index; ``None`` where it is not kept on this machine, or not there yet."""
    from retrieval_core.run.observe import UsageStats  # noqa: PLC0415 - most programs do not count

    file = totals_of(config)
    return UsageStats(file) if file is not None and place_of(config).exists() else None
