"""Several indexes searched as one: what each contributes, and what happens when some of them fail."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core.errors import (
    FilterError,
    InvalidParameterError,
    MissingExtraError,
    QueryValidationError,
    RetrievalError,
    ServiceConnectionError,
    ServiceError,
    StoreError,
)
from retrieval_core.index.federated import FederatedIndex
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.testing.fakes import FakeEmbedder, FakeRelevanceFilter, FakeReranker, FakeRewriter
from retrieval_core.types import Chunk, EvaluationScores
from support.groups import NAMES, QUESTION, Group, settings_with, sources, stages
from support.pipelines import TEXTS, TroubledStore, filled

if TYPE_CHECKING:
    from retrieval_core.types import RetrievalResult


class TestAnswers:
    """What comes of a query when everything works."""

    def test_every_hit_says_which_index_it_is_from(self) -> None:
        """Ids clash, so index and id are what makes a hit; the answers of all indexes lead."""
        result = Group().ask(top_k=6)
        assert sorted(map(str, sources(result)[:3])) == sorted(NAMES)
        assert [hit.id for hit in result.hits[:3]] == ["c0"] * 3
        assert len({(hit.source_index, hit.id) for hit in result.hits}) == 6
        assert result.degraded == ()
        counts = cast("dict[str, Any]", result.metadata["indexes"])
        assert [counts[name]["found"] for name in NAMES] == [4, 4, 4]
        assert sum(counts[name]["hits"] for name in NAMES) == 6
        assert result.metadata["merged_by"] == "scores"

    def test_the_trace_has_the_records_of_each_index(self) -> None:
        """Each index's own stages stand before its call, under its name."""
        names = [record.stage for record in Group().ask().trace]
        for name in NAMES:
            assert names.index(f"index {name}: lexical") < names.index(f"index {name}")
        assert names[-1] == "merge"

    def test_a_question_is_embedded_once(self) -> None:
        """Three indexes with one embedder: one call, and none when it is asked again."""
        embedder = FakeEmbedder()
        group = Group(embedder, cache__kind="none")
        group.ask()
        assert embedder.queries == [QUESTION]

    def test_some_of_the_indexes(self) -> None:
        """Only those that are named are asked; the specification's method does the same."""
        group = Group()
        assert set(sources(group.ask(indexes=["wiki"]))) == {"wiki"}
        assert not group.stores["docs"].calls
        with group.indexes() as indexes:
            hits = indexes.search_multiple_indexes(QUESTION, ["docs", "tickets"], top_k=3)
        assert {hit.source_index for hit in hits} == {"docs", "tickets"}

    def test_the_most_of_each_index(self) -> None:
        """No index contributes more than the limit of the call."""
        assert len(Group().ask(max_results_per_query=1).hits) == 3

    def test_filters_hold_in_every_index(self) -> None:
        """What a filter does not let pass comes from nowhere."""
        result = Group().ask(QUESTION, {"n": {"$gte": 2}})
        assert {cast("int", hit.chunk.metadata["n"]) for hit in result.hits} == {2, 3}
        assert result.metadata["filters_applied"]

    def test_weights(self) -> None:
        """A heavier index leads; one with the weight 0 is not asked."""
        group = Group()
        result = asyncio.run(group.indexes(weights={"wiki": 3, "docs": 0}).aretrieve(QUESTION))
        assert sources(result)[0] == "wiki"
        assert set(sources(result)) == {"wiki", "tickets"}
        assert not group.stores["docs"].calls
        config = settings_with(federation__weights={"wiki": 2})
        assert FederatedIndex(group.pipelines, config=config).weights["wiki"] == 2

    def test_the_same_passage_of_the_same_document_comes_once(self) -> None:
        """A copy in another index is left out and counted; the same words in another document stay."""
        group = Group()
        for name, document in (("docs", "shared"), ("wiki", "shared"), ("tickets", "other")):
            filled(group.stores[name], [Chunk("copy", document, QUESTION)])
        result = group.ask()
        assert sorted(str(hit.source_index) for hit in result.hits if hit.id == "copy") == ["docs", "tickets"]
        assert next(record for record in result.trace if record.stage == "merge").decision == (
            "by scores; 1 left out that another index has as well"
        )

    def test_reranking_compressing_and_rewriting_are_done_once_for_all(self) -> None:
        """One call with the best of the pool, another with what is shown, and a rewrite asks every index again."""
        reranker, relevance_filter = FakeReranker(), FakeRelevanceFilter()
        rewriter = FakeRewriter(["history of revisions"])
        group = Group(
            reranker__weight=1, reranker__candidates=12, rewriter__relevance_threshold=1, rewriter__max_attempts=1
        )
        group_index = group.indexes(reranker=reranker, relevance_filter=relevance_filter, rewriter=rewriter)
        result = asyncio.run(group_index.aretrieve("an application with rings of bread", top_k=3))
        assert [len(passages) for _, passages in reranker.calls] == [12, 12]
        assert [item.rewritten_query for item in result.rewrites] == ["history of revisions"]
        assert [store.calls["lexical"] for store in group.stores.values()] == [2, 2, 2]

    def test_a_rewriter_that_is_set_up_wrongly_is_raised(self) -> None:
        """As for one index; what may pass is listed, and the hits stay."""
        group = Group(rewriter__relevance_threshold=1, rewriter__max_attempts=1, retry__max_retries=0)

        def ask(status: int) -> RetrievalResult:
            def fail(_query: str, _context: str) -> str:
                raise ServiceError("no", "llm", status=status)

            return asyncio.run(group.indexes(rewriter=FakeRewriter(fail)).aretrieve(QUESTION))

        with pytest.raises(ServiceError, match="no"):
            ask(401)
        assert stages(result := ask(503)) == ["rewrite"]
        assert result.hits

    def test_the_reranker_decides_over_all_indexes(self) -> None:
        """A passage that its own index had last comes first."""
        texts = [f"{text} {name}" for text in TEXTS for name in NAMES]
        reranker = FakeReranker({**dict.fromkeys(texts, 0.1), f"{TEXTS[3]} wiki": 1.0})
        group = Group(reranker__weight=1)
        result = asyncio.run(group.indexes(reranker=reranker).aretrieve(QUESTION, top_k=2))
        assert (result.hits[0].source_index, result.hits[0].id) == ("wiki", "c3")
        assert len(reranker.calls) == 1

    def test_other_embedders_are_merged_by_ranks(self) -> None:
        """Cosines of two models say nothing beside each other; the indexes take turns."""
        group = Group()
        store = TroubledStore()
        other = FakeEmbedder(64)
        group.pipelines["wiki"] = RetrievalPipeline(store, other, config=group.config, clock=group.clock)
        small = Chunk("c0", "d", QUESTION)

        async def main() -> RetrievalResult:
            from retrieval_core.adapters.stores.memory import MemoryStore
            from retrieval_core.ports import Change

            memory = MemoryStore(embedder_id=other.id, dimension=64)
            await memory.upsert(Change(chunks=(small,), vectors=await other.embed_texts([small.indexed_text])))
            group.pipelines["wiki"] = RetrievalPipeline(memory, other, config=group.config, clock=group.clock)
            return await group.indexes().aretrieve(QUESTION, top_k=3)

        result = asyncio.run(main())
        assert result.metadata["merged_by"] == "ranks"
        assert sources(result) == ["docs", "tickets", "wiki"]

    def test_a_hundred_questions_at_a_time(self) -> None:
        """Each gets the answer that it gets alone."""
        group = Group(cache__kind="none")
        questions = [f"{text} {number}" for number in range(25) for text in TEXTS]

        async def main() -> list[RetrievalResult]:
            indexes = group.indexes()
            return await asyncio.gather(*(indexes.aretrieve(question, top_k=3) for question in questions))

        for question, result in zip(questions, asyncio.run(main()), strict=True):
            alone = group.ask(question, top_k=3)
            assert [(hit.source_index, hit.id) for hit in result.hits] == [(h.source_index, h.id) for h in alone.hits]


