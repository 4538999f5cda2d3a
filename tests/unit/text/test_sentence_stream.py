from __future__ import annotations

import pytest

from retrieval_core.text.markers import LONGEST, SentenceStream


def sentences(text: str, size: int | None = None) -> list[str]:
    growing = SentenceStream()
    size = size or max(1, len(text))
    spans = [span for start in range(0, len(text), size) for span in growing.feed(text[start : start + size])]
    spans += growing.end()
    assert growing.text == text
    return [text[span.start : span.end] for span in spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("It is done. [1] Next [2]. Third.[3] Fourth.", ["It is done. [1]", "Next [2].", "Third.[3]", "Fourth."]),
        ("Done. [1][2] More. [1, 2] And. [1-3], [4] End", ["Done. [1][2]", "More. [1, 2]", "And. [1-3], [4]", "End"]),
        ("It is so. [1] states that. Then.", ["It is so.", "[1] states that.", "Then."]),
        ("Done. [1](http://a.b) shows it.", ["Done.", "[1](http://a.b) shows it."]),
        ("Done.\n[1]\n\nNext", ["Done.\n[1]", "Next"]),
        ("Done.\n[1] guide.pdf\n[2] other.pdf", ["Done.", "[1] guide.pdf", "[2] other.pdf"]),
        ("Yes. It opens [1]. No! [2] So", ["Yes. It opens [1].", "No! [2]", "So"]),
        (
            "Dr. Smith et al. [1] saw 3.5 m, e.g. here. By J. Roe.",
            ["Dr. Smith et al. [1] saw 3.5 m, e.g. here.", "By J. Roe."],
        ),
        ("In the U.S. Army. Then", ["In the U.S. Army.", "Then"]),
        ("# Head\nA line\nthat goes on.\n## Next", ["# Head", "A line\nthat goes on.", "## Next"]),
        ("Steps:\n- one. Two\n- three [1]\n1. Four.", ["Steps:", "- one.", "Two", "- three [1]", "1. Four."]),
        ("First [1]\nSecond [2]\nand on", ["First [1]", "Second [2]\nand on"]),
        ("| a | b |\n|---|:-:|\n| 1. X | 2 |\n| 3 | 4 |", ["| a | b |\n|---|:-:|", "| 1. X | 2 |", "| 3 | 4 |"]),
        ("Run:\n```sh\na. B\n\n[1]\n```\n[2]\nEnd.", ["Run:", "```sh\na. B\n\n[1]\n```\n[2]", "End."]),
        ("- ```\n  a. B\n  ```\n- next", ["- ```\n  a. B\n  ```", "- next"]),
        ("Text\n```\nunclosed. Code\n\nmore", ["Text", "```\nunclosed. Code\n\nmore"]),
        ("Use `a. B` and `c", ["Use `a. B` and `c"]),
        ("A\n\n---\n\nB\n***\n", ["A", "---", "B", "***"]),
        ("> Quoted\n> text. More\n\n**Bold.** Then", ["> Quoted\n> text.", "More", "**Bold.**", "Then"]),
        ("1.. Next. 2... And", ["1.. Next.", "2... And"]),
        (r"Done. \[1\] Next.\[2, p. 3\] More [cite: 4].", [r"Done. \[1\]", r"Next.\[2, p. 3\]", "More [cite: 4]."]),
        ("完成。[1]次です。【2】終わり", ["完成。[1]", "次です。【2】", "終わり"]),
        ("שלום עולם. מה שלומך? 🙂🙂 טוב.", ["שלום עולם.", "מה שלומך?", "🙂🙂 טוב."]),
        (" \n\t ", []),
        ("", []),
    ],
)
def test_where_sentences_end(text: str, expected: list[str]) -> None:
    """Markers stay with the sentence before them; blocks and lines are sentences; pieces make no difference."""
    assert sentences(text) == expected
    assert sentences(text, 1) == expected


def test_a_sentence_is_told_as_soon_as_it_is_certain() -> None:
    """A full stop alone does not end a sentence of a text that grows: a marker may follow, or the rest of a number."""
    growing = SentenceStream()
    assert growing.feed("It costs 3.") == ()
    assert growing.feed("5 euros.") == ()
    assert growing.feed(" [1") == ()
    assert growing.feed("] ") == ()
    first, *others = growing.feed("N")
    assert (first.start, first.end, others) == (0, len("It costs 3.5 euros. [1]"), [])
    assert [growing.text[span.start : span.end] for span in growing.end()] == ["N"]


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_what_has_no_end_is_cut(size: int) -> None:
    """Words without a full stop are cut behind a word, code behind a line, and what has neither anywhere."""
    found = sentences("words " * 2000, size)
    assert all(len(sentence) <= LONGEST and sentence.endswith("words") for sentence in found)
    found = sentences("```\n" + "a line. Of code\n" * 500 + "```\nThe end. Really", size)
    assert found[-2:] == ["The end.", "Really"]
    assert all(len(sentence) <= LONGEST and sentence.endswith(("Of code", "```")) for sentence in found[:-2])
    assert [len(sentence) for sentence in sentences("漢" * (2 * LONGEST + 1), size)] == [LONGEST, LONGEST, 1]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "[1 " * 20_000,
        "`" * 20_000,
        "` `` " * 10_000,
        ". " * 20_000,
        "|" * 50_000,
        "- " * 50_000,
        "[1]" * 20_000,
    ],
)
def test_texts_made_to_be_slow_are_not(text: str) -> None:
    """No more than a bounded stretch is read again for each sentence; it would take hours otherwise."""
    assert "".join(sentences(text)).replace(" ", "") == text.replace(" ", "")
    assert sentences(text[:3000], 1) == sentences(text[:3000])
