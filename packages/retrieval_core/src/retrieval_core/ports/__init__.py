"""The protocols of plug-ins, and the values that pass through them.

No base class is needed: any object with these methods will do. A method may be synchronous; it then runs in a thread.
"""

from retrieval_core.ports.caches import ResultCache
from retrieval_core.ports.embedders import CountsTokens, Embedder, EmbedsQueries, Preloading, Reopening, TokenCounter
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
    Evaluator,
    Judgements,
    Message,
    RelevanceFilter,
    Repairing,
    Reranker,
    RerankScores,
    Rewriter,
    Rewritten,
)
from retrieval_core.ports.pruners import Kept, Pruner
from retrieval_core.ports.retrievers import Retriever
from retrieval_core.ports.stores import Capability, HeldIndex, Store, Versioned, as_store, check_change, check_search
from retrieval_core.ports.transformers import BOTH_SIDES, Linked, QueryContext, QueryTransformer, Transformed, Variant
from retrieval_core.ports.verifiers import Verdicts, Verified, Verifier

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
    "CountsTokens",
    "Embedder",
    "EmbedsQueries",
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
    "Preloading",
    "Pruner",
    "QueryContext",
    "QueryTransformer",
    "RecordDamage",
    "RelevanceFilter",
    "Reopening",
    "Repairing",
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
    "as_store",
    "check_change",
    "check_search",
]

_ABILITIES: "dict[str, Capability]" = {
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


def __getattr__(name: str) -> type:
    """Return a former protocol of stores, which only ``isinstance()`` works with."""
    if name != "CataloguedStore" and name not in _ABILITIES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    import warnings  # noqa: PLC0415 - only for a former name

    if name == "CataloguedStore":
        warnings.warn("CataloguedStore is retrieval_core.ports.Store now", DeprecationWarning, stacklevel=2)
        return Store
    instead = f"ask whether {_ABILITIES[name]!r} is in Store.capabilities"
    warnings.warn(f"{name} is no protocol any more; {instead}", DeprecationWarning, stacklevel=2)
    return _Ability(name, (), {"capability": _ABILITIES[name]})
