from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.errors import (
    ConfigurationError,
    DimensionMismatchError,
    EmbeddingError,
    FilterError,
    IndexNotFoundError,
    InvalidParameterError,
    QueryValidationError,
    SearchError,
    ServiceConnectionError,
    ServiceError,
    UnsupportedFilterError,
)
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from retrieval_core.types.filters.syntax import where
from support.pipelines import PHONES, TroubledStore, a_pipeline, filled
from support.plugins import approx

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.types import RetrievalResult, SearchMode

QUESTION = "roll back an application to an earlier revision"


@pytest.fixture
def store() -> TroubledStore:
    store = TroubledStore()
    filled(store)
    return store


def ids(result: RetrievalResult) -> list[str]:
    return [hit.id for hit in result.hits]


def ask(pipeline: RetrievalPipeline, query: str = QUESTION, *arguments: Any, **settings: Any) -> RetrievalResult:
    return asyncio.run(pipeline.aretrieve(query, *arguments, **settings))


def stages(result: RetrievalResult) -> list[str]:
    return [item.stage for item in result.degraded]


def answering(pipeline: RetrievalPipeline, clock: FakeClock, seconds: float) -> RetrievalResult:
    """Ask, and let time pass once everything that can be done has been done."""

    async def main() -> RetrievalResult:
        task = asyncio.create_task(pipeline.aretrieve(QUESTION))
        for _ in range(20):
            await asyncio.sleep(0)
        clock.advance(seconds)
        return await task

    return asyncio.run(main())


