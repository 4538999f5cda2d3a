"""Passages cut down to the sentences that bear on a question."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.text.analysis import Analyzer
from retrieval_core.text.sentences import OMISSION, Excerpter, sentences_of
from support.examples import times

ANALYZER = Analyzer()
TEXTS = st.lists(
    st.sampled_from(["The moon is far.", "It has no air.", "\n\n", "# Head\n", "漢字。", "| a | b |\n", "word", "🎉"])
).map(" ".join)


@settings(max_examples=times(150))
@given(passages=st.lists(TEXTS, min_size=1, max_size=4), question=TEXTS, size=st.integers(0, 120))
def test_an_excerpt_is_short_and_word_for_word(passages: list[str], question: str, size: int) -> None:
    """What fits is whole; everything else consists of stretches of the passage, in its order."""
    excerpter = Excerpter(question, ANALYZER)
    for passage in passages:
        shown = excerpter.excerpt(passage, size)
        assert len(shown) <= size
        if len(passage) <= size:
            assert shown == passage
        place = 0
        for stretch in filter(None, shown.split(OMISSION)):
            place = passage.index(stretch, place) + len(stretch)


def test_the_sentences_with_the_rarest_words_of_the_question_come_first() -> None:
    """A word that most sentences have says less than one that few have; neighbours stand together."""
    passage = "A ship is old. A ship is new. The ship has a rudder of oak. It is heavy. A ship is grey."
    excerpter = Excerpter("which ship has a rudder", ANALYZER)
    assert not excerpter.excerpt(passage, 10)
    assert excerpter.excerpt(passage, 30) == "The ship has a rudder of oak."
    assert excerpter.excerpt(passage, 52) == f"A ship is old.{OMISSION}The ship has a rudder of oak."
    almost = f"A ship is old. A ship is new. The ship has a rudder of oak.{OMISSION}A ship is grey."
    assert excerpter.excerpt(passage, len(passage) - 1) == almost


def test_without_a_word_of_the_question_it_is_the_beginning() -> None:
    """Nothing tells the sentences apart."""
    passage = "First sentence here. Second sentence here. Third sentence here."
    assert Excerpter("zebra", ANALYZER).excerpt(passage, 45) == "First sentence here. Second sentence here."


@settings(max_examples=times(100))
@given(passage=TEXTS, question=TEXTS, size=st.integers(0, 120))
def test_nothing_is_left_out_that_would_fit(passage: str, question: str, size: int) -> None:
    """Whatever white space is around it."""
    spans = [passage[one.span.start : one.span.end] for one in sentences_of(passage)]
    shown = Excerpter(question, ANALYZER).excerpt(passage, size)
    around = 2 * max(len(OMISSION), *map(len, re.findall(r"\s*", passage)))
    assert all(text in shown or len(shown) + len(text) + around > size for text in spans)
