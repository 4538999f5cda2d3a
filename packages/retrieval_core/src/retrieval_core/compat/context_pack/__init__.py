"""Context packs under the specification's own names, for an index or for a plain list of chunks.

::

    from retrieval_core.compat.context_pack import RetrievalConfig, retrieve

    config = RetrievalConfig.from_env()
    result = retrieve("What is the main topic?", {"doc_id": "doc_1"}, config, all_chunks=[], llm_config=None)
    print(result.citations, result.context_pack)

:meth:`retrieval_core.Index.context` does the same with the settings of the whole library; each part also works alone.
"""

from retrieval_core.compat.context_pack.assembler import DefaultContextAssembler, expand_neighbors
from retrieval_core.compat.context_pack.reranker import OpenAIReranker, RerankResult
from retrieval_core.compat.context_pack.retrieving import aretrieve, retrieve
from retrieval_core.compat.context_pack.settings import RerankConfig, RetrievalConfig
from retrieval_core.types import ContextPack, format_citation

__all__ = [
    "ContextPack",
    "DefaultContextAssembler",
    "OpenAIReranker",
    "RerankConfig",
    "RerankResult",
    "RetrievalConfig",
    "aretrieve",
    "expand_neighbors",
    "format_citation",
    "retrieve",
]