class TestAnswers:
    """What a query returns when everything works."""

    def test_the_right_passage_is_first(self, store: TroubledStore) -> None:
        """In every mode the passage that answers leads, and the result tells what was done."""
        pipeline = a_pipeline(store)
        modes: tuple[SearchMode, ...] = ("hybrid", "dense", "lexical")
        for mode in modes:
            result = ask(pipeline, f"  {QUESTION} ", mode=mode, top_k=2)
            assert ids(result) == ["p0", "p1"]
            assert result.query == f"  {QUESTION} "
            assert result.documents == PHONES[:2]
            passages = result.formatted_context.split("\n\n---\n\n")
            assert passages == [f"[{rank}] Doc: phones\n{PHONES[rank - 1].text}" for rank in (1, 2)]
            assert result.metadata["query_normalized"] == QUESTION
            assert result.metadata["mode"] == mode
            assert result.degraded == ()
            assert result.from_cache is False
            assert "error" not in result.metadata

    def test_sync_and_async_agree(self, store: TroubledStore) -> None:
        """The synchronous method gives what the asynchronous one gives, also inside a running loop."""
        with a_pipeline(store) as pipeline:
            expected = ask(pipeline)

            async def cell() -> RetrievalResult:
                return pipeline.retrieve(QUESTION)

            for result in (pipeline.retrieve(QUESTION), asyncio.run(cell())):
                assert (result.hits, result.metadata) == (expected.hits, expected.metadata)

    def test_scores_are_cosines(self, store: TroubledStore) -> None:
        """In hybrid mode every hit has its cosine, also where only words found it."""
        vector = asyncio.run(FakeEmbedder().embed_query(QUESTION))
        vectors = asyncio.run(FakeEmbedder().embed_texts([chunk.text for chunk in PHONES]))
        result = ask(a_pipeline(store, search__candidates=1, search__top_k=1), top_k=1)
        assert result.scores == (approx(float(vectors[0] @ vector)),)
        lexical_first = ask(a_pipeline(store, search__dense_weight=0.0))
        cosines = {chunk.id: float(row @ vector) for chunk, row in zip(PHONES, vectors, strict=True)}
        assert all(hit.scores.dense == approx(cosines[hit.id]) for hit in lexical_first.hits)

    def test_chunks_found_by_words_alone_are_scored_by_one_fetch(self) -> None:
        """Chunks outside the dense candidates get a cosine from their vectors, all in one call."""
        chunks = [Chunk(f"d{n}", "d", "telescope saturn") for n in range(3)]
        chunks += [Chunk(f"w{n}", "d", "telescope saturn " + "xylophone " * 20) for n in range(3)]
        store = TroubledStore()
        filled(store, chunks)
        words_lead: dict[str, Any] = {"search__fusion": "rrf", "search__dense_weight": 0.3, "search__candidates": 3}
        result = ask(a_pipeline(store, **words_lead), "telescope saturn xylophone", top_k=3)
        by_words = [hit for hit in result.hits if hit.scores.dense_rank is None]
        assert by_words
        assert all(hit.scores.dense is not None and hit.scores.lexical_rank for hit in by_words)
        assert store.calls == {"dense": 1, "lexical": 1, "fetch": 1}

    @pytest.mark.parametrize("top_k", [1, 2, 4, 1000])
    def test_as_many_as_asked_for(self, store: TroubledStore, top_k: int) -> None:
        """There are at most ``top_k`` hits, and all there are where that is more."""
        assert len(ask(a_pipeline(store), top_k=top_k).hits) == min(top_k, len(PHONES))

    @pytest.mark.parametrize("count", [1, 4, 300])
    @pytest.mark.parametrize("settings", [{}, {"search__search_type": "mmr"}, {"search__score_threshold": 0.01}])
    def test_the_number_of_calls_does_not_grow(self, count: int, settings: dict[str, Any]) -> None:
        """One call for each side and one to read, however many passages are found."""
        store = TroubledStore()
        filled(store, [Chunk(f"c{n}", "d", f"saturn rings number{n}") for n in range(count)])
        result = ask(a_pipeline(store, **settings), "saturn", top_k=500)
        assert len(result.hits) == count
        assert store.calls == {"dense": 1, "lexical": 1, "fetch": 1}

    def test_a_store_that_brings_chunks_is_not_read(self) -> None:
        """Nothing is fetched where the search brought everything along."""
        store = TroubledStore(brings_chunks=True)
        filled(store)
        assert len(ask(a_pipeline(store)).hits) == len(PHONES)
        assert store.calls == {"dense": 1, "lexical": 1}

    def test_the_trace(self, store: TroubledStore) -> None:
        """Each stage left a record with its time and counts, in the order they ended."""
        clock = FakeClock()
        result = ask(a_pipeline(store, clock=clock, search__search_type="mmr", search__score_threshold=0.1))
        assert sorted(record.stage for record in result.trace[:3]) == ["dense", "embed", "lexical"]
        assert [record.stage for record in result.trace[3:]] == ["fuse", "fetch", "threshold", "diversify"]
        assert {record.milliseconds for record in result.trace} == {0.0}
        assert all(record.error is None for record in result.trace)
        fuse = result.trace[3]
        found = {record.stage: record.count_out for record in result.trace}
        assert fuse.count_in == (found["dense"] or 0) + (found["lexical"] or 0)
        assert fuse.count_out == result.metadata["documents_fetched"] == len(PHONES)
        assert result.latency_ms == 0.0

    def test_nothing_found_is_no_failure(self, store: TroubledStore) -> None:
        """An empty result that is not degraded means that there is nothing."""
        result = ask(a_pipeline(store), "quantum chromodynamics", mode="lexical")
        assert (result.hits, result.formatted_context, result.degraded) == ((), "", ())
        assert result.metadata["documents_fetched"] == 0

    def test_long_questions_are_cut(self, store: TroubledStore) -> None:
        """The result says that the question was cut, and the context likewise."""
        result = ask(a_pipeline(store, query__max_length=4, format__max_context_length=10), "saturn rings")
        assert (result.metadata["query_normalized"], result.metadata["query_truncated"]) == ("satu", True)
        assert len(result.formatted_context) == 10
        assert result.metadata["context_truncated"] is True

    def test_a_lone_surrogate_in_a_question(self, store: TroubledStore) -> None:
        """Half a character, as broken clients send it, does no harm."""
        result = ask(a_pipeline(store), f"{QUESTION} \ud83d")
        assert ids(result)[0] == "p0"
        assert result.degraded == ()


