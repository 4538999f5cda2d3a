"""A hundred asynchronous questions at once: the answers of each asked alone, and no blocking call on the loop.

BlockBuster is on in this folder, for the plug-in and the core; see ``conftest.py``.
"""

# LlamaIndex's own types are unknown in parts.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import BaseNode, NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index.postprocessor.retrieval_core import (
    ContextPackPostprocessor,
    LLMRerankPostprocessor,
    MMRPostprocessor,
    NeighborExpansionPostprocessor,
    RelevanceFilterPostprocessor,
    RerankPostprocessor,
    SentencePruningPostprocessor,
    TokenBudgetPostprocessor,
)
from llama_index.retrievers.retrieval_core import PassageNode, RetrievalCoreRetriever, node_from_chunk
from llama_index.retrievers.retrieval_core.adapters import from_index
from llama_index.storage.docstore.retrieval_core import RetrievalCoreDocumentStore
from llama_index.vector_stores.retrieval_core import RetrievalCoreVectorStore
from retrieval_core import open_index
from retrieval_core.adapters.pruners.threshold import EmbedderPruner
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.errors import SearchError
from retrieval_core.ports import FetchRequest
from retrieval_core.testing.fakes import FakeEmbedder, FakeReranker
from support.llamaindex_library import chunk
from support.llamaindex_models import AsyncScriptedLLM, ScriptedLLM, graded
from support.llamaindex_parts import WordEmbedding

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from llama_index.core.postprocessor.types import BaseNodePostprocessor

pytestmark = pytest.mark.slow

HUNDRED = range(100)
PLANETS = ("moon", "sun", "sea", "star", "rock")
TEXTS = [f"Text {n} tells of the {PLANETS[n % 5]}. Nobody asked for number {n * 7}." for n in range(40)]
CHUNKS = tuple(
    chunk("a.md", n, text, len(TEXTS), metadata={"n": n, "of": PLANETS[n % 5]}) for n, text in enumerate(TEXTS)
)

Seen = list[tuple[str, float | None, str, tuple[str, ...]]]


def seen(nodes: Sequence[NodeWithScore]) -> Seen:
    """Return what a user sees of nodes, with what did not work as configured."""
    return [
        (item.node.node_id, item.score, item.node.get_content(), tuple(_degraded(item.node))) for item in nodes
    ]  # fmt: skip


def _degraded(node: BaseNode) -> Iterable[str]:
    return node.degraded if isinstance(node, PassageNode) else ()


def question(number: int) -> str:
    return f"what of the {PLANETS[number % 5]}, number {number}"


def at_once_and_alone(ask: Callable[[int], Awaitable[Seen]], alone: Callable[[int], Seen] | None = None) -> list[Seen]:
    """Check that a hundred answers are the same at once, one after another, and synchronously; return them."""

    async def everything() -> tuple[list[Seen], list[Seen]]:
        return [*await asyncio.gather(*map(ask, HUNDRED))], [await ask(number) for number in HUNDRED]

    at_once, one_by_one = asyncio.run(everything())
    assert at_once == one_by_one
    if alone is not None:
        assert at_once == [alone(number) for number in HUNDRED]
    assert all(at_once)
    assert not [reason for answer in at_once for *_, degraded in answer for reason in degraded]
    assert len({repr(answer) for answer in at_once}) > 1
    return at_once


def of_retriever(retriever: Any) -> list[Seen]:
    async def ask(number: int) -> Seen:
        return seen(await retriever.aretrieve(question(number)))

    return at_once_and_alone(ask, lambda number: seen(retriever.retrieve(question(number))))


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_a_retriever_over_an_index_file(tmp_path: Path, cache: str) -> None:
    """With the cache of results and without it: then every question is searched three times."""
    path, embedder = tmp_path / "i.db", FakeEmbedder()
    with open_index(path, embedder=embedder) as index:
        index.add(CHUNKS)
    settings: dict[str, Any] = {} if cache == "memory" else {"cache__kind": "none"}
    with RetrievalCoreRetriever.from_index_file(path, embedder=embedder, top_k=4, **settings) as retriever:
        of_retriever(retriever)


