"""Asking a language model for other words when a question found too little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from retrieval_core.adapters.registry import Adapter
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import Rewritten
from retrieval_core.text.prompting import Asking, Task, as_data, shorten

if TYPE_CHECKING:
    from retrieval_core.ports import LLM

DEFAULT_PROMPT = (
    "You improve questions to a search engine that finds passages by their words and by their meaning. The question "
    "found too little that answers it. Ask for the same thing in other words that the passages sought are likely to "
    "use: name things in full, replace unusual words by usual ones or the other way round, leave out what does not "
    "help to find anything. Keep the meaning, the language, and all names, numbers and conditions. Do not answer the "
    "question and do not add facts of your own."
)
"""The instructions where no others are given."""

_FORM = (
    'Answer with a JSON object, as in {"reason": "...", "query": "..."}. "reason" says in one sentence why the new '
    'question should find more. "query" is the new question alone. The line "found so far", where there is one, holds '
    "what the question found."
)
_CONTEXT_CHARACTERS = 4000


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True)

    reason: str
    query: str


_TASK = Task(
    "rewrite",
    DEFAULT_PROMPT,
    _FORM,
    {"reason": {"type": "string", "description": "One sentence."}, "query": {"type": "string"}},
    _Answer,
)


class LLMRewriter:
    """Asks a language model to put a question into other words; a :class:`~retrieval_core.ports.Rewriter`.

    The model sees the question, and the first 4000 code points of what it found so far, as data: see
    :mod:`retrieval_core.text.prompting`.

    Args:
        llm: What rewrites; it stays the caller's to close.
        prompt: Instructions in place of :data:`DEFAULT_PROMPT`. They replace neither the form of the answer nor the
            rule that passages are data.

    Raises:
        InvalidParameterError: The prompt is blank.
    """

    def __init__(self, llm: LLM, *, prompt: str | None = None) -> None:
        self._asking = Asking(llm, _TASK, prompt, _CONTEXT_CHARACTERS)

    @property
    def id(self) -> str:
        """Names the model, and a digest of everything that it is shown besides question and passages."""
        return self._asking.id

    async def rewrite(self, query: str, context: str) -> Rewritten:
        """Rewrite a question. White space of the answer is made single spaces.

        Raises:
            MalformedAnswerError: The answer is none, or its question is blank.
            ServiceError: The provider failed.
        """
        data = [as_data("question", query)]
        if context.strip():
            data.append(as_data("found so far", shorten(context, _CONTEXT_CHARACTERS)))
        answer, usage = await self._asking.ask(*data)
        rewritten = " ".join(answer.query.split())
        if not rewritten:
            msg = f"{self._asking.llm_id} was asked for a question in other words and answered with a blank one"
            raise MalformedAnswerError(msg, self._asking.llm_id)
        return Rewritten(rewritten, " ".join(answer.reason.split()), usage)


ADAPTER = Adapter(lambda rewriter, parts: LLMRewriter(parts.model, prompt=rewriter.rewrite_prompt), asks_llm=True)
