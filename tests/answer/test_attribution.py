from __future__ import annotations

from collections import Counter

import pytest

from attribution_cases import CHECKING, CHOOSING, PASSAGES, Case, passage
from retrieval_core.analysis import Analyzer
from retrieval_core.answer.attribution import Sources, markers_of, plain, says_something
from retrieval_core.answer.prompt import MISSING
from retrieval_core.types import AnswerSentence, Quote, Span

SOURCES = Sources(PASSAGES)


def attribute(text: str, sources: Sources = SOURCES, start: int = 0) -> AnswerSentence:
    return sources.attribute(text, Span(start, start + len(text)))


def problems(sentence: AnswerSentence) -> dict[int, str | None]:
    return {attribution.number: attribution.problem for attribution in sentence.attributions}


def quoted(sentence: AnswerSentence) -> dict[int, list[str]]:
    return {
        attribution.number: [quote.text for quote in attribution.citation.quotes]
        for attribution in sentence.attributions
        if attribution.citation is not None
    }


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Done [1].", [(1,)]),
        ("Done.[1][2]", [(1,), (2,)]),
        ("Done [1, 2; 5].", [(1, 2, 5)]),
        ("Done [1-3] and [5–6].", [(1, 2, 3), (5, 6)]),  # noqa: RUF001
        ("Done [2-1], [1-500].", [(2, 1), (1, 500)]),
        ("完成【1】和［2］。", [(1,), (2,)]),  # noqa: RUF001
        ("Done [^1] [Source 2] [passages 3 and 4]【5†source】.", [(1,), (2,), (3, 4), (5,)]),
        ("[1] says so", [(1,)]),
        ("تم [١].", [(1,)]),  # noqa: RUF001
        ("Done [99999999999999].", [(99999999999999,)]),
        ("Done [0].", [(0,)]),
        ("Done [9999999999999999999999].", []),
        ("[1](http://x) and ![2](y.png)", []),
        ("[1]: http://x", []),
        ("a[1] and my_list[2] and done[3]", [(3,)]),
        ("moon[1] = 3, moon[2].size = 1", []),
        ("in the interval [0, 1]", []),
        ("`x [1]` and ``y ` [2]`` but [3]", [(3,)]),
        ("`x [1]", [(1,)]),
        ("```\nx [1]\n```", []),
        ("```\nx [1]\n```\n[2]", [(2,)]),
        ("```\nx [1]\n``` [2]", [(2,)]),
        ("~~~\nx [1]", []),
        ("- [ ] open, [x] done, [a1], []", []),
    ],
)
def test_markers(text: str, numbers: list[tuple[int, ...]]) -> None:
    """Numbers in brackets are markers, but not links, definitions, indexes, intervals and code."""
    found = markers_of(text)
    assert [marker.numbers for marker in found] == numbers
    assert all(text[marker.span.start] in "[【［" and text[marker.span.end - 1] in "]】］" for marker in found)  # noqa: RUF001


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[1," * 50_000, "[1" * 50_000, "`" * 100_000, "` `` " * 2000, "[1-" * 50_000]
)
def test_markers_of_texts_made_to_be_slow(text: str) -> None:
    """Brackets and ticks that are never closed are read once."""
    assert markers_of(text) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is done [1].", "It is done."),
        ("It is done. [1][2]", "It is done."),
        ("It is [1], [2] and so [3] on.", "It is and so on."),
        ("[1] says so.", "says so."),
        ("No marker a[1].", "No marker a[1]."),
    ],
)
def test_plain(text: str, expected: str) -> None:
    """Markers go, with the space and the commas that set them off."""
    assert plain(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("# Head", "## Setup [1]", "**Setup**", "---", "***", "🙂", "[1]", "| a | b |\n|---|---|", "|---|", ""),
        *("The steps are:", "**Steps**:", "- Then [1]:", "Would you like more?", "Sure!", "I hope this helps!"),
        *(MISSING, f"*{MISSING}*", "The passages do not mention the price.", "Unfortunately, I couldn't find it."),
        *("[1]: http://x", "Let me know if you need more."),
    ],
)
def test_what_needs_no_source(text: str) -> None:
    """Headings, rules, introductions, questions, greetings and admissions claim nothing."""
    assert not says_something(text)
    assert not attribute(text).needs_source


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Yes.",
            "No. [1]",
            "42",
            "It is blue",
            "| a | b |",
            "```\ncode\n```",
            "**Bold** text",
            "- item",
            "#5 is best",
        ),
        "The documents do not mention 2019, but 5 people came.",
        "The passages do not say why; it was 3 metres long.",
        "I could not find the lid, although it costs 5 euros.",
        f"{'It is long and it has many words which claim a great deal of things ' * 3}:",
    ],
)
def test_what_says_something(text: str) -> None:
    """Everything else does, when in doubt too."""
    assert says_something(text)


