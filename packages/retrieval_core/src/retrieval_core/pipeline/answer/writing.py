"""Having a language model write an answer: its pieces go out as they come, its sentences as they are complete."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING

from retrieval_core.errors import MalformedAnswerError, ServiceError, as_exception
from retrieval_core.run.outcomes import Failed
from retrieval_core.text.markers import SentenceStream
from retrieval_core.types import AnswerChunk, SentenceCited
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from retrieval_core.pipeline.answer.attribution import AttributionIndex
    from retrieval_core.ports import LLM, CompletionRequest
    from retrieval_core.run.runner import Run
    from retrieval_core.types import AnswerEvent, AnswerSentence, Span

LONGEST_ANSWER = 20_000
"""The most code points of an answer: a model that does not stop is stopped."""

_PART = 500
"""The most code points that are traced at a time, so that a whole answer in one piece does not stop everybody else."""
_PIECES_BETWEEN_TURNS = 64
_BEGINS_THINKING, _ENDS_THINKING = "<think>", "</think>"

logger = logging.getLogger("retrieval_core")


class Thinking:
    """Leaves out what a model thinks aloud, between ``<think>`` and ``</think>`` before the first word of its answer.

    Servers that know such a model take it out; others send it with the answer. An answer that does not begin so passes
    as it comes, but for halves of characters, which wait for the other half.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_over = False

    def rest_of(self, piece: str) -> Iterator[str]:
        """Yield what of a piece, and of what was held back, is part of the answer; in short parts."""
        text = self._held + piece
        self._held = ""
        if not self._is_over:
            begin = text.lstrip()
            if _BEGINS_THINKING.startswith(begin[: len(_BEGINS_THINKING)]) and len(begin) < len(_BEGINS_THINKING):
                self._held = text
                return
            if begin.startswith(_BEGINS_THINKING):
                before, ended, text = begin.partition(_ENDS_THINKING)
                if not ended:
                    self._held = _BEGINS_THINKING + before[-len(_ENDS_THINKING) :]  # what it thinks is of no use
                    return
            self._is_over = True
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._held = text[:-1], text[-1:]
        yield from _parts(text)

    def end(self) -> Iterator[str]:
        """Yield what was held back and is part of the answer after all."""
        if not self._held.startswith(_BEGINS_THINKING):
            yield from _parts(self._held)


def _parts(text: str) -> Iterator[str]:
    whole = valid_unicode(text)
    for start in range(0, len(whole), _PART):
        yield whole[start : start + _PART]


def _text(piece: object, service: str) -> str:
    if isinstance(piece, str):
        return piece
    msg = f"{service} streamed {piece!r:.80}, which is no text"
    raise MalformedAnswerError(msg, service)


def did_not_stop(service: str) -> ServiceError:
    """Return the error of an answer that is too long."""
    return ServiceError(f"{service} did not stop: its answer was cut off after {LONGEST_ANSWER} characters", service)


async def _close(pieces: object) -> None:
    """End a stream, where it can be ended; that this fails is no fault of the answer."""
    if (close := getattr(pieces, "aclose", None)) is None:
        return
    try:
        if inspect.isawaitable(closing := close()):
            await closing
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        logger.warning("the stream of an answer could not be closed: %s", as_exception(error))


class AnswerDraft:
    """An answer that is being written.

    Args:
        sources: What its sentences may rest on.
        emit: Takes its pieces and sentences, in order.

    Attributes:
        sentences: Those that are complete.
    """

    def __init__(self, sources: AttributionIndex, emit: Callable[[AnswerEvent], None]) -> None:
        self._sources = sources
        self._emit = emit
        self._growing = SentenceStream()
        self.sentences: list[AnswerSentence] = []

    @property
    def text(self) -> str:
        """Everything that was written so far, without white space at its end."""
        return self._growing.text.rstrip()

    @property
    def has_begun(self) -> bool:
        """Whether something of it went out."""
        return bool(self._growing.text)

    def take(self, piece: str, service: str) -> None:
        """Add a piece, and send it out.

        Args:
            piece: May be empty; white space is left out before the first word.
            service: Names the model in errors.

        Raises:
            ServiceError: The answer has become too long; as much of the piece as has room was added.
        """
        piece = piece if self.has_begun else piece.lstrip()
        room = LONGEST_ANSWER - len(self._growing.text)
        self._add(piece[:room])
        if len(piece) > room:
            raise did_not_stop(service)

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
            sentence = self._sources.check(sentence, len(self.sentences))
            self._emit(SentenceCited(len(self.sentences), sentence))
            self.sentences.append(sentence)


async def write(
    run: Run, llm: LLM, request: CompletionRequest, draft: AnswerDraft, *, first: str = ""
) -> Failed | None:
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
        thinking = Thinking()
        task = asyncio.current_task()
        pieces = llm.stream(request)
        try:
            count = 0
            async for piece in pieces:
                if task is not None and task.cancelling():  # which the model ignored
                    raise asyncio.CancelledError
                count += 1
                if count > LONGEST_ANSWER:
                    raise did_not_stop(llm.id)
                for part in thinking.rest_of(_text(piece, llm.id)):
                    if first and not draft.has_begun and part.strip():
                        draft.take(first, llm.id)
                    draft.take(part, llm.id)
                    await asyncio.sleep(0)  # tracing sentences takes time, and a model may never wait for anything
                if not count % _PIECES_BETWEEN_TURNS:
                    await asyncio.sleep(0)
        finally:
            await _close(pieces)
        for part in thinking.end():
            draft.take(part, llm.id)
        if not draft.has_begun:
            msg = f"{llm.id} answered with nothing"
            raise MalformedAnswerError(msg, llm.id)

    outcome = await run.once_begun(lambda: draft.has_begun).call("answer", stream)
    draft.end()
    return outcome if isinstance(outcome, Failed) else None
