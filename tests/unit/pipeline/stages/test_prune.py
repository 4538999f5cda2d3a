"""Showing only the sentences that bear on the question."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.errors import MalformedAnswerError, ServiceConnectionError
from retrieval_core.pipeline.stages.format import excerpts_of, format_context, prune, shown_text
from retrieval_core.pipeline.stages.state import JudgedHits
from retrieval_core.ports import Kept, Pruner, as_plugin
from retrieval_core.run.runner import Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakePruner
from retrieval_core.text.sentences import sentences_of
from retrieval_core.types import Chunk, Hit, Scores, Span, StageRecord

if TYPE_CHECKING:
    from collections.abc import Sequence


MOON = "The sea is deep. The moon is far. The moon is round. Bread is brown. Nobody saw the moon."


def hit(text: str, name: str = "d") -> Hit:
    return Hit(Chunk(f"{name}#0", name, text), 0.5, Scores(final=0.5))


def pruned(
    *texts: str, pruner: Pruner | None = None, query: str = "moon"
) -> tuple[JudgedHits, tuple[StageRecord, ...]]:
    pool = ThreadPool("test", threads=1)
    run = Run(pool, clock=FakeClock())
    hits = [hit(text, f"d{number}") for number, text in enumerate(texts)]
    try:
        result = asyncio.run(prune(run, as_plugin(pruner or FakePruner(), Pruner), query, hits))
    finally:
        pool.close()
    assert [item.chunk for item in result.hits] == [item.chunk for item in hits]
    return result, run.records


def excerpts(item: Hit) -> list[str]:
    return [item.chunk.text[part.start : part.end] for part in item.excerpts]


class Scripted(Pruner):
    """A pruner that answers what it was given."""

    id = "scripted"
    batch_size = 100

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def _keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
        return self.answer  # type: ignore[return-value]


def test_sentences_that_follow_each_other_are_one_excerpt() -> None:
    """The chunk's text stays whole, and the context shows the excerpts with a mark between them."""
    result, records = pruned(MOON)
    assert excerpts(result.hits[0]) == ["The moon is far. The moon is round.", "Nobody saw the moon."]
    assert shown_text(result.hits[0]) == "The moon is far. The moon is round.\n[…]\nNobody saw the moon."
    assert format_context(result.hits, template="{text}").text == shown_text(result.hits[0])
    assert result.failures == ()
    assert [(record.stage, record.decision) for record in records] == [
        ("prune", None),
        ("prune", "3 of 5 sentences are relevant to the query"),
    ]


def test_what_is_kept_whole_has_no_excerpts() -> None:
    """So has a text of which white space alone would be left out."""
    result, _ = pruned("The moon. A moon!", "\n The moon. A moon! \n")
    assert [item.excerpts for item in result.hits] == [(), ()]


def test_one_sentence_is_not_sent() -> None:
    """Neither is an empty text; nothing is called where there is nothing to ask."""
    pruner = FakePruner()
    result, records = pruned("Bread.", "", " \n", pruner=pruner)
    assert pruner.calls == []
    assert [item.excerpts for item in result.hits] == [(), (), ()]
    assert [record.decision for record in records] == [None]
    assert pruned()[0] == JudgedHits(())


def test_the_best_sentence_stays_where_nothing_is_kept() -> None:
    """By the pruner's scores, and the first one where it gives none."""
    nothing = ((False, False, False),)
    for scores, expected in ((((0.1, 0.3, 0.2),), "Two."), ((), "One."), (((0, 0, 0),), "One.")):
        result, _ = pruned("One. Two. Three.", pruner=Scripted(Kept(nothing, scores)))
        assert excerpts(result.hits[0]) == [expected]


def test_batches_hold_as_many_sentences_as_a_call_takes() -> None:
    """Passages are never divided, and one that is longer comes alone."""
    pruner = FakePruner(batch_size=4)
    result, _ = pruned("A b. Moon.", "C d. Moon.", "E f. Moon.", MOON, "One.", "G h. Moon.", pruner=pruner)
    assert [[len(passage) for passage in passages] for _, passages in pruner.calls] == [[2, 2], [2], [5], [2]]
    assert [len(item.excerpts) for item in result.hits] == [1, 1, 1, 2, 0, 1]


