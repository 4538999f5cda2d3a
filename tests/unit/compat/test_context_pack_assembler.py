"""The specification's assembler, and the neighbours of a chunk, on plain lists of chunks."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core.compat.context_pack import (
    ContextPack,
    DefaultContextAssembler,
    RerankConfig,
    RerankResult,
    RetrievalConfig,
    expand_neighbors,
    retrieve,
)
from retrieval_core.config import load_config
from retrieval_core.errors import (
    InvalidParameterError,
    QueryValidationError,
)
from retrieval_core.types import Chunk
from support.context_packs import TRACE_KEYS, document, reranker, roles, words

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_neighbours_come_in_the_documents_order() -> None:
    """With pages, the other chunk of the page and those of adjacent pages; never a parent, nor another document."""
    chunks = document() + document("doc_2")
    found = expand_neighbors(chunks[3], chunks[::-1], RetrievalConfig())
    assert [chunk.id for chunk in found] == ["doc_1#1", "doc_1#2", "doc_1#3", "doc_1#4", "doc_1#5"]
    narrow = RetrievalConfig(neighbor_same_page=1, neighbor_cross_page=0)
    assert [chunk.id for chunk in expand_neighbors(chunks[3], chunks, narrow)] == ["doc_1#2", "doc_1#3"]


def test_a_chunk_alone_is_its_own_neighbourhood() -> None:
    """The original is there even where the list does not have it."""
    chunk = document()[0]
    assert expand_neighbors(chunk, [], RetrievalConfig()) == [chunk]


# Assembler


def assembled(
    reranked: list[RerankResult],
    cfg: RetrievalConfig | None = None,
    doc_id: str | None = None,
    metadata: Mapping[str, Mapping[str, Any]] | None = None,
    chunks: list[Chunk] | None = None,
) -> ContextPack:
    """Assemble with words for tokens."""
    chosen = document() if chunks is None else chunks
    return DefaultContextAssembler(words).assemble("which one", reranked, cfg, doc_id, metadata or {}, chosen)


def test_the_order_of_a_pack() -> None:
    """Primaries by score, each one's parent behind it, then siblings, then neighbours on other pages."""
    pack = assembled([RerankResult("doc_1#5", 40), RerankResult("doc_1#0", 90)])
    assert roles(pack) == [
        ("doc_1#0", "primary"),
        ("doc_1/p0", "parent"),
        ("doc_1#5", "primary"),
        ("doc_1/p1", "parent"),
    ]  # what stands beside them is in the parents already
    apart = RetrievalConfig(include_parents=False)
    pack = assembled([RerankResult("doc_1#5", 40), RerankResult("doc_1#0", 90)], apart)
    assert roles(pack) == [
        ("doc_1#0", "primary"),
        ("doc_1#5", "primary"),
        ("doc_1#1", "sibling"),
        ("doc_1#4", "sibling"),
        ("doc_1#6", "sibling"),  # on the next page, under the same parent
        ("doc_1#2", "cross_page"),
        ("doc_1#3", "cross_page"),
        ("doc_1#7", "cross_page"),
    ]


def test_the_budget_holds() -> None:
    """Neighbours go first, primaries stay, and the ledger has everything once."""
    ranked = [RerankResult(f"doc_1#{number}", 90 - number) for number in (0, 3, 6)]
    for budget in (1, 10, 25, 40, 60, 80, 12_000):
        pack = assembled(ranked, RetrievalConfig(final_max_tokens=budget))
        assert words(pack.context_pack) == pack.token_count == pack.trace["final_token_count"]
        assert pack.token_count <= budget
        assert pack.max_tokens == budget
        ids = [entry.id for entry in pack.ledger]
        assert len(ids) == len(set(ids))
    tight = assembled(ranked, RetrievalConfig(final_max_tokens=60))
    assert [role for _, role in roles(tight)] == ["primary"] * 3


def test_only_the_best_results_are_used() -> None:
    """Those beyond ``return_top_n`` are in the ledger; of a candidate that comes twice the better score counts."""
    ranked = [RerankResult("doc_1#1", 10), RerankResult("doc_1#2", 50), RerankResult("doc_1#1", 90)]
    cfg = RetrievalConfig(rerank=RerankConfig(return_top_n=1), neighbor_same_page=0, neighbor_cross_page=0)
    pack = assembled(ranked, cfg)
    assert [passage.id for passage in pack.passages if passage.role == "primary"] == ["doc_1#1"]
    assert pack.passages[0].score == pytest.approx(0.9)  # pyright: ignore[reportUnknownMemberType]
    assert [entry.reason for entry in pack.ledger if entry.id == "doc_1#2"] == ["it is not among the 1 best chunks"]


