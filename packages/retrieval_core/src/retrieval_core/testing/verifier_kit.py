"""The conformance tests of verifiers, for pytest.

Subclass :class:`VerifierConformance` in a test module, and give it the verifier as a fixture::

    class TestMyVerifier(VerifierConformance):
        @pytest.fixture
        def verifier(self):
            return MyVerifier()

Each test uses the verifier from new event loops, so one that is slow to create can be shared by all tests.
"""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from retrieval_core.ports import Verifier, as_plugin
from retrieval_core.testing.embedder_kit import HOSTILE_TEXTS, PASSAGES, QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import Verdicts, Verified

STRANGERS = (
    "Rabbits dig burrows below old oak roots.",
    "Her violin was tuned before each concert.",
    "Copper wires corrode quickly near salt water.",
)
"""Sentences that no passage of this kit says anything about."""


class VerifierConformance:
    """The promises of :class:`~retrieval_core.ports.Verifier`, one test each."""

    def test_one_verdict_for_each_sentence(self, verifier: Verifier) -> None:
        """Sentences get one verdict each, in whole batches and alone."""
        verify(verifier, PASSAGES, PASSAGES)
        for sentence in (*PASSAGES, *STRANGERS):
            verify(verifier, [sentence], PASSAGES)

    def test_no_sentences(self, verifier: Verifier) -> None:
        """No sentences get no verdicts."""
        assert verify(verifier, [], PASSAGES).verdicts == ()

    def test_what_a_passage_says_is_supported(self, verifier: Verifier) -> None:
        """A sentence that a passage has word for word is supported by that passage, wherever it stands."""
        for passages in (PASSAGES, PASSAGES[::-1]):
            for found, sentence in zip(_one_by_one(verifier, PASSAGES, passages), PASSAGES, strict=True):
                assert found.verdict == "supported"
                assert found.passage == passages.index(sentence)

    def test_what_no_passage_says_is_not_supported(self, verifier: Verifier) -> None:
        """A sentence about something else is not found."""
        assert {found.verdict for found in _one_by_one(verifier, STRANGERS, PASSAGES)} == {"not_found"}

    def test_the_same_again(self, verifier: Verifier) -> None:
        """The same sentences and passages are judged alike."""
        first, second = (verify(verifier, PASSAGES[:1], PASSAGES) for _ in range(2))
        assert first.verdicts == second.verdicts

    def test_hostile_texts(self, verifier: Verifier) -> None:
        """Empty, malformed and very long texts are judged like any other, as sentences and as passages."""
        for text in HOSTILE_TEXTS:
            verify(verifier, [text], PASSAGES[:1])
            verify(verifier, PASSAGES[:1], [text])
            verify(verifier, [text], [text])

    def test_calls_at_a_time(self, verifier: Verifier) -> None:
        """Calls made at the same time give what they give one after the other."""

        async def at_once() -> list[Verdicts]:
            calls = (verifier.verify(QUESTIONS[0], [sentence], PASSAGES) for sentence in PASSAGES * 3)
            return await asyncio.gather(*calls)

        found = [verdicts.verdicts[0] for verdicts in asyncio.run(at_once())]
        assert [one.passage for one in found] == [0, 1, 2] * 3

    def test_the_id_is_stable(self, verifier: Verifier) -> None:
        """The id is a name, the batch holds at least one sentence, and judging changes neither."""
        before = verifier.id, verifier.batch_size
        assert before[0]
        assert before[1] >= 1
        verify(verifier, PASSAGES[:1], PASSAGES)
        assert (verifier.id, verifier.batch_size) == before


def verify(verifier: Verifier, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:
    """Let a verifier judge in batches of its size; the base class checks its verdicts."""
    size = verifier.batch_size
    batches = [sentences[start : start + size] for start in range(0, len(sentences), size)] or [sentences]
    plugin = as_plugin(verifier, Verifier)
    answers = [asyncio.run(plugin.verify(QUESTIONS[0], batch, passages)) for batch in batches]
    for answer in answers:
        assert answer.usage is None or (answer.usage.input_tokens >= 0 and answer.usage.output_tokens >= 0)
    return type(answers[0])(tuple(found for answer in answers for found in answer.verdicts), answers[0].usage)


def _one_by_one(verifier: Verifier, sentences: Sequence[str], passages: Sequence[str]) -> list[Verified]:
    return [verify(verifier, [sentence], passages).verdicts[0] for sentence in sentences]
