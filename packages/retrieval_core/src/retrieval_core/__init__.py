"""Turn a question into the few passages that answer it, and say where they come from and why they were chosen."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retrieval_core.build import open_index
    from retrieval_core.config import RetrievalConfig, load_config
    from retrieval_core.errors import RetrievalError
    from retrieval_core.filter_syntax import parse_filter, where
    from retrieval_core.index import Index
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.types import Chunk, Document, Hit, RetrievalResult, Scores

__all__ = [
    "Chunk",
    "Document",
    "Hit",
    "Index",
    "RetrievalConfig",
    "RetrievalError",
    "RetrievalPipeline",
    "RetrievalResult",
    "Scores",
    "load_config",
    "open_index",
    "parse_filter",
    "where",
]

_HOMES = {
    "Chunk": "types",
    "Document": "types",
    "Hit": "types",
    "Index": "index",
    "RetrievalConfig": "config",
    "RetrievalError": "errors",
    "RetrievalPipeline": "pipeline",
    "RetrievalResult": "types",
    "Scores": "types",
    "load_config": "config",
    "open_index": "build",
    "parse_filter": "filter_syntax",
    "where": "filter_syntax",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that each part of the library costs only what it needs."""
    if (home := _HOMES.get(name)) is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{home}"), name)
