"""The conformance tests of query transformers, for pytest.

Subclass :class:`TransformerConformance` in a test module, and give it the transformer as a fixture::

    class TestMyTransformer(TransformerConformance):
        @pytest.fixture
        def transformer(self):
            return MyTransformer()

Each test uses the transformer from new event loops, so one that is slow to create can be shared by all tests. A
transformer that asks a model needs one that always answers the same question alike.
"""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from typing import ClassVar

from retrieval_core.ports import Message, QueryContext, QueryTransformer, Transformed, as_plugin
from retrieval_core.testing.blocking import blocking_calls_fail
from retrieval_core.testing.embedder_kit import HOSTILE_TEXTS, QUESTIONS

CONVERSATION = (
    Message("user", "What does a cosigner of a loan risk?"),
    Message("assistant", "A cosigner has to pay where the borrower does not."),
    Message("user", "Does it help the credit rating?"),
    Message("assistant", "Only as long as the loan is paid back in time."),
)
"""Turns that questions may follow."""


class TransformerConformance:
    """The promises of :class:`~retrieval_core.ports.QueryTransformer`, one test each.

    Attributes:
        most_variants: How many a question may become at most; each costs a search.
        longest: The most code points of a text, beside those of the question.
    """

    most_variants: ClassVar[int] = 16
    longest: ClassVar[int] = 5000

    def test_what_is_made_can_be_searched_for(self, transformer: QueryTransformer) -> None:
        """Texts are not blank, weights are above 0, sides are there; with a conversation and without one."""
        for context in (QueryContext(), QueryContext(CONVERSATION)):
            for question in (*QUESTIONS, "And then?"):
                self._check(question, _made(transformer, question, context))

    def test_hostile_questions_and_conversations(self, transformer: QueryTransformer) -> None:
        """Malformed and very long texts are transformed like any other, or left as they are."""
        for text in filter(str.strip, HOSTILE_TEXTS):
            context = QueryContext((Message("user", text), Message("assistant", text), *CONVERSATION[-1:]))
            self._check(text, _made(transformer, text, QueryContext()))
            self._check(text, _made(transformer, text, context))
            self._check("And then?", _made(transformer, "And then?", context))

    def test_odd_conversations(self, transformer: QueryTransformer) -> None:
        """Blank turns, turns of one side alone, and a question that stands in its history already are no faults."""
        question = QUESTIONS[0]
        blank = (Message("user", ""), Message("assistant", " \n"))
        one_sided = (Message("assistant", "Welcome!"), Message("system", "Be brief."))
        for history in (blank, one_sided, (Message("user", question),), CONVERSATION * 50):
            self._check(question, _made(transformer, question, QueryContext(history)))

    def test_the_same_again(self, transformer: QueryTransformer) -> None:
        """A question becomes the same each time, whatever was asked between."""
        context = QueryContext(CONVERSATION)
        first = [_made(transformer, question, context) for question in QUESTIONS]
        assert [_made(transformer, question, context) for question in reversed(QUESTIONS)] == first[::-1]

    def test_concurrent_calls_do_not_mix(self, transformer: QueryTransformer) -> None:
        """Calls made at the same time give what they give one after the other."""
        context = QueryContext(CONVERSATION)

        async def at_once() -> list[Transformed]:
            plugin = as_plugin(transformer, QueryTransformer)
            return await asyncio.gather(*(plugin.transform(question, context) for question in QUESTIONS * 3))

        assert asyncio.run(at_once()) == [_made(transformer, question, context) for question in QUESTIONS] * 3

    def test_the_event_loop_is_not_blocked(self, transformer: QueryTransformer) -> None:
        """No call that blocks is made on the event loop; checked where BlockBuster is installed."""
        with blocking_calls_fail():
            _made(transformer, QUESTIONS[0], QueryContext(CONVERSATION))

    def test_the_id_is_stable(self, transformer: QueryTransformer) -> None:
        """The id is a name, and transforming does not change it."""
        before = transformer.id
        assert before
        _made(transformer, QUESTIONS[0], QueryContext())
        assert transformer.id == before

    def _check(self, question: str, made: Transformed) -> None:
        texts = (made.query or "", *(variant.text for variant in made.variants))
        assert all(len(text) <= self.longest + len(question) for text in texts)
        assert len(made.variants) + len(made.linked) <= self.most_variants
        assert all(item.kind.strip() for item in (*made.variants, *made.linked))
        assert all(variant.sides for variant in made.variants)
        usage = made.usage
        assert usage is None or (usage.input_tokens >= 0 and usage.output_tokens >= 0)


def _made(transformer: QueryTransformer, question: str, context: QueryContext) -> Transformed:
    """Transform a query; the base class checks what comes back."""
    return asyncio.run(as_plugin(transformer, QueryTransformer).transform(question, context))
