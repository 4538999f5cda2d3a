"""Questions found by meaning: the nearest that asks the same, of the same part, within bounds of time and number."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.cache import SemanticCache
from retrieval_core.pipeline.stages.state import digest
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.filter_strategies import filters
from retrieval_core.text.query import plain_question
from support.examples import times
from support.plugins import approx
from support.results import json_values, texts

if TYPE_CHECKING:
    from retrieval_core.types import Vector

QUESTIONS = (
    "How do I reset it?",
    "how can i reset it",
    "How to reset it?",
    "How do I reset 7?",
    "How do I not reset it?",
)


def cache(
    threshold: float = 0.9, max_size: int = 100, ttl: float = 300, clock: FakeClock | None = None
) -> SemanticCache:
    return SemanticCache(threshold, max_size, ttl, (clock or FakeClock()).now)


def towards(*components: float) -> Vector:
    return np.array(components, dtype=np.float32)


def test_a_question_in_other_words_is_found() -> None:
    """With what was asked, the key of its result, and how near the two are."""
    known = cache()
    known.add("p", "How do I reset it?", towards(2, 0), "k")
    match = known.find("p", "how can i reset it", towards(1, 0.1)).match
    assert match is not None
    assert (match.question, match.key) == ("How do I reset it?", "k")
    assert match.similarity == approx(1 / np.sqrt(1.01))


def test_a_look_alike_is_refused_and_the_next_one_found() -> None:
    """However near it is; the trace can tell how many there were."""
    known = cache()
    known.add("p", "How do I reset 7?", towards(1, 0), "seven")
    known.add("p", "How do I reset 8?", towards(1, 0.2), "eight")
    found = known.find("p", "How can I reset 8?", towards(1, 0))
    assert found.match is not None
    assert (found.match.key, found.compared, found.refused) == ("eight", 2, 1)


def test_what_is_not_near_enough_is_not_found() -> None:
    """Equal words do not help where the vectors are not near: they come from another embedder's state, or are cut."""
    known = cache(threshold=0.98)
    known.add("p", "How do I reset it?", towards(1, 0), "k")
    assert known.find("p", "How do I reset it?", towards(1, 0.3)).match is None
    assert known.find("p", "How do I reset it?", towards(1, 0.2)).match is not None


def test_a_vector_without_a_direction_or_of_another_length() -> None:
    """It is near nothing, and harms nothing."""
    known = cache(threshold=-1)
    known.add("p", "a", towards(0, 0), "zero")
    assert len(known) == 0
    known.add("p", "a", towards(1, 0), "k")
    known.add("p", "b", towards(1, 0, 0), "other")
    assert len(known) == 2
    for vector in (towards(0, 0), towards(1, 0, 0, 0), towards(np.inf, 0), towards(np.nan, 1)):
        assert known.find("p", "a", vector).match is None


@pytest.mark.parametrize("change", [{"threshold": 1.1}, {"threshold": float("nan")}, {"max_size": 0}, {"ttl": 0}])
def test_arguments_out_of_range(change: dict[str, Any]) -> None:
    """They are refused with what is allowed."""
    with pytest.raises(InvalidParameterError, match="must be"):
        cache(**change)


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "find", "find", "discard", "wait", "clear"]),
        st.integers(0, 2),
        st.integers(0, len(QUESTIONS) - 1),
        st.tuples(*[st.integers(-3, 3)] * 8),
    ),
    max_size=60,
)


class Oracle:
    """The same with a dictionary and a loop."""

    def __init__(self, threshold: float, max_size: int, ttl: float) -> None:
        self.threshold, self.max_size, self.ttl = threshold, max_size, ttl
        self.entries: OrderedDict[tuple[str, str], tuple[str, Vector, float]] = OrderedDict()

    def add(self, partition: str, question: str, vector: Vector, key: str, now: float) -> None:
        self.entries.pop((partition, key), None)
        self.entries[partition, key] = (question, vector, now)
        if len(self.entries) > self.max_size:
            self.entries.popitem(last=False)

    def find(self, partition: str, question: str, vector: Vector, now: float) -> tuple[str, str] | None:
        best: list[tuple[float, int, tuple[str, str]]] = []
        for used, (place, (other, known, created)) in enumerate(self.entries.items()):
            cosine = float(known @ vector / np.linalg.norm(known) / np.linalg.norm(vector))
            if place[0] == partition and cosine >= self.threshold:
                if now - created >= self.ttl:
                    continue
                if plain_question(question) == plain_question(other):
                    best.append((round(cosine, 5), used, place))
        if not best:
            return None
        place = max(best)[2]
        self.entries.move_to_end(place)
        return place


