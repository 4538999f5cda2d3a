from __future__ import annotations

import pytest

from retrieval_core.text.sentences import SENTENCE_END, sentence_ends, sentences_of
from retrieval_core.types import Span


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", " Two!", " Three?", " Four"]),
        ('He said "No." Then he left.', ['He said "No."', " Then he left."]),
        ("As shown.[12] It holds.", ["As shown.[12]", " It holds."]),
        ("See e.g. the lid, approx. here.", ["See e.g. the lid, approx. here."]),
        ("一つ。二つ。", ["一つ。", "二つ。"]),
        ("A paragraph \n\n another", ["A paragraph", " \n\n another"]),
        ("Tools:\n- a hammer\n- a saw", ["Tools:", "\n- a hammer", "\n- a saw"]),
        ("| a | b |\n| 1 | 2 |\n| 3 | 4 |", ["| a | b |\n| 1 | 2 |", "\n| 3 | 4 |"]),
        ("| a |\n|---|\n| 1 |\n| 2 |", ["| a |\n|---|\n| 1 |", "\n| 2 |"]),
        ("## Setup\n\nTurn it on. Wait.", ["## Setup\n\nTurn it on.", " Wait."]),
        ("It ends.\n\n## Next\n\nMore.", ["It ends.", "\n\n## Next\n\nMore."]),
        ("Run:\n\n```\na. B\n\nc. D\n```\n\nDone.", ["Run:", "\n\n```\na. B\n\nc. D\n```", "\n\nDone."]),
        (
            "1. Run:\n\n    ```\n    a. B\n\n    c. D\n    ```",
            ["1. Run:", "\n\n    ```\n    a. B\n\n    c. D\n    ```"],
        ),
        ("```run it```\n\nOne. Two.", ["```run it```", "\n\nOne.", " Two."]),
        ("1. Open it.\n2. Close it.", ["1. Open it.", "\n2. Close it."]),
        ("It was in 1999. Then came 2000.", ["It was in 1999.", " Then came 2000."]),
        ("  \n Indented. \0 And more \ud800.  ", ["  \n Indented.", " \0 And more \ud800."]),
        ("no end at all", ["no end at all"]),
        (" \n\n ", []),
        ("", []),
    ],
)
def test_where_sentences_end(text: str, sentences: list[str]) -> None:
    """Marks, paragraphs, rows and items end a sentence; abbreviations and the numbers of items do not."""
    ends = sentence_ends(text)
    assert [text[start:end] for start, end in zip([0, *ends], ends, strict=False)] == sentences


def test_a_row_of_dots_is_tried_once() -> None:
    """Nothing begins to match inside a row of dots, so that the dots of a table of contents are read once."""
    dots = "." * 50
    assert SENTENCE_END.match(f"{dots}12 ", 10) is None
    assert SENTENCE_END.match(f"{dots} 12", 10) is None
    assert sentence_ends(f"Setup {dots} 12") == [6 + 50, 6 + 50 + 3]


@pytest.mark.parametrize(
    "text",
    [
        "|" + "-" * 200_000 + "x. Then.",
        "| " + "A sentence. " * 50_000,
        "# " + "A sentence. " * 50_000,
        ("x" * 50 + ". ") * 20_000,
        "|\n" * 100_000,
        " " * 200_000 + ". X",
    ],
)
def test_long_lines_are_read_once(text: str) -> None:
    """Neither a long line nor a long table is looked at anew for each of its sentences; it would take hours."""
    assert sentence_ends(text)[-1] == len(text.rstrip())


DIVIDED: list[tuple[str, list[str], list[list[str]]]] = [
    ("One. Two.", ["One.", "Two."], [[], []]),
    ("# A\n\n## B\n\nOne. Two.", ["# A\n\n## B\n\nOne.", "Two."], [[], ["# A\n\n## B"]]),
    (
        "# A\nOne.\n\n## B\nTwo. Three.",
        ["# A\nOne.", "## B\nTwo.", "Three."],
        [[], [], ["## B"]],
    ),
    (
        "It has:\n\n- a lid. Red\n\n- a box\n\nDone.",
        ["It has:", "- a lid.", "Red", "- a box", "Done."],
        [[], ["It has:"], ["It has:"], ["It has:"], []],
    ),
    ("Run this:\n\n```\na. B\n```\n\nDone.", ["Run this:", "```\na. B\n```", "Done."], [[], ["Run this:"], []]),
    (
        "| a |\n|---|\n| 1 |\n| 2 |\n\nDone.",
        ["| a |\n|---|\n| 1 |", "| 2 |", "Done."],
        [[], ["| a |\n|---|"], []],
    ),
    ("#no heading\n\nOne. Two.", ["#no heading\n\nOne.", "Two."], [[], []]),
    (" \n", [], []),
]


@pytest.mark.parametrize(("text", "sentences", "heads"), DIVIDED)
def test_sentences_and_what_they_need(text: str, sentences: list[str], heads: list[list[str]]) -> None:
    """A sentence knows the headings directly above it, and what introduces its list, its code or its table."""

    def cut(span: Span) -> str:
        return text[span.start : span.end]

    found = sentences_of(text)
    assert [cut(sentence.span) for sentence in found] == sentences
    assert [[cut(head) for head in sentence.heads] for sentence in found] == heads


@pytest.mark.parametrize(
    "text", ["# " + "A sentence. " * 50_000, "#\n" * 100_000, "# a\n" + " " * 200_000 + "x", "a:\n- b\n" * 30_000]
)
def test_long_texts_are_divided_once(text: str) -> None:
    """Neither long lines nor many headings or lists are looked at anew for each sentence."""
    assert sentences_of(text)[-1].span.end == len(text.rstrip())
