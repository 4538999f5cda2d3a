"""The names of a sentence of an answer: what the passage that it is from must have, whoever vouches for it or not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retrieval_core.text.analysis import STOP_WORDS
from retrieval_core.text.figures import figures_in, is_unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WORD = re.compile(r"[^\W\d_]{2,60}")
_TOKEN = re.compile(
    r"--?[A-Za-z][\w-]{0,60}(?<![-_])|[^\W_](?:[\w'\u2019]|[.:/@-](?=\w)){0,80}|[./~]?/[\w./-]{1,80}|[:.!?|]"
)
"""Words, code, and the marks that begin a sentence."""
_CODE = re.compile(r"[a-z][A-Z]|[A-Z]{2}|_|\w[./:@]\w|^-|^[./~]?/|[^\W\d_]-?\d|\d-?[^\W\d_]")
_ABBREVIATION = re.compile(r"(?i:dr|mr|mrs|ms|prof|st|i\.e|e\.g|a\.m|p\.m|u\.s)")
_COMMAND = re.compile(r"`([^`\n]{1,200} [^`\n]{1,200})`")
_SUBJECT = re.compile(
    r"['’]s\b|\s(?:is|was|has|had|will|can|could|may|might|must|does|did|became)\b"  # noqa: RUF001
)
"""What stands behind a single subject, which may be a name that no passage has."""
_NO_NAMES = STOP_WORDS | {"also", "still", "yet", "even", "every", "already", "i", "may", "must", "unless", "until"}
"""Words that are no names at the start of a sentence either."""


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
        begins, is_first, before = True, True, ""
        for match in _TOKEN.finditer(sentence):
            if match[0] in ":.!?|":
                begins = begins or match[0] != "." or _ABBREVIATION.fullmatch(before) is None
                continue
            word = match[0].replace("\u2019", "'").removesuffix("'s").rstrip("'")
            if not _is_of_a_figure(word, sentence[max(0, match.start() - 2) : match.start()]):
                end = match.start() + len(word)
                if _is_name(word, sentence[end : end + 2], begins=begins) or (
                    is_first and self._begins(word, sentence, end)
                ):
                    yield word
                is_first = False
            begins, before = False, word
        yield from (" ".join(match[1].split()) for match in _COMMAND.finditer(sentence))

    def _begins(self, word: str, sentence: str, end: int) -> bool:
        if not word[0].isupper() or word.lower() in self._ordinary or word.lower() in _NO_NAMES:
            return False
        return word.lower() in self._capitalised or _SUBJECT.match(sentence, end) is not None


def _is_of_a_figure(word: str, before: str) -> bool:
    if word[0].isdecimal():
        return bool(figures_in(word))
    return is_unit(word) and before.rstrip()[-1:].isdecimal()


def _is_name(word: str, following: str, *, begins: bool) -> bool:
    if _CODE.search(word) is not None:
        return _ABBREVIATION.fullmatch(word) is None
    if not word[0].isupper() or word.lower() in _NO_NAMES:
        return False
    return not begins or (following[:1] == " " and following[1:].isupper())
