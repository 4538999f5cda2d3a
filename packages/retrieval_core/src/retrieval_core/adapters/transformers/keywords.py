"""Asking a language model for further words to search by."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from retrieval_core.adapters.registry import Adapter
from retrieval_core.ports import Transformed, Variant
from retrieval_core.text.prompting import Asking, Task, as_data
from retrieval_core.text.texts import is_searchable, key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.ports import LLM, QueryContext

DEFAULT_PROMPT = (
    "You help a search engine that finds passages by their words. Name words and short terms that passages which "
    "answer the question are likely to use and the question does not: synonyms, the technical term for an everyday "
    "word or the other way round, an abbreviation or what it stands for. Keep to the subject and to the language of "
    "the question. Do not answer it, and do not repeat its own words."
)
"""The instructions where no others are given."""
MOST_WORDS = 10
"""Further ones are left out."""

_FORM = (
    'Answer with a JSON object, as in {"words": ["...", "..."]}. "words" are three to ten words or terms of at most '
    "three words each, the most useful ones first."
)
_LONGEST = 60
_WEIGHT = 0.5
_WORD = re.compile(r"\w+")


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True)

    words: list[str]


_TASK = Task(
    "keywords",
    DEFAULT_PROMPT,
    _FORM,
    {"words": {"type": "array", "items": {"type": "string"}, "description": "3 to 10."}},
    _Answer,
)


class KeywordExpander:
    """Searches by further words too: a :class:`~retrieval_core.ports.QueryTransformer`.

    The lexical side is searched for the question with the new words behind it, and not for the new words alone, so that
    a passage which has none but these never goes before one that has the question's own. What is found so counts half:
    as much as the lexical side does beside the dense one by default. Neither was measured, for want of a good model.

    Args:
        llm: What is asked; it stays the caller's to close.
        prompt: Instructions in place of :data:`DEFAULT_PROMPT`. They replace neither the form of the answer nor the
            rule that the question is data.

    Raises:
        InvalidParameterError: The prompt is blank.
    """

    def __init__(self, llm: LLM, *, prompt: str | None = None) -> None:
        self._asking = Asking(llm, _TASK, prompt, MOST_WORDS, _LONGEST, _WEIGHT)

    @property
    def id(self) -> str:
        """Names the model, and a digest of everything that it is shown besides the question."""
        return self._asking.id

    async def transform(self, query: str, context: QueryContext) -> Transformed:  # noqa: ARG002 - the port's
        """Return one variant; none where the model knows no word that the question does not have.

        Raises:
            MalformedAnswerError: The answer is no list of words.
            ServiceError: The provider failed.
        """
        answer, usage = await self._asking.ask(as_data("question", query))
        words = _new_words(query, answer.words)
        if not words:
            return Transformed(reason="no further words", usage=usage)
        variant = Variant("keywords", " ".join([query, *words]), frozenset({"lexical"}), weight=_WEIGHT)
        return Transformed(variants=(variant,), reason=f"further words: {', '.join(words)}", usage=usage)


ADAPTER = Adapter(
    lambda transform, parts: KeywordExpander(parts.model, prompt=transform.prompts.get("keywords")), asks_llm=True
)


QueryExpander = KeywordExpander
"""What the specification calls ``QueryTransformer``, the name of the port here."""


def _new_words(query: str, words: Iterable[str]) -> list[str]:
    """Return those that can be searched for and are not in the question, each once."""
    known = set(_WORD.findall(query.casefold()))
    found: dict[str, str] = {}
    for given in words:
        if len(given) > _LONGEST * 4 or not is_searchable(given):
            continue
        word = " ".join(given.split())
        if len(word) <= _LONGEST and not known.issuperset(_WORD.findall(word.casefold())):
            found.setdefault(key(word), word)
    return list(found.values())[:MOST_WORDS]
