"""Having a language model write an answer: its pieces go out as they come, its sentences as they are complete."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retrieval_core.answer.splitting import GrowingText
from retrieval_core.errors import MalformedAnswerError, ServiceError
from retrieval_core.run.outcomes import Failed
from retrieval_core.types import AnswerChunk, SentenceCited

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.answer.attribution import Sources
    from retrieval_core.ports import LLM, CompletionRequest
    from retrieval_core.run.runner import Run
    from retrieval_core.types import AnswerEvent, AnswerSentence, Span

LONGEST_ANSWER = 20_000
"""The most code points of an answer: a model that does not stop is stopped."""

_HALF_CHARACTER = re.compile(r"[\ud800-\udfff]")


class Draft:
    """An answer that is being written.

    Args:
        sources: What its sentences may rest on.
        emit: Takes its pieces and sentences, in order.

    Attributes:
        sentences: Those that are complete.
    """

    def __init__(self, sources: Sources, emit: Callable[[AnswerEvent], None]) -> None:
        self._sources = sources
        self._emit = emit
        self._growing = GrowingText()
        self.sentences: list[AnswerSentence] = []

    @property
    def text(self) -> str:
        """Everything that was written so far, without white space at its end."""
        return self._growing.text.rstrip()

    @property
    def has_begun(self) -> bool:
        """Whether something of it went out."""
        return bool(self._growing.text)

    def take(self, piece: object, service: str) -> None:
        """Add a piece, and send it out.

        Args:
            piece: May be empty; white space is left out before the first word.
            service: Names the model in errors.

        Raises:
            MalformedAnswerError: It is no text.
            ServiceError: The answer has become too long; as much of the piece as has room was added.
        """
        if not isinstance(piece, str):
            msg = f"{service} streamed {piece!r:.80}, which is no text"
            raise MalformedAnswerError(msg, service)
        piece = _HALF_CHARACTER.sub("\ufffd", piece)
        piece = piece if self.has_begun else piece.lstrip()
        room = LONGEST_ANSWER - len(self._growing.text)
        self._add(piece[:room])
        if len(piece) > room:
            msg = f"{service} did not stop: its answer was cut off after {LONGEST_ANSWER} characters"
            raise ServiceError(msg, service)

    def end(self) -> None:
        """Send out the sentences that are left, whole or not."""
        self._cite(self._growing.end())

    def _add(self, piece: str) -> None:
        if piece:
            self._emit(AnswerChunk(piece))
            self._cite(self._growing.feed(piece))

    def _cite(self, spans: tuple[Span, ...]) -> None:
        for span in spans:
            sentence = self._sources.attribute(self._growing.text[span.start : span.end], span)
            self._emit(SentenceCited(len(self.sentences), sentence))
            self.sentences.append(sentence)


async def write(run: Run, llm: LLM, request: CompletionRequest, draft: Draft, *, first: str = "") -> Failed | None:
    """Have an answer written, and return what went wrong, if something did.

    It is asked again where that can help and nothing was sent out yet. Whoever cancels this ends the model's work too.

    Args:
        run: Makes the call.
        llm: Writes.
        request: What it is asked.
        draft: Takes the answer.
        first: Goes out before the first piece, where there is one.
    """

    async def stream() -> None:
        pieces = llm.stream(request)
        try:
            async for piece in pieces:
                if first and not draft.has_begun and piece.strip():
                    draft.take(first, llm.id)
                draft.take(piece, llm.id)
        finally:
            if (close := getattr(pieces, "aclose", None)) is not None:
                await close()
        if not draft.has_begun:
            msg = f"{llm.id} answered with nothing"
            raise MalformedAnswerError(msg, llm.id)

    outcome = await run.once_begun(lambda: draft.has_begun).call("answer", stream)
    draft.end()
    return outcome if isinstance(outcome, Failed) else None
