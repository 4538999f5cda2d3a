"""Pipelines that have everything, and whose parts can be dead in several ways; for :mod:`degradation_table`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from retrieval_core.cache.memory import MemoryCache
from retrieval_core.compressors.llm import LLMCompressor
from retrieval_core.config import load_config
from retrieval_core.errors import ServiceConnectionError
from retrieval_core.federation import FederatedIndex
from retrieval_core.federation.searching import shares_of
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Candidate, Change, Completion, Kept
from retrieval_core.rerankers.llm import LLMReranker
from retrieval_core.rewriters.llm import LLMRewriter
from retrieval_core.stores.memory import MemoryStore
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.fakes_rerank import FakeReranker
from retrieval_core.transformers.condense import LLMCondenser
from retrieval_core.transformers.decompose import QueryDecomposer
from retrieval_core.transformers.hyde import HyDEGenerator
from retrieval_core.transformers.keywords import KeywordExpander
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from retrieval_core.ports import CompletionRequest, Fetched, FetchRequest, RerankScores, SearchRequest
    from retrieval_core.types import RetrievalResult

QUESTION = "roll back an application"
TEXTS = (
    "Roll back an application to an earlier revision. The history command has them all.",
    "The history command lists every earlier revision. Each of them belongs to an application.",
    "Bread is baked for forty minutes. The crust is brown then.",
)
CHUNKS = tuple(Chunk(f"c{n}", f"d{n}", text, title=text.partition(" ")[0]) for n, text in enumerate(TEXTS))
NOTE = Chunk("note", "notes", "A note on how to roll back.")

UNREACHABLE, OWN_ERROR, HANGS, NONSENSE = "unreachable", "own error", "hangs", "nonsense"
FAULTS = (UNREACHABLE, OWN_ERROR, HANGS, NONSENSE)
MAX_RETRIES = 2
DEADLINE = 30.0


class PluginError(Exception):
    """What nobody but a plug-in knows of."""


class World:
    """Says of each part whether it works.

    Attributes:
        asked: How often each part was called.
    """

    def __init__(self, dead: Iterable[str] = (), fault: str = "") -> None:
        self.clock = FakeClock()
        self.asked: Counter[str] = Counter()
        self._dead, self._fault = frozenset(dead), fault

    async def is_nonsense(self, part: str) -> bool:
        """Fail or hang where the part is to, and say whether it is to answer nonsense."""
        self.asked[part] += 1
        if part not in self._dead:
            return False
        if self._fault == UNREACHABLE:
            raise ServiceConnectionError("nobody answers", part)
        if self._fault == OWN_ERROR:
            raise PluginError("a mistake in it")
        if self._fault == HANGS:
            while self.clock.now() < 10 * DEADLINE:
                for _ in range(50):  # whatever goes on beside it is done by then
                    await asyncio.sleep(0)
                self.clock.advance(DEADLINE / 100)
            raise AssertionError("nobody ended what hangs")
        return True


class Embedder(FakeEmbedder):
    def __init__(self, world: World, index: str = "") -> None:
        super().__init__()
        self._world, self._part = world, f"{index}embedder"

    async def embed_query(self, text: str) -> Any:
        return "no vector" if await self._world.is_nonsense(self._part) else await super().embed_query(text)

    async def embed_texts(self, texts: Sequence[str]) -> Any:
        return "no vectors" if await self._world.is_nonsense(self._part) else await super().embed_texts(texts)

    async def reopen(self) -> None:
        """As the local embedder can be."""


class Store(MemoryStore):
    def __init__(self, world: World, index: str = "") -> None:
        super().__init__(embedder_id=FakeEmbedder().id, dimension=256, vectors=("title",))
        self._world, self._name = world, index

    async def fill(self, chunks: Sequence[Chunk] = CHUNKS) -> None:
        embed = FakeEmbedder().embed_texts
        titles = await embed([chunk.title or "" for chunk in chunks])
        named = {"title": {chunk.id: row for chunk, row in zip(chunks, titles, strict=True)}}
        vectors = await embed([chunk.indexed_text for chunk in chunks])
        await self.upsert(Change(chunks=tuple(chunks), vectors=vectors, named_vectors=named))

    async def version(self) -> Any:
        return 7 if await self._world.is_nonsense(f"{self._name}version") else await super().version()

    async def search(self, request: SearchRequest) -> Any:
        part = "lexical" if request.vector is None else request.vector_name or "dense"
        if await self._world.is_nonsense(f"{self._name}{part}"):
            return "nothing of use"
        return tuple(Candidate(item.chunk_id, item.score) for item in await super().search(request))

    async def fetch(self, request: FetchRequest) -> Fetched:
        nonsense: Any = "nothing of use"
        return nonsense if await self._world.is_nonsense(f"{self._name}fetch") else await super().fetch(request)


class Model:
    """A language model that answers one kind of question."""

    def __init__(self, world: World, part: str) -> None:
        self._world, self._part = world, part
        self.id = "a-model"

    async def complete(self, request: CompletionRequest) -> Completion:
        if await self._world.is_nonsense(self._part):
            return Completion("I would rather talk about the weather.")
        passages = request.messages[-1].content.count("\npassage ")
        graded = {"key_evidence": "", "answerability": True, "relevance_score": 50}
        answers: dict[str, Any] = {
            "condense": {"reason": "said before", "query": QUESTION},
            "keywords": {"words": ["revert"]},
            "decompose": {"questions": ["history command", "earlier revision"]},
            "hyde": {"passage": "An application is rolled back with one command."},
            "rerank": {"results": [{"id": n, **graded, "relevance_score": 99 - n} for n in range(1, passages + 1)]},
            "compress": {"1": {"reason": "it is near", "relevant": True, "score": 0.3}},
            "rewrite": {"reason": "too little", "query": "history of revisions of an application"},
        }
        return Completion(json.dumps(answers[self._part]))

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
        yield (await self.complete(request)).text


class Notes:
    id = "notes"

    def __init__(self, world: World) -> None:
        self._world = world

    async def search(self, query: str, k: int = 10) -> Any:
        return "no notes" if await self._world.is_nonsense("notes") else [Candidate(NOTE.id, 1.0, NOTE)]


class SecondReranker(FakeReranker):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def score(self, query: str, passages: Sequence[str]) -> RerankScores:
        nonsense: Any = {"scores": "good"}
        return nonsense if await self._world.is_nonsense("second reranker") else await super().score(query, passages)


class Pruner:
    id, batch_size = "first-sentences", 50

    def __init__(self, world: World) -> None:
        self._world = world

    async def keep(self, query: str, passages: Sequence[Sequence[str]]) -> Any:
        if await self._world.is_nonsense("prune"):
            return [True, False]
        return Kept(tuple(tuple(n == 0 for n, _ in enumerate(passage)) for passage in passages))


class Cache(MemoryCache):
    in_process = False

    def __init__(self, world: World) -> None:
        super().__init__(clock=world.clock)
        self._world = world

    async def get(self, key: str) -> Any:
        return "an old result" if await self._world.is_nonsense("cache") else await super().get(key)

    async def set(self, key: str, result: RetrievalResult) -> None:
        await self._world.is_nonsense("cache")
        await super().set(key, result)


def settings(*, rewriter: bool, **more: Any) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "vectors.fields": {"title": "title"},
        "transform.use": ["keywords", "decompose", "hyde"],
        "cache.semantic.enabled": True,
        "retry.max_retries": MAX_RETRIES,
        "retry.base_delay": 0,
        "deadline_seconds": DEADLINE,
        "rewriter.max_attempts": 1 if rewriter else 0,
        "rewriter.relevance_threshold": 1,  # no search is ever good enough
    }
    return wanted | {key.replace("__", "."): value for key, value in more.items()}


async def the_pipeline(world: World, *, rewriter: bool, **more: Any) -> RetrievalPipeline:
    """Return a pipeline that has everything."""
    store = Store(world)
    await store.fill()
    return RetrievalPipeline(
        store,
        Embedder(world),
        retrievers={"notes": Notes(world)},
        transformers={
            "keywords": KeywordExpander(Model(world, "keywords")),
            "decompose": QueryDecomposer(Model(world, "decompose")),
            "hyde": HyDEGenerator(Model(world, "hyde")),
        },
        condenser=LLMCondenser(Model(world, "condense")),
        reranker=(LLMReranker(Model(world, "rerank")), SecondReranker(world)),
        compressor=LLMCompressor(Model(world, "compress")),
        pruner=Pruner(world),
        rewriter=LLMRewriter(Model(world, "rewrite")) if rewriter else None,
        cache=Cache(world),
        config=load_config(overrides=settings(rewriter=rewriter, **more)),
        clock=world.clock,
    )


async def three_indexes(world: World, *, rewriter: bool, **more: Any) -> FederatedIndex:
    """Return three indexes of one passage each."""
    config = load_config(overrides=settings(rewriter=rewriter, **more))
    share, _, _ = shares_of(reranks=True, compresses=True, rewrites=rewriter)
    own = config.model_copy(update={"deadline_seconds": DEADLINE * share})  # as open_indexes has it
    members: dict[str, RetrievalPipeline] = {}
    for name, chunk in zip("abc", CHUNKS, strict=True):
        store = Store(world, f"{name} ")
        await store.fill([chunk])
        members[name] = RetrievalPipeline(store, Embedder(world, f"{name} "), config=own, clock=world.clock)
    return FederatedIndex(
        members,
        reranker=(LLMReranker(Model(world, "rerank")), SecondReranker(world)),
        compressor=LLMCompressor(Model(world, "compress")),
        rewriter=LLMRewriter(Model(world, "rewrite")) if rewriter else None,
        config=config,
        clock=world.clock,
    )