def test_the_trace_of_an_assembled_pack() -> None:
    """It has the specification's four keys: the first stage's candidates, the reranker's results, and the counts."""
    metadata: dict[str, dict[str, Any]] = {"doc_1#1": {"score": 0.2}, "doc_1#6": {"score": 0.7}, "doc_1#7": {}}
    pack = assembled([RerankResult("doc_1#1", 90, answerability=True, key_evidence="bridge")], metadata=metadata)
    assert pack.trace.keys() == TRACE_KEYS
    assert pack.trace["pinecone_candidates"] == (
        {"chunk_id": "doc_1#6", "score": 0.7},
        {"chunk_id": "doc_1#1", "score": 0.2},
        {"chunk_id": "doc_1#7", "score": None},
    )
    assert pack.trace["rerank_results"] == (
        {
            "chunk_id": "doc_1#1",
            "relevance_score": 90,
            "answerability": True,
            "key_evidence": "bridge",
            "key_evidence_is_quoted": False,
        },
    )
    statistics = cast("Mapping[str, Mapping[str, int]]", pack.trace["expansion_stats"])
    assert statistics["primary"] == {"considered": 1, "kept": 1, "shortened": 0, "dropped": 0}
    json.dumps(pack.trace)


def test_one_document_alone() -> None:
    """With ``doc_id`` nothing of another document is shown, and the ledger says what was left out for that."""
    chunks = document() + document("doc_2")
    ranked = [RerankResult("doc_2#0", 95), RerankResult("doc_1#0", 90), RerankResult("lost", 85)]
    pack = assembled(ranked, doc_id="doc_1", chunks=chunks)
    assert {passage.citation.document_id for passage in pack.passages} == {"doc_1"}
    reasons = {entry.id: entry.reason for entry in pack.ledger if entry.outcome == "dropped"}
    assert "limited to 'doc_1'" in reasons["doc_2#0"]
    assert "not among the chunks" in reasons["lost"]


def test_nothing_in_gives_an_empty_pack() -> None:
    """It has all of its parts."""
    pack = assembled([], chunks=[])
    assert (pack.selected_chunks, pack.citations, pack.context_pack, pack.ledger) == ((), (), "", ())
    assert pack.trace.keys() == TRACE_KEYS


GOOD = [RerankResult("doc_1#1", 90)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reranked": None}, "list with values of the type RerankResult"),
        ({"reranked": ["doc_1#1"]}, "reranked takes values of the type RerankResult"),
        ({"cfg": load_config()}, "context_pack.RetrievalConfig"),
        ({"cfg": {"final_max_tokens": 5}}, "context_pack.RetrievalConfig"),
        ({"candidate_metadata": ["doc_1#1"]}, "maps chunk ids"),
        ({"candidate_metadata": {"doc_1#1": 0.5}}, "maps chunk ids"),
        ({"candidate_metadata": {"doc_1#1": {"score": float("nan")}}}, "score: Input should be a finite number"),
        ({"all_chunks": "text"}, "all_chunks takes a list"),
        ({"all_chunks": None}, "all_chunks takes a list"),
        ({"all_chunks": [{"text": "x"}]}, "all_chunks takes values of the type Chunk"),
        ({"all_chunks": [Chunk("a", "d", "one"), Chunk("a", "d", "two")]}, "two different chunks"),
    ],
    ids=str,
)
def test_wrong_arguments_of_the_assembler(arguments: dict[str, Any], message: str) -> None:
    """Each is refused by name, with what was given."""
    right: dict[str, Any] = {
        "reranked": GOOD,
        "cfg": None,
        "doc_id": None,
        "candidate_metadata": {},
        "all_chunks": document(),
    }
    with pytest.raises(InvalidParameterError, match=message):
        DefaultContextAssembler(words).assemble("which one", **{**right, **arguments})


@pytest.mark.parametrize("query", ["", "  \n", None, 5])
def test_a_question_is_needed(query: Any) -> None:
    """Everywhere where one is taken."""
    asked, _ = reranker([])
    for call in (
        lambda: DefaultContextAssembler(words).assemble(query, GOOD, None, None, None, document()),
        lambda: retrieve(query, None, None, document(), None, token_counter=words),
        lambda: asyncio.run(asked.arerank(query, document())),
    ):
        with pytest.raises(QueryValidationError):
            call()