def text_nodes() -> list[TextNode]:
    return [TextNode(id_=f"n{n}", text=text, metadata={"n": n}) for n, text in enumerate(TEXTS)]


def embedded_nodes() -> list[TextNode]:
    return [node.model_copy(update={"embedding": WordEmbedding().vector(node.text)}) for node in text_nodes()]


def test_a_retriever_from_a_stock_index() -> None:
    """``VectorStoreIndex`` with ``SimpleVectorStore``, whose own asynchronous methods search on the loop."""
    index = VectorStoreIndex(text_nodes(), embed_model=WordEmbedding())
    with from_index(index) as pipeline:
        answers = of_retriever(RetrievalCoreRetriever(pipeline, top_k=4))
    assert all(len(answer) == 4 for answer in answers)


@pytest.fixture(params=["memory", "sqlite"])
def vector_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RetrievalCoreVectorStore]:
    size = WordEmbedding().size
    own: Any = MemoryStore(embedder_id="m", dimension=size)
    if request.param == "sqlite":
        own = SqliteStore(tmp_path / "i.db", embedder_id="m", dimension=size)
    with RetrievalCoreVectorStore(own) as store:
        yield store
        asyncio.run(own.aclose())


@pytest.mark.parametrize("mode", ["default", "mmr", "hybrid", "text_search"])
def test_the_vector_store_through_a_stock_index(vector_store: RetrievalCoreVectorStore, mode: str) -> None:
    vector_store.add(
        [node.model_copy(update={"embedding": WordEmbedding().vector(node.text)}) for node in text_nodes()]
    )
    index = VectorStoreIndex.from_vector_store(vector_store, embed_model=WordEmbedding())
    of_retriever(index.as_retriever(similarity_top_k=4, vector_store_query_mode=mode))


def of_document(number: int) -> TextNode:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d")}
    vector = WordEmbedding().vector(question(number))
    return TextNode(id_=f"n{number}", text=question(number), embedding=vector, relationships=source)


def places(store: RetrievalCoreVectorStore) -> dict[str, tuple[int, int]]:
    """Return the place of each chunk of the index, and how many there are."""
    names = tuple(f"n{number}" for number in range(200))
    chunks = asyncio.run(store.client.fetch(FetchRequest(chunk_ids=names))).chunks
    return {name: (item.chunk_index, item.total_chunks) for name, item in chunks.items()}


def test_nodes_of_one_document_that_are_written_at_once_have_their_places(
    vector_store: RetrievalCoreVectorStore,
) -> None:
    """A hundred writers, while it is read; each node is there, and no two at one place."""

    async def write(number: int) -> None:
        await vector_store.async_add([of_document(number)])
        assert [node.node_id for node in await vector_store.aget_nodes([f"n{number}"])] == [f"n{number}"]

    async def everything() -> None:
        await asyncio.gather(*map(write, HUNDRED))

    asyncio.run(everything())
    found = places(vector_store)
    assert found.keys() == {f"n{number}" for number in HUNDRED}
    assert sorted(found.values()) == [(place, 100) for place in HUNDRED]


def test_nodes_that_are_deleted_at_once_stay_deleted(vector_store: RetrievalCoreVectorStore) -> None:
    """From two event loops and from threads; what one removes no other one writes again."""
    vector_store.add([of_document(number) for number in HUNDRED])

    async def delete(numbers: Iterable[int]) -> None:
        await asyncio.gather(*(vector_store.adelete_nodes([f"n{number}"]) for number in numbers))

    jobs: list[Callable[[], object]] = [
        lambda: asyncio.run(delete(range(30))),
        lambda: asyncio.run(delete(range(30, 60))),
        lambda: vector_store.delete_nodes([f"n{number}" for number in range(60, 75)]),
        lambda: vector_store.delete_nodes([f"n{number}" for number in range(75, 90)]),
        lambda: vector_store.add([of_document(100)]),
    ]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()
    found = places(vector_store)
    assert found.keys() == {f"n{number}" for number in range(90, 101)}
    assert sorted(found.values()) == [(place, 11) for place in range(11)]


