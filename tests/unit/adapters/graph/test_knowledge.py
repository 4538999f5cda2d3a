"""From a question to the facts that bear on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.graph import KnowledgeGraph, Triple
from retrieval_core.adapters.graph import knowledge as knowledge_module
from retrieval_core.adapters.graph.knowledge import (
    ALL,
    BRIDGE,
    ENTITIES,
    MOST_EDGES,
    MOST_FACTS,
    NEIGHBOUR,
    RELATION,
)
from retrieval_core.errors import InvalidParameterError
from support.examples import times

if TYPE_CHECKING:
    from collections.abc import Sequence

TRIPLES = (
    Triple("Albert Einstein", "bornIn", "Ulm"),
    Triple("Ulm", "lies in", "Germany"),
    Triple("Relativity", "written by", "albert  EINSTEIN"),
    Triple("Germany", "has capital", "Berlin"),
    Triple("Berlin", "is", "big"),
    Triple("Princeton", "worked at", "Albert Einstein"),
    Triple("Princeton", "lies in", "New Jersey"),
)


def scores(question: str, triples: Sequence[Triple] = TRIPLES) -> dict[str, float]:
    return {str(fact.triple): fact.score for fact in KnowledgeGraph(triples).facts(question).facts}


def test_an_entity_and_a_relation_come_first() -> None:
    """A relation counts by its words without endings and stop words, and camel case has words too."""
    assert scores("where was ALBERT EINSTEIN born?") == {
        "Albert Einstein -bornIn-> Ulm": RELATION,
        "Relativity -written by-> albert  EINSTEIN": NEIGHBOUR,
        "Princeton -worked at-> Albert Einstein": NEIGHBOUR,
    }


def test_two_entities_come_before_neighbours() -> None:
    """A fact between two entities of the question is worth more than one that has one of them."""
    found = scores("Ulm, Germany")
    assert found == {
        "Ulm -lies in-> Germany": ENTITIES,
        "Albert Einstein -bornIn-> Ulm": NEIGHBOUR,
        "Germany -has capital-> Berlin": NEIGHBOUR,
    }
    assert list(found) == sorted(found, key=lambda name: -found[name])


def test_everything_together() -> None:
    """Two entities and a relation make the best fact."""
    assert scores("does Ulm lie in Germany")["Ulm -lies in-> Germany"] == ALL


def test_a_step_towards_the_relation() -> None:
    """A relation that no direct fact has is looked for one step further."""
    found = scores("where was the author of relativity born")
    assert found == {"Relativity -written by-> albert  EINSTEIN": BRIDGE, "Albert Einstein -bornIn-> Ulm": BRIDGE}


def test_a_relation_that_was_found_is_not_followed() -> None:
    """Other facts with the relation of a direct one say nothing of the question's entity."""
    triples = (*TRIPLES, Triple("Erwin", "bornIn", "Ulm"))
    assert "Erwin -bornIn-> Ulm" not in scores("where was Albert Einstein born?", triples)


def test_what_joins_two_entities() -> None:
    """A common neighbour of two entities makes its facts better than other neighbours'."""
    found = scores("Relativity and Princeton")
    assert found["Relativity -written by-> albert  EINSTEIN"] == BRIDGE
    assert found["Princeton -worked at-> Albert Einstein"] == BRIDGE
    assert found["Princeton -lies in-> New Jersey"] == NEIGHBOUR


def test_what_is_reported() -> None:
    """Entities have their first spelling, relations are those of the facts."""
    facts = KnowledgeGraph(TRIPLES).facts("was princeton where einstein, albert einstein worked, or a capital?")
    assert facts.entities == ("Princeton", "Albert Einstein")
    assert facts.relations == ("worked at",)


@pytest.mark.parametrize("label", ["is", "of the", "→", "???"])
def test_relations_that_say_nothing(label: str) -> None:
    """A relation of stop words, or without words, is never named by a question."""
    graph = KnowledgeGraph([Triple("a1", label, "b2")])
    assert graph.facts("is a1 of the → ???").relations == ()
    assert [fact.score for fact in graph.facts("is a1 of the → ???").facts] == [NEIGHBOUR]


def test_a_hub_counts_where_it_is_meant() -> None:
    """Of an entity with many facts, only those with a relation or another entity of the question are taken."""
    triples = [Triple("hub", "holds", f"thing {number}") for number in range(MOST_EDGES + 1)]
    graph = KnowledgeGraph([*triples, Triple("hub", "painted by", "Klee")])
    assert graph.facts("hub").facts == ()
    assert [str(fact.triple) for fact in graph.facts("who painted the hub").facts] == ["hub -painted by-> Klee"]
    assert [str(fact.triple) for fact in graph.facts("hub, thing 7").facts] == ["hub -holds-> thing 7"]
    assert len(graph.facts("what does hub hold").facts) == MOST_EDGES
    assert len(KnowledgeGraph(triples[:MOST_EDGES]).facts("hub").facts) == MOST_EDGES


def test_a_fact_about_itself() -> None:
    """A fact between an entity and itself is one fact with one entity."""
    assert scores("Ouroboros", [Triple("Ouroboros", "eats", "ouroboros")]) == {"Ouroboros -eats-> ouroboros": NEIGHBOUR}


def test_an_empty_graph() -> None:
    """A graph without facts knows nothing."""
    graph = KnowledgeGraph([])
    assert graph.facts("anything").entities == ()


def test_the_digest_tells_graphs_apart() -> None:
    """The same triples have the same digest, other ones another."""
    digests = {KnowledgeGraph(triples).digest for triples in (TRIPLES, TRIPLES, TRIPLES[1:], ())}
    assert len(digests) == 3


def test_too_many_triples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph is bounded, and says so."""
    monkeypatch.setattr(knowledge_module, "MOST_TRIPLES", 3)
    with pytest.raises(InvalidParameterError, match="may have 3 triples, got 7"):
        KnowledgeGraph(TRIPLES)


words = st.sampled_from(["Ulm", "new york", "Éire", "born", "日本", "(a+)+$", "' OR 1=1 --", "C++", "who", "x_y"])
labels = st.sampled_from(["born in", "is", "writtenBy", "' OR 1=1", "出生于", "lies"])
some = st.text(min_size=1, max_size=8).filter(lambda text: bool(text.strip()) and text.isprintable())
triples = st.builds(Triple, words | some, labels | some, words | some)


@settings(max_examples=times(200))
@given(given_triples=st.lists(triples, max_size=30), parts=st.lists(words | labels | st.text(max_size=20), max_size=8))
def test_any_question_to_any_graph(given_triples: list[Triple], parts: list[str]) -> None:
    """Whatever is asked: facts are triples of the graph, each once, best first, bounded, and always the same."""
    question = " ".join(parts)
    graph = KnowledgeGraph(given_triples)
    facts = graph.facts(question)
    assert facts == graph.facts(question)
    assert {fact.triple for fact in facts.facts} <= set(given_triples)
    assert len(facts.facts) <= min(MOST_FACTS, len(given_triples))
    assert set(facts.entities) <= set(graph.entities)
    assert set(facts.relations) <= {fact.triple.relation for fact in facts.facts}
    found = [fact.score for fact in facts.facts]
    assert found == sorted(found, reverse=True)
    assert set(found) <= {ALL, RELATION, ENTITIES, BRIDGE, NEIGHBOUR}
    assert bool(found) <= bool(facts.entities)
