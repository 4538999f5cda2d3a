"""Leaving out what does not bear on the question, and asking again in other words."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import (
    EmbeddingError,
    InvalidParameterError,
    ServiceConnectionError,
    ServiceError,
)
from retrieval_core.index.serialization import result_to_json
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Judgements, Rewritten
from retrieval_core.run.observe import explain
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder, FakeRelevanceFilter, FakeRewriter
from retrieval_core.types import Judgement
from support.pipelines import PHONES, TroubledStore, filled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Chunk, RetrievalResult

QUESTION = "roll back an application"
DOWN = ServiceConnectionError("the model is down")


class World:
    def __init__(self, relevance_filter: Any = None, rewriter: Any = None, **settings: Any) -> None:
        self.clock = FakeClock()
        self.store = TroubledStore()
        filled(self.store)
        self.embedder = FakeEmbedder()
        config = load_config(overrides={key.replace("__", "."): value for key, value in settings.items()})
        self.pipeline = RetrievalPipeline(
            self.store,
            self.embedder,
            relevance_filter=relevance_filter,
            rewriter=rewriter,
            config=config,
            clock=self.clock,
        )

    def ask(self, query: str = QUESTION, **settings: Any) -> RetrievalResult:
        return asyncio.run(self.pipeline.aretrieve(query, **settings))


async def turns(count: int) -> None:
    """Let the others have so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def judging(**scores: float) -> FakeRelevanceFilter:
    """A relevance filter that keeps what has a score of at least a half; 0 where none is given."""
    return FakeRelevanceFilter(
        {
            chunk.id: Judgement(scores.get(chunk.id, 0) >= 0.5, scores.get(chunk.id, 0), f"about {chunk.id}")
            for chunk in PHONES
        }
    )


def stages(result: RetrievalResult) -> list[str]:
    return [entry.stage for entry in result.degraded]


