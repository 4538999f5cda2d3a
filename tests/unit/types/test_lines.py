"""The lines of parts of a text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.types import Quote, Span

TEXTS = st.text(alphabet="ab \n", min_size=1, max_size=30).filter(str.strip)


@given(TEXTS, st.integers(1, 99), st.data())
def test_parts_of_parts_have_the_lines_of_their_words(text: str, first: int, data: st.DataObject) -> None:
    """However a quote is cut, the lines are those of its words in the whole text."""
    quote = Quote(text, Span(0, len(text)), lines=(first, first + text.count("\n")))
    for _ in range(3):
        start = data.draw(st.integers(0, len(quote.text)))
        end = data.draw(st.integers(start, len(quote.text)))
        if not quote.text[start:end].strip():
            continue
        quote = quote.part(start, end)
        assert quote.span is not None
        assert text[quote.span.start : quote.span.end] == quote.text
        words = quote.text.strip()
        above = text[: quote.span.start + quote.text.find(words)].count("\n")
        assert quote.lines == (first + above, first + above + words.count("\n"))


def test_without_lines_parts_have_none() -> None:
    assert Quote("a\nb").part(0, 1).lines is None


def test_a_text_with_another_number_of_lines_is_cited_whole() -> None:
    """Such as a row of a table, whose line ends are written as something else in its file."""
    assert Quote("a\nb", lines=(5, 5)).part(2, 3).lines == (5, 5)
