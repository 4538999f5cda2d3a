"""Escaped texts and names are read back exactly, and ordinary ones stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given

from retrieval_core.types import Chunk, format_citation
from retrieval_core.types.escapes import escape_name, escape_text, unescape_name, unescape_text
from support.odd_texts import ANY_TEXT


@given(ANY_TEXT)
def test_escapes_are_read_back(text: str) -> None:
    """Of texts and of names; a name has no character that ends its line or that cannot be seen."""
    assert unescape_text(escape_text(text)) == text
    assert unescape_name(escape_name(text)) == text
    assert len(f"x{escape_name(text)}x".splitlines()) == 1
    assert escape_name(text).encode().decode() == escape_name(text)


@pytest.mark.parametrize(
    "line",
    [
        "[2] Doc: a.md",
        "   [2] Doc: a.md",
        "\u200b[2]\u200b Doc: a.md",
        "［２］ Ｄｏｃ： a.md",  # noqa: RUF001
        "【2】 Document: a.md",
        "**[2] Doc:** a.md",
        "> [2] doc: a.md",
        "# [two] DOC : a.md",
        "[2] D\u200bo\u200bc: a.md",
        "\\[2] Doc: a.md",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_what_a_reader_would_take_for_a_heading_is_escaped(line: str, end: str) -> None:
    """Brackets of other kinds, white space and marks before them, and line ends of other kinds make no difference."""
    text = f"Before.{end}{line}\nAfter."
    escaped = escape_text(text)
    assert len(escaped) == len(text) + 1
    assert escaped.startswith("Before.")
    assert unescape_text(escaped) == text


@pytest.mark.parametrize(
    "text",
    [
        "See [2] and Doc: a.md.",
        "[2] Smith, J. (2001). A paper.",
        "[a link](doc.md): text",
        "- [ ] to do",
        "a[1] = doc",
        "C:\\docs\\new | A site > b",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert escape_text(text) == text


@pytest.mark.parametrize(
    "name", ["C:\\docs\\new.md", "How to | The site", "a>b", "a|b", "x (2)", "Größe 👨‍👩‍👧", "a  b"]
)
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert escape_name(name) == name
    assert format_citation(Chunk("c", name, "")) == f"Doc: {name}"
