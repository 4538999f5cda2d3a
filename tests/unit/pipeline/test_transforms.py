"""Questions that are looked at before they are searched for, and what is searched for beside them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Candidate, Linked, Message, QueryContext, Retriever, Transformed, Variant
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder, FakeTransformer
from retrieval_core.types import Chunk, Origin
from retrieval_core.types.filters import Eq
from support.pipelines import TroubledStore, filled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.ports import QueryTransformer

SATURN, BREAD = "rings of Saturn", "bake bread with a crust"


def a_pipeline(
    store: TroubledStore | None = None,
    *,
    embedder: FakeEmbedder | None = None,
    transformers: Mapping[str, QueryTransformer] | None = None,
    retrievers: Mapping[str, Retriever] | None = None,
    condenser: QueryTransformer | None = None,
    **settings: Any,
) -> RetrievalPipeline:
    """Return a pipeline over the phones that uses all its transformers, unless the settings say otherwise."""
    if store is None:
        store = TroubledStore()
        filled(store)
    keys = {key.replace("__", "."): value for key, value in settings.items()}
    config = load_config(overrides={"transform.use": [*(transformers or {})], "cache.kind": "none", **keys})
    return RetrievalPipeline(
        store,
        embedder or FakeEmbedder(),
        transformers=transformers,
        retrievers=retrievers,
        condenser=condenser,
        config=config,
        clock=FakeClock(),
    )


class Notes(Retriever):
    """A retriever over notes of its own."""

    id = "notes"

    def __init__(self, *notes: str, failure: Exception | None = None, has_chunks: bool = True) -> None:
        self._notes, self._failure, self._has_chunks = notes, failure, has_chunks
        self.asked: list[tuple[str, int]] = []

    async def _search(self, query: str, k: int) -> Sequence[Candidate]:
        self.asked.append((query, k))
        if self._failure is not None:
            raise self._failure
        chunks = [Chunk(f"note{n}", "notes", note, metadata={"brand": "Acme"}) for n, note in enumerate(self._notes)]
        return [Candidate(chunk.id, 9.0 - n, chunk if self._has_chunks else None) for n, chunk in enumerate(chunks)]


def test_plain_text_is_searched_for_in_place_of_the_question() -> None:
    """A transformer may be as small as a function from text to text."""
    asks = FakeTransformer(SATURN)
    result = a_pipeline(transformers={"asks": asks}).retrieve("what has rings", top_k=1)
    assert result.hits[0].id == "p3"
    assert result.hits[0].found_by == ()
    assert result.metadata["query_searched"] == SATURN
    assert result.metadata["query_normalized"] == "what has rings"
    assert [query for query, _ in asks.asked] == ["what has rings"]


def test_variants_are_searched_for_beside_the_question() -> None:
    """Each variant brings what it finds, and the hit says which one did."""
    variants = (Variant("sub-question", SATURN), Variant("sub-question", BREAD))
    pipeline = a_pipeline(transformers={"decompose": FakeTransformer(Transformed(variants=variants))})
    result = pipeline.retrieve("earlier revision of an application", top_k=4)
    origins = {hit.id: hit.found_by for hit in result.hits}
    assert Origin("sub-question", SATURN) in origins["p3"]
    assert Origin("sub-question", BREAD) in origins["p2"]
    assert result.hits[0].id in {"p0", "p1", "p2", "p3"}
    assert result.metadata["query_expansion"] == (
        {"kind": "sub-question", "text": SATURN},
        {"kind": "sub-question", "text": BREAD},
    )
    assert not result.degraded


def test_a_variants_scores_are_not_taken_for_the_questions() -> None:
    """The dense score of every hit compares it with the question, whatever found it."""
    pipeline = a_pipeline(transformers={"more": FakeTransformer(Transformed(variants=(Variant("more", SATURN),)))})
    question = "history of an earlier revision"
    plain = {hit.id: hit.scores.dense for hit in pipeline.retrieve(question, transforms=[]).hits}
    for hit in pipeline.retrieve(question).hits:
        assert hit.scores.dense == pytest.approx(plain[hit.id], abs=1e-6)


def test_the_sides_of_a_variant() -> None:
    """Words alone need no embedding, a passage is embedded as one, and both respect the query's mode."""
    store, embedder = TroubledStore(), FakeEmbedder()
    filled(store)
    variants = (
        Variant("keywords", "saturn telescope", frozenset({"lexical"})),
        Variant("passage", "A telescope shows rings.", frozenset({"dense"}), is_passage=True),
    )
    pipeline = a_pipeline(
        store, embedder=embedder, transformers={"both": FakeTransformer(Transformed(variants=variants))}
    )
    pipeline.retrieve("planets")
    assert embedder.queries == ["planets"]
    assert embedder.batches == [("A telescope shows rings.",)]
    assert (store.calls["dense"], store.calls["lexical"]) == (2, 2)
    pipeline.retrieve("planets", mode="lexical")
    assert (store.calls["dense"], store.calls["lexical"]) == (2, 4)
    assert len(embedder.batches) == 1


def test_the_same_is_not_searched_for_twice() -> None:
    """A variant that repeats the question or another variant is left out."""
    store = TroubledStore()
    filled(store)
    variants = tuple(Variant("more", text) for text in ("Planets ", "planets", SATURN, SATURN.upper()))
    pipeline = a_pipeline(store, transformers={"more": FakeTransformer(Transformed(variants=variants))})
    result = pipeline.retrieve("planets")
    assert store.calls["lexical"] == 2
    assert result.metadata["query_expansion"] == ({"kind": "more", "text": SATURN},)


