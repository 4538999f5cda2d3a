"""Holding sentences against passages without a model."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.verifiers.local import LocalVerifier, statements_of, verify
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Verified
from retrieval_core.run.threads import PoolClosedError
from retrieval_core.testing.verifier_kit import verify as verify_all
from support.answer_cases import VERDICTS, cases
from support.examples import times

if TYPE_CHECKING:
    from collections.abc import Sequence

CHARTER = "Velmouth received its charter in 1342. The lighthouse was completed in 1829. It is 31 metres high."
UNSEEN = Path(__file__).parents[4] / "benchmarks" / "claims" / "unseen.json"


def one(sentence: str, *passages: str) -> Verified:
    return verify(sentence, statements_of(passages))


def judged(rows: Sequence[tuple[Sequence[str], str, str]]) -> Counter[tuple[str, str]]:
    """Count what is right and what was said, of passages, sentences and verdicts."""
    return Counter((verdict, one(sentence, *passages).verdict) for passages, sentence, verdict in rows)


@pytest.mark.parametrize("part", ["tune", "held out"])
def test_what_it_says_is_right(part: str) -> None:
    """Of sentences that others wrote: nearly all of both verdicts are right, and most exact cases are found."""
    unseen: list[dict[str, str]] = [
        row for row in json.loads(UNSEEN.read_text(encoding="utf-8")) if row["part"] == part
    ]
    counts = judged([((row["passage"],), row["claim"], row["verdict"].replace(" ", "_")) for row in unseen])
    assert counts.total() > 200
    for verdict in ("supported", "contradicted"):
        assert counts[verdict, verdict] >= 0.95 * sum(counts[other, verdict] for other in VERDICTS)
        assert counts[verdict, verdict] >= 0.5 * sum(counts[verdict, other] for other in VERDICTS)


def test_what_it_says_of_older_sentences_is_right() -> None:
    """Most of these are in other words, which are not found; what is said of the others is right."""
    counts = judged([(case.passages, case.sentence, case.verdict) for case in cases()])
    for verdict in ("supported", "contradicted"):
        assert counts[verdict, verdict] >= 0.95 * sum(counts[other, verdict] for other in VERDICTS)


def test_supported_with_its_quote() -> None:
    """The quote is the one sentence that says it, of the passage that has it."""
    found = one("The lighthouse was completed in 1829.", "Bread is baked.", CHARTER)
    assert found == Verified("supported", 1, "The lighthouse was completed in 1829.", "the passage says the same")


def test_the_sentence_before_tells_what_a_pronoun_is() -> None:
    """And so does a heading; the sentence before that does not."""
    assert one("The lighthouse is 31 m high.", CHARTER).quote == "It is 31 metres high."
    assert one("Velmouth is 31 m high.", CHARTER).verdict == "not_found"
    assert one("The lighthouse is 31 m high.", "## The lighthouse\n\nIt is 31 m high.").verdict == "supported"
    chain = "The lighthouse is white. It is old. It is 31 m high."
    assert one("The lighthouse is 31 m high.", chain).verdict == "supported"


@pytest.mark.parametrize(
    ("sentence", "passage", "reason"),
    [
        (
            "The mill was completed in May 1928.",
            "The mill was completed in May 1829.",
            "the passage says 'May 1829', the answer 'May 1928'",
        ),
        (
            "The plan was drawn by Ines Marrow.",
            "The plan was drawn by Jo Haan.",
            "the passage says 'Jo Haan', the answer 'Ines Marrow'",
        ),
        (
            "The mill keeps old logs.",
            "The mill does not keep old logs.",
            "either the passage or the answer denies 'keeps', and not both",
        ),
    ],
)
def test_contradicted_with_its_reason(sentence: str, passage: str, reason: str) -> None:
    """The reason says in words what differs."""
    found = one(sentence, passage)
    assert (found.verdict, found.quote) == ("contradicted", passage)
    assert found.reason == reason


def test_who_says_the_same_counts_more_than_who_does_not() -> None:
    """A sentence that one passage says is supported, whatever another one says before it."""
    passages = ("The deposit is 300 euros a month.", "The deposit is 400 euros a month.")
    assert one("The deposit is 400 euros a month.", *passages).passage == 1
    found = one("The deposit is 500 euros a month.", *passages)
    assert (found.verdict, found.passage) == ("contradicted", 0)


@pytest.mark.parametrize(
    ("sentence", "verdict"),
    [
        ("Travellers may cross on foot without a passport.", "supported"),
        ("Travellers may not cross on foot without a passport.", "contradicted"),
        ("Cars may cross with a permit.", "contradicted"),
        ("Cars may not cross with a permit.", "supported"),
    ],
)
def test_a_negation_beside_another(sentence: str, verdict: str) -> None:
    """Which word is denied counts, not how many negations a passage has."""
    passage = "Travellers may cross on foot without a passport. Cars may not cross with a permit."
    assert one(sentence, passage).verdict == verdict


def test_not_found_with_its_reason() -> None:
    """What is said in other words, or differs in more, is not found."""
    found = one("The windmill was completed in 1829.", CHARTER)
    assert found.verdict == "not_found"
    assert found.reason == "no passage says the same in the same words, or differs in only one fact"


def test_what_is_too_long_is_not_found() -> None:
    """A long sentence is not judged by its beginning, nor by that of a passage's sentence."""
    beginning = "The mill is open"
    assert one(f"{beginning} {'and so on ' * 300}.", f"{beginning}.").verdict == "not_found"
    assert one(f"{beginning}.", f"{beginning} {'and so on ' * 300}, unless it is shut.").verdict == "not_found"