class TestCompression:
    """The stage that leaves passages out."""

    def test_what_is_irrelevant_goes(self) -> None:
        """The others keep order, chunk and scores, and say why they are there."""
        plain = World().ask()
        result = World(judging(p0=0.9, p3=0.6)).ask()
        assert [hit.id for hit in result.hits] == [hit.id for hit in plain.hits if hit.id in {"p0", "p3"}]
        by_id = {hit.id: hit for hit in plain.hits}
        for hit in result.hits:
            assert hit.chunk == by_id[hit.id].chunk
            assert hit.score == by_id[hit.id].score
            assert hit.relevance_reason == f"about {hit.id}"
        assert {hit.id: hit.scores.relevance for hit in result.hits} == {"p0": 0.9, "p3": 0.6}
        assert result.metadata["filtered_count"] == 2
        assert result.metadata["documents_after_compression"] == 2
        assert result.metadata["relevance_score"] == 0.9
        assert "p1" not in result.formatted_context

    def test_nothing_left_says_so(self) -> None:
        """An empty result tells that passages were found, and who kept them back."""
        result = World(judging()).ask()
        assert result.hits == ()
        assert "dropped all results (4)" in str(result.metadata["note"])
        assert result.metadata["relevance_score"] == 0
        assert result.degraded == ()
        assert any(record.decision and "none of 4" in record.decision for record in result.trace)

    def test_what_was_left_out_is_in_the_trace(self) -> None:
        """With score and reason, in the order of the hits; not what was kept or could not be judged."""

        class Picky(FakeRelevanceFilter):
            async def judge(self, query: str, chunks: Sequence[Chunk]) -> Judgements:
                if chunks[0].id == "p2":
                    raise ServiceError("no", status=400)
                return await super().judge(query, chunks)

        order = [hit.id for hit in World().ask().hits if hit.id in {"p1", "p3"}]
        verdicts = {
            "p0": Judgement(True, 0.9, "It tells it."),
            "p1": Judgement(False, 0.25, "It is about\nbread. " + "x" * 1000),
            "p3": Judgement(False, 0.125, cast("str", None)),  # a plug-in's, whatever its port says
        }
        result = World(Picky(verdicts)).ask()
        (record,) = [record for record in result.trace if record.stage == "relevance" and record.dropped]
        assert [item.id for item in record.dropped] == order
        dropped = {item.id: item for item in record.dropped}
        assert (dropped["p1"].score, dropped["p3"].score, dropped["p3"].reason) == (0.25, 0.125, "")
        assert dropped["p1"].reason.startswith("It is about\nbread.")
        assert len(dropped["p1"].reason) == 300
        assert result.metadata["filtered_count"] == len(record.dropped)
        assert (record.count_in, record.count_out) == (4, 2)
        shown = result_to_json(result, with_trace=True)["trace"][result.trace.index(record)]
        assert {item["id"]: item["score"] for item in shown["dropped"]} == {"p1": 0.25, "p3": 0.125}
        assert all(f"left out: {name} (" in explain(result) for name in order)

    def test_nothing_takes_the_place_of_what_goes(self) -> None:
        """``top_k`` passages are retrieved and then judged: of two, one goes, and no third comes up for it."""
        both = [hit.id for hit in World(search__top_k=2).ask().hits]
        relevance_filter = judging(**dict.fromkeys({"p0", "p1", "p2", "p3"} - {both[0]}, 1.0))
        result = World(relevance_filter, search__top_k=2).ask()
        assert [hit.id for hit in result.hits] == both[1:]
        assert len(both) == 2

    def test_failed_calls_leave_their_passages(self) -> None:
        """A dead model leaves the result as it was; one bad answer keeps one passage."""
        relevance_filter = judging(p0=1)
        relevance_filter.failure = DOWN
        result = World(relevance_filter, retry__max_retries=1).ask()
        assert len(result.hits) == 4
        assert stages(result) == ["relevance"]
        assert result.metadata["relevance_score"] == pytest.approx(max(s for s in result.scores if s is not None))

        class Picky(FakeRelevanceFilter):
            async def judge(self, query: str, chunks: Sequence[Chunk]) -> Judgements:
                if chunks[0].id == "p2":
                    raise ServiceError("no", status=400)
                return await super().judge(query, chunks)

        result = World(Picky({chunk.id: Judgement(False, 0.1) for chunk in PHONES})).ask()
        assert [hit.id for hit in result.hits] == ["p2"]
        assert stages(result) == ["relevance"]

    def test_wrong_keys_are_never_hidden(self) -> None:
        """A refused key is the caller's to mend."""
        relevance_filter = judging()
        relevance_filter.failure = ServiceError("no such key", status=401)
        with pytest.raises(ServiceError, match="no such key"):
            World(relevance_filter).ask()

    @pytest.mark.parametrize(("batch_size", "calls"), [(1, 4), (3, 2), (10, 1)])
    def test_calls_are_batched_and_bounded(self, batch_size: int, calls: int) -> None:
        """As many passages as the relevance filter takes, and no more than eight calls at a time."""
        relevance_filter = FakeRelevanceFilter(
            {chunk.id: Judgement(True, 1) for chunk in PHONES}, batch_size=batch_size
        )

        world = World(relevance_filter)

        async def test() -> None:
            relevance_filter.gate = asyncio.Event()
            task = asyncio.create_task(world.pipeline.aretrieve(QUESTION))
            await turns(50)
            assert relevance_filter.running == calls
            relevance_filter.gate.set()
            await task

        asyncio.run(test())
        assert len(relevance_filter.calls) == calls
        assert relevance_filter.most_running <= 8

    def test_the_question_of_the_user_counts(self) -> None:
        """Passages found by other words are judged by the question that was asked."""
        relevance_filter = judging()
        World(relevance_filter, FakeRewriter(["saturn rings"])).ask()
        assert {query for query, _ in relevance_filter.calls} == {QUESTION}


