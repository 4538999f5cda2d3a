"""The comparison of names as sequences of words, ignoring case, accents and punctuation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from unicodedata import category

from retrieval_core.text.analysis import BY_CHARACTER, STOP_WORDS, fold

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_WORDS = 32
"""The most words of a name that is searched for; in scripts without spaces each character counts as a word."""

# Signs behind a word belong to it, as in C++ and C#; in front of one or between two they divide.
_WORD = re.compile(rf"[{BY_CHARACTER}]|[^\s+#{BY_CHARACTER}]+(?:[+#]+(?![^\s{BY_CHARACTER}]))?")
_IS_UNSPACED = re.compile(f"[{BY_CHARACTER}]")


class _Characters(dict[int, int]):
    """For :meth:`str.translate`: letters, digits and their marks stay, everything else divides words."""

    def __missing__(self, point: int) -> int:
        character = chr(point)
        self[point] = kept = point if category(character)[0] in "LNM" or character in "+#" else 32
        return kept


@cache
def _characters() -> _Characters:
    return _Characters()


def words_of(text: str) -> list[str]:
    """Return the folded words of a text; a character of a script without spaces is a word.

    Hyphens, dots, underscores and the like divide words, so that ``argocd-server`` and ``Argocd Server`` are alike;
    ``+`` and ``#`` behind a word belong to it. There is no stemming.
    """
    return _WORD.findall(fold(text).translate(_characters()))


def key_of(name: str) -> str:
    """Return a name's key, equal for all its spellings: its words or, where it has none, its characters."""
    return " ".join(words_of(name)) or " ".join(fold(name).split())


def mentions(text_key: str, name_key: str) -> bool:
    """Whether a text contains a name; both are keys of :func:`key_of`."""
    return bool(name_key) and f" {name_key} " in f" {text_key} "


def is_all_stop_words(key: str) -> bool:
    """Whether a name consists of stop words such as ``it`` and ``who``."""
    return STOP_WORDS.issuperset(key.split())


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    is_joined: bool
    """Whether it is a character of a script without spaces and stands next to another one."""


def _positions(text: str) -> list[_Word]:
    characters = fold(text).translate(_characters())
    words: list[_Word] = []
    for match in _WORD.finditer(characters):
        start, end = match.span()
        is_joined = _IS_UNSPACED.match(characters, start) is not None and (
            (start > 0 and _IS_UNSPACED.match(characters, start - 1) is not None)
            or _IS_UNSPACED.match(characters, end) is not None
        )
        words.append(_Word(match.group(), is_joined))
    return words


class Names:
    """Finds names in a text, in time linear in the text.

    Args:
        spellings: Each name as it was written, with a number; equal :func:`key_of` must have equal numbers.
    """

    def __init__(self, spellings: Iterable[tuple[str, int]]) -> None:
        self._numbers: dict[str, int] = {}
        self._longest: dict[str, int] = {}
        self._acronyms: dict[str, set[str]] = {}
        for spelling, number in spellings:
            words = words_of(spelling)
            if not 0 < len(words) <= MOST_WORDS:
                continue
            key = " ".join(words)
            if is_all_stop_words(key):
                if sum(map(str.isupper, spelling)) > 1:
                    self._acronyms.setdefault(key, set()).add(spelling)
                else:
                    continue
            self._numbers[key] = number
            self._longest[words[0]] = max(len(words), self._longest.get(words[0], 0))

    def find(self, text: str) -> list[int]:
        """Return the numbers of the names in a text, each once, in the order of the text.

        At each word the longest name that begins there counts, and the search goes on behind it. A name of stop words
        counts only where it has at least two capitals and is written so: ``WHO`` is not found in ``who``. A name of one
        character of a script without spaces counts only where that stands alone.
        """
        words = _positions(text)
        found: dict[int, None] = {}
        at = 0
        while at < len(words):
            length, number = self._longest_at(words, at, text)
            if number is not None:
                found[number] = None
            at += length
        return list(found)

    def _longest_at(self, words: list[_Word], at: int, text: str) -> tuple[int, int | None]:
        most = min(self._longest.get(words[at].text, 0), len(words) - at)
        texts = [word.text for word in words[at : at + most]]
        for length in range(most, 0, -1):
            key = " ".join(texts[:length])
            number = self._numbers.get(key)
            if number is None or (length == 1 and words[at].is_joined):
                continue
            if key not in self._acronyms or any(_is_written(spelling, text) for spelling in self._acronyms[key]):
                return length, number
        return 1, None


def _is_written(spelling: str, text: str) -> bool:
    """Whether a text holds a name, to the letter, with no letter or digit beside it."""
    at = text.find(spelling)
    while at >= 0:
        end = at + len(spelling)
        if not text[max(at - 1, 0) : at].isalnum() and not text[end : end + 1].isalnum():
            return True
        at = text.find(spelling, end)
    return False