class TestFilters:
    """Filters hold for every passage, on both sides."""

    @pytest.mark.parametrize(
        "filters",
        [where(price__lte=100, brand="Acme"), {"price": {"$lte": 100}, "brand": "Acme"}],
        ids=["typed", "JSON"],
    )
    def test_typed_and_as_json(self, store: TroubledStore, filters: Any) -> None:
        """Both forms mean the same; the result holds the filter as JSON."""
        modes: tuple[SearchMode, ...] = ("hybrid", "dense", "lexical")
        for mode in modes:
            result = ask(a_pipeline(store), QUESTION, filters, mode=mode)
            assert ids(result) == ["p0", "p1"]
            applied = {"$and": ({"price": {"$lte": 100}}, {"brand": {"$eq": "Acme"}})}
            assert result.metadata["filters_applied"] == applied
        assert ask(a_pipeline(store)).metadata["filters_applied"] == {}

    def test_they_apply_before_the_limit(self, store: TroubledStore) -> None:
        """A passage that passes is found however many better ones do not."""
        assert ids(ask(a_pipeline(store, search__candidates=1), QUESTION, {"price": 300}, top_k=1)) == ["p3"]

    @pytest.mark.parametrize("filters", [{"price": {"$foo": 1}}, [1], {"$or": []}, {"price": [1]}, "{", 5])
    def test_what_is_no_filter_is_refused(self, store: TroubledStore, filters: Any) -> None:
        """A malformed filter is the caller's error, never an empty result."""
        with pytest.raises(FilterError):
            ask(a_pipeline(store), QUESTION, filters)
        assert store.calls == {}

    def test_an_empty_object_is_no_filter(self, store: TroubledStore) -> None:
        """Programs that put filters together end up with one when there is nothing to filter by."""
        assert ids(ask(a_pipeline(store), QUESTION, {})) == ids(ask(a_pipeline(store), QUESTION))


class TestThresholds:
    """The least cosine of a passage in the result."""

    def test_without_an_embedder_nothing_passes(self, store: TroubledStore) -> None:
        """Where no cosine can be had a threshold lets nothing pass, and the result says why."""
        config = a_pipeline(store, search__mode="lexical", search__score_threshold=0.1).config
        result = ask(RetrievalPipeline(store, config=config))
        assert result.hits == ()
        assert stages(result) == ["threshold"]

    def test_unscored_passages_may_be_kept(self, store: TroubledStore) -> None:
        """``on_unscored = "keep"`` opts out, and then that is what was configured."""
        settings: dict[str, Any] = {"search__score_threshold": 0.1, "search__on_unscored": "keep"}
        config = a_pipeline(store, search__mode="lexical", **settings).config
        result = ask(RetrievalPipeline(store, config=config))
        assert ids(result)[0] == "p0"
        assert result.degraded == ()

    def test_when_embedding_fails(self, store: TroubledStore) -> None:
        """A dead embedder and a threshold make an empty result with both reasons."""
        embedder = FakeEmbedder()
        embedder.failure = EmbeddingError("out of order")
        result = ask(a_pipeline(store, embedder, search__score_threshold=0.1))
        assert result.hits == ()
        assert stages(result) == ["embed", "threshold"]


class TestDiversity:
    """Passages that do not repeat each other."""

    def test_it_chooses_among_fetch_k(self, store: TroubledStore) -> None:
        """No fewer than ``fetch_k`` candidates are asked of each side, whatever ``candidates`` says."""
        settings: dict[str, Any] = {"search__search_type": "mmr", "search__top_k": 2, "search__fetch_k": 4}
        settings["search__candidates"] = 1
        result = ask(a_pipeline(store, search__lambda_mult=0.0, **settings), top_k=2)
        assert ids(result)[0] == "p0"
        assert ids(result)[1] in {"p2", "p3"}


DEAD = ServiceConnectionError("connection refused", "store")


