"""What a pipeline costs by itself: every provider answers at once, so what is left is its own work.

``python benchmarks/overhead.py`` prints microseconds per query, the best of several runs, taken in turns within one
process: this library cold (every question is new) and cached, beside LlamaIndex's and LangChain's retrievers for the
same work: embed a question, search, hand out ten passages. The peers neither format, nor guard, nor time, nor cache.
Needs ``llama-index-core`` and ``langchain-core``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.config import load_config
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Candidate, Fetched
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeAlias

    from retrieval_core.ports import FetchRequest, SearchRequest, StoreInfo

    Ask: TypeAlias = Callable[[str], Awaitable[Any]]

DIMENSION = 8
QUERIES = 50
TURNS = 150
TEXTS = [f"passage number {number} about nothing in particular" for number in range(10)]
VECTOR = np.ones(DIMENSION, dtype=np.float32) / np.float32(DIMENSION**0.5)


class Embedder:
    """Answers at once."""

    id = "nothing"
    dimension = DIMENSION

    async def embed_query(self, _text: str) -> Any:
        """Return the one vector there is."""
        return VECTOR

    async def embed_texts(self, texts: Sequence[str]) -> Any:
        """Return it for each text."""
        return np.stack([VECTOR] * len(texts))


class Store:
    """Finds the same ten passages at once."""

    id = "nothing"
    sides = frozenset({"dense"})
    found = tuple(
        Candidate(f"c{number}", 0.9 - number / 100, Chunk(f"c{number}", "d", text, number, 10))
        for number, text in enumerate(TEXTS)
    )

    async def describe(self) -> StoreInfo:
        """Not be asked."""
        raise NotImplementedError

    async def search(self, _request: SearchRequest) -> tuple[Candidate, ...]:
        """Return what there is."""
        return self.found

    async def fetch(self, _request: FetchRequest) -> Fetched:
        """Return nothing: candidates have their chunks."""
        return Fetched()

    async def version(self) -> str:
        """Say that nothing changed, so that results are cached."""
        return "1"

    async def aclose(self) -> None:
        """Do nothing."""


def ours(*, cached: bool) -> Ask:
    """Return this library's pipeline, with its default guards."""
    config = load_config(overrides={"search.mode": "dense", "cache.kind": "memory" if cached else "none"})
    cache = MemoryCache(1000, 300) if cached else None
    pipeline: Any = RetrievalPipeline(Store(), Embedder(), config=config, cache=cache)  # type: ignore[arg-type]
    return pipeline.aretrieve


def langchain() -> Ask:
    """Return LangChain's vector store retriever over a store that answers at once."""
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore

    values = VECTOR.tolist()

    class NoEmbeddings(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [values for _ in texts]

        def embed_query(self, text: str) -> list[float]:  # noqa: ARG002
            return values

        async def aembed_query(self, text: str) -> list[float]:  # noqa: ARG002
            return values

    class NoStore(VectorStore):
        embedder = NoEmbeddings()
        found = [Document(id=f"c{number}", page_content=text) for number, text in enumerate(TEXTS)]  # noqa: RUF012

        @classmethod
        def from_texts(cls, *_: Any, **__: Any) -> Any:
            return cls()

        def similarity_search(self, *_: Any, **__: Any) -> list[Document]:
            return self.found

        async def asimilarity_search(self, query: str, k: int = 4, **_: Any) -> list[Document]:
            await self.embedder.aembed_query(query)
            return self.found[:k]

    return NoStore().as_retriever(search_kwargs={"k": 10}).ainvoke


def llama_index() -> Ask:
    """Return LlamaIndex's vector index retriever over a store that answers at once."""
    from llama_index.core import MockEmbedding, VectorStoreIndex
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQueryResult

    nodes = [TextNode(id_=f"c{number}", text=text) for number, text in enumerate(TEXTS)]
    scores = [0.9 - number / 100 for number in range(10)]

    class NoStore(BasePydanticVectorStore):
        stores_text: bool = True

        @property
        def client(self) -> Any:
            return None

        def add(self, nodes: Sequence[Any], **_: Any) -> list[str]:  # noqa: ARG002
            return []

        def delete(self, ref_doc_id: str, **_: Any) -> None: ...

        def query(self, query: Any, **_: Any) -> VectorStoreQueryResult:  # noqa: ARG002
            return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=[node.node_id for node in nodes])

        async def aquery(self, query: Any, **kwargs: Any) -> VectorStoreQueryResult:
            return self.query(query, **kwargs)

    index = VectorStoreIndex.from_vector_store(NoStore(), embed_model=MockEmbedding(embed_dim=DIMENSION))
    return index.as_retriever(similarity_top_k=10).aretrieve


def plain() -> Ask:
    """Return the same two calls without anything around them."""
    embedder, store = Embedder(), Store()

    async def ask(query: str) -> list[str]:
        await embedder.embed_query(query)
        return [f"{item.chunk_id}: {item.chunk.text if item.chunk else ''}" for item in await store.search(None)]  # type: ignore[arg-type]

    return ask


async def microseconds(ask: Ask, queries: list[str]) -> float:
    """Return the mean time of one query."""
    started = time.perf_counter()
    for query in queries:
        await ask(query)
    return (time.perf_counter() - started) / len(queries) * 1e6


async def main() -> None:
    """Measure everything in turns, so that a busy moment of the machine meets all alike."""
    candidates: dict[str, tuple[Ask, bool]] = {
        "plain Python": (plain(), False),
        "retrieval-core, cold": (ours(cached=False), False),
        "retrieval-core, cached": (ours(cached=True), True),
    }
    for name, make in (("LangChain", langchain), ("LlamaIndex", llama_index)):
        try:
            candidates[name] = (make(), False)
        except ImportError as error:
            print(f"{name}: left out ({error})", file=sys.stderr)
    best = dict.fromkeys(candidates, float("inf"))
    for turn in range(TURNS):
        for name, (ask, same) in candidates.items():
            queries = ["the same"] * QUERIES if same else [f"question {turn} {number}" for number in range(QUERIES)]
            best[name] = min(best[name], await microseconds(ask, queries))
    print(f"{'':26}{'µs a query':>12}{'of LangChain':>14}")
    peer = best.get("LangChain")
    for name, value in best.items():
        print(f"{name:26}{value:12.1f}" + (f"{value / peer:14.2f}" if peer else ""))


if __name__ == "__main__":
    asyncio.run(main())
