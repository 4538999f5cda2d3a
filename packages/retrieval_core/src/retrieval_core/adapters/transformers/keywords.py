"""Query expansion by keywords from a language model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import BaseModel

from retrieval_core.adapters.parts import AsksLLM
from retrieval_core.ports import QueryTransformer, Transformed, Variant
from retrieval_core.text.prompting import Task, as_data, is_searchable, key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.ports import QueryContext

DEFAULT_PROMPT = (
    "You help a search engine that finds passages by their words. Name words and short terms that passages which "
    "answer the question are likely to use and the question does not: synonyms, the technical term for an everyday "
    "word or the other way round, an abbreviation or what it stands for. Keep to the subject and to the language of "
    "the question. Do not answer it, and do not repeat its own words."
)
"""The default instructions."""
MOST_WORDS = 10
"""The most words that are taken from an answer."""

_FORM = (
    'Answer with a JSON object, as in {"words": ["...", "..."]}. "words" are three to ten words or terms of at most '
    "three words each, the most useful ones first."
)
_LONGEST = 60
_WEIGHT = 0.5
_WORD = re.compile(r"\w+")


class _Answer(BaseModel):
    words: list[str]


class KeywordExpander(AsksLLM[_Answer], QueryTransformer):
    """Searches for further words beside the question; a :class:`~retrieval_core.ports.QueryTransformer`.

    The lexical side is searched for the question with the new words behind it, so that a passage which has only these
    never goes before one that has the question's own. The weight is 0.5, as much as the lexical side has beside the
    dense one by default. Neither was measured, for want of a good model.
    """

    _task = Task(
        "keywords",
        DEFAULT_PROMPT,
        _FORM,
        {"words": {"type": "array", "items": {"type": "string"}, "description": "3 to 10."}},
        _Answer,
    )
    _settings = (MOST_WORDS, _LONGEST, _WEIGHT)

    async def _transform(self, query: str, context: QueryContext) -> Transformed:  # noqa: ARG002 - the port's
        """Return one variant; none where the model knows no word that the question does not have."""
        answer, usage = await self._asking.ask(as_data("question", query))
        words = _new_words(query, answer.words)
        if not words:
            return Transformed(reason="no further words", usage=usage)
        variant = Variant("keywords", " ".join([query, *words]), frozenset({"lexical"}), weight=_WEIGHT)
        return Transformed(variants=(variant,), reason=f"further words: {', '.join(words)}", usage=usage)


def _new_words(query: str, words: Iterable[str]) -> list[str]:
    """Return the searchable words that are not in the question, each once."""
    known = set(_WORD.findall(query.casefold()))
    found: dict[str, str] = {}
    for given in words:
        if len(given) > _LONGEST * 4 or not is_searchable(given):
            continue
        word = " ".join(given.split())
        if len(word) <= _LONGEST and not known.issuperset(_WORD.findall(word.casefold())):
            found.setdefault(key(word), word)
    return list(found.values())[:MOST_WORDS]