def test_nothing_to_say() -> None:
    """An empty sentence and empty passages are not found."""
    assert one("", CHARTER).verdict == "not_found"
    assert one("The lighthouse was completed.", "", " ").verdict == "not_found"


@settings(max_examples=times(150), deadline=None)
@given(
    st.text(max_size=200),
    st.lists(st.text(max_size=300), min_size=1, max_size=4),
    st.integers(0, 3),
)
def test_verdicts_are_well_formed(sentence: str, passages: list[str], place: int) -> None:
    """Whatever is compared, a quote stands in the passage that is named."""
    for text in (sentence, passages[place % len(passages)]):
        found = one(text, *passages)
        if found.verdict == "not_found":
            assert (found.passage, found.quote) == (None, "")
        else:
            assert found.passage is not None
            assert found.quote
            assert found.quote in passages[found.passage]
        assert found.reason


def test_the_call_is_the_same() -> None:
    """The method gives for each sentence what the function gives, and no usage, since no model is asked."""
    verifier = LocalVerifier(batch_size=2)
    sentences = ["The lighthouse was completed in 1829.", "It has 94 rooms.", "The lighthouse was completed in 1892."]
    answer = verify_all(verifier, sentences, [CHARTER])
    assert [found.verdict for found in answer.verdicts] == ["supported", "not_found", "contradicted"]
    assert answer.usage is None
    asyncio.run(verifier.aclose())
    with pytest.raises(PoolClosedError):
        asyncio.run(verifier.verify("", sentences, [CHARTER]))


def test_the_id_names_the_method() -> None:
    """Batch and threads change no verdict, and so not the id."""
    assert LocalVerifier().id == LocalVerifier(batch_size=3, threads=2).id
    assert LocalVerifier().id.startswith("exact-comparison-")


@pytest.mark.parametrize("name", ["batch_size", "threads"])
def test_settings_are_checked(name: str) -> None:
    """What is less than 1 is refused."""
    with pytest.raises(InvalidParameterError, match=f"{name} must be a whole number of at least 1, got 0"):
        LocalVerifier(**{name: 0})


@pytest.mark.parametrize(
    "passage", ["Is the door locked?", "“Is the door locked?”", "~~The door is locked.~~ It is open."]
)
def test_what_asks_or_is_struck_out_states_nothing(passage: str) -> None:
    """A heading of a page of questions is no evidence."""
    assert verify("The door is locked.", statements_of((passage,))).verdict == "not_found"
    assert verify("The door is not locked.", statements_of((passage,))).verdict == "not_found"
