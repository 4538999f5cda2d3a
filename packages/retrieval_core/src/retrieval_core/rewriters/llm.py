"""Asking a language model for other words when a question found too little."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from retrieval_core.errors import InvalidParameterError, MalformedAnswerError
from retrieval_core.ports import CompletionRequest, Rewritten
from retrieval_core.prompting import as_data, framed, object_schema, parse_answer, shorten

if TYPE_CHECKING:
    from retrieval_core.ports import LLM, Message

DEFAULT_PROMPT = (
    "You improve questions to a search engine that finds passages by their words and by their meaning. The question "
    "found too little that answers it. Ask for the same thing in other words that the passages sought are likely to "
    "use: name things in full, replace unusual words by usual ones or the other way round, leave out what does not "
    "help to find anything. Keep the meaning, the language, and all names, numbers and conditions. Do not answer the "
    "question and do not add facts of your own."
)
"""The instructions where no others are given."""

_ANSWER = (
    'Answer with a JSON object, as in {"reason": "...", "query": "..."}. "reason" says in one sentence why the new '
    'question should find more. "query" is the new question alone. The line "found so far", where there is one, holds '
    "what the question found."
)
_CONTEXT_CHARACTERS = 4000


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True)

    reason: str
    query: str


_SCHEMA = object_schema({"reason": {"type": "string", "description": "One sentence."}, "query": {"type": "string"}})


class LLMRewriter:
    """Asks a language model to put a question into other words; a :class:`~retrieval_core.ports.Rewriter`.

    The model sees the question, and the first 4000 code points of what it found so far, as data: see
    :mod:`retrieval_core.prompting`.

    Args:
        llm: What rewrites; it stays the caller's to close.
        prompt: Instructions in place of :data:`DEFAULT_PROMPT`. They replace neither the form of the answer nor the
            rule that passages are data.

    Raises:
        InvalidParameterError: The prompt is blank.
    """

    def __init__(self, llm: LLM, *, prompt: str | None = None) -> None:
        if prompt is not None and not prompt.strip():
            msg = "prompt is blank; leave it out for the built-in instructions"
            raise InvalidParameterError(msg)
        self._llm = llm
        self._prompt = DEFAULT_PROMPT if prompt is None else prompt

    @property
    def id(self) -> str:
        """Names the model, and a digest of everything that it is shown besides question and passages."""
        shown = "\n".join(message.content for message in self._messages("", ""))
        digest = sha256(f"{_CONTEXT_CHARACTERS}\n{shown}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"{self._llm.id} rewrite@{digest}"

    async def rewrite(self, query: str, context: str) -> Rewritten:
        """Rewrite a question. White space of the answer is made single spaces.

        Raises:
            MalformedAnswerError: The answer is none, or its question is blank.
            ServiceError: The provider failed.
        """
        completion = await self._llm.complete(CompletionRequest(self._messages(query, context), schema=_SCHEMA))
        answer = parse_answer(completion.text, _Answer, self._llm.id)
        rewritten = " ".join(answer.query.split())
        if not rewritten:
            msg = f"{self._llm.id} was asked for a question in other words and answered with a blank one"
            raise MalformedAnswerError(msg, self._llm.id)
        return Rewritten(rewritten, " ".join(answer.reason.split()), completion.usage)

    def _messages(self, query: str, context: str) -> tuple[Message, Message]:
        data = [as_data("question", query)]
        if context.strip():
            data.append(as_data("found so far", shorten(context, _CONTEXT_CHARACTERS)))
        return framed(self._prompt, _ANSWER, data)