def test_a_failed_call_leaves_its_hits_as_they_were() -> None:
    class Failing(FakePruner):
        async def _keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
            if "Gone." in passages[0]:
                raise ServiceConnectionError("the model is gone")
            return await super()._keep(query, passages)

    result, records = pruned("Gone. Moon.", "Here. Moon.", pruner=Failing(batch_size=2))
    assert [len(item.excerpts) for item in result.hits] == [0, 1]
    assert [failure.reason for failure in result.failures] == ["the model is gone"]
    assert records[-1].decision == "1 of 2 sentences are relevant to the query"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "yes",
        ((True, False, True),),
        Kept(()),
        Kept(((True, False),)),
        Kept(((True, False, True), (True,))),
        Kept(((True, None, True),)),  # type: ignore[arg-type]
        Kept(None),  # type: ignore[arg-type]
        Kept((True, False, True)),  # type: ignore[arg-type]
        Kept(((True, False, True),), ((0.1, 0.2),)),
        Kept(((True, False, True),), ((0.1, 0.2, float("nan")),)),
        Kept(((True, False, True),), ((0.1, 0.2, "much"),)),  # type: ignore[arg-type]
    ],
)
def test_answers_that_cannot_be_used(answer: Any) -> None:
    """A plug-in that does not judge each sentence has failed, and the hits are shown whole."""
    result, _ = pruned("One. Two. Three.", pruner=Scripted(answer))
    assert result.hits[0].excerpts == ()
    (failure,) = result.failures
    assert isinstance(failure.error, MalformedAnswerError)
    assert "the answer of the pruner cannot be used" in failure.reason


def test_a_sentence_brings_what_it_needs() -> None:
    """The headings above it, the head of its table, and the words before its list."""
    text = (
        "# Prices\n\n## Today\n\nBread is cheap. Milk is not.\n\n"
        "| what | price |\n|---|---|\n| bread | 2 |\n| milk | 9 |\n| moon | 0 |\n\n"
        "To get there:\n- take a ship\n- take a moon rocket\n\n## Later\n\nNothing is known. The moon."
    )
    result, _ = pruned(text, query="moon")
    assert excerpts(result.hits[0]) == [
        "# Prices\n\n## Today",
        "| what | price |\n|---|---|",
        "| moon | 0 |\n\nTo get there:",
        "- take a moon rocket\n\n## Later",
        "The moon.",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It needs a moon:\n\n```sh\nget it\n\nnow\n```\n\nDone.", ["It needs a moon:\n\n```sh\nget it\n\nnow\n```"]),
        ("A sea. Of the moon:\n- a\n- b", ["Of the moon:\n- a"]),
        ("A moon:\n\n1. Run:\n\n   ~~~\n   it\n   ~~~\n\n2. Stop.", ["A moon:\n\n1. Run:\n\n   ~~~\n   it\n   ~~~"]),
        ("The moon:\n| a |\n|---|\n| 1 |\n| 2 |", ["The moon:\n| a |\n|---|\n| 1 |"]),
        ("He said of the moon:\n\nIt is far.", ["He said of the moon:"]),
        ("A moon:\n- a\n- the moon\n- c", ["A moon:\n- a\n- the moon"]),
        ("To do:\n- a\n- the moon", ["To do:", "- the moon"]),
    ],
)
def test_what_introduces_a_block_brings_its_beginning(text: str, shown: list[str]) -> None:
    """A sentence that ends with a colon is kept with the code, the first item or the first row below it."""
    result, _ = pruned(text, query="moon")
    assert excerpts(result.hits[0]) == shown


def test_excerpts_of_nothing_kept() -> None:
    """Nothing left out, and nothing to leave out: the whole text."""
    assert excerpts_of("One. Two.", sentences_of("One. Two."), (True, True)) == ()
    assert excerpts_of("", (), ()) == ()
    assert excerpts_of("One. Two.", sentences_of("One. Two."), (False, True)) == (Span(5, 9),)
