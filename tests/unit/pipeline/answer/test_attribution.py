from __future__ import annotations

from collections import Counter

import pytest

from retrieval_core.pipeline.answer.attribution import AttributionIndex, markers_of, plain, says_something
from retrieval_core.text.analysis import Analyzer
from retrieval_core.text.markers import MISSING
from retrieval_core.types import AnswerSentence, Quote, Span
from support.attribution_cases import CHECKING, CHOOSING, PASSAGES, Case, passage

SOURCES = AttributionIndex(PASSAGES)


def attribute(text: str, sources: AttributionIndex = SOURCES, start: int = 0) -> AnswerSentence:
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
        ("Done [source: 9], [cite:1], [Citation 2]; [#3] [^4^] [5.].", [(9,), (1,), (2,), (3,), (4,), (5,)]),
        ("Done [1, p. 3] [2, pp. 4-5; 6] [7 section 8].", [(1,), (2, 6), (7,)]),
        (r"Done \[1\], \[2, 3\]", [(1,), (2, 3)]),
        ("Done [page 3] [no 1] [1 2] [x: 1]", []),
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
    assert all(text[marker.span.start] in "\\[【［" and text[marker.span.end - 1] in "]】］" for marker in found)  # noqa: RUF001


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
        (r"It is done \[1\] [2, p. 3].", "It is done."),
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
        *("[1]: http://x", "[^1]: <http://x> (A title)", "Let me know if you need more."),
        *("**Step 2: Setup**", "**1. Setup**", "**Step 3**", "| Region | Revenue 2023 |\n|---|---|"),
        *("**Results:**", "# What is descaling", "**What is it?**", "__Setup__"),
        "I could not find any information about descaling in the provided documents.",
        "The documents do not say whether the lid is blue.",
        "The context does not provide details on how the tank was built.",
        "However, none of the retrieved passages mentions the price or the weight.",
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
        *("**The limit is 500 requests per minute.**", "__All data is deleted after 30 days.__", "**Data is deleted**"),
        *("**Not allowed**", "**Limit: five hundred**", "**Very large!**", "**42**", "**2.5 million users**"),
        *("**Alice leads the team and Bob the office**", "# 500"),
        *("| Plan | 500 users |\n|---|---|", "| Plan | The limit is high |\n|---|---|", "## The limit is 500 requests"),
        *("# All data is deleted.", "[^1]: The moon is 5 km away.", "[1]: Alice leads the team"),
        *("The limit is 500 requests:", "The limit is 500, right?", "Let me know if the limit of 500 is fine for you"),
        "Let me know if you need help, Alice leads the team.",
        "I could not find any reason to doubt that Alice leads the team.",
        "The documents do not mention it, Alice Smith is the owner and Bob the deputy.",
        "The documents do not mention that Alice leads the team.",
        *("I could not find it. Alice leads.", "I could not find anyone, since Alice leads the team."),
        "The passages do not say why; it was 3 metres long.",
        "I could not find the lid, although it costs 5 euros.",
        f"{'It is long and it has many words which claim a great deal of things ' * 3}:",
    ],
)
def test_what_says_something(text: str) -> None:
    """Everything else does, when in doubt too."""
    assert says_something(text)


@pytest.mark.parametrize("text", ["x" + "*" * 500_000 + "y", '"' * 500_000 + "y", "x [1]" + " " * 500_000 + "y [2]"])
def test_what_says_something_in_texts_made_to_be_slow(text: str) -> None:
    """Emphasis and white space are read once; it would take hours otherwise."""
    assert says_something(text)


def outcome(case: Case, number: int) -> bool:
    """Whether a case has a citation when it cites a passage."""
    (attribution,) = attribute(f"{case.sentence} [{number}]").attributions
    assert (attribution.citation is None) == (attribution.problem is not None)
    return attribution.citation is not None


@pytest.mark.parametrize(("cases", "counts"), [(CHOOSING, (7, 9, 4, 10, 10)), (CHECKING, (6, 7, 4, 7, 6))])
def test_the_thresholds_on_sentences_of_which_it_is_known(cases: tuple[Case, ...], counts: tuple[int, ...]) -> None:
    """All that is from a passage is found; nothing with an altered figure, and nothing that is not in the passage."""
    found = Counter((case.kind, outcome(case, case.passage)) for case in cases)
    kinds = [("quoted", True), ("paraphrased", True), ("combined", True), ("unrelated", False), ("altered", False)]
    assert found == dict(zip(kinds, counts, strict=True))
    others = [(case, number) for case in cases for number in range(1, 9) if number != case.passage]
    assert not any(outcome(*pair) for pair in others if pair[0].kind != "unrelated")


