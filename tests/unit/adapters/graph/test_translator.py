"""From a question to chunks, and to what else is searched for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.graph import GraphQueryTranslator, KnowledgeGraph, Triple
from retrieval_core.adapters.graph.translator import MOST_DOCUMENTS, MOST_LINKED, MOST_NAMES
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import IndexBusyError, InvalidParameterError
from retrieval_core.ports import Change, QueryContext, Transformed, Variant
from retrieval_core.run.threads import PoolClosedError
from retrieval_core.types import Chunk
from support.examples import times
from support.plugins import approx

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core.ports import Fetched, FetchRequest, Store

BORN = Triple("Einstein", "bornIn", "Ulm", "bio#0")


def translate(question: str, triples: Sequence[Triple], store: Store | None = None) -> Transformed:
    return asyncio.run(GraphQueryTranslator(KnowledgeGraph(triples), store).transform(question, QueryContext()))


def links(made: Transformed) -> list[tuple[str, float]]:
    return [(candidate.chunk_id, candidate.score) for linked in made.linked for candidate in linked.candidates]


async def filled(texts: dict[str, list[str]]) -> MemoryStore:
    store = MemoryStore(embedder_id=None, dimension=None)
    chunks = tuple(
        Chunk(f"{name}#{number}", name, text, number, len(several))
        for name, several in texts.items()
        for number, text in enumerate(several)
    )
    await store.upsert(Change(chunks=chunks))
    return store


def test_a_fact_leads_to_its_chunk() -> None:
    """The chunks, what led there and a reason; nothing is searched for beside the question."""
    made = translate("where was einstein born", [BORN])
    (linked,) = made.linked
    assert (linked.kind, linked.text, linked.weight) == ("graph", "Einstein -bornIn-> Ulm", 0.5)
    assert links(made) == [("bio#0", 3.0)]
    assert made.variants == ()
    assert made.query is None
    assert made.reason == "the question names Einstein; 1 facts, 1 chunks"


def test_the_order_of_chunks() -> None:
    """The best fact counts, then the id."""
    others = [Triple("Einstein", f"r{number}", f"x{number}", chunk) for number, chunk in enumerate("cbbaaa")]
    made = translate("where was einstein born", [*others, BORN])
    assert links(made) == [("bio#0", 3.0), ("a", 1.0), ("b", 1.0), ("c", 1.0)]
    equal = translate("einstein", [Triple("Einstein", "r", chunk, chunk) for chunk in "cab"])
    assert [name for name, _ in links(equal)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("question", "weight"),
    [("born einstein ulm", 1.2), ("einstein born", 1.2), ("einstein, ulm", 0.8), ("einstein", 0.4)],
)
def test_weights_follow_the_best_fact(question: str, weight: float) -> None:
    """What has a relation of the question counts in full, what only has one entity a third of it."""
    translator = GraphQueryTranslator(KnowledgeGraph([BORN]), weight=1.2)
    made = asyncio.run(translator.transform(question, QueryContext()))
    assert made.linked[0].weight == approx(weight)


def test_the_text_of_many_facts_is_short() -> None:
    """The best three facts say what led to the chunks."""
    made = translate("einstein", [Triple("Einstein", "r", f"x{number}", "c") for number in range(9)])
    assert made.linked[0].text == "Einstein -r-> x0; Einstein -r-> x1; Einstein -r-> x2 …"


def test_chunks_are_bounded() -> None:
    """So many chunks of one question and no more."""
    entities = [f"e{number}" for number in range(4)]
    triples = [Triple(entity, "r", f"x{entity}{n}", f"{entity}#{n}") for entity in entities for n in range(40)]
    assert len(links(translate(" ".join(entities), triples))) == MOST_LINKED


def test_a_document_leads_to_its_chunks_that_say_so() -> None:
    """Chunks with both names come before those with one; without any, the first stands for the document."""

    async def run() -> list[list[str]]:
        store = await filled(
            {
                "both": ["Nothing.", "EINSTEIN was born in Ulm.", "Ulm is on the Danube.", "Ulm: see Einstein"],
                "one": ["Nothing.", "He was born in Ulm.", "Ulmer"],
                "none": ["He.", "was.", "born."],
            }
        )
        made: list[list[str]] = []
        for name in ("both", "one", "none", "vanished"):
            translator = GraphQueryTranslator(KnowledgeGraph([Triple("Einstein", "in", "Ulm", None, name)]), store)
            made.append([chunk_id for chunk_id, _ in links(await translator.transform("einstein?", QueryContext()))])
        return made

    assert asyncio.run(run()) == [["both#1", "both#3"], ["one#1"], ["none#0"], []]


def test_documents_are_read_in_one_bounded_request() -> None:
    """However many documents a question leads to, the store is asked once."""
    requests: list[FetchRequest] = []

    class Counting(MemoryStore):
        async def fetch(self, request: FetchRequest) -> Fetched:
            requests.append(request)
            return await super().fetch(request)

    triples = [Triple("Einstein", "in", f"x{number}", None, f"d{number}") for number in range(30)]
    translate("einstein", triples, Counting(embedder_id=None, dimension=None))
    assert len(requests) == 1
    assert len(requests[0].ranges) == MOST_DOCUMENTS


def test_a_store_that_fails() -> None:
    """Its error passes through after one attempt: retrying is the runner's."""
    attempts: list[int] = []

    class Busy(MemoryStore):
        async def fetch(self, request: FetchRequest) -> Fetched:
            attempts.append(len(request.ranges))
            msg = "busy"
            raise IndexBusyError(msg)

    with pytest.raises(IndexBusyError):
        translate("einstein", [Triple("Einstein", "in", "Ulm", None, "d")], Busy(embedder_id=None, dimension=None))
    assert attempts == [1]


