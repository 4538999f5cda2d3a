"""Rewriting of a question that found too little by a language model."""

from __future__ import annotations

from pydantic import BaseModel

from retrieval_core.adapters.parts import AsksLLM
from retrieval_core.config.base import AdapterSettings
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import Rewriter, Rewritten
from retrieval_core.text.prompting import Task, as_data, shorten

DEFAULT_PROMPT = (
    "You improve questions to a search engine that finds passages by their words and by their meaning. The question "
    "found too little that answers it. Ask for the same thing in other words that the passages sought are likely to "
    "use: name things in full, replace unusual words by usual ones or the other way round, leave out what does not "
    "help to find anything. Keep the meaning, the language, and all names, numbers and conditions. Do not answer the "
    "question and do not add facts of your own."
)
"""The default instructions."""

_FORM = (
    'Answer with a JSON object, as in {"reason": "...", "query": "..."}. "reason" says in one sentence why the new '
    'question should find more. "query" is the new question alone. The line "found so far", where there is one, holds '
    "what the question found."
)
_CONTEXT_CHARACTERS = 4000


class _Answer(BaseModel):
    reason: str
    query: str


class LLMRewriterSettings(AdapterSettings):
    """A language model that rewrites queries."""

    prompt: str | None = None
    """Instructions in place of the built-in ones."""


class LLMRewriter(AsksLLM[_Answer], Rewriter):
    """Rewrites a question with a language model; a :class:`~retrieval_core.ports.Rewriter`.

    The model sees the question, and the first 4000 code points of the passages found so far, as data: see
    :mod:`retrieval_core.text.prompting`.
    """

    Settings = LLMRewriterSettings
    _task = Task(
        "rewrite",
        DEFAULT_PROMPT,
        _FORM,
        {"reason": {"type": "string", "description": "One sentence."}, "query": {"type": "string"}},
        _Answer,
    )
    _settings = (_CONTEXT_CHARACTERS,)

    async def _rewrite(self, query: str, context: str) -> Rewritten:
        """Rewrite a question, with single spaces for all white space."""
        data = [as_data("question", query)]
        if context.strip():
            data.append(as_data("found so far", shorten(context, _CONTEXT_CHARACTERS)))
        answer, usage = await self._asking.ask(*data)
        rewritten = " ".join(answer.query.split())
        if not rewritten:
            msg = f"{self._asking.llm_id} returned a blank question for a rewrite"
            raise MalformedAnswerError(msg, self._asking.llm_id)
        return Rewritten(rewritten, " ".join(answer.reason.split()), usage)
