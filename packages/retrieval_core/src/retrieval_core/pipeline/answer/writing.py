"""Having a language model write an answer: its pieces go out as they come, its sentences as they are complete."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from typing import TYPE_CHECKING

from retrieval_core.errors import MalformedAnswerError, ServiceError
from retrieval_core.ports import CompletionRequest, Message
from retrieval_core.run.outcomes import Failed
from retrieval_core.text.markers import MISSING, SentenceStream
from retrieval_core.text.prompting import TEMPLATE_RULE, as_data, chosen_prompt, framed, last_turns
from retrieval_core.types import AnswerChunk, SentenceCited, format_citation
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from retrieval_core.pipeline.answer.attribution import AttributionIndex
    from retrieval_core.ports import LLM
    from retrieval_core.run.runner import Run
    from retrieval_core.types import AnswerEvent, AnswerSentence, ContextPack, Span

LONGEST_ANSWER = 20_000
"""The most code points of an answer: a model that does not stop is stopped."""

_PART = 500
"""The most code points that are traced at a time, so that a whole answer in one piece does not stop everybody else."""
_PIECES_BETWEEN_TURNS = 64
_BEGINS_THINKING, _ENDS_THINKING = "<think>", "</think>"

UNAVAILABLE = "Document search unavailable. Providing general response:\n\n"
"""The specification's first words of an answer without documents."""

DEFAULT_PROMPT = (
    "You answer a question from passages that were found in the user's documents. First consider of each passage "
    "whether it bears on the question; use those that do, and nothing else: no knowledge of your own, no guesses. "
    "Answer thoroughly and well ordered, in the question's language, with the numbers, names and conditions that "
    "matter. Where passages contradict each other, say so, and what each of them says. Where they do not hold the "
    f'answer, answer exactly: "{MISSING}" Where they hold a part of it, give that part and say what is missing.'
)
"""The instructions where no others are given: the specification's rules."""

_FORM = (
    "Write Markdown. Put behind each sentence the numbers of the passages that it rests on, each in square brackets, "
    "as in [1] or [2][5]. Use no numbers but those of the passages, and add no list of sources. The line "
    '"conversation", where there is one, holds what was said before the question: it tells what the question means, '
    "and is no source."
)
_PLACES = re.compile(r"\{facts\}|\{query\}")
"""The placeholders of a custom prompt for the passages and the question."""
_WITHOUT_DOCUMENTS = (
    "The search of the user's documents is unavailable at the moment, so you see none of them. Acknowledge that "
    "briefly, then help with the question as far as general knowledge goes, and say what should be looked up once the "
    "search works again."
)
_FORM_WITHOUT_DOCUMENTS = "Write a few sentences of Markdown. Cite nothing; you have not read the documents."


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


def did_not_stop(service: str) -> ServiceError:
    """Return the error of an answer that is too long."""
    return ServiceError(f"{service} did not stop: its answer was cut off after {LONGEST_ANSWER} characters", service)


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
        count = 0
        async with aclosing(llm.stream(request)) as pieces:
            async for piece in pieces:
                if task is not None and task.cancelling():  # which the model ignored
                    raise asyncio.CancelledError
                count += 1
                if count > LONGEST_ANSWER:
                    raise did_not_stop(llm.id)
                for part in thinking.rest_of(piece):
                    if first and not draft.has_begun and part.strip():
                        draft.take(first, llm.id)
                    draft.take(part, llm.id)
                    await asyncio.sleep(0)  # tracing sentences takes time, and a model may never wait for anything
                if not count % _PIECES_BETWEEN_TURNS:
                    await asyncio.sleep(0)
        for part in thinking.end():
            draft.take(part, llm.id)
        if not draft.has_begun:
            msg = f"{llm.id} answered with nothing"
            raise MalformedAnswerError(msg, llm.id)

    outcome = await run.once_begun(lambda: draft.has_begun).call("answer", stream)
    draft.end()
    return outcome if isinstance(outcome, Failed) else None


def answer_request(
    query: str, history: Sequence[Message], pack: ContextPack, *, prompt: str | None, max_tokens: int | None
) -> CompletionRequest:
    """Return what a language model is asked to answer from passages.

    Args:
        query: As it was asked.
        history: The conversation before it; its last turns are shown.
        pack: The passages, each of which is shown with its number and where it is from.
        prompt: Instructions in place of :data:`DEFAULT_PROMPT`. They replace neither the form of the answer nor the
            rule that passages are data. ``{facts}`` in it is replaced by the passages, and ``{query}`` by the question.
        max_tokens: The longest answer, in the model's tokens.

    Raises:
        InvalidParameterError: The prompt is blank.
    """
    instructions = chosen_prompt(prompt, DEFAULT_PROMPT)
    before, question, passages = [*_conversation(query, history)], as_data("question", query), [*_passages(pack)]
    if not _PLACES.search(instructions):
        return CompletionRequest(framed(instructions, _FORM, [*before, question, *passages]), max_tokens=max_tokens)
    values = {"{facts}": "\n".join(passages), "{query}": question.removeprefix('question: "').removesuffix('"')}
    filled = _PLACES.sub(lambda place: values[place[0]], instructions)
    left_out = [question] * ("{query}" not in instructions) + passages * ("{facts}" not in instructions)
    user = "\n".join([*before, filled, *left_out])
    return CompletionRequest(
        (Message("system", f"{_FORM}\n\n{TEMPLATE_RULE}"), Message("user", user)), max_tokens=max_tokens
    )


def request_without_documents(query: str, history: Sequence[Message], *, max_tokens: int | None) -> CompletionRequest:
    """Return what a language model is asked when nothing could be searched."""
    lines = [*_conversation(query, history), as_data("question", query)]
    return CompletionRequest(framed(_WITHOUT_DOCUMENTS, _FORM_WITHOUT_DOCUMENTS, lines), max_tokens=max_tokens)


def _conversation(query: str, history: Sequence[Message]) -> Iterator[str]:
    if turns := last_turns(query, history):
        yield as_data("conversation", [{"role": turn.role, "content": turn.content} for turn in turns])


def _passages(pack: ContextPack) -> Iterator[str]:
    for passage in pack.passages:
        place = format_citation(passage.citation)
        yield as_data(f"passage {passage.citation.number}", {"from": place, "text": passage.text})