@settings(max_examples=times(300))
@given(steps, st.integers(1, 6))
def test_it_does_what_a_loop_would_do(steps: list[tuple[str, int, int, tuple[int, ...]]], max_size: int) -> None:
    """The nearest question of its part that is not too old and asks the same, whatever came and went before."""
    clock = FakeClock()
    known, oracle = cache(0.55, max_size, 10, clock), Oracle(0.55, max_size, 10)
    for number, (step, part, which, components) in enumerate(steps):
        partition, vector = f"p{part}", towards(*components)
        question = QUESTIONS[which]
        if not np.linalg.norm(vector):
            continue
        if step == "add":
            key = f"k{number % 7}"
            known.add(partition, question, vector, key)
            oracle.add(partition, question, vector, key, clock.now())
        elif step == "find":
            match = known.find(partition, question, vector).match
            expected = oracle.find(partition, question, vector, clock.now())
            assert (None if match is None else (partition, match.key)) == expected
        elif step == "discard":
            known.discard(partition, f"k{number % 7}")
            oracle.entries.pop((partition, f"k{number % 7}"), None)
        elif step == "clear":
            known.clear()
            oracle.entries.clear()
        else:
            clock.advance(4)
            for place in [place for place, entry in oracle.entries.items() if clock.now() - entry[2] >= oracle.ttl]:
                del oracle.entries[place]
                known.discard(*place)
        assert len(known) <= max_size
        assert len(known) == len(oracle.entries)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from([0.0, 0.5, 0.9, 0.98]))
def test_the_nearest_of_many(seed: int, dimension: int, threshold: float) -> None:
    """Whatever the vectors are, those that are near and those that are far, it is the one that a loop finds."""
    random = np.random.default_rng(seed)
    asked = random.normal(size=dimension)
    spread = random.choice([0.01, 0.1, 0.3, 1, 10], size=(60, 1))
    vectors = (asked + spread * random.normal(size=(60, dimension))).astype(np.float32)
    known = cache(threshold, 60)
    for number, vector in enumerate(vectors):
        known.add("p", "a", vector, str(number))
    cosines = [float(vector @ asked / np.linalg.norm(vector) / np.linalg.norm(asked)) for vector in vectors]
    match = known.find("p", "a", asked.astype(np.float32)).match
    if match is None:
        assert max(cosines) < threshold + 1e-5
    else:
        assert match.similarity == approx(cosines[int(match.key)], abs=1e-5)
        assert match.similarity >= max(cosines) - 1e-5


def test_it_forgets_what_is_too_old() -> None:
    """After as many seconds as were given, and not before; being asked for does not make it younger."""
    clock = FakeClock()
    known = cache(ttl=10, clock=clock)
    known.add("p", "a", towards(1, 0), "k")
    clock.advance(9.5)
    assert known.find("p", "a", towards(1, 0)).match is not None
    clock.advance(0.5)
    assert known.find("p", "a", towards(1, 0)).match is None
    assert len(known) == 0


def test_what_is_asked_for_stays() -> None:
    """The one that was unused for longest goes, whichever part it is of."""
    known = cache(max_size=2)
    known.add("p", "a", towards(1, 0), "a")
    known.add("q", "b", towards(1, 0), "b")
    assert known.find("p", "a", towards(1, 0)).match is not None
    known.add("r", "c", towards(1, 0), "c")
    assert known.find("q", "b", towards(1, 0)).match is None
    assert known.find("p", "a", towards(1, 0)).match is not None
    assert len(known) == 2


def test_threads() -> None:
    """Each of them finds what it put in, and the bounds hold in the end."""
    known = cache(max_size=64)

    def work(number: int) -> int:
        found = 0
        for turn in range(100):
            vector = towards(1, number, turn % 3)
            known.add(f"p{number}", "a", vector, f"k{turn % 4}")
            found += known.find(f"p{number}", "a", vector).match is not None
            known.find(f"p{(number + 1) % 8}", "a", vector)
            if turn % 10 == 0:
                known.discard(f"p{(number + 1) % 8}", f"k{turn % 4}")
        return found

    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(work, range(8)))
    assert min(counts) >= 80
    assert len(known) <= 64


ingredients: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "session": st.none() | texts,
        "filters": st.none() | filters(),
        "parameters": st.dictionaries(texts, json_values, max_size=2),
        "fingerprint": texts,
        "version": st.none() | texts,
        "epoch": st.integers(0, 2),
    }
)


def part_of(session: str | None, **others: Any) -> str:
    return digest(session, *(others[name] for name in ("filters", "parameters", "fingerprint", "version", "epoch")))


@given(
    ingredients, ingredients, st.sampled_from(["session", "filters", "parameters", "fingerprint", "version", "epoch"])
)
def test_no_question_is_found_from_another_part(one: dict[str, Any], other: dict[str, Any], name: str) -> None:
    """Whatever else the result depends on: a single ingredient that differs makes another part."""
    changed = {**one, name: other[name]}
    known = cache(threshold=-1)
    known.add(part_of(**one), "a", towards(1, 0), "k")
    assert known.find(part_of(**one), "a", towards(1, 0)).match is not None
    if repr(changed[name]) != repr(one[name]) and part_of(**changed) != part_of(**one):
        assert known.find(part_of(**changed), "a", towards(1, 0)).match is None
    if name in {"session", "fingerprint", "version", "epoch"} and changed[name] != one[name]:
        assert part_of(**changed) != part_of(**one)
