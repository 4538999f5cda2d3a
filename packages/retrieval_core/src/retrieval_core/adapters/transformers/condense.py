"""Condensing a conversation and its last question into a question that stands alone, with a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from retrieval_core.adapters.parts import AsksLLM
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import QueryTransformer, Transformed, Variant
from retrieval_core.text.prompting import (
    ASSISTANT_CHARACTERS,
    TURNS,
    USER_CHARACTERS,
    Task,
    as_data,
    clipped,
    is_searchable,
    key,
    last_turns,
)

if TYPE_CHECKING:
    from retrieval_core.ports import QueryContext
    from retrieval_core.types import JSON

DEFAULT_PROMPT = (
    "You are given the last turns of a conversation and the user's next question. Write the question so that it can be "
    "understood without the conversation: put in what its pronouns stand for, and what it leaves out because it was "
    "said before. Take over only what the question needs; where it begins a new subject or stands alone already, leave "
    "it as it is. Keep its meaning, its language, and all its names, numbers and conditions. Do not answer it."
)
"""The default instructions."""

_FORM = (
    'Answer with a JSON object, as in {"reason": "...", "query": "..."}. "reason" says in one sentence what was put '
    'in, or that nothing had to be. "query" is the question alone.'
)
_LONGEST = 2000
_WEIGHT_OF_LAST_TURN = 0.5


class _Answer(BaseModel):
    reason: str
    query: str


class LLMCondenser(AsksLLM[_Answer], QueryTransformer):
    """Writes a follow-up question so that it stands alone; a :class:`~retrieval_core.ports.QueryTransformer`.

    The question as it was asked is searched for too, with half the weight: with people's rewrites of follow-up
    questions in place of a model's this is better than the rewrites alone (see ``docs/dev/measurements.md``).

    The model sees the last three turns, of either side. A user's is cut to 1000 code points, and the assistant's to
    200. Without a history it is not asked.

    Args:
        llm: Stays the caller's to close.
        prompt: As for :class:`~retrieval_core.adapters.parts.AsksLLM`.

    Raises:
        InvalidParameterError: The prompt is blank.
    """

    _task = Task(
        "condense",
        DEFAULT_PROMPT,
        _FORM,
        {"reason": {"type": "string", "description": "One sentence."}, "query": {"type": "string"}},
        _Answer,
    )

    _settings = (TURNS, USER_CHARACTERS, ASSISTANT_CHARACTERS, _LONGEST, _WEIGHT_OF_LAST_TURN)

    async def _transform(self, query: str, context: QueryContext) -> Transformed:
        """Return the question that stands alone, and the one that was asked as a variant."""
        turns = last_turns(query, context.history)
        if not turns:
            return Transformed()
        said: list[JSON] = [{"by": turn.role, "text": turn.content} for turn in turns]
        answer, usage = await self._asking.ask(as_data("conversation", said), as_data("question", query))
        standalone, reason = clipped(answer.query, _LONGEST), clipped(answer.reason, _LONGEST)
        if not is_searchable(standalone):
            msg = f"{self._asking.llm_id} returned a blank question for a follow-up question"
            raise MalformedAnswerError(msg, self._asking.llm_id)
        if key(standalone) == key(query):
            return Transformed(reason=reason, usage=usage)
        last_turn = Variant("last turn", query, weight=_WEIGHT_OF_LAST_TURN)
        return Transformed(query=standalone, variants=(last_turn,), reason=reason, usage=usage)
