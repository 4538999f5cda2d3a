"""The conformance tests of pruners, for pytest.

Subclass :class:`PrunerConformance` in a test module, and give it the pruner as a fixture::

    class TestMyPruner(PrunerConformance):
        @pytest.fixture
        def pruner(self):
            return MyPruner()

Each test uses the pruner from new event loops, so one that is slow to create can be shared by all tests.
"""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from retrieval_core.ports import Pruner, as_plugin
from retrieval_core.testing.embedder_kit import HOSTILE_TEXTS, PASSAGES, QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import Kept


class PrunerConformance:
    """The promises of :class:`~retrieval_core.ports.Pruner`, one test each."""

    def test_one_answer_for_each_sentence(self, pruner: Pruner) -> None:
        """Passages of different length get rows of their length."""
        _keep(pruner, QUESTIONS[0], [PASSAGES, PASSAGES[:1], PASSAGES[1:]])

    def test_no_passages(self, pruner: Pruner) -> None:
        """No passages get no rows; a passage without sentences gets an empty row."""
        assert _keep(pruner, QUESTIONS[0], []).kept == ()
        assert _keep(pruner, QUESTIONS[0], [(), ()]).kept == ((), ())

    def test_the_answer_is_kept(self, pruner: Pruner) -> None:
        """The sentence that answers the question stays, wherever it stands, or has the best score."""
        for right, question in enumerate(QUESTIONS):
            for passage in (PASSAGES, PASSAGES[::-1]):
                answer = _keep(pruner, question, [passage])
                position = list(passage).index(PASSAGES[right])
                scores = answer.scores[0] if answer.scores else ()
                assert answer.kept[0][position] or (scores and scores[position] == max(scores))

    def test_the_same_again(self, pruner: Pruner) -> None:
        """The same question and passages are judged alike."""
        first, second = (_keep(pruner, QUESTIONS[1], [PASSAGES]) for _ in range(2))
        assert first.kept == second.kept

    def test_hostile_texts(self, pruner: Pruner) -> None:
        """Empty, malformed and very long texts are judged like any other, as sentences and as questions."""
        _keep(pruner, QUESTIONS[0], [HOSTILE_TEXTS])
        for text in HOSTILE_TEXTS:
            _keep(pruner, text, [PASSAGES[:2]])

    def test_more_sentences_than_a_batch(self, pruner: Pruner) -> None:
        """A single passage may have more sentences than ``batch_size``; checked up to a thousand."""
        assert pruner.batch_size >= 1
        if pruner.batch_size < 1000:
            _keep(pruner, QUESTIONS[0], [["Bread."] * (pruner.batch_size + 1)])

    def test_the_id_is_stable(self, pruner: Pruner) -> None:
        """The id is a name, and judging does not change it."""
        before = pruner.id
        assert before
        _keep(pruner, QUESTIONS[0], [PASSAGES])
        assert pruner.id == before


def _keep(pruner: Pruner, query: str, passages: Sequence[Sequence[str]]) -> Kept:
    """Judge sentences; the base class checks what comes back."""
    answer = asyncio.run(as_plugin(pruner, Pruner).keep(query, passages))
    assert answer.usage is None or (answer.usage.input_tokens >= 0 and answer.usage.output_tokens >= 0)
    return answer
