"""Answers made of the passages' own sentences."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import MalformedAnswerError, ServiceConnectionError
from retrieval_core.pipeline.answer.extract import (
    LONGEST_ANSWER,
    LONGEST_SECTION,
    MOST,
    ExtractedAnswer,
    candidates,
    choose,
    compose,
    extract,
)
from retrieval_core.ports import Reranker, RerankScores
from retrieval_core.ports.plugin import as_optional
from retrieval_core.run.runner import Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.clock import FakeClock
from retrieval_core.text.analysis import Analyzer
from retrieval_core.text.sentences import LONGEST_BLOCK, LONGEST_RUN, units_of
from retrieval_core.types import Span
from support.quoted_packs import quoting, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import ContextPack, StageRecord

ANALYZER = Analyzer()
MOON = (
    "The sea is deep and cold everywhere. The moon is far away from every town. Its light is weak and blue.\n\n"
    "# Food\n\nBread is brown and good for breakfast."
)


class Scripted:
    """A scorer that answers what it was given, or scores by words that it looks for."""

    id = "scripted"

    def __init__(self, answer: object = None, *, likes: str = "", batch_size: int = 100) -> None:
        self.answer = answer
        self.likes = likes
        self.batch_size = batch_size
        self.calls: list[Sequence[str]] = []

    async def score(self, query: str, passages: Sequence[str]) -> RerankScores:
        assert query
        self.calls.append(passages)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer  # type: ignore[return-value]
        return RerankScores(tuple(0.9 if self.likes in passage else 0.1 for passage in passages))


def extracted(
    pack: ContextPack, scorer: Scripted | None = None, query: str = "How far is the moon?"
) -> tuple[ExtractedAnswer, tuple[StageRecord, ...]]:
    """Make an answer."""
    pool = ThreadPool("test", threads=1)
    run = Run(pool, clock=FakeClock())
    try:
        return asyncio.run(extract(run, as_optional(scorer, Reranker), query, pack, ANALYZER)), run.records
    finally:
        pool.close()


def answered(*texts: str, query: str = "How far is the moon?") -> str:
    """Return the answer's text by words alone."""
    return extracted(whole(*texts), query=query)[0].text


def found(*texts: str, query: str = "How far is the moon?") -> list[str]:
    """Return the candidates' own words, best first."""
    return [candidate.said for candidate in candidates(whole(*texts), ANALYZER, query)]


def test_the_best_sentence_comes_first_with_its_source() -> None:
    """The rest of its paragraph follows, its quote is the document's, and its marker names the passage."""
    result, _ = extracted(whole(MOON))
    best = result.sentences[0]
    assert best.text == "The moon is far away from every town. Its light is weak and blue. [1]"
    (attribution,) = best.attributions
    assert attribution.citation is not None
    assert attribution.citation.quotes[0].span == Span(MOON.index("The moon"), MOON.index("\n"))
    assert result.text.startswith(best.text)
    assert best.says_something
    assert not best.needs_source


def test_a_scorer_chooses() -> None:
    """What it finds best is taken, whatever the words are, and what is far behind is left out."""
    texts = (MOON, "Far from every sea there are two moons.")
    scorer = Scripted(likes="Bread")
    result, records = extracted(whole(*texts), scorer)
    assert "Bread is brown and good for breakfast. [1]" in result.text
    assert records[-1].decision == "by scripted"
    (read,) = scorer.calls
    far_behind = RerankScores(tuple(0.9 if "Bread" in text else 0.01 for text in read))
    result, _ = extracted(whole(*texts), Scripted(far_behind))
    assert result.text == "Bread is brown and good for breakfast. [1]"


@pytest.mark.parametrize(
    "answer",
    [
        ServiceConnectionError("no route"),
        RerankScores((0.5,)),
        RerankScores((0.5, float("nan"))),
        RerankScores((0.5, 2.0)),
        RerankScores((True, False)),
        "high",
    ],
    ids=str,
)
def test_words_choose_where_the_scorer_fails(answer: object) -> None:
    """The answer is that of words alone, and the failure is told."""
    result, records = extracted(whole(MOON), Scripted(answer))
    assert result.text == answered(MOON)
    (failed,) = result.failures
    assert failed.stage == "extract"
    assert isinstance(failed.error, ServiceConnectionError if isinstance(answer, Exception) else MalformedAnswerError)
    assert records[-1].decision == "by words"


