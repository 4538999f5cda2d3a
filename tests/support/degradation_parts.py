"""Pipelines that have everything, and whose parts can be dead in several ways; for :mod:`degradation_table`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import asynccontextmanager, nullcontext
from threading import Event
from typing import TYPE_CHECKING, Any

from retrieval_core import FederatedIndex
from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.adapters.relevance_filters.llm import LLMRelevanceFilter
from retrieval_core.adapters.rerankers.llm import LLMReranker
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.transformers.condense import LLMCondenser
from retrieval_core.adapters.transformers.decompose import QueryDecomposer
from retrieval_core.adapters.transformers.hyde import HyDEGenerator
from retrieval_core.adapters.transformers.keywords import KeywordExpander
from retrieval_core.adapters.transformers.rewrite import LLMRewriter
from retrieval_core.config import load_config
from retrieval_core.errors import ServiceConnectionError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
from retrieval_core.ports import LLM, Candidate, Change, Completion, Kept, as_plugin
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder, FakeReranker, FakeVerifier
from retrieval_core.types import Chunk, EvaluationScores
from support.plugins import Panic, UnspeakableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from retrieval_core.ports import CompletionRequest, Fetched, FetchRequest, RerankScores, SearchRequest
    from retrieval_core.types import RetrievalResult, StageRecord

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
PANICS, CLOSES, EXITS, UNSPEAKABLE = "panics", "GeneratorExit", "SystemExit", "error without message"
INTERRUPTS, BLOCKS = "KeyboardInterrupt in a thread", "blocks a thread"
MISBEHAVIOUR = (PANICS, CLOSES, EXITS, UNSPEAKABLE, INTERRUPTS, BLOCKS)
"""What only code can do that is run in this process: raise what is no ``Exception``, or block."""
IN_THREADS = frozenset({INTERRUPTS, BLOCKS})
RAISED: dict[str, Callable[[], BaseException]] = {
    OWN_ERROR: lambda: PluginError("a mistake in it"),
    PANICS: lambda: Panic("index out of range"),
    CLOSES: GeneratorExit,
    EXITS: lambda: SystemExit(3),
    UNSPEAKABLE: UnspeakableError,
    INTERRUPTS: KeyboardInterrupt,
}
MAX_RETRIES = 2
DEADLINE = 30.0
PATIENCE = 30.0


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
        self._blocked = 0
        self._over = Event()

    async def is_nonsense(self, part: str) -> bool:
        """Fail or hang where the part is to, and say whether it is to answer nonsense."""
        if part in self._dead and self._fault in IN_THREADS:
            raise AssertionError("it was to be called in a thread")
        if part in self._dead and self._fault == HANGS:
            self.asked[part] += 1
            while self.clock.now() < 10 * DEADLINE:
                for _ in range(50):  # whatever goes on beside it is done by then
                    await asyncio.sleep(0)
                self.clock.advance(DEADLINE / 100)
            raise AssertionError("nobody ended what hangs")
        return self.is_nonsense_at_once(part)

    def is_nonsense_at_once(self, part: str) -> bool:
        """Do the same for what is no coroutine function, and so runs in a thread; what hangs there blocks it."""
        self.asked[part] += 1
        if part not in self._dead:
            return False
        if self._fault == UNREACHABLE:
            raise ServiceConnectionError("nobody answers", part)
        if (make := RAISED.get(self._fault)) is not None:
            raise make()
        if self._fault in {HANGS, BLOCKS}:
            self._blocked += 1
            self._over.wait(PATIENCE)
            raise AssertionError("it is over")
        return True

    def plug(self, plugin: Any, method: str, *parts: str, which: Callable[..., str] | None = None) -> Any:
        """Return a plug-in, one of whose methods is no coroutine function where it is dead in a way of threads.

        Args:
            plugin: It is changed.
            method: Does what the parts do.
            parts: Their names.
            which: Tells from the arguments which one is called, where there are several.
        """
        if self._fault in IN_THREADS and not self._dead.isdisjoint(parts):
            usual = getattr(plugin, method)

            def in_thread(*arguments: Any, **more: Any) -> Any:
                name = parts[0] if which is None else which(*arguments)
                if name in self._dead:
                    self.is_nonsense_at_once(name)
                return usual(*arguments, **more)  # awaited by whoever called

            setattr(plugin, method, in_thread)
        return plugin

    @asynccontextmanager
    async def passing_time(self) -> AsyncGenerator[None]:
        """Let time pass while something blocks, and let go of all that does in the end."""

        async def pass_time() -> None:
            while True:
                for _ in range(20):  # turns of a thread, so that a slow machine has more time
                    await asyncio.to_thread(_nothing)
                if self._blocked:
                    self.clock.advance(DEADLINE / 200)

        passing = asyncio.create_task(pass_time())
        try:
            yield
        finally:
            passing.cancel()
            self._over.set()


def _nothing() -> None:
    """What a thread does in no time."""


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
        super().__init__(embedder_id=FakeEmbedder().id, dimension=256)
        self._world, self._name = world, index

    async def fill(self, chunks: Sequence[Chunk] = CHUNKS) -> None:
        embed = FakeEmbedder().embed_texts
        vectors = await embed([chunk.indexed_text for chunk in chunks])
        await self.upsert(Change(chunks=tuple(chunks), vectors=vectors))

    def part_of(self, request: SearchRequest) -> str:
        return self._name + ("lexical" if request.vector is None else "dense")

    async def version(self) -> Any:
        return 7 if await self._world.is_nonsense(f"{self._name}version") else await super().version()

    async def search(self, request: SearchRequest) -> Any:
        if await self._world.is_nonsense(self.part_of(request)):
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
            "relevance": {"1": {"reason": "it is near", "relevant": True, "score": 0.3}},
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


class Writer:
    """Writes answers."""

    id = "writer"

    def __init__(self, world: World) -> None:
        self._world = world

    async def complete(self, request: CompletionRequest) -> Completion:
        raise NotImplementedError

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
        nonsense: Any = 7
        yield nonsense if await self._world.is_nonsense("writer") else f"{TEXTS[0]} [1]"


class Judge(FakeVerifier):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Any:
        nonsense = await self._world.is_nonsense("verifier")
        return "all is well" if nonsense else await super().verify(query, sentences, passages)


class Critic:
    id = "critic"

    def __init__(self, world: World) -> None:
        self._world = world

    async def evaluate(self, query: str, chunks: Sequence[Chunk], response: str) -> Any:
        return "splendid" if await self._world.is_nonsense("evaluator") else EvaluationScores(context_precision=1.0)


class Counts:
    """A token counter: a function, which is called in a thread."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, text: str, /) -> int:
        nonsense: Any = "many"
        return nonsense if self._world.is_nonsense_at_once("token counter") else len(text.split())