@pytest.mark.parametrize(("cases", "count"), [(CHOOSING, 18), (CHECKING, 15)])  # of 20 and of 17
def test_sources_that_are_found_without_a_marker(cases: tuple[Case, ...], count: int) -> None:
    """Most of what is from a passage is found by itself, and what is found is the right passage."""
    sentences = [(case, attribute(case.sentence)) for case in cases if case.kind != "unrelated"]
    found = [(case, sentence.attributions[0]) for case, sentence in sentences if sentence.attributions]
    assert all(case.is_from and case.passage == source.number and source.marker is None for case, source in found)
    assert len(found) == count
    (elsewhere,) = [case for case in cases if case.kind == "unrelated" and attribute(case.sentence).attributions]
    assert elsewhere.sentence in {
        "Barn owls locate their prey by hearing alone.",
        "Trams crossed the bridge until 1954.",
    }


def test_quotes_stand_where_they_say() -> None:
    """A quote is as long as it has to be, with its place in the document, where the passage's quote has one."""
    texts = ("Owls hear well. Their wings are silent. Mice fear them.", "The lid weighs 5 kg. It is blue.")
    sources = AttributionIndex([passage(1, *texts, start=100), passage(2, "The lid weighs 5 kg.", start=None)])
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
    assert problems(attribute("It is.[2]", AttributionIndex(()))) == {2: "unknown"}


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
    sources = AttributionIndex(
        [
            passage(1, "The harbour crane lifts 40 tonnes."),
            passage(2, "The ferry terminal opened in 1988."),
            passage(3, "Bread is baked from flour, water and yeast."),
        ]
    )
    text = "The harbour crane lifts 40 tonnes and the ferry terminal opened in 1988 [1][2][3]."
    assert problems(attribute(text, sources)) == {1: None, 2: None, 3: "unsupported"}
    assert set(problems(attribute(text.replace("1988", "1989"), sources)).values()) == {"unsupported"}


def test_a_passage_that_holds_next_to_nothing_lends_no_figure() -> None:
    """A year that only a passage on something else has is not held by the passages together."""
    sources = AttributionIndex(
        [
            passage(1, "The harbour crane lifts heavy steel containers from cargo ships every morning."),
            passage(2, "The ferry terminal welcomes thousands of summer tourists at noon."),
            passage(3, "Bread has been baked at noon since 1988."),
        ]
    )
    text = (
        "The harbour crane lifts heavy steel containers from cargo ships every morning, and since {} the ferry "
        "terminal welcomes thousands of summer tourists at noon [1][2][3]."
    )
    assert set(problems(attribute(text.format(1988), sources)).values()) == {"unsupported"}
    assert problems(attribute(text.replace("since {} ", ""), sources)) == {1: None, 2: None, 3: "unsupported"}


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
    assert problems(attribute(text, AttributionIndex([passage(5, "| Asia Pacific | Revenue 2023 | 25.1 |")]))) == {
        5: "unsupported"
    }


@pytest.mark.parametrize(
    ("claim", "evidence", "is_from"),
    [
        ("It takes 30 minutes to start the pump", "The pump takes 30 seconds to start.", False),
        ("It takes 30 minutes to start the pump", "The pump takes half an hour, which is 0.5 h, to start.", True),
        ("It takes 90 minutes to start the pump", "The pump takes 1.5 hours to start.", True),
        ("Take 10 \u00b5g of the drug daily", "Take 10 mg of the drug daily.", False),
        ("The harbour bridge cost 12 million dollars", "The harbour bridge cost 12 million euros.", False),
        ("The harbour bridge cost £12 million", "The harbour bridge cost 12 million pounds.", True),
        ("Store the vaccine bottle below 100 °C", "Store the vaccine bottle below 100 °F.", False),
    ],
)
def test_figures_with_another_unit_are_other_figures(claim: str, evidence: str, is_from: bool) -> None:
    """With a marker and without; a unit that says the same is none."""
    sources = AttributionIndex([passage(1, evidence, "Bread is baked from flour."), passage(2, "Mice fear owls.")])
    assert problems(attribute(f"{claim} [1].", sources)) == {1: None if is_from else "unsupported"}
    assert [found.number for found in attribute(f"{claim}.", sources).attributions] == [1] * is_from


