"""Decomposition of a question into sub-questions by a language model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import BaseModel

from retrieval_core.adapters.parts import AsksLLM
from retrieval_core.ports import QueryTransformer, Transformed, Variant
from retrieval_core.text.prompting import Task, as_data, clipped, is_searchable, key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.ports import QueryContext

DEFAULT_PROMPT = (
    "Break down a complex question into 2 to 4 simpler sub-questions that would help answer the original question. "
    "Each sub-question is searched for by itself, so it must be understood without the others: repeat names, numbers "
    "and conditions where they are needed, and keep the language. A question that asks for one thing is simple; give "
    "no sub-questions then. Do not answer the question and do not add facts of your own."
)
"""The default instructions: the specification's, and what keeps sub-questions apart."""
MOST_QUESTIONS = 4
"""The most sub-questions that are taken from an answer."""

_FORM = (
    'Answer with a JSON object, as in {"questions": ["...", "..."]}. "questions" are the sub-questions, the most '
    "important first; an empty list where the question is simple."
)
_LONGEST = 500
_LIST_MARK = re.compile(r"\s*(?:\(?\d{1,2}[.):]|[-*•])(?:\s+|$)")


class _Answer(BaseModel):
    questions: list[str]


class QueryDecomposer(AsksLLM[_Answer], QueryTransformer):
    """Add sub-questions to the query; a :class:`~retrieval_core.ports.QueryTransformer`.

    Each of ``n`` sub-questions has the weight ``1 / n``. Together they count as much as the query itself.
    """

    _task = Task(
        "decompose",
        DEFAULT_PROMPT,
        _FORM,
        {"questions": {"type": "array", "items": {"type": "string"}, "description": "2 to 4, or none."}},
        _Answer,
    )
    _settings = (MOST_QUESTIONS, _LONGEST)

    async def _transform(self, query: str, context: QueryContext) -> Transformed:  # noqa: ARG002 - the port's
        """Return two to four variants; none for a simple question, of which the model gives fewer than two parts."""
        answer, usage = await self._asking.ask(as_data("question", query))
        questions = _distinct(query, answer.questions)
        if len(questions) < 2:
            return Transformed(reason="the question is simple", usage=usage)
        variants = tuple(Variant("sub-question", text, weight=1 / len(questions)) for text in questions)
        return Transformed(variants=variants, reason=f"{len(questions)} sub-questions", usage=usage)


def _distinct(query: str, questions: Iterable[str]) -> list[str]:
    """Return the searchable questions that are not the given one, each once and without its number in a list."""
    found: dict[str, str] = {}
    for given in questions:
        text = clipped(_LIST_MARK.sub("", given[: 4 * _LONGEST], count=1), _LONGEST)
        if is_searchable(text) and key(text) != key(query):
            found.setdefault(key(text), text)
    return list(found.values())[:MOST_QUESTIONS]
