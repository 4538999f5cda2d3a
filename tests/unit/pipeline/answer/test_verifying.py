"""What becomes of a verifier's verdicts."""

from __future__ import annotations

import asyncio

from retrieval_core.pipeline.answer.answer_writer import verify
from retrieval_core.ports import Verified
from retrieval_core.run.runner import Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.fakes import FakeVerifier
from retrieval_core.types import AnswerSentence, Span
from support.quoted_packs import quoting

MANUAL = "Read this first. The pump is loud. It starts at noon and stops at dusk. Call us in doubt."
CLAIM = "The pump starts at noon."
QUOTE = "It starts at noon and stops at dusk."


def test_the_words_of_a_check_are_where_it_says() -> None:
    """A quote from the middle of a passage that begins in the middle of a document has its place in the document."""
    stretch = Span(MANUAL.index("The pump"), len(MANUAL))
    pack = quoting({"manual": MANUAL}, ("manual", [stretch]))

    async def checked() -> tuple[Span | None, str]:
        verifier = FakeVerifier({CLAIM: Verified("supported", 0, QUOTE)})
        sentence = AnswerSentence(Span(0, len(CLAIM)), CLAIM, says_something=True)
        (check,) = (await verify(Run(ThreadPool("test", 1)), verifier, "When?", [sentence], pack)).checks
        assert (check.verdict, check.passage) == ("supported", 1)
        assert check.quote is not None
        return check.quote.span, check.quote.text

    span, text = asyncio.run(checked())
    assert span == Span(MANUAL.index("It starts"), MANUAL.index(" Call"))
    assert text == QUOTE