def test_a_short_sentence_must_be_held_nearly_whole() -> None:
    """One other word makes another sentence of it; what it is about may stand in the title."""
    sources = AttributionIndex([passage(1, "It lies by the river. They eat bread.", title="Alden")])
    assert problems(attribute("They eat stones [1].", sources)) == {1: "unsupported"}
    assert problems(attribute("They eat bread [1].", sources)) == {1: None}
    assert problems(attribute("Alden lies by the river [1].", sources)) == {1: None}
    assert problems(attribute("Bredow lies by the river [1].", sources)) == {1: "unsupported"}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The mayor of Bredow is Jan Peters.", 1),
        ("The mayor of Alden is Jan Peters.", None),
        ("In Alden the old town hall with its tower was built of red brick.", 2),
        ("In Bredow the old town hall with its tower was built of red brick.", None),
        ("Bredow has an old town hall with its tower, built of red brick.", None),
        ("Zorblatt is an old town hall with its tower, built of red brick.", None),
        ("Additionally, the old town hall with its tower was built of red brick.", 2),
        ("The old town hall with its tower, see TOWN-7, was built of red brick.", None),
        ("The old town hall with its tower was built of red brick with `make all`.", None),
        ("The command `sync all` of GPT-4 keeps files and folders up to date.", 3),
        ("The command `sync all` of GPT-5 keeps files and folders up to date.", None),
        ("The command `sync none` of GPT-4 keeps files and folders up to date.", None),
    ],
)
def test_a_passage_without_a_name_is_not_found_by_itself(text: str, number: int | None) -> None:
    """Nobody vouches for it, so the names and the code must be there; the title is enough."""
    sources = AttributionIndex(
        [
            passage(1, "The mayor of Bredow is Jan Peters."),
            passage(2, "The old town hall with its tower was built of red brick.", title="Alden"),
            passage(3, "The command `sync all` of GPT-4 keeps files and folders up to date."),
        ]
    )
    assert [found.number for found in attribute(text, sources).attributions] == ([] if number is None else [number])


def test_figures_in_the_title_count() -> None:
    """What a passage is about is shown to the model above it."""
    text = "In version 2.4 the cache is off [1]."
    assert problems(attribute(text, AttributionIndex([passage(1, "The cache is off.")]))) == {1: "unsupported"}
    assert problems(attribute(text, AttributionIndex([passage(1, "The cache is off.", title="Version 2.4")]))) == {
        1: None
    }


def test_other_languages() -> None:
    """A language is compared with itself; an answer in another one than the passage's has no source."""
    german = AttributionIndex(
        PASSAGES, Analyzer("german", stop_words=("der", "die", "das", "und", "ist", "in", "zu", "von"))
    )
    text = "Während der Elternzeiten besteht besonderer Kündigungsschutz [8]."
    assert problems(attribute(text, german)) == {8: None}
    assert problems(attribute("During parental leave there is a special protection against dismissal [8].")) == {
        8: "unsupported"
    }
    chinese = AttributionIndex([passage(1, "大熊猫主要吃竹子。它们生活在中国西南部。")])
    assert quoted(attribute("大熊猫吃竹子。[1]", chinese)) == {1: ["大熊猫主要吃竹子。"]}


def test_a_list_of_sources_says_nothing() -> None:
    """A line with but the number and the name of a passage needs no source and has none."""
    sources = AttributionIndex([passage(1, "The lid is blue.", title="Guide to lids")])
    line = attribute("[1] Guide to lids", sources)
    assert (line.says_something, line.attributions) == (False, ())
    assert attribute("[1] Guide to green lids", sources).needs_source
    assert not attribute("[1]: Guide to lids", sources).needs_source
    assert attribute("[1]: Guide to green lids", sources).needs_source
    assert attribute("[2]: Guide to lids", sources).needs_source


def test_long_passages_without_a_full_stop_are_quoted_in_part() -> None:
    """What has no sentences is cut, so that a quote can be read."""
    rows = "\n".join(f"station{place} mast{place} cable{place}" for place in range(500))
    quotes = quoted(attribute("It has station250, mast250 and cable250 [1].", AttributionIndex([passage(1, rows)])))[1]
    assert all(len(quote) < 3000 and quote in rows for quote in quotes)
    assert "mast250" in "".join(quotes)
    sources = AttributionIndex([passage(1, f"x\n The lid weighs 5 kg {'y' * 900}")])
    assert quoted(attribute("The lid weighs 5 kg.", sources)) == {1: ["The lid weighs 5 kg"]}
