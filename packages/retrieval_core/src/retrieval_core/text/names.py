"""The names of a sentence of an answer: what the passage that it is from must have, whoever vouches for it or not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retrieval_core.text.claims import FUNCTION_WORDS, figures_in, words_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WORD = re.compile(r"[^\W\d_]{2,60}")
_COMMAND = re.compile(r"`([^`\n]{1,200} [^`\n]{1,200})`")
_SUBJECT = re.compile(
    r"['’]s\b|\s(?:is|was|has|had|will|can|could|may|might|must|does|did|became)\b"  # noqa: RUF001
)
"""What stands behind a single subject, which may be a name that no passage has."""


class Writing:
    """How words are written in some texts, which tells names from words that only begin a sentence."""

    def __init__(self, texts: Iterable[str]) -> None:
        found = {match[0] for text in texts for match in _WORD.finditer(text)}
        self._ordinary = {word for word in found if word[0].islower()}
        self._capitalised = {word.lower() for word in found if word[0].isupper()} - self._ordinary

    def names_of(self, sentence: str) -> Iterator[str]:
        """Yield words with a capital letter, words of code, and code of several words.

        The first word counts where the next has a capital letter too, where the texts have it with a capital letter
        alone, or where they do not have it and it is the subject. Takes time in proportion to the sentence.
        """
        figures = {place for figure in figures_in(sentence) for place in range(figure.span.start, figure.span.end)}
        words = [word for word in words_in(sentence) if not word.is_mark and word.start not in figures]
        for place, word in enumerate(words):
            if word.is_name or (place == 0 and self._begins(word.typed, sentence, word.start + len(word.typed))):
                yield word.typed
        yield from (" ".join(match[1].split()) for match in _COMMAND.finditer(sentence))

    def _begins(self, word: str, sentence: str, end: int) -> bool:
        if not word[0].isupper() or word.lower() in self._ordinary or word.lower() in FUNCTION_WORDS:
            return False
        return word.lower() in self._capitalised or _SUBJECT.match(sentence, end) is not None
