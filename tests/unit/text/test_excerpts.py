"""Passages cut down to the part that bears on a question."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.text.analysis import Analyzer
from retrieval_core.text.sentences import Excerpter, sentences_of
from support.examples import times

ANALYZER = Analyzer()
TEXTS = st.lists(
    st.sampled_from(["The moon is far.", "It has no air.", "\n\n", "# Head\n", "漢字。", "| a | b |\n", "word", "🎉"])
).map(" ".join)


@settings(max_examples=times(150))
@given(passages=st.lists(TEXTS, min_size=1, max_size=4), question=TEXTS, size=st.integers(0, 120))
def test_an_excerpt_is_short_and_word_for_word(passages: list[str], question: str, size: int) -> None:
    """What fits is whole; everything else is one stretch of the passage."""
    excerpter = Excerpter(question, ANALYZER)
    for passage in passages:
        shown = excerpter.excerpt(passage, size)
        assert len(shown) <= size
        assert shown in passage
        if len(passage) <= size:
            assert shown == passage


def test_the_end_with_fewer_words_of_the_question_is_left_out() -> None:
    """A word that most sentences have says less than one that few have; neighbours stay with it."""
    passage = "A ship is old. A ship is new. The ship has a rudder of oak. It is heavy. A ship is grey."
    excerpter = Excerpter("which ship has a rudder", ANALYZER)
    assert not excerpter.excerpt(passage, 10)
    assert excerpter.excerpt(passage, 30) == "The ship has a rudder of oak."
    assert excerpter.excerpt(passage, 60) == "A ship is old. A ship is new. The ship has a rudder of oak."
    assert excerpter.excerpt(passage, len(passage) - 1) == passage.removesuffix(" A ship is grey.")


def test_lines_of_code_keep_their_indentation() -> None:
    code = "def f():\n    a = 1\n    return rudder\n\n\ndef g():\n    return 2\n"
    assert Excerpter("rudder", ANALYZER).excerpt(code, 30) == "    a = 1\n    return rudder"


def test_without_a_word_of_the_question_it_is_the_beginning() -> None:
    """Nothing tells the sentences apart."""
    passage = "First sentence here. Second sentence here. Third sentence here."
    assert Excerpter("zebra", ANALYZER).excerpt(passage, 45) == "First sentence here. Second sentence here."


@settings(max_examples=times(100))
@given(passage=TEXTS, question=TEXTS, size=st.integers(0, 120))
def test_nothing_beside_an_excerpt_would_fit(passage: str, question: str, size: int) -> None:
    """Neither the sentence before it nor the one after it, whatever white space is around it."""
    shown = Excerpter(question, ANALYZER).excerpt(passage, size)
    around = 2 * max(map(len, re.findall(r"\s*", passage)))
    for start in (at for at in range(len(passage)) if shown and passage.startswith(shown, at)):
        before, after = passage[:start].rstrip(), passage[start + len(shown) :].lstrip()
        parts = [before[one.span.start : one.span.end] for one in sentences_of(before)[-1:]]
        parts += [after[one.span.start : one.span.end] for one in sentences_of(after)[:1]]
        assert all(len(shown) + len(part) + around > size for part in parts) or passage.count(shown) > 1
