"""What several indexes do together: each model is asked once about a question, however many of them search for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from retrieval_core import open_index
from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.errors import InvalidParameterError, QueryValidationError, RetrievalError, ServiceError
from retrieval_core.index.federated import FederatedIndex
from retrieval_core.index.open import open_indexes
from retrieval_core.pipeline import Run, SearchState, Stage
from retrieval_core.ports import Transformed, Variant
from retrieval_core.testing.fakes import (
    CountingFakeEmbedder,
    FakeEmbedder,
    FakePruner,
    FakeReranker,
    FakeRewriter,
    FakeTransformer,
)
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Chunk
from support.groups import NAMES, QUESTION, Group, settings_with, sources, stages
from support.pipelines import TEXTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from retrieval_core.ports import CompletionRequest
    from retrieval_core.types import Matrix

FILES = ("a", "b", "c")
HISTORY = [{"role": "user", "content": "what do telescopes show"}, {"role": "assistant", "content": "Saturn."}]


def fitting(request: CompletionRequest) -> Mapping[str, Any]:
    """Answer as the built-in transformer wants it whose schema it is."""
    assert request.schema is not None
    answers: dict[str, Any] = {
        "words": ["rollback", "undo"],
        "questions": ["what is a revision", "what is rolling back"],
        "passage": "Undo a release with the history command.",
        "query": "rings that a telescope shows",
        "reason": "put in",
    }
    properties = request.schema["properties"]
    assert isinstance(properties, dict)
    return {name: answers[name] for name in properties}


def opened(folder: Path, llm: FakeLLM | None = None, parts: Mapping[str, Any] | None = None, **settings: Any) -> Any:
    """Return three indexes from their files, each with a passage of its own for each text."""
    for name in FILES:
        with open_index(folder / f"{name}.db", embedder=CountingFakeEmbedder()) as index:
            index.add([Chunk(f"c{n}", f"d{n}", f"{text} {name}") for n, text in enumerate(TEXTS)])
    given: dict[str, Any] = {"embedder": CountingFakeEmbedder(), **(parts or {})}
    config = settings_with(**{**settings, "reranker__kind": "none"})
    return open_indexes([folder / f"{name}.db" for name in FILES], config=config, llm=llm, **given)


class TestTransforming:
    """Questions that are looked at once."""

    def test_each_transformer_asks_the_model_once_for_all_indexes(self, tmp_path: Path) -> None:
        """Two calls for three indexes, none when it is asked again; every index searches for what came of them."""
        llm, embedder = FakeLLM(fitting), CountingFakeEmbedder()
        with opened(tmp_path, llm, {"embedder": embedder}, transform__use=["keywords", "hyde"]) as indexes:
            result = indexes.retrieve(QUESTION, top_k=3)
            assert len(llm.requests) == 2
            assert sorted(map(str, sources(result))) == list(FILES)
            assert result.degraded == ()
            kinds = [item["kind"] for item in result.metadata["query_expansion"]]
            assert sorted(kinds) == ["keywords", "passage"]
            assert {origin.kind for hit in result.hits for origin in hit.found_by} == {"keywords", "passage"}
            indexes.retrieve(QUESTION, top_k=3)
            assert len(llm.requests) == 2
        assert embedder.queries == [QUESTION]

    def test_what_a_model_took_is_told_once(self, tmp_path: Path) -> None:
        """The trace has one record with the call's usage, that of the group."""
        llm = FakeLLM(fitting)
        with opened(tmp_path, llm, transform__use=["decompose"]) as indexes:
            trace = indexes.retrieve(QUESTION).trace
        told = [record.stage for record in trace if record.usage is not None]
        assert told == ["transform"]
        assert not [record.stage for record in trace if record.stage.endswith(": transform")]

    def test_a_failure_is_listed_once(self, tmp_path: Path) -> None:
        """The model was asked as often as one index would; the indexes search for the question as it is."""
        llm = FakeLLM(fitting)
        llm.failure = ServiceError("no model today", status=400)
        with opened(tmp_path, llm, transform__use=["keywords", "hyde"]) as indexes:
            result = indexes.retrieve(QUESTION, top_k=3)
            assert len(llm.requests) == 2
            assert stages(result) == ["transform", "transform"]
            assert sorted(item.reason.partition(":")[0] for item in result.degraded) == ["hyde", "keywords"]
            assert sorted(map(str, sources(result))) == list(FILES)
            llm.failure = None
            again = indexes.retrieve(QUESTION, top_k=3)
            assert again.degraded == ()
            assert "query_expansion" in again.metadata

    def test_one_that_fails_takes_nothing_from_the_other(self, tmp_path: Path) -> None:
        """Neither of those that are configured, nor of those that a query names."""
        bad, good = FakeTransformer(name="bad"), FakeTransformer(Transformed(variants=(Variant("good", "Saturn"),)))
        bad.failure = ServiceError("no", status=400)
        with opened(tmp_path, parts={"transformers": {"bad": bad, "good": good}}) as indexes:
            for options in ({}, {"transforms": ["good", "bad"]}):
                result = indexes.retrieve(QUESTION, **options)
                assert stages(result) == ["transform"]
                assert [item["kind"] for item in result.metadata["query_expansion"]] == ["good"]
            assert len(good.asked) == 2  # once for each query, whose results are not kept
            assert indexes.retrieve(QUESTION, transforms=[]).degraded == ()
            with pytest.raises(InvalidParameterError, match="no transformer 'none'"):
                indexes.retrieve(QUESTION, transforms=["none"])

    def test_each_index_follows_the_graph_by_itself(self, tmp_path: Path) -> None:
        """Its passages are an index's own; a transformer that fails beside it does not keep it from that."""
        facts = tmp_path / "facts.jsonl"
        facts.write_text('{"subject": "Galileo", "relation": "used", "object": "lenses", "chunk_id": "c3"}\n')
        llm = FakeLLM(fitting)
        settings: dict[str, Any] = {
            "transform__use": ["keywords", "graph"],
            "graph__file": str(facts),
            "cache__kind": "none",
        }
        with opened(tmp_path, llm, **settings) as indexes:
            for failure in (None, ServiceError("no model today", status=400)):
                llm.failure = failure
                result = indexes.retrieve(f"what did Galileo use{' then' * bool(failure)}", top_k=20)
                linked = [hit for hit in result.hits if any(origin.kind == "graph" for origin in hit.found_by)]
                assert {(hit.source_index, hit.id) for hit in linked} == {(name, "c3") for name in FILES}
                assert stages(result) == ["transform"] * bool(failure)

    def test_strict_raises_the_failure(self, tmp_path: Path) -> None:
        """Whatever would be listed is raised."""
        llm = FakeLLM(fitting)
        llm.failure = ServiceError("no model today", status=400)
        with (
            opened(tmp_path, llm, transform__use=["keywords"], strict=True) as indexes,
            pytest.raises(RetrievalError, match="no model today"),
        ):
            indexes.retrieve(QUESTION)

    def test_a_conversation_is_condensed_once_and_reranked_by_what_it_means(self, tmp_path: Path) -> None:
        """One call for three indexes; the reranker and the metadata have the question that stands alone."""
        llm, reranker = FakeLLM(fitting), FakeReranker()
        with opened(tmp_path, llm, {"reranker": reranker}) as indexes:
            result = indexes.retrieve("and what of its rings?", history=HISTORY, top_k=3)
            assert len(llm.requests) == 1
            assert {question for question, _ in reranker.calls} == {"rings that a telescope shows"}
            assert result.metadata["query_searched"] == "rings that a telescope shows"
            assert [hit.id for hit in result.hits] == ["c3"] * 3
            with pytest.raises(InvalidParameterError, match="turn 1"):
                indexes.retrieve(QUESTION, history=[{"role": "nobody", "content": "x"}])

    def test_a_condenser_that_fails_is_listed_once(self, tmp_path: Path) -> None:
        """The question is searched for as it is, and no index tries again."""
        llm = FakeLLM(fitting)
        llm.failure = ServiceError("no model today", status=400)
        transformer = FakeTransformer(Transformed(variants=(Variant("beside", "Saturn"),)))
        with opened(tmp_path, llm, {"transformers": {"t": transformer}}) as indexes:
            result = indexes.retrieve("its rings", history=HISTORY)
        assert len(llm.requests) == 1
        assert [question for question, _ in transformer.asked] == ["its rings"]
        assert stages(result) == ["condense"]
        assert result.metadata["query_searched"] == "its rings"
        assert result.hits

    def test_a_rewritten_question_is_searched_for_as_it_is(self, tmp_path: Path) -> None:
        """Neither condensed nor transformed again."""
        transformer = FakeTransformer(Transformed(variants=(Variant("beside", "Saturn"),)))
        settings = {"rewriter__relevance_threshold": 1, "rewriter__max_attempts": 1}
        pipelines = opened(tmp_path, parts={"transformers": {"t": transformer}}).indexes
        rewriter = FakeRewriter(["history of revisions"])
        config = settings_with(**settings)
        with FederatedIndex(pipelines, rewriter=rewriter, reranker=FakeReranker(), config=config) as indexes:
            result = indexes.retrieve("an application with rings of bread", history=HISTORY, top_k=3)
        assert [item.rewritten_query for item in result.rewrites] == ["history of revisions"]
        assert "history of revisions" not in {question for question, _ in transformer.asked}

    def test_indexes_that_were_opened_otherwise_transform_by_themselves(self, tmp_path: Path) -> None:
        """They are asked as they are configured, and what they did without is listed with their name."""
        own = FakeTransformer()
        own.failure = ServiceError("no", status=400)
        opened(tmp_path).close()
        other = open_index(tmp_path / "a.db", embedder=CountingFakeEmbedder(), transformers={"own": own})
        with open_indexes({"a": other, "b": tmp_path / "b.db"}, embedder=CountingFakeEmbedder()) as indexes:
            result = indexes.retrieve(QUESTION)
        assert stages(result) == ["index a: transform"]
        assert set(sources(result)) == {"a", "b"}


