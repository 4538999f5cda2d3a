"""What may be plugged in, as protocols, and the values that pass through them.

No base class is needed: any object with these methods will do. A method may be synchronous; it then runs in a thread.
"""

from retrieval_core.ports.caches import ResultCache
from retrieval_core.ports.embedders import CountsTokens, Embedder, TokenCounter
from retrieval_core.ports.models import (
    LLM,
    Completion,
    CompletionRequest,
    Compressor,
    Evaluator,
    Judgements,
    Message,
    Reranker,
    RerankScores,
    Rewriter,
    Rewritten,
)
from retrieval_core.ports.stores import (
    LIST_TYPES,
    Candidate,
    Catalog,
    CataloguedStore,
    Change,
    ChunkRange,
    Fetched,
    FetchRequest,
    FieldCatalogue,
    FieldInfo,
    Manifest,
    SearchRequest,
    Side,
    SourceState,
    Store,
    StoreInfo,
    Versioned,
)

__all__ = [
    "LIST_TYPES",
    "LLM",
    "Candidate",
    "Catalog",
    "CataloguedStore",
    "Change",
    "ChunkRange",
    "Completion",
    "CompletionRequest",
    "Compressor",
    "CountsTokens",
    "Embedder",
    "Evaluator",
    "FetchRequest",
    "Fetched",
    "FieldCatalogue",
    "FieldInfo",
    "Judgements",
    "Manifest",
    "Message",
    "RerankScores",
    "Reranker",
    "ResultCache",
    "Rewriter",
    "Rewritten",
    "SearchRequest",
    "Side",
    "SourceState",
    "Store",
    "StoreInfo",
    "TokenCounter",
    "Versioned",
]