class TestRewriting:
    """Other words, when too little was found."""

    def test_other_words_find_more(self) -> None:
        """The best search counts; what was tried, and why, is in the result."""
        rewriter = FakeRewriter([Rewritten("a telescope", "astronomers call it so"), "never asked"])
        result = World(judging(p3=0.8), rewriter, search__top_k=1).ask("how bread is baked")
        assert [hit.id for hit in result.hits] == ["p3"]
        assert result.query == "how bread is baked"
        assert result.metadata["query_rewritten"] is True
        assert result.metadata["rewrite_attempts"] == 1
        assert result.metadata["query_searched"] == "a telescope"
        assert result.metadata["query_normalized"] == "how bread is baked"
        (rewrite,) = result.rewrites
        assert rewrite.original_query == "how bread is baked"
        assert rewrite.rewritten_query == "a telescope"
        assert rewrite.improvement_reason == "astronomers call it so"
        assert (rewrite.attempt_number, rewrite.relevance) == (1, 0.8)

    def test_good_enough_is_left_alone(self) -> None:
        """At the threshold nothing is rewritten."""
        rewriter = FakeRewriter([])
        result = World(judging(p0=0.5), rewriter, rewriter__relevance_threshold=0.5).ask()
        assert rewriter.calls == []
        assert (result.rewrites, result.metadata["rewrite_attempts"]) == ((), 0)

    def test_the_best_attempt_is_kept(self) -> None:
        """When other words do worse, the first search stands; each rewriting sees the best passages so far."""
        rewriter = FakeRewriter(["bread", "saturn"])
        world = World(judging(p0=0.3), rewriter, search__top_k=1)
        result = world.ask()
        assert [rewrite.relevance for rewrite in result.rewrites] == [0, 0]
        assert result.metadata["query_searched"] == QUESTION
        assert {query for query, _ in rewriter.calls} == {QUESTION}
        assert result.metadata["rewrite_attempts"] == 2

    def test_the_trace_says_which_search_a_stage_belongs_to(self) -> None:
        """1 for the question as it was asked, one more for each rewrite, and none for the rewriting itself."""
        result = World(judging(p0=0.3), FakeRewriter(["bread", "saturn"]), search__top_k=1).ask()
        rounds = [(record.stage, record.round) for record in result.trace if record.stage in {"embed", "relevance"}]
        assert {stage: [number for name, number in rounds if name == stage] for stage in ("embed", "relevance")} == {
            "embed": [1, 2, 3],
            "relevance": [1, 1, 2, 2, 3, 3],  # the call, and what came of it
        }
        assert [record.round for record in result.trace if record.stage == "rewrite"] == [None, None]
        assert [record.round for record in result.trace if record.dropped] == [1, 2, 3]

    def test_one_search_is_the_first(self) -> None:
        """Also where there is nothing to rewrite with."""
        assert {record.round for record in World(judging(p0=0.9)).ask().trace} == {1}

    def test_it_never_loops_on_the_same_words(self) -> None:
        """What was searched for already is not searched for again, in whatever case or spacing."""
        rewriter = FakeRewriter([f" {QUESTION.upper()} "] * 5)
        result = World(judging(), rewriter, rewriter__max_attempts=5).ask()
        assert len(rewriter.calls) == 1
        assert result.rewrites == ()
        assert any(record.decision and "already" in record.decision for record in result.trace)

    def test_without_a_relevance_filter_the_cosine_tells(self) -> None:
        """The best dense score is the relevance; an empty result has none."""
        rewriter = FakeRewriter(["a telescope shows the rings of saturn"])
        result = World(None, rewriter, rewriter__relevance_threshold=0.9).ask("circles")
        assert result.metadata["relevance_score"] == pytest.approx(1, abs=0.05)
        rewriter = FakeRewriter(["saturn"])
        result = World(None, rewriter, search__score_threshold=1.0, rewriter__max_attempts=1).ask("circles")
        assert len(rewriter.calls) == 1
        assert result.metadata["relevance_score"] == 0

    def test_with_neither_nothing_is_rewritten(self) -> None:
        """By words alone there is nothing to tell the relevance by."""
        rewriter = FakeRewriter([])
        result = World(None, rewriter).ask(mode="lexical")
        assert rewriter.calls == []
        assert result.metadata["relevance_score"] is None

    def test_a_dead_store_is_not_asked_again(self) -> None:
        """Nothing could be searched: other words would not help."""
        rewriter = FakeRewriter([])
        world = World(judging(), rewriter, retry__max_retries=0)
        world.store.failures = {"dense": DOWN, "lexical": DOWN}
        result = world.ask()
        assert rewriter.calls == []
        assert "down" in str(result.metadata["error"])

    def test_long_rewritings_are_cut_like_questions(self) -> None:
        """The same normal form, the same limit."""
        rewriter = FakeRewriter(["saturn  " * 50])
        result = World(judging(), rewriter, query__max_length=30, rewriter__max_attempts=1).ask("circles")
        assert result.rewrites[0].rewritten_query == ("saturn " * 50)[:30]

    def test_no_time_left_keeps_the_first_search(self) -> None:
        """A hanging rewriter ends with its share of the deadline."""
        rewriter = FakeRewriter(["saturn"])
        world = World(judging(p0=0.3), rewriter, deadline_seconds=10)

        async def test() -> RetrievalResult:
            rewriter.gate = asyncio.Event()
            task = asyncio.create_task(world.pipeline.aretrieve(QUESTION))
            await turns(50)
            assert rewriter.running
            world.clock.advance(9.5)
            return await task

        result = asyncio.run(test())
        assert stages(result) == ["rewrite"]
        assert result.metadata["query_searched"] == QUESTION


