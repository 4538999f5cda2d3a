"""Which questions ask the same: what differs must be known to be harmless."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from question_pairs import pairs
from results import texts
from retrieval_core.cache.lookalikes import MAX_LENGTH, meaning_of, same_meaning

LOOK_ALIKES = pairs("lookalikes")


def test_there_are_enough_pairs() -> None:
    """What is promised is measured on at least two hundred of each kind."""
    assert len(set(LOOK_ALIKES)) >= 200
    assert len(set(pairs("paraphrases"))) >= 200


@pytest.mark.parametrize(("question", "other"), LOOK_ALIKES, ids=lambda text: text[:40])
def test_look_alikes_are_told_apart(question: str, other: str) -> None:
    """Their words tell it alone, however near the vectors are; in both directions."""
    assert not same_meaning(question, other)
    assert not same_meaning(other, question)


@pytest.mark.parametrize(
    ("question", "other"),
    [
        ("How do I reset my password?", "how can i reset my password"),
        ("How do I reset my password?", "Hi, can you please tell me how to reset my password? Thanks!"),
        ("What is the capital of France?", "what's the capital of france"),
        ("Can you tell me what the notice period is?", "What is the notice period?"),
        ("Do you know if the pool is heated?", "Is the pool heated?"),
        ("Which museum is free on Sundays?", "Which museums are free on Sundays?"),
        ("What colour is the data centre?", "What color is the data center?"),
        ("In Ireland, what is the minimum wage?", "What is the minimum wage in Ireland?"),
        ("Why doesn't the pump start?", "Why doesn\u2019t the pump start"),
        ("HOW DO I GET TO THE AIRPORT?", "How do I get to the airport?"),
        ("東京タワーの高さは\uff1f", "東京タワーの高さは"),
        ("Où est la gare ?", "où est la gare"),
    ],
)
def test_what_is_harmless(question: str, other: str) -> None:
    """Greetings, contractions, most articles, spelling, case, and plurals where nothing depends on them."""
    assert same_meaning(question, other)
    assert same_meaning(other, question)


@pytest.mark.parametrize(
    ("question", "other"),
    [
        ("How do you say thanks in Spanish?", "How do you say please in Spanish?"),
        ("How do I write please?", "How do I write thanks?"),
        ("What is a Polish shoe?", "what is a polish shoe"),
        ("What is the weight of the box?", "What is the weight of the boxes?"),
        ("who directed alien", "who directed aliens"),
        ("How do I open Windows?", "How do I open a window?"),
        ("Do you know how to swim?", "How do I swim?"),
        ("What is 5!?", "What is 5?"),
    ],
)
def test_traps_of_its_own_rules(question: str, other: str) -> None:
    """What is dropped elsewhere counts where something depends on it."""
    assert not same_meaning(question, other)


@given(texts, texts)
def test_any_text_will_do(question: str, other: str) -> None:
    """It fails on nothing, every question asks the same as itself, and no order counts."""
    assert same_meaning(question, question)
    assert same_meaning(question, other) == same_meaning(other, question)


WORDS = "how do i the a is what can which reset phones in Paris before not 7 8GB , ? please"
words = st.sampled_from(tuple(WORDS.split(" ")))


@given(st.lists(words, min_size=1, max_size=12), st.data())
def test_a_further_number_name_or_negation_counts(chosen: list[str], data: st.DataObject) -> None:
    """Wherever one of them is put in, the question is another one."""
    added = data.draw(st.sampled_from(["not", "never", "1999", "3.5", "-2", "Oslo", "more", "before", "x_1", "§"]))
    place = data.draw(st.integers(0, len(chosen)))
    question = " ".join(chosen)
    other = " ".join([*chosen[:place], added, *chosen[place:]])
    assert not same_meaning(question, other)


@given(st.text(string.ascii_letters + string.digits + " ?!.,'\"-", min_size=1, max_size=60))
def test_equal_meanings_have_the_same_numbers(question: str) -> None:
    """A question in which one digit is changed is another one."""
    for place, mark in enumerate(question):
        if mark.isdigit():
            other = question[:place] + str((int(mark) + 1) % 10) + question[place + 1 :]
            assert not same_meaning(question, other)


def test_long_questions_have_to_be_equal() -> None:
    """A question that is longer than people's questions are is not taken apart."""
    long = "How do I reset the device? " + "It shows the same message again. " * 40
    assert len(long) > MAX_LENGTH
    assert meaning_of(long).words == ()
    assert same_meaning(long, long.rstrip())
    assert not same_meaning(long, long.replace("do I", "can I"))
