"""Parts of LlamaIndex as parts of retrieval-core: models, rerankers, vector stores and retrievers."""

from llama_index.retrievers.retrieval_core.adapters.build import from_index, pipeline_from
from llama_index.retrievers.retrieval_core.adapters.embedder import LlamaIndexEmbedder, embedder_id_of
from llama_index.retrievers.retrieval_core.adapters.llm import LlamaIndexLLM
from llama_index.retrievers.retrieval_core.adapters.reranker import LlamaIndexReranker
from llama_index.retrievers.retrieval_core.adapters.retriever import LlamaIndexRetriever, LlamaIndexRetrieverStore
from llama_index.retrievers.retrieval_core.adapters.store import (
    LlamaIndexStore,
    StoreAbilities,
    abilities_of,
)

__all__ = [
    "LlamaIndexEmbedder",
    "LlamaIndexLLM",
    "LlamaIndexReranker",
    "LlamaIndexRetriever",
    "LlamaIndexRetrieverStore",
    "LlamaIndexStore",
    "StoreAbilities",
    "abilities_of",
    "embedder_id_of",
    "from_index",
    "pipeline_from",
]