class WordlessStore(TroubledStore):
    """Searches by vector alone, and says so."""

    sides = frozenset({"dense"})


class TestStoresWithoutWords:
    """A store that has no keyword search is not asked to."""

    @pytest.fixture
    def world(self) -> World:
        world = World(retry__max_retries=0)
        store = WordlessStore()
        filled(store)
        world.store = store
        world.pipeline = RetrievalPipeline(store, world.embedder, config=world.pipeline.config, clock=world.clock)
        return world

    def test_hybrid_becomes_dense(self, world: World) -> None:
        """The result's metadata says which way it was."""
        result = world.ask()
        assert result.metadata["mode"] == "dense"
        assert result.degraded == ()
        assert world.store.calls["lexical"] == 0

    def test_asking_for_words_is_an_error(self, world: World) -> None:
        """It would find nothing, without a word."""
        with pytest.raises(InvalidParameterError, match="has no keyword search"):
            world.ask(mode="lexical")

    def test_a_dead_embedder_is_an_error(self, world: World) -> None:
        """There is no way round it; the error carries the query."""
        world.embedder.failure = DOWN
        with pytest.raises(EmbeddingError) as caught:
            world.ask()
        assert caught.value.query == QUESTION


class TestOddPlugIns:
    """What does not answer as its port says is done without, like what fails."""

    def test_closing_synchronously(self) -> None:
        """A plug-in may close in its own way, and one that fails keeps nothing else open."""
        closed: list[str] = []

        class Closable(FakeRelevanceFilter):
            def aclose(self) -> None:
                closed.append("relevance_filter")

        pipeline = RetrievalPipeline(TroubledStore(), relevance_filter=Closable())
        pipeline.close()
        assert closed == ["relevance_filter"]


class TestLaterSearches:
    """What happens to a search for other words never harms the first one."""

    @pytest.mark.parametrize("settings", [{}, {"raise_on_error": True}], ids=str)
    def test_a_store_that_dies_in_between(self, settings: dict[str, Any]) -> None:
        """The first hits stay, the failure is listed, and the result is not kept."""
        world = World(judging(p0=0.3), None, retry__max_retries=0, breaker__failures=0, **settings)

        class Killer(FakeRewriter):
            async def rewrite(self, query: str, context: str) -> Rewritten:
                world.store.failures = {"dense": DOWN, "lexical": DOWN}
                return await super().rewrite(query, context)

        relevance_filter = FakeRelevanceFilter({chunk.id: Judgement(True, 0.3) for chunk in PHONES})
        pipeline = RetrievalPipeline(
            world.store, world.embedder, relevance_filter=relevance_filter, rewriter=Killer(["saturn"]),
            config=world.pipeline.config, clock=world.clock,
        )  # fmt: skip
        result = asyncio.run(pipeline.aretrieve(QUESTION))
        assert len(result.hits) == 4
        assert set(stages(result)) == {"dense", "lexical"}

    def test_an_embedder_that_dies_in_between(self) -> None:
        """Also where words are no way out."""
        store = WordlessStore()
        filled(store)
        embedder = FakeEmbedder()

        class Killer(FakeRewriter):
            async def rewrite(self, query: str, context: str) -> Rewritten:
                embedder.failure = DOWN
                return await super().rewrite(query, context)

        config = load_config(overrides={"retry.max_retries": 0, "rewriter.relevance_threshold": 1.0})
        pipeline = RetrievalPipeline(store, embedder, rewriter=Killer(["saturn"]), config=config, clock=FakeClock())
        result = asyncio.run(pipeline.aretrieve(QUESTION))
        assert len(result.hits) == 4
        assert stages(result) == ["embed"]

    def test_the_original_question_is_the_normalised_one(self) -> None:
        """Whoever asks the same in other white space may get this result from the cache."""
        result = World(judging(), FakeRewriter(["saturn"]), rewriter__max_attempts=1).ask(f"  {QUESTION}\n")
        assert result.rewrites[0].original_query == QUESTION