def outcome(case: Case, number: int) -> bool:
    """Whether a case has a citation when it cites a passage."""
    (attribution,) = attribute(f"{case.sentence} [{number}]").attributions
    assert (attribution.citation is None) == (attribution.problem is not None)
    return attribution.citation is not None


@pytest.mark.parametrize("cases", [CHOOSING, CHECKING])
def test_the_thresholds_on_sentences_of_which_it_is_known(cases: tuple[Case, ...]) -> None:
    """All that is from a passage is found; nothing with an altered figure, and nothing that is not in the passage."""
    found = Counter((case.kind, outcome(case, case.passage)) for case in cases)
    assert found == {
        ("quoted", True): 6,
        ("paraphrased", True): 7,
        ("combined", True): 4,
        ("unrelated", False): 7,
        ("altered", False): 6,
    }
    others = [(case, number) for case in cases for number in range(1, 9) if number != case.passage]
    assert Counter(outcome(*pair) for pair in others if pair[0].kind != "unrelated") == {False: 161}


@pytest.mark.parametrize("cases", [CHOOSING, CHECKING])
def test_sources_that_are_found_without_a_marker(cases: tuple[Case, ...]) -> None:
    """Most of what is from a passage is found by itself, and what is found is the right passage."""
    sentences = [(case, attribute(case.sentence)) for case in cases if case.kind != "unrelated"]
    found = [(case, sentence.attributions[0]) for case, sentence in sentences if sentence.attributions]
    assert all(case.is_from and case.passage == source.number and source.marker is None for case, source in found)
    assert len(found) == 15  # of 17
    (elsewhere,) = [case for case in cases if case.kind == "unrelated" and attribute(case.sentence).attributions]
    assert elsewhere.sentence in {
        "Barn owls locate their prey by hearing alone.",
        "Trams crossed the bridge until 1954.",
    }


def test_quotes_stand_where_they_say() -> None:
    """A quote is as long as it has to be, with its place in the document, where the passage's quote has one."""
    texts = ("Owls hear well. Their wings are silent. Mice fear them.", "The lid weighs 5 kg. It is blue.")
    sources = Sources([passage(1, *texts, start=100), passage(2, "The lid weighs 5 kg.", start=None)])
    sentence = attribute("The lid weighs 5 kg [1][2].", sources, start=7)
    first, second = sentence.attributions
    assert first.citation is not None
    assert first.citation.quotes == (Quote(texts[1][:20], Span(165, 185)),)
    assert (first.marker, second.marker) == (Span(27, 30), Span(30, 33))
    assert second.citation is not None
    assert second.citation.quotes == (Quote("The lid weighs 5 kg.", None),)


def test_numbers_that_there_are_not() -> None:
    """An invented number is unknown; a number counts once, wherever it stands."""
    sentence = attribute("Rinse the tank twice afterwards [1][9][1][99999999999999].")
    assert problems(sentence) == {1: None, 9: "unknown", 99999999999999: "unknown"}
    assert problems(attribute("Yes. [1]")) == {1: "unsupported"}
    assert problems(attribute("It is.[2]", Sources(()))) == {2: "unknown"}


def test_a_part_of_a_sentence_has_its_own_source() -> None:
    """A marker in the middle stands for what is before it, the last one also for what is behind it."""
    both = "Vinegar damages the seals of the pump [1], while barn owls locate their prey by hearing alone [7]."
    assert problems(attribute(both)) == {1: None, 7: None}
    swapped = both.replace("[1]", "[x]").replace("[7]", "[1]").replace("[x]", "[7]")
    assert set(problems(attribute(swapped)).values()) == {"unsupported"}
    assert problems(attribute("Vinegar damages the seals of the pump [1] and costs 99 euros.")) == {1: "unsupported"}
    again = "Vinegar damages the seals of the pump [1] and it costs 99 euros there [1]."
    assert problems(attribute(again)) == {1: "unsupported"}