class TestFailures:
    """One dead index takes nothing from the others."""

    def test_a_store_that_raises(self) -> None:
        """Its index is listed, and the hits of the others come."""
        group = Group()
        group.kill("docs")
        result = group.ask()
        assert set(sources(result)) == {"tickets", "wiki"}
        assert stages(result) == ["index docs"]
        assert "gone" in result.degraded[0].reason

    def test_a_side_that_fails_is_listed_with_its_index(self) -> None:
        """The index goes on with its other side, and its ranks are used, since its scores are no match for others'."""
        group = Group()
        group.stores["docs"].failures["lexical"] = ServiceConnectionError("gone")
        result = group.ask()
        assert stages(result) == ["index docs: lexical"]
        assert "docs" in sources(result)
        assert result.metadata["merged_by"] == "ranks"

    @pytest.mark.parametrize(("mode", "stands_in"), [("lexical", "dense"), ("dense", "lexical")])
    def test_sides_that_stand_in_are_compared_by_their_scores(self, mode: Any, stands_in: str) -> None:
        """Where no index can be searched as was asked, all are on the other side, with scores that can be compared."""
        group = Group()
        for store in group.stores.values():
            store.failures[mode] = StoreError("damaged")
        result = group.ask(mode=mode)
        assert set(sources(result)) == {"docs", "tickets", "wiki"}
        assert all(getattr(hit.scores, stands_in) is not None for hit in result.hits)
        assert result.metadata["merged_by"] == "scores"

    def test_an_index_that_hangs(self) -> None:
        """At the end of its part of the deadline it is given up, and the others' hits are there."""
        group = Group()
        slow = group.config.model_copy(update={"deadline_seconds": None})
        group.stores["docs"].hanging |= {"dense", "lexical"}
        group.pipelines["docs"] = RetrievalPipeline(
            group.stores["docs"], FakeEmbedder(), config=slow, clock=group.clock
        )

        async def main() -> RetrievalResult:
            task = asyncio.create_task(group.indexes().aretrieve(QUESTION))
            for _ in range(200):
                await asyncio.sleep(0)
            group.clock.advance(29)
            return await task

        result = asyncio.run(main())
        assert stages(result) == ["index docs"]
        assert "deadline_seconds" in result.degraded[0].reason
        assert set(sources(result)) == {"tickets", "wiki"}

    def test_all_indexes_dead(self) -> None:
        """The result is empty and says why; or it is raised, where that is asked for."""
        group = Group()
        group.kill(*NAMES)
        result = group.ask()
        assert result.hits == ()
        assert "index docs: gone" in str(result.metadata["error"])
        assert stages(result) == [f"index {name}" for name in NAMES]
        loud = Group(raise_on_error=True)
        loud.kill(*NAMES)
        with pytest.raises(ServiceConnectionError, match="gone"):
            loud.ask()

    @pytest.mark.parametrize("purpose", ["all", "lexical"])
    def test_strict(self, purpose: str) -> None:
        """Whatever would be listed is raised."""
        group = Group(strict=True)
        if purpose == "all":
            group.kill("docs")
        else:
            group.stores["docs"].failures[purpose] = ServiceConnectionError("gone")
        with pytest.raises(RetrievalError, match="gone"):
            group.ask()

    @pytest.mark.parametrize(
        ("arguments", "options", "error"),
        [
            ((QUESTION, {"$no": 1}), {}, FilterError),
            (("  ",), {}, QueryValidationError),
            ((QUESTION,), {"top_k": 0}, InvalidParameterError),
            ((QUESTION,), {"mode": "telepathy"}, InvalidParameterError),
            ((QUESTION,), {"indexes": ["nope"]}, InvalidParameterError),
            ((QUESTION,), {"indexes": []}, InvalidParameterError),
            ((QUESTION,), {"indexes": [["docs"]]}, InvalidParameterError),
            ((QUESTION,), {"indexes": "docs"}, InvalidParameterError),
            ((QUESTION,), {"max_results_per_query": True}, InvalidParameterError),
            ((QUESTION,), {"topk": 3}, TypeError),
        ],
    )
    def test_what_is_asked_wrongly_raises(
        self, arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception]
    ) -> None:
        """No result hides a mistake in the question."""
        with pytest.raises(error):
            Group().ask(*arguments, **options)

    @pytest.mark.parametrize(
        ("names", "weights"),
        [
            ((), {}),
            (("a b",), {}),
            (("a:b",), {}),
            (("a",), {"b": 1}),
            (("a",), {"a": -1}),
            (("a",), {"a": float("nan")}),
        ],
    )
    def test_names_and_weights_are_checked(self, names: tuple[str, ...], weights: dict[str, float]) -> None:
        """What cannot be is refused when the indexes are put together."""
        pipeline = Group().pipelines["docs"]
        with pytest.raises(InvalidParameterError):
            FederatedIndex(dict.fromkeys(names, pipeline), weights=weights)

    def test_nothing_left_to_ask(self) -> None:
        """Indexes with the weight 0 alone cannot answer."""
        with pytest.raises(InvalidParameterError, match="weight 0"):
            asyncio.run(Group().indexes(weights={"docs": 0}).aretrieve(QUESTION, indexes=["docs"]))

    def test_a_reranker_that_fails_leaves_the_merged_order(self) -> None:
        """It is listed as it is for one index."""
        reranker = FakeReranker()
        reranker.failure = ServiceConnectionError("no reranker")
        result = asyncio.run(Group().indexes(reranker=reranker).aretrieve(QUESTION, top_k=3))
        assert stages(result) == ["rerank"]
        assert [hit.id for hit in result.hits] == ["c0"] * 3

    def test_a_timeout_bounds_what_is_done_for_all(self) -> None:
        """A reranker that hangs is given up after its time, which is named, long before the deadline."""
        reranker = FakeReranker()
        reranker.gate = asyncio.Event()
        group = Group(timeouts__reranking=2)

        async def main() -> RetrievalResult:
            task = asyncio.create_task(group.indexes(reranker=reranker).aretrieve(QUESTION, top_k=3))
            for _ in range(300):
                await asyncio.sleep(0)
            group.clock.advance(3)
            return await task

        result = asyncio.run(main())
        assert stages(result) == ["rerank"]
        assert "timeouts.reranking" in result.degraded[0].reason
        assert len(result.hits) == 3


