"""Hybrid search and question answering over your own files, with citations you can verify.

::

    from retrieval_core import open_index

    with open_index("pages.db") as index:
        index.ingest("docs")
        for hit in index.retrieve("how do I roll back to an earlier revision").hits:
            print(hit.score, hit.chunk.source, hit.chunk.section_path, hit.chunk.text)

The public names are those of ``__all__``. :mod:`retrieval_core.ports` has the interfaces of plug-ins,
:mod:`retrieval_core.errors` all errors, and :mod:`retrieval_core.testing` fakes for your tests.
"""

TYPE_CHECKING = False  # typing is not imported for it: commands take care of Ctrl-C as soon as they can
if TYPE_CHECKING:
    from typing import Any

    from retrieval_core.config import ContextConfig, RetrievalConfig, load_config
    from retrieval_core.errors import RetrievalError
    from retrieval_core.index.copying import copy_index
    from retrieval_core.index.federated import FederatedIndex
    from retrieval_core.index.index import Index
    from retrieval_core.index.open import open_index, open_indexes
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.pipeline.stages.assemble import parse_context
    from retrieval_core.types import Answer, Chunk, ContextPack, Document, Hit, RetrievalResult, Scores, format_citation
    from retrieval_core.types.filters.syntax import parse_filter, where

__all__ = [
    "Answer",
    "Chunk",
    "ContextConfig",
    "ContextPack",
    "Document",
    "FederatedIndex",
    "Hit",
    "Index",
    "RetrievalConfig",
    "RetrievalError",
    "RetrievalPipeline",
    "RetrievalResult",
    "Scores",
    "copy_index",
    "format_citation",
    "load_config",
    "open_index",
    "open_indexes",
    "parse_context",
    "parse_filter",
    "where",
]

_HOMES = {
    "Answer": "types",
    "Chunk": "types",
    "ContextConfig": "config",
    "ContextPack": "types",
    "Document": "types",
    "FederatedIndex": "index.federated",
    "Hit": "types",
    "Index": "index.index",
    "RetrievalConfig": "config",
    "RetrievalError": "errors",
    "RetrievalPipeline": "pipeline",
    "RetrievalResult": "types",
    "Scores": "types",
    "copy_index": "index.copying",
    "format_citation": "types",
    "load_config": "config",
    "open_index": "index.open",
    "open_indexes": "index.open",
    "parse_context": "pipeline.stages.assemble",
    "parse_filter": "types.filters.syntax",
    "where": "types.filters.syntax",
}


def __getattr__(name: str) -> "Any":
    """Import a public name when it is first used, so that each part of the library costs only what it needs."""
    if (home := _HOMES.get(name)) is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module  # noqa: PLC0415 - see above

    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    """Return the public names, also those that were not used yet."""
    return sorted({*globals(), *__all__})