def test_two_passages_hold_a_sentence_together() -> None:
    """Each that adds to the other is a source; one that adds nothing is none, and neither is one with other figures."""
    sources = Sources(
        [
            passage(1, "The harbour crane lifts 40 tonnes."),
            passage(2, "The ferry terminal opened in 1988."),
            passage(3, "Bread is baked from flour, water and yeast."),
        ]
    )
    text = "The harbour crane lifts 40 tonnes and the ferry terminal opened in 1988 [1][2][3]."
    assert problems(attribute(text, sources)) == {1: None, 2: None, 3: "unsupported"}
    assert set(problems(attribute(text.replace("1988", "1989"), sources)).values()) == {"unsupported"}


def test_rows_items_and_code_have_sources() -> None:
    """A table row, a list item and a block of code are cited like sentences, and a quote is the row or the block."""
    assert quoted(attribute("| Asia Pacific | 17.8 | 25.1 | [5]")) == {5: ["| Asia Pacific | 17.8 | 25.1 |"]}
    wrong = attribute("| Asia Pacific | 17.8 | 27.1 | [5]")
    assert problems(wrong) == {5: "unsupported"}
    assert list(quoted(attribute("2. Parents get 10 additional days [2]"))) == [2]
    (block,) = quoted(attribute("```yaml\nsyncPolicy:\n  automated:\n    prune: true\n```\n[4]"))[4]
    assert block.startswith("```yaml")


def test_a_table_in_millions() -> None:
    """What a table leaves out of its figures, and says so, is no other figure."""
    text = "Revenue in Asia Pacific was 25.1 million euros in 2023 [5]."
    assert problems(attribute(text)) == {5: None}
    assert problems(attribute(text.replace("million", "billion"))) == {5: "unsupported"}
    assert problems(attribute(text, Sources([passage(5, "| Asia Pacific | Revenue 2023 | 25.1 |")]))) == {
        5: "unsupported"
    }


def test_figures_in_the_title_count() -> None:
    """What a passage is about is shown to the model above it."""
    text = "In version 2.4 the cache is off [1]."
    assert problems(attribute(text, Sources([passage(1, "The cache is off.")]))) == {1: "unsupported"}
    assert problems(attribute(text, Sources([passage(1, "The cache is off.", title="Version 2.4")]))) == {1: None}


def test_other_languages() -> None:
    """A language is compared with itself; an answer in another one than the passage's has no source."""
    german = Sources(PASSAGES, Analyzer("german", stop_words=("der", "die", "das", "und", "ist", "in", "zu", "von")))
    text = "Während der Elternzeiten besteht besonderer Kündigungsschutz [8]."
    assert problems(attribute(text, german)) == {8: None}
    assert problems(attribute("During parental leave there is a special protection against dismissal [8].")) == {
        8: "unsupported"
    }
    chinese = Sources([passage(1, "大熊猫主要吃竹子。它们生活在中国西南部。")])
    assert quoted(attribute("大熊猫吃竹子。[1]", chinese)) == {1: ["大熊猫主要吃竹子。"]}


def test_a_list_of_sources_says_nothing() -> None:
    """A line with but the number and the name of a passage needs no source and has none."""
    sources = Sources([passage(1, "The lid is blue.", title="Guide to lids")])
    line = attribute("[1] Guide to lids", sources)
    assert (line.says_something, line.attributions) == (False, ())
    assert attribute("[1] Guide to green lids", sources).needs_source


def test_long_passages_without_a_full_stop_are_quoted_in_part() -> None:
    """What has no sentences is cut, so that a quote can be read."""
    rows = "\n".join(f"station{place} mast{place} cable{place}" for place in range(500))
    quotes = quoted(attribute("It has station250, mast250 and cable250 [1].", Sources([passage(1, rows)])))[1]
    assert all(len(quote) < 3000 and quote in rows for quote in quotes)
    assert "mast250" in "".join(quotes)
