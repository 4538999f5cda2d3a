"""Holding sentences against passages without a model."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answer_cases import VERDICTS, Half, cases
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Verified
from retrieval_core.run.threads import PoolClosedError
from retrieval_core.testing.verifier_kit import verify as verify_all
from retrieval_core.verifiers.local import LocalVerifier, verify
from retrieval_core.verifiers.windows import windows_of

CHARTER = "Velmouth received its charter in 1342. The lighthouse was completed in 1829. It is 31 metres high."
TABLE = "| Model | Weight | Locks |\n|---|---|---|\n| D12 | 1.1 kg | no |\n| D18 | 1.6 kg | yes |"


def one(sentence: str, *passages: str) -> Verified:
    return verify(sentence, windows_of(passages), passages)


@pytest.mark.parametrize(
    ("half", "floor"),
    [("choosing", 0.93), ("reporting", 0.87)],
)
def test_accuracy(half: Half, floor: float) -> None:
    """Of the hand-made sentences, at least this part is judged right, and supported ones are mostly so."""
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases(half):
        counts[case.verdict, one(case.sentence, *case.passages).verdict] += 1
    assert counts.total() > 130
    assert sum(counts[verdict, verdict] for verdict in VERDICTS) / counts.total() >= floor
    said = sum(counts[verdict, "supported"] for verdict in VERDICTS)
    assert counts["supported", "supported"] / said >= 0.85


def test_cases_are_split_by_topic() -> None:
    """No passage is in both halves, and each verdict is in both."""
    halves: tuple[Half, Half] = ("choosing", "reporting")
    topics = [{case.topic for case in cases(half)} for half in halves]
    assert not topics[0] & topics[1]
    assert all({case.verdict for case in cases(half)} == set(VERDICTS) for half in halves)
    assert len(cases()) >= 180
    assert len({(case.topic, case.sentence) for case in cases()}) == len(cases())


def test_supported_with_its_quote() -> None:
    """The quote is the one sentence that says it, of the passage that has it."""
    found = one("The lighthouse was completed in 1829.", "Bread is baked.", CHARTER)
    assert found == Verified("supported", 1, "The lighthouse was completed in 1829.", "the passage says the same")


def test_supported_by_neighbours() -> None:
    """What two sentences say together is quoted as both."""
    found = one("The lighthouse is 31 m high.", CHARTER)
    assert found.verdict == "supported"
    assert found.quote in CHARTER
    assert "31 metres" in found.quote


@pytest.mark.parametrize(
    ("sentence", "passage", "reason"),
    [
        ("It was completed in 1928.", "It was completed in 1829.", "the passage says '1829', the answer '1928'"),
        ("The port is closed.", "The port is open.", "the passage says 'open', the answer 'closed'"),
        (
            "It was drawn by Ines Marrow.",
            "It was drawn by Jo Haan.",
            "the passage says 'Jo Haan', the answer 'Ines Marrow'",
        ),
        (
            "It keeps old logs.",
            "It does not keep old logs.",
            "either the passage or the answer denies 'keeps', and not both",
        ),
        (
            "Otters eat large eels.",
            "Large eels eat otters.",
            "the passage has 'Otters' and 'large' the other way round",
        ),
    ],
)
def test_contradicted_with_its_reason(sentence: str, passage: str, reason: str) -> None:
    """The reason says in words what differs."""
    found = one(sentence, passage)
    assert (found.verdict, found.quote) == ("contradicted", passage)
    assert found.reason == reason


def test_supported_says_which_words_are_lacking() -> None:
    """Words that the passage does not have are named, since one of them may say something else."""
    found = one("They completed the lighthouse construction in 1829.", CHARTER)
    assert found.verdict == "supported"
    assert found.reason == "the passage says the same, but for: 'construction'"


def test_an_altered_word_is_not_found() -> None:
    """A sentence that is the passage's but for one word is not supported, and the word is named."""
    found = one("The windmill was completed in 1829.", CHARTER)
    assert found == Verified("not_found", reason="no passage that is near has 'windmill'")


def test_not_found_with_its_reason() -> None:
    """The reason names the figures and names that no passage has, or says how near the nearest comes."""
    assert one("It has 94 rooms.", CHARTER) == Verified("not_found", reason="no passage that is near has '94'")
    assert one("Rabbits dig.", CHARTER) == Verified("not_found", reason="no passage has a word of it")
    assert "of its words" in one("The lighthouse keeper bred grey rabbits there.", CHARTER).reason


@pytest.mark.parametrize(
    ("sentence", "verdict"),
    [
        ("The D12 weighs 1.1 kg.", "supported"),
        ("The D18 has a weight of 1600 g.", "supported"),
        ("The D12 weighs 1.6 kg.", "contradicted"),
        ("The D18 locks.", "supported"),
        ("The D12 locks.", "contradicted"),
    ],
)
def test_tables(sentence: str, verdict: str) -> None:
    """A row is read with the names of its columns, and alone."""
    found = one(sentence, TABLE)
    assert found.verdict == verdict
    assert found.quote in TABLE


@pytest.mark.parametrize(
    ("sentence", "verdict"),
    [
        ("Run `kubectl apply -f site.yaml` to install it.", "supported"),
        ("Run `kubectl delete -f site.yaml` to install it.", "contradicted"),
        ("Run `kubectl apply -f other.yaml` to install it.", "contradicted"),
        ("Run `kubectl get pods --namespace dev`.", "contradicted"),
        ("Run `kubectl get pods --namespace prod`.", "supported"),
    ],
)
def test_code(sentence: str, verdict: str) -> None:
    """A command is compared to the character."""
    block = "```\nkubectl login\nkubectl get pods --namespace prod\n```"
    passage = f"## Install\n\nTo install it, run `kubectl apply -f site.yaml` as admin.\n\nTo look, run:\n\n{block}"
    assert one(sentence, passage).verdict == verdict


def test_clauses_are_held_against_the_passages_alone() -> None:
    """A sentence whose clauses are from different passages is supported, and wrong if one of them is."""
    passages = ("Backups run every night.", "Restoring a file takes five minutes.")
    both = "Backups run every night, and restoring a file takes {} minutes."
    assert one(both.format("five"), *passages).verdict == "supported"
    assert one(both.format("nine"), *passages).verdict == "contradicted"


def test_nothing_to_say() -> None:
    """An empty sentence and empty passages are not found."""
    assert one("", CHARTER).verdict == "not_found"
    assert one("The lighthouse was completed.", "", " ").verdict == "not_found"


@settings(max_examples=150, deadline=None)
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
    assert LocalVerifier().id.startswith("exact-comparison@")


@pytest.mark.parametrize("name", ["batch_size", "threads"])
def test_settings_are_checked(name: str) -> None:
    """What is less than 1 is refused."""
    with pytest.raises(InvalidParameterError, match=f"{name} must be at least 1, got 0"):
        LocalVerifier(**{name: 0})