class TestPruning:
    """Sentences are chosen once, from what is shown."""

    def test_the_hits_that_are_left_are_pruned_in_one_call(self) -> None:
        """With the question as the user asked it; contexts show the same sentences."""
        pruner = FakePruner()
        group = Group()
        for name, pipeline in group.pipelines.items():
            text = f"Saturn has rings {name}. Bread is brown {name}."
            asyncio.run(add(pipeline, Chunk("two", "two", text)))
        indexes = group.indexes(pruner=pruner)
        result = asyncio.run(indexes.aretrieve("rings of Saturn", top_k=6))
        pruned = [hit for hit in result.hits if hit.id == "two"]
        assert sorted(str(hit.source_index) for hit in pruned) == sorted(NAMES)
        for hit in pruned:
            shown = [hit.chunk.text[span.start : span.end] for span in hit.excerpts]
            assert shown == [f"Saturn has rings {hit.source_index}."]
        assert [(question, len(passages)) for question, passages in pruner.calls] == [("rings of Saturn", 3)]
        assert "Bread is brown" not in result.formatted_context
        pack = asyncio.run(indexes.acontext("rings of Saturn", top_k=6))
        assert "Saturn has rings wiki" in pack.context_pack
        assert "Bread is brown" not in pack.context_pack

    def test_a_pruner_that_fails_leaves_whole_passages(self) -> None:
        """It is listed once; with ``strict`` it is raised."""
        pruner = FakePruner()
        pruner.failure = ServiceError("no", status=400)
        for strict in (False, True):
            group = Group(strict=strict)
            asyncio.run(add(group.pipelines["docs"], Chunk("two", "two", "Saturn has rings. Bread is brown.")))
            asking = group.indexes(pruner=pruner).aretrieve("rings of Saturn")
            if strict:
                with pytest.raises(RetrievalError, match="no"):
                    asyncio.run(asking)
            else:
                result = asyncio.run(asking)
                assert stages(result) == ["prune"]
                assert all(hit.excerpts == () for hit in result.hits)

    def test_the_configured_one_works_with_the_shared_embedder(self, tmp_path: Path) -> None:
        """The question is embedded once for all indexes and once by the pruner, and no index prunes by itself."""
        embedder = CountingFakeEmbedder()
        parts = {"embedder": embedder}
        with opened(tmp_path, None, parts, pruner__kind="embedder", pruner__threshold=0.3) as indexes:
            index = indexes.indexes["a"]
            index.add([Chunk("two", "two", "Saturn has rings. Bread is baked.")])
            embedder.queries.clear()
            result = indexes.retrieve("Saturn has rings", top_k=2)
            assert [hit.chunk.text[s.start : s.end] for hit in result.hits for s in hit.excerpts] == [
                "Saturn has rings."
            ]
            assert embedder.queries == ["Saturn has rings"] * 2
            assert index.config.pruner.kind == "none"