def test_a_scorer_chooses_the_first_sentence() -> None:
    """If that fails, the paragraph is quoted from its beginning, and the failure is told."""
    scorer = Scripted(likes="weak")
    assert extracted(whole(MOON), scorer)[0].text.startswith("Its light is weak and blue. [1]")
    result, _ = extracted(whole(MOON), Scripted(RerankScores((0.9, 0.1))))
    assert result.text.startswith(MOON.partition("\n")[0])
    assert [failed.stage for failed in result.failures] == ["extract"]


def test_a_scorer_reads_titles_and_introductions() -> None:
    """What a sentence stands under and what introduces it are parts of what is scored."""
    scorer = Scripted()
    items = "".join(f"- part {number} of the rocket, {'x' * 200}\n" for number in range(9))
    extracted(whole(f"# Rockets\n\nTo reach the moon you need:\n\n{items}"), scorer)
    (texts,) = scorer.calls
    assert len(texts) > 1
    assert all(text.startswith("Rockets\nTo reach the moon you need:\n") for text in texts)


def test_nothing_to_score_is_not_sent() -> None:
    """An empty pack gives no answer, and nobody is asked."""
    scorer = Scripted()
    assert extracted(whole(), scorer)[0] == ExtractedAnswer()
    assert extracted(whole("", "\n\n---\n"), scorer)[0] == ExtractedAnswer()
    assert scorer.calls == []


@pytest.mark.parametrize(
    "left_out",
    [
        "# The moon is far away\n\n",
        "The moon is far away\n===\n\n",
        "---\ntitle: The moon is far away\n---\n\n",
        "![The moon is far away](moon.png)\n\n",
        "[The moon](moon.md) [how far](far.md) [away is it](away.md)\n\n",
        "[moon]: https://far.example/how-far-is-the-moon\n\n",
        "<!-- how far is the moon -->\n\n",
        "How far away is the moon from us?\n\n",
        "The moon far.\n\n",
    ],
)
def test_what_says_nothing_is_left_out(left_out: str) -> None:
    """Headings, front matter, pictures, lists of links, comments, questions and fragments are no candidates."""
    assert found(f"{left_out}Bread is brown and good for breakfast.") == ["Bread is brown and good for breakfast."]


@pytest.mark.parametrize("only", ["Moon.", "How far is the moon?", "[moon](moon.md)", "The moon:", "```\nmoon"])
def test_a_fragment_is_better_than_nothing(only: str) -> None:
    """Where a pack has nothing else, what would be left out is the answer."""
    assert "oon" in answered(only)


def test_the_same_stretch_through_two_passages_is_one_candidate() -> None:
    """It is taken from the first of them."""
    pack = quoting({"d": MOON}, ("d", [Span(0, 36)]), ("d", [Span(0, 36)]), ("d", [MOON[:36]]), ("d", [MOON[:36]]))
    assert [item.passage.citation.number for item in candidates(pack, ANALYZER, "sea")] == [1, 3]


def test_sentences_do_not_repeat_each_other() -> None:
    """Of two that say the same in nearly the same words, one is shown."""
    assert (
        answered("The moon is far away from every town.", "The moon is far away from every old town.").count("far") == 1
    )


LONG = "x" * 150
"""Makes a list or a table so long that it is divided."""


def test_a_list_is_quoted_whole() -> None:
    """With the words that introduce it, and what stands between its numbers: no item is left alone."""
    text = "To reach the moon:\n\n1. Start the rocket:\n\n```sh\nmoon --far\n```\n\n2. Wait\n\n3. Confirm the landing"
    assert [unit.span for unit in units_of(text)] == [Span(0, len(text))]
    assert found(text) == [text]


def test_a_numbered_list_without_its_beginning_is_a_fragment() -> None:
    """It is quoted only where there is nothing else."""
    text = "5. Confirm that the moon is far away\n\n# Food\n\nBread is brown and good for breakfast."
    assert found(text) == ["Bread is brown and good for breakfast."]


def test_items_of_a_long_list_have_its_beginning_once() -> None:
    """Runs of items stand below the words that introduce it and its first item, with one marker."""
    items = [f"{number}. {LONG} step {number} on our way" for number in range(1, 12)]
    text = "To reach the moon:\n\n" + "\n".join(items)
    units = units_of(text)
    assert units[0].span == Span(0, text.index("\n3. "))
    assert {unit.heads for unit in units[1:]} == {(Span(0, 18), Span(20, text.index("\n2. ")))}
    (last,) = [item for item in candidates(whole(text), ANALYZER, "step") if item.said.startswith("11.")]
    (sentence,) = compose([last, replace(last, span=units[2].span)])[1]
    first, kept = items[0], (*items[4:6], *items[10:])
    assert sentence.text == "\n".join(("To reach the moon:\n", first, *kept)) + " [1]"


