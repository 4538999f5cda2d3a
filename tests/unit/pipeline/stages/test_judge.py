"""Judging whether hits answer their query: signals, curves, and what happens if something cannot be looked up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import StoreError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.stages.judge import (
    BY_WORDS,
    WITH_COSINE,
    Signals,
    content_terms,
    coverage_of,
    curve_for,
)
from retrieval_core.pipeline.stages.search import CALIBRATED_EMBEDDER
from retrieval_core.ports import Change, TermCounts
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types import Chunk, Relevance, RetrievalResult
from retrieval_core.types.results import NOT_HERE
from support.plugins import approx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import Candidate, SearchRequest
    from retrieval_core.types.filters import Filter

ANALYZER = Analyzer()
TEXTS = ("The night train to Vienna leaves at nine.", "Bread is baked until the crust is brown.", "Trains have wheels.")


def store_of(*texts: str, kind: type[MemoryStore] = MemoryStore) -> MemoryStore:
    store = kind()
    chunks = tuple(Chunk(f"{place}#0", str(place), text) for place, text in enumerate(texts))
    asyncio.run(store.upsert(Change(chunks=chunks)))
    return store


def retrieve(query: str, store: MemoryStore) -> RetrievalResult:
    with RetrievalPipeline(store) as pipeline:
        return pipeline.retrieve(query, mode="lexical", use_cache=False)


def relevance_of(query: str, store: MemoryStore | None = None) -> Relevance:
    relevance = retrieve(query, store or store_of(*TEXTS)).relevance
    assert relevance is not None
    return relevance


def test_the_curves_are_those_of_the_default_embedder() -> None:
    """With other vectors the cosines mean something else: measure anew, see ``benchmarks/answerability.py``."""
    assert LocalEmbedder().id == CALIBRATED_EMBEDDER


def test_fitting_chunks_are_trusted_and_others_are_not() -> None:
    """The explanation names what is missing."""
    fitting, other = (
        relevance_of("when does the night train to Vienna leave"),
        relevance_of("how to rotate Kafka train logs"),
    )
    assert fitting.value is not None
    assert other.value is not None
    assert fitting.value > 0.8
    assert other.value < 0.22
    assert (fitting.is_unlikely, other.is_unlikely) == (False, True)
    assert "Missing: rotate, Kafka, logs." in other.explanation


def test_a_name_that_no_chunk_contains_makes_an_answer_unlikely() -> None:
    """A common word that no chunk contains may be said in other words; a name hardly."""
    words, name = (
        relevance_of("when does the night train to vienna go"),
        relevance_of("when does the night train to Oslo go"),
    )
    lower = relevance_of("when does the night train to oslo go")
    assert words.value is not None
    assert name.value is not None
    assert lower.value is not None
    assert name.value < lower.value / 3
    assert "No chunk contains Oslo." in name.explanation
    assert "No chunk contains" not in lower.explanation
    assert relevance_of("When Does The Night Train To Oslo Go").value == pytest.approx(lower.value)
    assert relevance_of("When does the night train to Vienna go").value == pytest.approx(words.value)


def test_rare_words_weigh_more_and_missing_ones_no_more_than_one() -> None:
    """A long question has words around it that no document repeats."""
    counts = TermCounts(1000, {"rare": 1, "common": 500})
    terms = frozenset({"rare", "common"})
    assert coverage_of(terms, [frozenset({"rare"})], counts) > 0.8
    assert coverage_of(terms, [frozenset({"common"})], counts) < 0.2
    assert coverage_of(terms, [frozenset({"common"})], None) == approx(0.5)
    long = frozenset({"rare", *(f"unknown{number}" for number in range(50))})
    assert coverage_of(long, [frozenset({"rare"})], counts) > 0.4
    assert coverage_of(long, [frozenset({"rare"})], None) == approx(1 / 3)
    assert coverage_of(terms, [frozenset()], counts) == 0


def test_what_no_lookup_can_tell_is_not_said() -> None:
    """If the store fails when it is asked about an identifier, nothing is unknown; all words weigh the same then."""

    class Failing(MemoryStore):
        async def count_terms(self, terms: Sequence[str], condition: Filter | None = None) -> TermCounts:
            raise StoreError("it is gone")

        async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
            if request.text == "NIGHT_MODE":
                raise StoreError("it is gone")
            return await super().search(request)

    query = "does NIGHT_MODE change the night train to Vienna"
    assert relevance_of(query).unknown == ("NIGHT_MODE",)
    failing = relevance_of(query, store_of(*TEXTS, kind=Failing))
    assert failing.unknown == ()
    assert "rare ones" not in failing.explanation
    assert retrieve(query, store_of(*TEXTS, kind=Failing)).degraded == ()


@pytest.mark.parametrize("query", ["What is it?", "?!"])
def test_a_query_of_stop_words_has_no_probability_without_a_cosine(query: str) -> None:
    """There is nothing to judge by."""
    relevance = relevance_of(query, store_of("What is it about?"))
    assert relevance.value is None or relevance.explanation == "Nothing was found."


def test_terms_of_several_words_do_not_count_twice() -> None:
    """An analysis with them has the same words as one without."""
    fine = Analyzer(word_ngrams=3)
    assert content_terms("rotate the logs of Kafka", fine) == content_terms("rotate the logs of Kafka", ANALYZER)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_a_higher_signal_never_lowers_the_probability(values: list[float]) -> None:
    """With a cosine and without; it is a probability, and what no chunk contains lowers it."""
    low, high = ([order(values[place : place + 2]) for place in (0, 2)] for order in (min, max))
    for curve in (WITH_COSINE, *BY_WORDS.values()):
        before, after = (curve.probability(Signals(cosine, coverage)) for cosine, coverage in (low, high))
        assert 0 <= before <= after <= 1
        assert curve.probability(Signals(high[0], high[1], unmentioned=("Terraform",))) < after


@pytest.mark.parametrize(
    ("is_weighted", "cosine", "coverage", "probability"),
    [
        (True, 0.7, 0.5, 0.3430),
        (False, 0.7, 0.5, 0.3430),
        (True, 0.7, None, 0.6457),
        (True, None, 0.5, 0.2689),
        (False, None, 0.5, 0.1978),
    ],
)
def test_probabilities_stay_as_they_were_calibrated(
    cosine: float | None, coverage: float | None, probability: float, *, is_weighted: bool
) -> None:
    """With and without a cosine, and for words that all weigh the same."""
    signals = Signals(cosine, coverage, is_weighted)
    curve = curve_for(signals)
    assert curve is not None
    assert curve.probability(signals) == approx(probability, abs=5e-5)


def test_without_words_and_a_cosine_there_is_no_curve() -> None:
    """Nothing can be said then."""
    assert curve_for(Signals(None, None)) is None


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("Is YAML baked?", ("YAML",)),  # the first word has a capital anyway
        ("How do I keep the train in Joda-Time?", ("Joda-Time",)),  # one part is enough
        ("How do I keep the time in Vienna-Time?", ()),
        ("What does the Train.leaves method do?", ()),  # code writes the parts apart
        ("What does the Train.derails method do?", ("Train.derails",)),
        ("Is the train at 28463 the one?", ()),  # a number is the asker's own
        ("Does the train use WebSocket?", ("WebSocket",)),
    ],
)
def test_names_and_identifiers_that_no_chunk_contains_lower_the_probability(
    query: str, missing: tuple[str, ...]
) -> None:
    """Unless their parts are there, or they are numbers."""
    store = store_of("The train leaves at nine. The time in Vienna is that of Berlin.", *TEXTS[1:])
    explanation = relevance_of(query, store).explanation
    assert (f"No chunk contains {' or '.join(missing)}." in explanation) == bool(missing), explanation


def test_the_first_note_says_that_it_is_not_there() -> None:
    """Clients look for it at the beginning; what no chunk contains is named after it."""
    unlikely = Relevance(0.01, is_unlikely=True, unknown=("BERTH_MODE",), missing_names=("Terraform",))
    assert unlikely.notes == (NOT_HERE, "No chunk contains BERTH_MODE or Terraform.")
    likely = Relevance(0.9, unknown=("BERTH_MODE",), missing_names=("Terraform",))
    assert likely.notes == ("No chunk contains BERTH_MODE.",)
