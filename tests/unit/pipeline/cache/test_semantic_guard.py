"""Which questions ask the same: what differs must be known to be harmless."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.text.query import MAX_LENGTH, plain_question
from support.question_pairs import pairs
from support.results import texts


def ask_the_same(question: str, other: str) -> bool:
    """Return whether the cache takes two questions for one."""
    return plain_question(question) == plain_question(other)


LOOK_ALIKES = [pair for name in ("lookalikes", "lookalikes_later", "lookalikes_foreign") for pair in pairs(name)]


def test_there_are_enough_pairs() -> None:
    """What is promised is measured on at least two hundred of each kind."""
    assert len(set(LOOK_ALIKES)) >= 200
    assert len(set(pairs("paraphrases"))) >= 200


@pytest.mark.parametrize(("question", "other"), LOOK_ALIKES, ids=lambda text: text[:40])
def test_look_alikes_are_told_apart(question: str, other: str) -> None:
    """Their words tell it alone, however near the vectors are; in both directions."""
    assert not ask_the_same(question, other)


@pytest.mark.parametrize(
    ("question", "other"),
    [
        ("How do I reset my password?", "how can i reset my password"),
        ("What is the capital of France?", "what's the capital of France"),
        ("How do I get a refund?", "How to get a refund"),
        ("Which museum is free on Sundays?", "What museum is free on Sundays?"),
        ("Where is the serial number of the printer?", "Where is serial number of printer?"),
        ("I don't understand my bill", "I do not understand my bill."),
        ("Why is the pump off?!", "Why is the pump off"),
        ("In Ireland, what is the minimum wage?", "What is the minimum wage in Ireland?"),
        ("Why doesn't the pump start?", "Why doesn\u2019t the pump start"),
        ("東京タワーの高さは\uff1f", "東京タワーの高さは"),
        ("Où est la gare ?", "où est la gare"),
    ],
)
def test_what_is_harmless(question: str, other: str) -> None:
    """Contractions, ``the``, the first letter's case, the marks at the end, and what or how in another form."""
    assert ask_the_same(question, other)
    assert ask_the_same(other, question)


@pytest.mark.parametrize(
    ("question", "other"),
    [
        ("How do you say thanks in Spanish?", "How do you say please in Spanish?"),
        ("How do I write please?", "How do I write thanks?"),
        ("What is a Polish shoe?", "what is a polish shoe"),
        ("What is the weight of the box?", "What is the weight of the boxes?"),
        ("who directed alien", "who directed aliens"),
        ("What is the half life of a drug?", "What is half the life of a drug?"),
        ("Who are the few?", "Who are few?"),
        ("So can I?", "Can I?"),
        ("What is a list of lists?", "What is a list of a list?"),
        ("How do I open Windows?", "How do I open a window?"),
        ("Do you know how to swim?", "How do I swim?"),
        ("What is 5!?", "What is 5?"),
    ],
)
def test_traps_of_its_own_rules(question: str, other: str) -> None:
    """What is dropped elsewhere counts where something depends on it."""
    assert not ask_the_same(question, other)


@given(texts, texts)
def test_any_text_will_do(question: str, other: str) -> None:
    """It fails on nothing, every question asks the same as itself, and no order counts."""
    assert ask_the_same(question, question)
    assert ask_the_same(question, other) == ask_the_same(other, question)


WORDS = "how do i the a is what can which reset phones in Paris before not 7 8GB , ? please"
words = st.sampled_from(tuple(WORDS.split(" ")))


@given(st.lists(words, min_size=1, max_size=12), st.data())
def test_a_further_number_name_or_negation_counts(chosen: list[str], data: st.DataObject) -> None:
    """Wherever one of them is put in, the question is another one."""
    added = data.draw(st.sampled_from(["not", "never", "1999", "3.5", "-2", "Oslo", "more", "before", "x_1", "§"]))
    place = data.draw(st.integers(0, len(chosen)))
    question = " ".join(chosen)
    other = " ".join([*chosen[:place], added, *chosen[place:]])
    assert not ask_the_same(question, other)


@given(st.text(string.ascii_letters + string.digits + " ?!.,'\"-", min_size=1, max_size=60))
def test_equal_meanings_have_the_same_numbers(question: str) -> None:
    """A question in which one digit is changed is another one."""
    for place, mark in enumerate(question):
        if mark.isdigit():
            other = question[:place] + str((int(mark) + 1) % 10) + question[place + 1 :]
            assert not ask_the_same(question, other)


def test_long_questions_have_to_be_equal() -> None:
    """A question that is longer than people's questions are is not taken apart."""
    long = "How do I reset the device? " + "It shows the same message again. " * 40
    assert len(long) > MAX_LENGTH
    assert ask_the_same(long, long.rstrip())
    assert not ask_the_same(long, long.replace("do I", "can I"))