async def add(pipeline: Any, chunk: Chunk) -> None:
    from retrieval_core.ports import Change

    vectors = await FakeEmbedder().embed_texts([chunk.indexed_text])
    await pipeline.store.upsert(Change(chunks=(chunk,), vectors=vectors))


class Batching(CountingFakeEmbedder):
    """Takes several questions at once."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[tuple[str, ...]] = []

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        self.together.append(tuple(texts))
        return np.stack([self.vector(text) for text in texts])


class TestMany:
    """Several questions to several indexes."""

    def test_questions_are_embedded_together_for_all_indexes(self, tmp_path: Path) -> None:
        """One call for all; each outcome is what the question gets alone."""
        embedder = Batching()
        with opened(tmp_path, None, {"embedder": embedder}) as indexes:
            outcomes = indexes.process_query_batch(TEXTS, top_k=3)
            assert embedder.together == [TEXTS]
            assert embedder.queries == []
            for text, outcome in zip(TEXTS, outcomes, strict=True):
                assert outcome.query == text
                assert outcome.result is not None
                assert outcome.result.hits == indexes.retrieve(text, top_k=3).hits

    def test_no_vector_is_kept_where_none_is_to_be(self, tmp_path: Path) -> None:
        """Asked again, a question is embedded again."""
        embedder = Batching()
        with opened(tmp_path, None, {"embedder": embedder}, cache__embeddings=0, cache__kind="none") as indexes:
            assert indexes.retrieve(QUESTION).hits
            before = len(embedder.queries)
            assert indexes.retrieve(QUESTION).hits
            assert len(embedder.queries) > before
            for _ in range(2):
                outcomes = indexes.retrieve_many(TEXTS, top_k=3)
                assert all(outcome.result is not None for outcome in outcomes)
            assert embedder.together == [TEXTS] * 2

    def test_a_question_that_fails_does_not_touch_the_others(self) -> None:
        """Its error is in its outcome; what is wrong with all of them is raised."""
        with Group().indexes() as indexes:
            blank, good = indexes.retrieve_many(["  ", QUESTION], indexes=["wiki"])
            assert isinstance(blank.error, QueryValidationError)
            assert good.result is not None
            assert set(sources(good.result)) == {"wiki"}
            with pytest.raises(InvalidParameterError):
                indexes.retrieve_many([QUESTION], top_k=0)
            with pytest.raises(InvalidParameterError, match="list"):
                indexes.retrieve_many(QUESTION)


class TestKeptResults:
    """The result of all indexes is kept, like that of one."""

    def test_a_result_is_kept_until_one_of_the_indexes_changes(self, tmp_path: Path) -> None:
        """The versions of all indexes that are asked are part of its key, and so are the names of these."""
        with opened(tmp_path) as indexes:
            first = indexes.retrieve(QUESTION)
            again = indexes.retrieve(QUESTION)
            assert (first.from_cache, again.from_cache) == (False, True)
            assert again.hits == first.hits
            assert not indexes.retrieve(QUESTION, indexes=["a", "b"]).from_cache
            indexes.indexes["c"].add([Chunk("new", "new", QUESTION)])
            assert indexes.retrieve(QUESTION, indexes=["a", "b"]).from_cache
            changed = indexes.retrieve(QUESTION)
            assert not changed.from_cache
            assert (changed.hits[0].source_index, changed.hits[0].id) == ("c", "new")
            kept = asyncio.run(indexes.acached_result(QUESTION))
            assert kept is not None
            assert kept.hits == changed.hits

    def test_a_question_with_the_same_meaning_has_the_result_of_all_indexes(self, tmp_path: Path) -> None:
        """In the same session; a session is text."""
        semantic = {"enabled": True, "threshold": 0.9, "scope": "session"}
        with opened(tmp_path, cache__semantic=semantic) as indexes:
            first = indexes.retrieve(QUESTION, session_id="s")
            near = indexes.retrieve(f"{QUESTION}!", session_id="s")
            assert near.from_cache
            assert near.hits == first.hits
            assert not indexes.retrieve(f"{QUESTION}?", session_id="other").from_cache
            with pytest.raises(InvalidParameterError, match="session_id"):
                indexes.retrieve(QUESTION, session_id=3)

    def test_a_degraded_result_is_not_kept(self) -> None:
        """The next query asks the index again that failed."""
        group = Group()
        group.kill("docs")
        with group.indexes(cache=MemoryCache(10)) as indexes:
            assert stages(indexes.retrieve(QUESTION)) == ["index docs"]
            group.stores["docs"].failures.clear()
            result = indexes.retrieve(QUESTION)
            assert not result.from_cache
            assert "docs" in sources(result)


class TestOwnStages:
    """Stages of a program run on the hits of all indexes."""

    def test_a_stage_sees_the_merged_hits(self, tmp_path: Path) -> None:
        """After the merge by default, and once."""

        class Reverse(Stage):
            name = "reverse"
            seen: ClassVar[list[int]] = []

            async def __call__(self, run: Run, state: SearchState) -> SearchState:
                self.seen.append(len({hit.source_index for hit in state.hits}))
                return state.but(hits=state.hits[::-1])

        with opened(tmp_path) as indexes:
            expected = sources(indexes.retrieve(QUESTION, top_k=3))[::-1]
        with opened(tmp_path, parts={"extra_stages": [Reverse()]}) as indexes:
            assert sources(indexes.retrieve(QUESTION, top_k=3)) == expected
        assert Reverse.seen == [3]