class TestFailures:
    """What is done without what failed, and says so."""

    def test_both_sides_dead(self, store: TroubledStore) -> None:
        """The result is empty, lists both failures and carries the error."""
        store.failures = {"dense": DEAD, "lexical": ServiceConnectionError("no route")}
        result = ask(a_pipeline(store))
        assert (result.hits, result.formatted_context) == ((), "")
        assert stages(result) == ["dense", "lexical"]
        assert result.metadata["error"] == "dense: connection refused; lexical: no route"

    def test_reading_fails(self, store: TroubledStore) -> None:
        """Where chunks cannot be read the result is empty and carries the error; what is at hand is kept."""
        store.failures["fetch"] = DEAD
        result = ask(a_pipeline(store))
        assert (result.hits, stages(result), result.metadata["error"]) == ((), ["fetch"], "fetch: connection refused")
        store.brings_chunks = True
        kept = ask(a_pipeline(store, search__search_type="mmr"))
        assert ids(kept) == ["p0", "p1", "p2", "p3"]
        assert stages(kept) == ["fetch", "diversify"]
        assert "error" not in kept.metadata

    def test_strict_raises_the_librarys_own_errors_as_they_are(self, store: TroubledStore) -> None:
        """An error that says what happened is not wrapped."""
        store.failures["lexical"] = DEAD
        with pytest.raises(ServiceConnectionError) as caught:
            ask(a_pipeline(store, strict=True))
        assert caught.value is DEAD
        store.failures.clear()
        assert ask(a_pipeline(store, strict=True)).degraded == ()

    @pytest.mark.parametrize("purpose", ["embed", "dense", "lexical", "fetch"])
    @pytest.mark.parametrize(
        "error",
        [
            ServiceError("bad key", status=401),
            ServiceError("no such index", status=404),
            IndexNotFoundError("nothing here"),
            UnsupportedFilterError("$glob"),
            ConfigurationError("no key"),
            DimensionMismatchError(3, 4, "index"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_the_callers_faults_always_raise(self, store: TroubledStore, purpose: str, error: Exception) -> None:
        """What is set up or asked wrongly is never hidden behind a degraded result."""
        embedder = FakeEmbedder()
        if purpose == "embed":
            embedder.failure = error
        else:
            store.failures[purpose] = error
        is_wrapped = purpose == "embed" and isinstance(error, ServiceError)
        with pytest.raises(EmbeddingError if is_wrapped else type(error)) as caught:
            ask(a_pipeline(store, embedder))
        assert (caught.value.__cause__ if is_wrapped else caught.value) is error

    @pytest.mark.parametrize("mode", ["lexical", "dense"])
    def test_where_there_is_no_index_the_other_side_is_not_asked(self, store: TroubledStore, mode: Any) -> None:
        """It is not there either; least of all is a model loaded to find that out."""
        embedder = FakeEmbedder()
        store.failures |= dict.fromkeys(("dense", "lexical"), IndexNotFoundError("nothing here"))
        with pytest.raises(IndexNotFoundError):
            ask(a_pipeline(store, embedder), mode=mode)
        assert store.calls.total() == 1
        assert len(embedder.queries) == (mode == "dense")

    def test_an_embedder_of_another_dimension(self, store: TroubledStore) -> None:
        """An index that was built with another dimension says so."""
        with pytest.raises(DimensionMismatchError):
            ask(a_pipeline(store, FakeEmbedder(dimension=8)))


class TestDeadlines:
    """One time budget for the whole query."""

    def test_a_hanging_embedder_leaves_time_to_read(self, store: TroubledStore) -> None:
        """The words' result is read and returned although embedding used up all the time it may have."""
        embedder, clock = FakeEmbedder(), FakeClock()
        embedder.gate = asyncio.Event()
        result = answering(a_pipeline(store, embedder, clock, deadline_seconds=10), clock, 8)
        assert ids(result)[0] == "p0"
        assert stages(result) == ["embed"]
        assert "8 s (deadline 10 s)" in result.degraded[0].reason
        assert result.latency_ms == 8000

    def test_no_deadline(self, store: TroubledStore) -> None:
        """Without a deadline a query may take for ever."""
        embedder, clock = FakeEmbedder(), FakeClock()

        async def main() -> RetrievalResult:
            embedder.gate = asyncio.Event()
            task = asyncio.create_task(a_pipeline(store, embedder, clock, deadline_seconds=None).aretrieve(QUESTION))
            for _ in range(20):
                await asyncio.sleep(0)
            clock.advance(1e6)
            embedder.gate.set()
            return await task

        assert asyncio.run(main()).degraded == ()


class TestWrongUse:
    """Errors of the caller, before anything is asked."""

    @pytest.mark.parametrize("top_k", [0, -1, 1001, 2.5, "5", True])
    def test_top_k(self, store: TroubledStore, top_k: Any) -> None:
        """``top_k`` is a whole number from 1 to 1000."""
        with pytest.raises(InvalidParameterError, match="top_k"):
            ask(a_pipeline(store), top_k=top_k)

    def test_mode(self, store: TroubledStore) -> None:
        """An unknown mode is named, with those that there are."""
        with pytest.raises(InvalidParameterError, match="keyword \\(lexical\\), got 'fuzzy'"):
            ask(a_pipeline(store), mode="fuzzy")

    @pytest.mark.parametrize("mode", ["hybrid", "dense"])
    def test_a_mode_that_needs_an_embedder(self, store: TroubledStore, mode: SearchMode) -> None:
        """Without an embedder there are words only, and the error says how to go on."""
        pipeline = RetrievalPipeline(store)
        with pytest.raises(InvalidParameterError, match="needs an embedder"):
            ask(pipeline, mode=mode)
        assert ids(ask(pipeline, mode="lexical"))[0] == "p0"

    @pytest.mark.parametrize("query", ["", " \n\t", None, 5])
    def test_query(self, store: TroubledStore, query: Any) -> None:
        """A query is text, and not empty."""
        with pytest.raises(QueryValidationError):
            ask(a_pipeline(store), query)
        assert store.calls == {}


class TestPlugIns:
    """No base class is needed, and no method has to be a coroutine function."""

    def test_blocking_ones_are_found_out(self, store: TroubledStore) -> None:
        """The test suite fails on a coroutine function that blocks the event loop: here it becomes a failure."""

        class Blocks(FakeEmbedder):
            async def embed_query(self, text: str) -> Any:
                time.sleep(0)  # noqa: ASYNC251 - what must not be done
                return await super().embed_query(text)

        result = ask(a_pipeline(store, Blocks()))
        assert [item.stage for item in result.degraded] == ["embed"]
        assert "time.sleep" in result.degraded[0].reason


class TestManyAtOnce:
    """Queries do not get in each other's way."""

    def test_a_cancelled_query_ends(self, store: TroubledStore) -> None:
        """A caller that goes away stops everything that was begun for it."""
        store.hanging = {"dense", "lexical"}

        async def main() -> int:
            task = asyncio.create_task(a_pipeline(store).aretrieve(QUESTION))
            for _ in range(20):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return len(asyncio.all_tasks())

        assert asyncio.run(main()) == 1


class Closable(FakeEmbedder):
    """An embedder that counts how often it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1


class TestClosing:
    """The pipeline owns what it was given."""

    def test_everything_is_closed(self, store: TroubledStore) -> None:
        """Store and embedder are closed, by either kind of context manager, and again without harm."""
        embedder = Closable()
        with a_pipeline(store, embedder) as pipeline:
            pipeline.retrieve(QUESTION)
        assert (store.closed, embedder.closed) == (1, 1)
        pipeline.close()

        async def main() -> None:
            async with pipeline as again:
                assert again is pipeline

        asyncio.run(main())
        assert (store.closed, embedder.closed) == (3, 3)

    @pytest.mark.parametrize("close", ["close", "aclose"])
    def test_a_store_that_cannot_be_closed(self, store: TroubledStore, close: str) -> None:
        """The embedder is closed all the same, and the error raised."""
        embedder = Closable()
        store.failures["close"] = SearchError("still busy")
        pipeline = a_pipeline(store, embedder)
        closing: Callable[[], object] = pipeline.close if close == "close" else lambda: asyncio.run(pipeline.aclose())
        with pytest.raises(SearchError, match="still busy"):
            closing()
        assert embedder.closed == 1
        pipeline.sync.close()


@pytest.mark.parametrize("wrong", [True, 1.0])
def test_the_same_options_again_are_checked_by_their_types(store: TroubledStore, wrong: Any) -> None:
    pipeline = a_pipeline(store)
    assert [len(ids(ask(pipeline, top_k=top_k))) for top_k in (1, 1, 2, 1)] == [1, 1, 2, 1]
    with pytest.raises(InvalidParameterError, match="top_k"):
        ask(pipeline, top_k=wrong)
