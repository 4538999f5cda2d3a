"""The retriever: sync, async and inside a running loop, with settings of a query, and honest when something fails."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.instrumentation import get_dispatcher  # pyright: ignore[reportPrivateImportUsage]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_index.retrievers.retrieval_core import (
    RetrievalCoreRetriever,
    RetrievalDegradedEvent,
    RetrievalQueryBundle,
    hit_from_node,
)
from retrieval_core import open_index
from retrieval_core.errors import (
    EmbeddingError,
    FilterError,
    InvalidParameterError,
    QueryValidationError,
    RetrievalError,
    SearchError,
    UnsupportedFilterError,
)
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types.filters import Eq
from support.llamaindex_library import CHUNKS, Library, passage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUESTION = "how far away is the moon"


def ids(nodes: list[NodeWithScore]) -> list[str]:
    return [item.node.node_id for item in nodes]


@pytest.fixture
def retriever(library: Library) -> RetrievalCoreRetriever:
    return RetrievalCoreRetriever(library.pipeline, top_k=3)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    caught: list[Any] = []

    class Catch(BaseEventHandler):
        def handle(self, event: Any, **_kwargs: Any) -> None:
            caught.append(event)

    dispatcher = get_dispatcher()
    handler = Catch()
    dispatcher.add_event_handler(handler)
    yield caught
    dispatcher.event_handlers.remove(handler)


def test_nodes_are_the_hits_of_the_pipeline(library: Library, retriever: RetrievalCoreRetriever) -> None:
    """The same passages in the same order, with the same scores, and nothing lost."""
    nodes = retriever.retrieve(QUESTION)
    assert ids(nodes)[0] == "moon.md#1"
    assert [passage(item).rank for item in nodes] == [1, 2, 3]
    assert tuple(map(hit_from_node, nodes)) == library.pipeline.retrieve(QUESTION, top_k=3).hits


def test_sync_async_and_sync_inside_a_running_loop_agree(retriever: RetrievalCoreRetriever) -> None:
    """A notebook has a running loop."""
    expected = retriever.retrieve(QUESTION)

    async def inside() -> None:
        assert retriever.retrieve(QUESTION) == expected
        assert await retriever.aretrieve(QUESTION) == expected
        assert await asyncio.to_thread(retriever.retrieve, QUESTION) == expected

    asyncio.run(inside())


def test_a_hundred_questions_at_once(library: Library) -> None:
    """Each gets its own answer, with its own settings; nothing blocks the loop."""
    retriever = RetrievalCoreRetriever(library.pipeline)

    async def ask(number: int) -> None:
        kind = ("moon", "star")[number % 2]
        nodes = await retriever.aretrieve_with(f"how far away, {number}", filters={"kind": kind}, top_k=1 + number % 3)
        assert {item.node.metadata["kind"] for item in nodes} == {kind}
        assert len(nodes) == min(1 + number % 3, 4 if kind == "moon" else 2)

    async def all_at_once() -> None:
        await asyncio.gather(*(ask(number) for number in range(100)))

    asyncio.run(all_at_once())


def test_a_hundred_questions_at_once_on_a_file(tmp_path: Path) -> None:
    """The default store answers in threads of its own."""
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
        index.add(CHUNKS)

    async def all_at_once() -> None:
        async with RetrievalCoreRetriever.from_index_file(
            tmp_path / "index.db", embedder=FakeEmbedder(), top_k=1
        ) as retriever:
            answers = await asyncio.gather(*(retriever.aretrieve(QUESTION) for _ in range(100)))
        assert [ids(nodes) for nodes in answers] == [["moon.md#1"]] * 100

    asyncio.run(all_at_once())


def test_a_blocking_call_in_the_async_path_would_be_noticed(retriever: RetrievalCoreRetriever) -> None:
    """The guard of these tests covers the plugin: the synchronous path fails where it is called on a loop unguarded."""
    import time

    class Slow(FakeEmbedder):
        async def embed_query(self, text: str) -> Any:
            time.sleep(0)  # noqa: ASYNC251
            return await super().embed_query(text)

    slow = RetrievalCoreRetriever(pipeline=RetrievalPipeline(retriever.pipeline.store, Slow()))
    nodes = asyncio.run(slow.aretrieve(QUESTION))
    assert "Blocking call to time.sleep" in passage(nodes[0]).degraded[0]


@pytest.mark.parametrize(
    "filters",
    [
        {"kind": "star"},
        Eq("kind", "star"),
        MetadataFilters(filters=[MetadataFilter(key="kind", value="star")]),
    ],
)
def test_filters_come_in_any_form_with_the_retriever_or_the_query(library: Library, filters: Any) -> None:
    """Typed, as JSON and of LlamaIndex."""
    of_the_retriever = RetrievalCoreRetriever(library.pipeline, filters=filters)
    assert set(ids(of_the_retriever.retrieve(QUESTION))) == {"sun.md#0", "sun.md#1"}
    of_the_query = RetrievalCoreRetriever(library.pipeline)
    assert of_the_query.retrieve_with(QUESTION, filters=filters) == of_the_retriever.retrieve(QUESTION)


def test_filters_of_a_query_narrow_those_of_the_retriever(library: Library) -> None:
    """They cannot widen them."""
    retriever = RetrievalCoreRetriever(library.pipeline, filters={"kind": "moon"})
    assert ids(retriever.retrieve_with(QUESTION, filters={"year": {"$gte": 1972}})) == ["moon.md#3"]
    assert retriever.retrieve_with(QUESTION, filters={"kind": "star"}) == []


def test_settings_of_a_query_win_and_go_with_it(library: Library) -> None:
    """A bundle carries them wherever LlamaIndex takes a query, and keeps what is not given anew."""
    retriever = RetrievalCoreRetriever(library.pipeline, top_k=3, mode="lexical")
    assert len(retriever.retrieve(QUESTION)) == 3
    bundle = RetrievalQueryBundle(QUESTION, filters={"kind": "moon"}, top_k=1, mode="dense")
    nodes = retriever.retrieve(bundle)
    assert len(nodes) == 1
    assert set(passage(nodes[0]).scores) == {"dense", "dense_rank", "final"}
    more = retriever.retrieve_with(bundle, top_k=2)
    assert [len(more), *passage(more[0]).scores] == [2, "dense", "dense_rank", "final"]
    assert len(retriever.retrieve_with(QueryBundle(QUESTION), top_k=2)) == 2
    assert len(asyncio.run(retriever.aretrieve_with(QUESTION, top_k=2, mode="hybrid"))) == 2


@pytest.mark.parametrize(
    ("error", "query"),
    [
        (QueryValidationError, "  "),
        (InvalidParameterError, RetrievalQueryBundle(QUESTION, top_k=0)),
        (InvalidParameterError, RetrievalQueryBundle(QUESTION, mode=cast("Any", "psychic"))),
        (FilterError, RetrievalQueryBundle(QUESTION, filters={"kind": {"$like": "x"}})),
        (
            UnsupportedFilterError,
            RetrievalQueryBundle(QUESTION, filters=MetadataFilters(filters=[MetadataFilter(key="kind", value=None)])),
        ),
    ],
)
def test_errors_are_those_of_the_core(
    retriever: RetrievalCoreRetriever, error: type[RetrievalError], query: str | QueryBundle
) -> None:
    """Sync and async alike."""
    with pytest.raises(error):
        retriever.retrieve(query)
    with pytest.raises(error):
        asyncio.run(retriever.aretrieve(query))


def test_what_did_not_work_is_in_the_nodes_the_log_and_an_event(
    library: Library, retriever: RetrievalCoreRetriever, caplog: pytest.LogCaptureFixture, events: list[Any]
) -> None:
    """The pipeline logs it, once a query; it is gone with the next one that works."""
    library.embedder.failure = EmbeddingError("the model is gone")
    with caplog.at_level(logging.WARNING):
        nodes = retriever.retrieve(QUESTION)
    assert [passage(item).degraded for item in nodes] == [["embed: the model is gone"]] * 3
    assert [record.getMessage() for record in caplog.records] == ["embed: the model is gone"]
    degraded = [event for event in events if isinstance(event, RetrievalDegradedEvent)]
    assert [(event.query_str, event.degraded) for event in degraded] == [(QUESTION, ["embed: the model is gone"])]
    assert degraded[0].model_dump()["class_name"] == "RetrievalDegradedEvent"
    library.embedder.failure = None
    assert not passage(asyncio.run(retriever.aretrieve(QUESTION))[0]).degraded


def test_an_answer_without_hits_because_nothing_could_be_searched_is_an_error(
    library: Library, retriever: RetrievalCoreRetriever
) -> None:
    """An empty list would say that nothing was found."""
    library.store.failing = {"dense", "lexical"}
    with pytest.raises(SearchError, match="the index went away") as caught:
        retriever.retrieve(QUESTION)
    assert len(caught.value.details["degraded"]) == 2
    library.store.failing = {"lexical"}
    assert retriever.retrieve(QUESTION)


def test_nothing_found_is_no_error(retriever: RetrievalCoreRetriever) -> None:
    """A filter may let nothing pass."""
    assert retriever.retrieve_with(QUESTION, filters={"kind": "comet"}) == []


def test_an_unknown_field_of_a_filter_is_told(
    retriever: RetrievalCoreRetriever, caplog: pytest.LogCaptureFixture, events: list[Any]
) -> None:
    """Once, with the closest one; that nothing passes a filter on known fields is not told."""
    told = "no chunk has a field 'kidn'; did you mean 'kind'?"
    assert retriever.retrieve_with(QUESTION, filters={"kidn": "moon"}) == []
    (degraded,) = (event for event in events if isinstance(event, RetrievalDegradedEvent))
    assert degraded.degraded == [f"filter: {told}"]
    assert told in caplog.text
    caplog.clear()
    assert retriever.retrieve_with(QUESTION, filters={"kind": "comet"}) == []
    assert not [record for record in caplog.records if record.name.startswith("llama_index.")]


def test_strict_settings_raise_what_would_be_degraded() -> None:
    """As in the core."""
    with Library(settings={"strict": True}) as library:
        library.embedder.failure = EmbeddingError("the model is gone")
        with pytest.raises(EmbeddingError):
            RetrievalCoreRetriever(library.pipeline).retrieve(QUESTION)


def test_parts_of_a_bundle_that_are_not_used_are_listed(library: Library, retriever: RetrievalCoreRetriever) -> None:
    """An embedding is for the same text, and the pipeline makes its own; an image would matter."""
    library.embedder.queries.clear()
    fine = QueryBundle(QUESTION, embedding=[0.0], custom_embedding_strs=[QUESTION])
    assert not passage(retriever.retrieve(fine)[0]).degraded
    assert library.embedder.queries == [QUESTION]
    other = QueryBundle(QUESTION, image_path="moon.png")
    assert passage(retriever.retrieve_with(other)[0]).degraded == ["query: the image is not used"]


def test_events_are_those_of_any_retriever(retriever: RetrievalCoreRetriever, events: list[Any]) -> None:
    """Also with a bundle of ours, and events can be recorded as JSON."""
    retriever.retrieve_with(QUESTION, filters={"kind": "star"}, top_k=1)
    kinds = [type(event) for event in events if isinstance(event, (RetrievalStartEvent, RetrievalEndEvent))]
    assert kinds == [RetrievalStartEvent, RetrievalEndEvent]
    assert ids(next(event for event in events if isinstance(event, RetrievalEndEvent)).nodes) == ["sun.md#1"]
    for event in events:
        event.model_dump_json()


def test_a_pipeline_that_was_given_stays_open(library: Library) -> None:
    """Several retrievers may share it."""
    with RetrievalCoreRetriever(library.pipeline) as first:
        first.retrieve(QUESTION)
    asyncio.run(first.aclose())
    assert RetrievalCoreRetriever(library.pipeline).retrieve(QUESTION)
