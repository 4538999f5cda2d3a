"""The base classes of plug-ins, and the values that pass through them.

A base class calls what you write, and checks its answer. An object without the base class works if it has the public
methods: :func:`as_plugin` wraps it. A method may be synchronous; it then runs in a thread.
"""

from __future__ import annotations

from typing import Any

from retrieval_core.ports.caches import ResultCache
from retrieval_core.ports.index_values import (
    LIST_TYPES,
    Candidate,
    Change,
    ChunkRange,
    CollectionState,
    Fetched,
    FetchRequest,
    FieldInfo,
    Manifest,
    RecordDamage,
    SearchRequest,
    Side,
    SourceState,
    StoredDamage,
    StoreInfo,
    TermCounts,
)
from retrieval_core.ports.models import (
    LLM,
    Completion,
    CompletionRequest,
    Embedder,
    Evaluator,
    Judgements,
    Kept,
    Message,
    Pruner,
    RelevanceFilter,
    Reranker,
    RerankScores,
    Rewriter,
    Rewritten,
    TokenCounter,
    Verdicts,
    Verified,
    Verifier,
)
from retrieval_core.ports.plugin import Plugin, as_plugin
from retrieval_core.ports.stores import Capability, HeldIndex, Store, Versioned, as_store, check_change, check_search
from retrieval_core.ports.transformers import (
    BOTH_SIDES,
    Linked,
    QueryContext,
    QueryTransformer,
    Retriever,
    Transformed,
    Variant,
)

__all__ = [
    "BOTH_SIDES",
    "LIST_TYPES",
    "LLM",
    "Candidate",
    "Capability",
    "Change",
    "ChunkRange",
    "CollectionState",
    "Completion",
    "CompletionRequest",
    "Embedder",
    "Evaluator",
    "FetchRequest",
    "Fetched",
    "FieldInfo",
    "HeldIndex",
    "Judgements",
    "Kept",
    "Linked",
    "Manifest",
    "Message",
    "Plugin",
    "Pruner",
    "QueryContext",
    "QueryTransformer",
    "RecordDamage",
    "RelevanceFilter",
    "RerankScores",
    "Reranker",
    "ResultCache",
    "Retriever",
    "Rewriter",
    "Rewritten",
    "SearchRequest",
    "Side",
    "SourceState",
    "Store",
    "StoreInfo",
    "StoredDamage",
    "TermCounts",
    "TokenCounter",
    "Transformed",
    "Variant",
    "Verdicts",
    "Verified",
    "Verifier",
    "Versioned",
    "as_plugin",
    "as_store",
    "check_change",
    "check_search",
]

_FORMER: dict[str, tuple[type[Plugin], str]] = {
    "CountsTokens": (Embedder, "count_tokens"),
    "EmbedsQueries": (Embedder, "embed_queries"),
    "Preloading": (Embedder, "preload"),
    "Reopening": (Embedder, "reopen"),
    "Repairing": (Reranker, "repair"),
}
"""The ports that contain former protocols for optional methods, and the names of these methods."""
_ABILITIES: dict[str, Capability] = {
    "AddsVectors": "add_vectors",
    "Catalog": "sources",
    "CountsChunks": "count_chunks",
    "CountsTerms": "count_terms",
    "DescribesCollection": "describe_collection",
    "FieldCatalogue": "fields",
    "ListsDocuments": "document_ids",
    "Optimizes": "optimize",
    "SamplesFields": "sample_fields",
    "SearchesBoth": "search_both",
    "SelfChecking": "find_damage",
    "SelfRepairing": "repair",
}
"""The optional methods of a store that former versions had protocols for."""


class _Ability(type):
    capability: Capability

    def __instancecheck__(cls, store: object) -> bool:
        return cls.capability in as_store(store).capabilities


def __getattr__(name: str) -> Any:
    """Return a port by the former name of a protocol for one of its optional methods.

    Those of stores are no ports: only ``isinstance()`` works with them.
    """
    if name != "CataloguedStore" and name not in _ABILITIES and name not in _FORMER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    import warnings  # noqa: PLC0415 - only for a former name

    if name == "CataloguedStore":
        warnings.warn("CataloguedStore is retrieval_core.ports.Store now", DeprecationWarning, stacklevel=2)
        return Store
    if name in _FORMER:
        port, method = _FORMER[name]
        advice = f'to find out whether a plug-in has the method, test "{method}" in plugin.capabilities'
        warnings.warn(f"{name} is part of {port.__name__} now; {advice}", DeprecationWarning, stacklevel=2)
        return port
    instead = f"ask whether {_ABILITIES[name]!r} is in Store.capabilities"
    warnings.warn(f"{name} is no protocol any more; {instead}", DeprecationWarning, stacklevel=2)
    return _Ability(name, (), {"capability": _ABILITIES[name]})