class Watcher:
    """An observer: its functions are called on the event loop."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _told(self, usual: Any) -> Any:
        return 7 if self._world.is_nonsense_at_once("observer") else usual

    def query(self) -> Any:
        return self._told(nullcontext())

    def span(self, stage: str) -> Any:
        return self._told(nullcontext(self))

    def end(self, record: StageRecord, error: Exception | None = None) -> None:
        self._told(None)

    def answered(self, result: RetrievalResult) -> None:
        self._told(None)


def settings(*, rewriter: bool, **more: Any) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "transform.use": ["keywords", "decompose", "hyde"],
        "cache.semantic.enabled": True,
        "retry.max_retries": MAX_RETRIES,
        "retry.base_delay": 0,
        "deadline_seconds": DEADLINE,
        "rewriter.max_attempts": 1 if rewriter else 0,
        "rewriter.relevance_threshold": 1,  # no search is ever good enough
    }
    return wanted | {key.replace("__", "."): value for key, value in more.items()}


async def a_store(world: World, index: str = "", chunks: Sequence[Chunk] = CHUNKS) -> Store:
    store = Store(world, index)
    await store.fill(chunks)
    sides = [f"{index}{side}" for side in ("dense", "lexical")]
    world.plug(store, "search", *sides, which=store.part_of)
    world.plug(store, "fetch", f"{index}fetch")
    return world.plug(store, "version", f"{index}version")


def an_embedder(world: World, index: str = "") -> Embedder:
    embedder = world.plug(Embedder(world, index), "embed_query", f"{index}embedder")
    return world.plug(embedder, "embed_texts", f"{index}embedder")


def rerankers(world: World) -> tuple[Any, ...]:
    first = world.plug(LLMReranker(as_plugin(Model(world, "rerank"), LLM)), "score", "rerank")
    return first, world.plug(SecondReranker(world), "score", "second reranker")


def a_relevance_filter(world: World) -> LLMRelevanceFilter:
    return world.plug(LLMRelevanceFilter(as_plugin(Model(world, "relevance"), LLM)), "judge", "relevance")


def a_rewriter(world: World) -> LLMRewriter:
    return world.plug(LLMRewriter(as_plugin(Model(world, "rewrite"), LLM)), "rewrite", "rewrite")


async def the_pipeline(world: World, *, rewriter: bool, **more: Any) -> RetrievalPipeline:
    """Return a pipeline that has everything a search may have."""
    return RetrievalPipeline(
        await a_store(world),
        an_embedder(world),
        retrievers={"notes": world.plug(Notes(world), "search", "notes")},
        transformers={
            "keywords": world.plug(KeywordExpander(as_plugin(Model(world, "keywords"), LLM)), "transform", "keywords"),
            "decompose": world.plug(
                QueryDecomposer(as_plugin(Model(world, "decompose"), LLM)), "transform", "decompose"
            ),
            "hyde": world.plug(HyDEGenerator(as_plugin(Model(world, "hyde"), LLM)), "transform", "hyde"),
        },
        condenser=world.plug(LLMCondenser(as_plugin(Model(world, "condense"), LLM)), "transform", "condense"),
        reranker=rerankers(world),
        relevance_filter=a_relevance_filter(world),
        pruner=world.plug(Pruner(world), "keep", "prune"),
        rewriter=a_rewriter(world) if rewriter else None,
        cache=world.plug(world.plug(Cache(world), "get", "cache"), "set", "cache"),
        config=load_config(overrides=settings(rewriter=rewriter, **more)),
        clock=world.clock,
    )


async def answering_pipeline(world: World, *, observer: bool = False, evaluator: bool = False) -> RetrievalPipeline:
    """Return a pipeline that has what answers have beside a search."""
    return RetrievalPipeline(
        await a_store(world),
        an_embedder(world),
        answer_writer=AnswerWriter(
            as_plugin(Writer(world), LLM), verifier=world.plug(Judge(world), "verify", "verifier")
        ),
        evaluator=world.plug(Critic(world), "evaluate", "evaluator") if evaluator else None,
        token_counter=Counts(world),
        observer=Watcher(world) if observer else None,
        config=load_config(overrides={"deadline_seconds": DEADLINE, "retry.base_delay": 0}),
        clock=world.clock,
    )


async def three_indexes(world: World, *, rewriter: bool, **more: Any) -> FederatedIndex:
    """Return three indexes of one passage each."""
    config = load_config(overrides=settings(rewriter=rewriter, **more))
    members: dict[str, RetrievalPipeline] = {}
    for name, chunk in zip("abc", CHUNKS, strict=True):
        store = await a_store(world, f"{name} ", [chunk])
        members[name] = RetrievalPipeline(store, an_embedder(world, f"{name} "), config=config, clock=world.clock)
    return FederatedIndex(
        members,
        reranker=rerankers(world),
        relevance_filter=a_relevance_filter(world),
        rewriter=a_rewriter(world) if rewriter else None,
        config=config,
        clock=world.clock,
    )