def test_rows_of_a_long_table_have_its_head() -> None:
    """Rows of one table stand below its head, and their marker below them."""
    rows = [f"| moon {number} | {LONG} |" for number in range(12)]
    text = "\n".join(("| body | distance |", "|---|---|", *rows))
    (found_row,) = [item for item in candidates(whole(text), ANALYZER, "moon") if "moon 4" in item.said]
    quoted = "\n".join(rows[4:6])
    text, (sentence,) = compose([found_row])
    assert text == f"body: moon 4; distance: {LONG}\nbody: moon 5; distance: {LONG} [1]"
    (citation,) = (attribution.citation for attribution in sentence.attributions)
    assert citation is not None
    assert "\n".join(quote.text for quote in citation.quotes) == f"| body | distance |\n|---|---|\n{quoted}"


def test_a_short_table_is_whole() -> None:
    """With what introduces it."""
    text = "These are far:\n\n| body | distance |\n|---|---|\n| sun | far. Very far |\n| moon | quite far |"
    assert answered(text, query="far") == (
        "These are far:\n\nbody: sun; distance: far. Very far\nbody: moon; distance: quite far [1]"
    )


def test_a_block_of_code_is_whole_and_has_its_introduction() -> None:
    """Its marker stands below its fence; a blank line or a full stop inside ends nothing."""
    text = "Go to the moon like this.\n\n```sh\nrocket. Start\n\nmoon --far\n```\n\n# Food\n\nBread is brown."
    assert answered(text).startswith(f"{text.partition('```')[0]}```sh\nrocket. Start\n\nmoon --far\n```\n\n[1]")


def test_code_without_an_introduction_has_its_heading() -> None:
    """Otherwise nobody could tell what it is for."""
    assert (
        answered("# Travel\n\n## To the moon\n\n```\nmoon --far\n```") == "To the moon\n\n```\nmoon --far\n```\n\n[1]"
    )


def test_code_deep_in_a_list_stays_in_its_item() -> None:
    """Without the item, fences that are indented like that would not be fences."""
    text = f"1. Start the rocket\n\n    ```sh\n    moon --far\n\n    ```\n\n2. {LONG * 8}"
    assert units_of(text)[0].span == Span(0, text.index("\n\n2."))


def test_code_that_does_not_end_does_not_swallow_the_answer() -> None:
    """What stands behind an open fence is taken only where there is nothing else, and never with the fence."""
    text = "The moon is far away from every town.\n\n```\nmoon moon moon far far"
    assert answered(text) == "The moon is far away from every town. [1]"
    assert "```" not in answered("```\nmoon moon moon far far")


def test_a_passage_that_begins_inside_code_is_read_from_its_end() -> None:
    """A fence with a language cannot end a block, so the one before it does."""
    text = "moon: far\n```\n\nThe moon is far away from every town.\n\n```yaml\nbread: brown\n```"
    assert [unit.kind for unit in units_of(text)] == ["rest", "text"]


def test_the_best_block_has_its_section() -> None:
    """What follows it under the same heading, as far as there is room; what goes before it would hide it."""
    before, after = "Rockets fly straight up for hours.", "It takes them three days."
    text = f"# Food\n\nBread is brown.\n\n# Flights\n\n{before}\n\nThe moon is far away.\n\n{after}"
    assert _first(text) == f"The moon is far away.\n\n{after}"
    bounded = _first(text.replace(after, "\n\n".join(["They are old and slow. " * 5] * 99)))
    assert bounded.startswith("The moon is far away.\n\nThey are old")
    assert len(bounded) <= LONGEST_SECTION
    assert _first(f"{text}\n\nIt needs this:") == f"The moon is far away.\n\n{after}"


def _first(text: str) -> str:
    """Return what is quoted where one block is chosen."""
    (chosen,) = choose(candidates(whole(text), ANALYZER, "How far is the moon?"), most=1)
    return chosen.said