def test_names_are_searched_for_as_words() -> None:
    """Facts that say nothing of where they stand lend the names of their entities."""
    made = translate("einstein", [Triple("Einstein", "bornIn", "Ulm"), Triple("Elsa", "wife of", "EINSTEIN")])
    assert made.variants == (Variant("graph", "Einstein Ulm Elsa", frozenset({"lexical"}), weight=0.5 / 3),)
    assert made.linked == ()


def test_without_a_store_documents_lend_names() -> None:
    """A translator that cannot look into documents searches for the names."""
    made = translate("einstein", [Triple("Einstein", "bornIn", "Ulm", None, "bio.md")])
    assert [variant.text for variant in made.variants] == ["Einstein Ulm"]


def test_names_are_bounded() -> None:
    """A question never grows beyond a few names."""
    made = translate("e", [Triple("e", "r", f"x{number}") for number in range(40)])
    assert made.variants[0].text.split() == ["e", *(f"x{number}" for number in range(MOST_NAMES - 1))]


@pytest.mark.parametrize("question", ["", "nothing of it", "Einsteinium", "???"])
def test_a_question_without_entities(question: str) -> None:
    """Nothing is added, and the reason says why."""
    assert translate(question, [BORN]) == Transformed(reason="the question names no entity of the graph")


def test_the_id_names_the_content(tmp_path: Path) -> None:
    """Other triples, another weight or other ways make another id; a file's is known once it was read."""
    other = KnowledgeGraph([Triple("a", "b", "c")])
    store = MemoryStore(embedder_id=None, dimension=None)
    graph = KnowledgeGraph([BORN])
    made = [
        GraphQueryTranslator(graph),
        GraphQueryTranslator(other),
        GraphQueryTranslator(graph, weight=0.7),
        GraphQueryTranslator(graph, store),
    ]
    assert len({translator.id for translator in made}) == 4
    path = tmp_path / "facts.jsonl"
    path.write_text('{"subject": "a", "relation": "b", "object": "c"}')
    of_file = GraphQueryTranslator(path)
    assert of_file.id != made[1].id
    assert asyncio.run(of_file.version()) == other.digest
    assert of_file.id == made[1].id


def test_the_version_follows_the_file(tmp_path: Path) -> None:
    """A changed file has another version before any question is asked."""
    path = tmp_path / "facts.jsonl"
    path.write_text('{"subject": "a", "relation": "b", "object": "c"}')
    translator = GraphQueryTranslator(path)

    async def run() -> tuple[str, str]:
        first = await translator.version()
        await asyncio.to_thread(path.write_text, '{"subject": "a", "relation": "b", "object": "other"}')
        return first, await translator.version()

    first, second = asyncio.run(run())
    assert first != second


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_weights(weight: float) -> None:
    """A weight is a number above 0."""
    with pytest.raises(InvalidParameterError, match="weight"):
        GraphQueryTranslator(KnowledgeGraph([]), weight=weight)


def test_closing() -> None:
    """After closing, questions are refused; closing twice is fine."""
    translator = GraphQueryTranslator(KnowledgeGraph([BORN]))

    async def run() -> None:
        await translator.transform("einstein", QueryContext())
        await translator.aclose()
        await translator.aclose()
        with pytest.raises(PoolClosedError):
            await translator.transform("einstein", QueryContext())

    asyncio.run(run())


NAMES = ("Ulm", "new york", "' OR 1=1 --", "(a+)+$", "日本", "C++", "x" * 60)
PLACES = (None, "c#1", "c#2", "gone#9")
DOCUMENTS = (None, "c", "gone")
triples = st.builds(
    Triple,
    st.sampled_from(NAMES),
    st.sampled_from(["born in", "is"]),
    st.sampled_from(NAMES),
    st.sampled_from(PLACES),
    st.sampled_from(DOCUMENTS),
)


@settings(max_examples=times(150))
@given(
    given_triples=st.lists(triples, max_size=20),
    parts=st.lists(st.sampled_from(NAMES) | st.text(max_size=10), max_size=6),
)
def test_whatever_is_asked(given_triples: list[Triple], parts: list[str]) -> None:
    """Chunks are those of triples or in the index, each once, in order, bounded; names are never blank."""

    async def run() -> Transformed:
        store = await filled({"c": ["Ulm and New York", "日本 (a+)+$", "nothing"]})
        translator = GraphQueryTranslator(KnowledgeGraph(given_triples), store)
        made = await translator.transform(" ".join(parts), QueryContext())
        await translator.aclose()
        return made

    made = asyncio.run(run())
    found = links(made)
    assert {name for name, _ in found} <= {triple.chunk_id for triple in given_triples} | {"c#0", "c#1", "c#2"}
    assert len({name for name, _ in found}) == len(found) <= MOST_LINKED
    assert found == sorted(found, key=lambda link: (-link[1], link[0]))
    assert all(variant.text.strip() and variant.sides == {"lexical"} for variant in made.variants)
    assert all(linked.candidates and linked.text for linked in made.linked)