class TestContexts:
    """What a model is shown of several indexes."""

    def test_ids_name_their_index_and_citations_can_be_checked(self) -> None:
        """The same ids of three indexes are three passages, each with its neighbours, and all citations match."""
        group = Group()
        indexes = group.indexes()
        pack = asyncio.run(indexes.acontext(QUESTION, top_k=3))
        shown = [passage.id for passage in pack.passages if passage.role == "primary"]
        assert sorted(shown) == [f"{name}:c0" for name in NAMES]
        assert all(check.matches for check in asyncio.run(indexes.averify(pack.sources)))
        assert [store.calls["fetch"] > 0 for store in group.stores.values()] == [True] * 3

    def test_a_citation_of_another_index_does_not_match(self) -> None:
        """It is said that the index is none of these."""
        indexes = Group().indexes()
        pack = asyncio.run(indexes.acontext(QUESTION, top_k=1))
        few = FederatedIndex({"else": Group().pipelines["docs"]})
        check = asyncio.run(few.averify(pack.sources))[0]
        assert "of none of the indexes else" in check.differences[0]

    def test_surroundings_that_cannot_be_read_are_listed(self) -> None:
        """The passages stay, those of the others with their neighbours."""
        group = Group()
        for store in group.stores.values():
            store.brings_chunks = True
        indexes = group.indexes()
        result = asyncio.run(indexes.aretrieve(QUESTION, top_k=3))
        group.stores["docs"].failures["fetch"] = ServiceConnectionError("gone")
        pack = asyncio.run(indexes.acontext(QUESTION, top_k=3))
        assert not result.degraded
        assert "index docs: surroundings" in [item.stage for item in pack.degraded]
        assert {passage.id.split(":")[0] for passage in pack.passages} == set(NAMES)