def test_lengths_are_bounded() -> None:
    """Of long sentences there are parts, of long blocks fragments, and the answer keeps within its budget."""
    long = "the moon is far " * 200
    assert all(unit.span.end - unit.span.start <= LONGEST_RUN for unit in units_of(long))
    block = "```\n" + "moon far\n" * 200 + "```"
    assert len(block) > LONGEST_BLOCK
    assert {unit.kind for unit in units_of(block)} == {"rest"}
    texts = [f"The moon number {number} is far away, as {number * 7} others {'x' * 380}." for number in range(9)]
    chosen = choose(candidates(whole(*texts), ANALYZER, "moon"))
    assert 0 < sum(len(item.text) for item in chosen) <= LONGEST_ANSWER


def test_the_best_quote_comes_first() -> None:
    """Then what follows it in its document, and then the others in the order of the passages and in their own."""
    pack = whole("Bread is not from the moon at all.", "# Age\nThe moon is old.\n# Way\nHow far the moon is: very far.")
    bread, age, way = (
        "Bread is not from the moon at all. [1]",
        "The moon is old. [2]",
        "How far the moon is: very far. [2]",
    )
    expected = {bread: [bread, age, way], age: [age, way, bread], way: [way, bread, age]}
    for order in permutations(candidates(pack, ANALYZER, "moon")):
        told = [sentence.text for sentence in compose(order)[1]]
        assert told == expected[f"{order[0].said} [{order[0].passage.citation.number}]"]


@pytest.mark.parametrize(
    ("markdown", "plain"),
    [
        (
            "The **moon** is *far* away, says __everybody__ at ~~noon~~ night.",
            "The moon is far away, says everybody at noon night.",
        ),
        (
            'Set `search.top_k` to `5` for [more results](docs/search.md "Search").',
            "Set search.top_k to 5 for more results.",
        ),
        (
            "Use `*args` and `__init__` here, or `retrieval index docs` there.",
            "Use `*args` and `__init__` here, or `retrieval index docs` there.",
        ),
        (
            "The snake_case and a*b*c stay as they are: 2 * 3 = 6.",
            "The snake_case and a*b*c stay as they are: 2 * 3 = 6.",
        ),
        ("The moon is far away.\n![The far moon](moon.png)", "The moon is far away."),
        ("- The *moon* is far away\n- The sun is farther", "The moon is far away\nThe sun is farther"),
        ("1. Go to the moon\n2. Come back", "1. Go to the moon\n2. Come back"),
        ("> [!NOTE]\n> The moon is\n> far away.", "The moon is far away."),
        ("!!! warning\n    The moon is far away.", "The moon is far away."),
        ("The moon\nis far\naway.", "The moon is far away."),
        (r"The \*moon\* is far away.", "The *moon* is far away."),
        ("| body | way |\n|---|---|\n| **moon** | far &#124; away |", "body: moon; way: far &#124; away"),
    ],
)
def test_an_answer_is_plain_text(markdown: str, plain: str) -> None:
    """Markup is left out, identifiers and words are not, and the quote is the document's own stretch."""
    result, _ = extracted(whole(markdown), query="moon search args snake")
    assert result.text == f"{plain} [1]"
    (sentence,) = result.sentences
    (citation,) = (attribution.citation for attribution in sentence.attributions)
    assert citation is not None
    assert [quote.text for quote in citation.quotes] == [markdown]


def test_of_equal_blocks_that_of_the_earlier_passage_is_better() -> None:
    """The search saw more than one block."""
    texts = [f"The moon number {number} is far away, like {number * 77} others." for number in (1, 2)]
    pack = whole(*texts)
    items = candidates(pack, ANALYZER, "moon")
    assert choose(items, [0.6] * 2)[0].said == texts[0]
    assert choose(items, [0.6 if item.said == texts[0] else 0.9 for item in items])[0].said == texts[1]


def test_words_that_few_sentences_have_count_more() -> None:
    """And a word that only the titles above a sentence have counts half."""
    texts = (
        "The moon is round and made of stone.",
        "The moon is bright and made of light.",
        "A parsec is long and made up.",
    )
    assert found(*texts, query="moon parsec")[0] == texts[2]


def test_hostile_texts_are_read_once_through() -> None:
    """Thousands of sentences, a text without spaces, and many fences give no more than the candidates asked for."""
    for text in (
        "It is so. " * 5_000,
        "x" * 200_000,
        "```\n" * 5_000,
        "| a. B " * 5_000,
        "> \n" * 20_000,
        "<!--" * 9_000,
    ):
        assert len(candidates(whole(text), ANALYZER, "so")) <= MOST
