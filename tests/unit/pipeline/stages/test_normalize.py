from __future__ import annotations

import unicodedata
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.config import QueryConfig
from retrieval_core.errors import QueryValidationError
from retrieval_core.pipeline.stages.transform import normalize

QUESTIONS = st.text().filter(lambda text: bool(text.strip()))


def up_to(max_length: int) -> QueryConfig:
    return QueryConfig(max_length=max_length)


WHITE_SPACE = "".join(chr(code) for code in range(0x3100) if chr(code).isspace())


@pytest.mark.property("data-retrieval-pipeline", 1)
@given(query=QUESTIONS, max_length=st.integers(1, 40))
def test_normalisation_and_truncation(query: str, max_length: int) -> None:
    """The ends are stripped, what is too long is cut to exactly the limit, and the flag is set exactly then.

    Fails with ``.split()`` taken out, with ``<= settings.max_length`` changed to ``<``, and with ``text[:end]`` to
    ``text[: end - 1]``.
    """
    whole = normalize(query, up_to(10**9))
    assert whole.text == whole.text.strip()
    assert not whole.truncated
    cut = normalize(query, up_to(max_length))
    assert cut.original == query
    assert cut.truncated == (len(whole.text) > max_length)
    assert cut.text == whole.text[:max_length]
    assert len(cut.text) == min(len(whole.text), max_length)


@pytest.mark.property("data-retrieval-pipeline", 2)
@given(query=st.text(alphabet=WHITE_SPACE))
def test_white_space_alone_is_refused(query: str) -> None:
    """A query without anything but white space is an error that holds the query.

    Fails with ``if not text`` changed to ``if not query``, and with the query left out of the error.
    """
    with pytest.raises(QueryValidationError, match="empty") as caught:
        normalize(query, up_to(100))
    assert caught.value.query == query


@given(query=QUESTIONS)
def test_the_result_is_composed_and_normalising_again_changes_nothing(query: str) -> None:
    """The text is in NFC with single spaces, which makes it a fixed point."""
    text = normalize(query, up_to(10**9)).text
    assert unicodedata.is_normalized("NFC", text)
    assert text.split() == text.split(" ")
    assert normalize(text, up_to(10**9)).text == text


def test_different_spellings_of_one_text_meet() -> None:
    """Composed and decomposed letters, and any run of white space, come out the same."""
    assert normalize("  cafe\u0301\t\r\n\u2003noir\u00a0", up_to(100)).text == "caf\u00e9 noir"


@pytest.mark.parametrize("query", [None, 5, b"bytes", ["text"]])
def test_what_is_no_text_is_refused(query: object) -> None:
    """The error names the type that was given and has no query."""
    with pytest.raises(QueryValidationError, match=type(query).__name__) as caught:
        normalize(cast("Any", query), up_to(100))
    assert caught.value.query is None
