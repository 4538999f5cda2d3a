"""How much a query does at most, seen from outside: the terms searched for, calls at a time, and what is loaded."""

from __future__ import annotations

import asyncio
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk, load_config
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Change, Reranker, RerankScores, SearchRequest, as_plugin
from retrieval_core.testing.fakes import FakeEmbedder, FakeReranker, FakeVerifier
from retrieval_core.testing.fakes_llm import FakeLLM
from support.answers import an_answering_pipeline, answer_in, events_of
from support.pipelines import TroubledStore, a_pipeline, filled
from support.plugins import approx

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


TERMS = 128
FIELDS = 10_000
RERANKED_AT_A_TIME = 4
READ_FOR_AN_ANSWER = 14


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_store_searches_for_the_first_terms_of_a_long_query(kind: str, tmp_path: Path) -> None:
    """Those after the 128th are left out, for the work for a chunk grows with their number."""
    words = [f"z{first}{second}k" for first in "aeiou" for second in ascii_lowercase][: TERMS + 1]
    chunks = tuple(Chunk(str(place), str(place), words[place]) for place in (0, TERMS - 1, TERMS))

    async def found() -> list[str]:
        store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "index.db")
        await store.upsert(Change(chunks))
        candidates = await store.search(SearchRequest(10, text=" ".join(words)))
        await store.aclose()
        return sorted(each.chunk_id for each in candidates)

    assert asyncio.run(found()) == ["0", str(TERMS - 1)]


def test_an_index_lists_ten_thousand_fields() -> None:
    """Metadata whose names are data, such as ids, doesn't fill the memory; the first fields are listed."""
    store = MemoryStore()

    async def listed() -> int:
        await store.upsert(
            Change((Chunk("a", "a", "moon", metadata={f"f{number}": 1 for number in range(FIELDS + 9)}),))
        )
        return len(await store.fields(2 * FIELDS))

    assert asyncio.run(listed()) == FIELDS


class _Busy:
    """A reranker of one passage at a time that counts its calls under way."""

    id, batch_size = "busy", 1

    def __init__(self) -> None:
        self.under_way = self.most = 0

    async def score(self, query: str, passages: Sequence[str]) -> RerankScores:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.02)
        self.under_way -= 1
        return RerankScores(tuple(float(len(passage)) for passage in passages))


def test_a_reranker_gets_few_calls_at_a_time() -> None:
    """Four, so that a service is not flooded by one query."""
    store = MemoryStore()
    asyncio.run(store.upsert(Change(tuple(Chunk(f"c{n}", f"d{n}", "moon " * (n + 1)) for n in range(12)))))
    reranker = _Busy()
    with RetrievalPipeline(store, config=load_config("lexical"), reranker=as_plugin(reranker, Reranker)) as pipeline:
        assert pipeline.retrieve("moon", top_k=12).hits[0].id == "c11"
    assert reranker.most == RERANKED_AT_A_TIME


def test_first_scores_that_are_equal_count_for_nothing_beside_a_rerankers() -> None:
    """Both are standardized around 0 before they are weighed, so a reranker with half of the weight decides alone."""
    store = MemoryStore()
    asyncio.run(store.upsert(Change((Chunk("a", "a", "moon rock"), Chunk("b", "b", "moon dust")))))
    reranker = FakeReranker({"moon rock": 0.1, "moon dust": 0.9})
    config = load_config("lexical", {"reranker.weight": 0.5})
    with RetrievalPipeline(store, config=config, reranker=reranker) as pipeline:
        hits = pipeline.retrieve("moon").hits
    assert [(hit.id, hit.score) for hit in hits] == [("b", approx(0.5)), ("a", approx(-0.5))]


def test_a_verifier_may_check_one_sentence_at_a_time() -> None:
    """One is the least that a call can have."""
    llm = FakeLLM("The history command rolls back an application [1]. It lists every earlier revision [1].")
    verifier = FakeVerifier(batch_size=1)
    answer = answer_in(events_of(an_answering_pipeline(llm, verifier=verifier, answer__verify=True)))
    assert answer.degraded == ()
    assert [len(sentences) for _, sentences, _ in verifier.calls] == [1, 1]


def test_few_sentences_are_read_for_an_extracted_answer() -> None:
    """A model reads a question with each of them, which takes longer than the search."""
    facts = [f"The {word} moon is far from planet number {place}." for place, word in enumerate(ascii_lowercase)]
    store = TroubledStore()
    filled(store, [Chunk(f"c{place}", "moons", fact, place) for place, fact in enumerate(facts)])
    scorer = FakeReranker()
    answer = answer_in(events_of(an_answering_pipeline(store=store, scorer=scorer), "far moon", top_k=26))
    assert answer.kind == "extracted"
    assert sum(len(passages) for _, passages in scorer.calls) == READ_FOR_AN_ANSWER


@pytest.mark.parametrize("facts", [1, 2, 3, 5])
def test_an_extracted_answer_has_up_to_three_blocks(facts: int) -> None:
    """The best ones, each with its source; more would be a list of results."""
    texts = (
        "The moon is far away.",
        "Every moon has craters.",
        "No moon shines itself.",
        "Ice covers a moon.",
        "A moon turns.",
    )
    store = TroubledStore()
    filled(store, [Chunk(f"c{place}", f"d{place}", text) for place, text in enumerate(texts[:facts])])
    answer = answer_in(events_of(an_answering_pipeline(store=store), "moon"))
    assert answer.kind == "extracted"
    sources = [one.attributions[0].number for one in answer.sentences]
    assert len(sources) == len(set(sources)) == min(facts, 3)


class _Loaded(FakeEmbedder):
    is_loaded, loads = False, 0

    async def load(self) -> None:
        self.is_loaded, self.loads = True, self.loads + 1


@pytest.mark.parametrize(("mode", "loads"), [("lexical", 0), ("hybrid", 1), ("dense", 1)])
def test_a_query_by_words_loads_no_embedder(mode: str, loads: int) -> None:
    """The model is loaded by the first query that needs a vector, whether an option or the settings say so."""
    ways: list[tuple[str, dict[str, Any]]] = [(mode, {}), ("hybrid", {"mode": mode})]
    for setting, options in ways:
        embedder = _Loaded()
        with a_pipeline(embedder=embedder, search__mode=setting) as pipeline:
            pipeline.retrieve("history command", **options)
        assert embedder.loads == loads