class TestAsOneIndex:
    """Several indexes are searched by the loop of one, and asked what one is asked."""

    def test_a_reranker_that_is_not_installed_is_done_without(self) -> None:
        """The first stage's order stays, and what is missing is listed; with ``strict`` it is raised."""
        reranker = FakeReranker()
        reranker.failure = MissingExtraError("local", "the reranker")
        result = asyncio.run(Group().indexes(reranker=reranker).aretrieve(QUESTION))
        assert [item.stage for item in result.degraded] == ["rerank"]
        assert result.hits
        with pytest.raises(MissingExtraError):
            asyncio.run(Group(strict=True).indexes(reranker=reranker).aretrieve(QUESTION))

    def test_a_result_is_scored_afterwards(self) -> None:
        """By the evaluator that several indexes have, as by a pipeline's."""

        class Evaluator:
            id = "fixed"

            async def evaluate(self, query: str, documents: Any, response: str) -> EvaluationScores:
                return EvaluationScores(response_relevancy=float(response == query))

        indexes = Group().indexes(evaluator=Evaluator())
        result = indexes.evaluate(indexes.retrieve(QUESTION), QUESTION)
        assert result.evaluation == EvaluationScores(response_relevancy=1.0)
        assert indexes.evaluate(replace(result, metadata={}), QUESTION).evaluation == result.evaluation
        with pytest.raises(InvalidParameterError, match="no evaluator"):
            Group().indexes().evaluate(result, QUESTION)

    def test_an_answer_may_be_of_some_of_the_indexes(self) -> None:
        """And one index has no such option."""
        group = Group()
        answer = group.indexes().answer(QUESTION, indexes=["wiki"])
        assert answer.pack is not None
        assert {passage.id.split(":")[0] for passage in answer.pack.passages} == {"wiki"}
        with pytest.raises(TypeError, match="indexes"):
            group.pipelines["wiki"].answer(QUESTION, indexes=["wiki"])