def test_linked_chunks_are_candidates() -> None:
    """What a question leads to comes in without a search; chunks that the filter stops, or that are gone, do not."""
    link = Linked("graph", "Saturn", (Candidate("p3", 1.0), Candidate("gone", 0.9), Candidate("p0", 0.5)), weight=5.0)
    pipeline = a_pipeline(transformers={"graph": FakeTransformer(Transformed(linked=(link,)))})
    result = pipeline.retrieve("bread crust", Eq("brand", "Zenith"), top_k=2)
    assert [hit.id for hit in result.hits] == ["p3", "p2"]
    assert result.hits[0].found_by == (Origin("graph", "Saturn"),)


def test_transformers_are_chosen_for_a_query() -> None:
    """A query may name its own, or none; a name that there is not is told with those that there are."""
    first, second = FakeTransformer(SATURN), FakeTransformer(BREAD)
    pipeline = a_pipeline(transformers={"first": first, "second": second}, transform__use=["first"])
    assert pipeline.retrieve("anything", top_k=1).hits[0].id == "p3"
    assert pipeline.retrieve("anything", top_k=1, transforms=["second"]).hits[0].id == "p2"
    pipeline.retrieve("anything", transforms=[])
    assert (len(first.asked), len(second.asked)) == (1, 1)
    with pytest.raises(InvalidParameterError, match=r"'third'.*first, second"):
        pipeline.retrieve("anything", transforms=["third"])
    with pytest.raises(InvalidParameterError, match="list of names"):
        pipeline.retrieve("anything", transforms="first")


def test_two_that_replace_the_question() -> None:
    """The first one replaces it, and the other's is searched for beside it."""
    pipeline = a_pipeline(transformers={"a": FakeTransformer(SATURN), "b": FakeTransformer(BREAD)})
    result = pipeline.retrieve("anything")
    assert result.metadata["query_searched"] == SATURN
    assert result.metadata["query_expansion"] == ({"kind": "b", "text": BREAD},)


def test_transformers_run_side_by_side() -> None:
    """Neither waits for the other."""
    waiting = FakeTransformer()

    def opens(query: str, context: QueryContext) -> str:
        assert waiting.gate is not None
        waiting.gate.set()
        return SATURN

    pipeline = a_pipeline(transformers={"waiting": waiting, "opens": FakeTransformer(opens)}, deadline_seconds=None)

    async def ask() -> None:
        waiting.gate = asyncio.Event()

        result = await pipeline.aretrieve("anything", top_k=1)
        assert result.hits[0].id == "p3"
        await pipeline.aclose()

    asyncio.run(ask())


def test_a_conversation_makes_the_question_stand_alone() -> None:
    """The condenser sees the turns, and everything after it works on what it made of the question."""
    condenser = FakeTransformer(lambda query, context: f"{context.history[0].content} {query}")
    after = FakeTransformer()
    pipeline = a_pipeline(condenser=condenser, transformers={"after": after})
    history = [{"role": "user", "content": "rings of Saturn"}, Message("assistant", "They are ice.")]
    result = pipeline.retrieve("what shows them?", history=history, top_k=1)
    assert result.hits[0].id == "p3"
    assert [query for query, _ in after.asked] == ["rings of Saturn what shows them?"]
    assert after.asked[0][1].history == (Message("user", "rings of Saturn"), Message("assistant", "They are ice."))
    assert result.query == "what shows them?"
    pipeline.retrieve("what shows them?")
    assert len(condenser.asked) == 1


@pytest.mark.parametrize(
    "history", ["text", 5, [{"role": "user"}], [{"role": "robot", "content": "x"}], ["hello"], [None]]
)
def test_a_conversation_that_is_none(history: Any) -> None:
    """What is no list of turns is refused, with an example of what is."""
    with pytest.raises(InvalidParameterError, match="history"):
        a_pipeline().retrieve("anything", history=history)


def test_a_retriever_is_searched_beside_the_index() -> None:
    """What it finds is among the hits, named by it."""
    notes = Notes("Saturn is far away.", "Bread is nice.")
    result = a_pipeline(retrievers={"notes": notes}).retrieve(SATURN, top_k=4)
    assert {hit.id for hit in result.hits} >= {"note0", "p3"}
    note = next(hit for hit in result.hits if hit.id == "note0")
    assert note.found_by == (Origin("notes", SATURN),)
    assert note.chunk.text == "Saturn is far away."
    assert notes.asked == [(SATURN, 200)]


def test_the_filter_holds_for_retrievers_too() -> None:
    """A passage of a retriever that the filter stops is not among the hits."""
    result = a_pipeline(retrievers={"notes": Notes("Saturn")}).retrieve(SATURN, Eq("brand", "Zenith"))
    assert {hit.id for hit in result.hits} == {"p2", "p3"}


def test_the_embedders_failure_is_told_once() -> None:
    """However many variants there are, one line says that nothing could be embedded."""
    embedder = FakeEmbedder()
    embedder.failure = ConnectionError("gone")
    variants = tuple(Variant("more", f"{text} now") for text in (SATURN, BREAD))
    pipeline = a_pipeline(embedder=embedder, transformers={"more": FakeTransformer(Transformed(variants=variants))})
    result = pipeline.retrieve(SATURN)
    assert {hit.id for hit in result.hits} >= {"p2", "p3"}
    assert [entry.stage for entry in result.degraded].count("embed") == 1