def test_a_document_store() -> None:
    own = MemoryStore(embedder_id="m", dimension=WordEmbedding().size)
    store = RetrievalCoreVectorStore(own)
    store.add(embedded_nodes())
    view = RetrievalCoreDocumentStore(own)

    async def ask(number: int) -> Seen:
        names = [f"n{number % 40}", f"n{(number + 1) % 40}"]
        return seen([NodeWithScore(node=node) for node in await view.aget_nodes(names)])

    at_once_and_alone(ask)
    view.close()
    store.close()


def of_its_question(prompt: str) -> Callable[[str], int]:
    """Return grades of passages: those of the planet that the question names are better."""
    asked = next(planet for planet in PLANETS if f"the {planet}, number" in prompt)
    return lambda text: 90 if asked in text else len(text) % 50


def grades(prompt: str) -> str:
    return graded(of_its_question(prompt))(prompt)


def judgements(prompt: str) -> str:
    return '{"1": {"relevant": ' + ("true" if "the moon, number" in prompt else "false") + ', "reason": "so"}}'


POSTPROCESSORS: dict[str, Callable[[Any, FakeEmbedder], BaseNodePostprocessor]] = {
    "MMR": lambda _, embedder: MMRPostprocessor(embedder, top_n=4),
    "MMR, a model of LlamaIndex": lambda _, __: MMRPostprocessor(WordEmbedding(), top_n=4),
    "rerank": lambda _, __: RerankPostprocessor(FakeReranker(), top_n=4),
    "rubric": lambda _, __: LLMRerankPostprocessor(AsyncScriptedLLM(grades), top_n=4),
    "rubric, a model that blocks": lambda _, __: LLMRerankPostprocessor(ScriptedLLM(grades), top_n=4),
    "relevance": lambda _, __: RelevanceFilterPostprocessor(AsyncScriptedLLM(judgements)),
    "pruning": lambda _, embedder: SentencePruningPostprocessor(EmbedderPruner(embedder, threshold=0.3)),
    "neighbours": lambda store, _: NeighborExpansionPostprocessor(store),
    "budget": lambda _, __: TokenBudgetPostprocessor(20, token_counter=lambda text: len(text.split())),
    "context pack": lambda store, _: ContextPackPostprocessor(
        store, max_tokens=120, token_counter=lambda text: len(text.split())
    ),
}


@pytest.mark.parametrize("name", POSTPROCESSORS)
def test_a_postprocessor(tmp_path: Path, name: str) -> None:
    """One of each for all questions, over an index file."""
    embedder = FakeEmbedder()
    with open_index(tmp_path / "i.db", embedder=embedder) as index:
        index.add(CHUNKS)
        postprocessor = POSTPROCESSORS[name](index.store, embedder)

        def given(number: int) -> list[NodeWithScore]:
            chunks = [CHUNKS[(number + 3 * place) % len(CHUNKS)] for place in range(6)]
            return [
                NodeWithScore(node=node_from_chunk(item), score=1 - place / 10) for place, item in enumerate(chunks)
            ]

        async def ask(number: int) -> Seen:
            return seen(await postprocessor.apostprocess_nodes(given(number), query_str=question(number)))

        def alone(number: int) -> Seen:
            return seen(postprocessor.postprocess_nodes(given(number), query_str=question(number)))

        at_once_and_alone(ask, alone)
        postprocessor.close()  # type: ignore[attr-defined]


def test_a_blocking_call_would_be_noticed() -> None:
    """One that a model makes below a postprocessor."""

    class Blocks(FakeReranker):
        async def score(self, query: str, passages: Sequence[str]) -> Any:
            time.sleep(0)  # noqa: ASYNC251
            return await super().score(query, passages)

    nodes = [NodeWithScore(node=TextNode(text=text), score=0.5) for text in TEXTS[:3]]
    postprocessor = RerankPostprocessor(Blocks(), strict=True)
    with pytest.raises(SearchError, match=r"Blocking call to time\.sleep"):
        asyncio.run(postprocessor.apostprocess_nodes(nodes, query_str="moon"))
    postprocessor.close()
