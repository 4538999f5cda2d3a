"""The words of a text: which are names, which say nothing by themselves, and which deny or limit what others say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from retrieval_core.text.analysis import STOP_WORDS, Analyzer

if TYPE_CHECKING:
    from collections.abc import Iterator

NEGATORS = frozenset("not no never none nobody nothing nowhere neither nor cannot".split())  # noqa: SIM905
"""What follows them in the same clause is denied; so it is behind what ends with ``n't``."""
CONDITIONS = frozenset("if unless when only except until without while whether".split())  # noqa: SIM905
"""Words that limit the following words to a condition or a part."""
LIMITS = CONDITIONS | frozenset(
    """
    before after above below over under against by from off out down up more most less least fewer few all some both
    half almost nearly hardly barely rarely seldom sometimes usually often always same other own too or once that than
    to
    """.split()  # noqa: SIM905 - words are read more easily so
)
"""Words that a sentence says something else without."""
MODALS = {
    "may": "can", "might": "can", "can": "can", "could": "can", "must": "must", "shall": "must", "should": "should",
}  # fmt: skip
"""Those of one kind say the same."""
PRONOUNS = frozenset("it he she they its his her their him them".split())  # noqa: SIM905
DAYS = frozenset("monday tuesday wednesday thursday friday saturday sunday".split())  # noqa: SIM905
MONTHS = tuple("january february march april may june july august september october november december".split())  # noqa: SIM905
PERIODS = {
    **{word: word for word in ("second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade")},
    "daily": "day", "hourly": "hour", "weekly": "week", "monthly": "month", "yearly": "year", "annually": "year",
}  # fmt: skip

_TOKEN = re.compile(
    r"--?[A-Za-z][\w-]{0,60}(?<![-_])|[^\W_](?:[\w'\u2019]|[.:/@-](?=\w)){0,80}|[./~]?/[\w./-]{1,80}|"
    r"(?P<mark>[,;:.!?()|\u2013\u2014\n])"
)
_CODE = re.compile(r"[a-z][A-Z]|[A-Z]{2}|_|\w[./:@]\w|^-|^[./~]?/|[^\W\d_]-?\d|\d-?[^\W\d_]")
_TITLES = frozenset({"dr", "mr", "mrs", "ms", "prof", "st"})
_ABBREVIATIONS = frozenset({"i.e", "e.g", "a.m", "p.m", "u.s"})
_QUIET = (STOP_WORDS - NEGATORS - LIMITS - MODALS.keys() - {"won"}) | frozenset(
    "also still yet would upon already even i.e e.g etc ever per us according within around there longer".split()  # noqa: SIM905
)
FUNCTION_WORDS = _QUIET | NEGATORS | LIMITS | MODALS.keys() | {"a", "every", "i"}
"""Words that are no names at the start of a sentence either."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text, or a mark between words.

    Attributes:
        form: Its stem; of code itself in lower case, and of a mark the mark.
        typed: As it is written.
        start, end: Where it stands.
        is_name: Whether it is written as a name or as code.
        is_quiet: Whether it says nothing by itself.
        is_mark: Whether it is no word.
    """

    form: str
    typed: str
    start: int
    end: int
    is_name: bool = False
    is_quiet: bool = False
    is_mark: bool = False


def words_in(text: str) -> Iterator[Word]:
    """Yield the words of a text and the marks between them, in time linear in its length."""
    begins = True  # a sentence, so that a capital letter tells nothing
    lower = ""
    for match in _TOKEN.finditer(text):
        if mark := match["mark"]:
            begins = begins if mark == "\n" else mark in "!?:|" or (mark == "." and lower not in _TITLES)
            yield Word(mark, mark, match.start(), match.end(), is_mark=True)
            continue
        typed = match[0].replace("\u2019", "'").removesuffix("'s").rstrip("'")
        lower = typed.lower()
        is_code = _CODE.search(typed) is not None and lower not in _ABBREVIATIONS
        is_name = is_code or _is_name(typed, lower, begins=begins, following=text[match.end() : match.end() + 2])
        form = lower if is_code else _stem(lower)
        yield Word(form, typed, match.start(), match.end(), is_name, lower in _QUIET and not is_name)
        begins = False


def _is_name(typed: str, lower: str, *, begins: bool, following: str) -> bool:
    if not typed[0].isupper() or (lower in FUNCTION_WORDS and not (lower == "may" and not begins)):
        return False
    return not begins or (following[:1] == " " and following[1:].isupper())


@cache
def analyzer() -> Analyzer:
    """Return the analysis that all comparisons share: English stems."""
    return Analyzer()


def _stem(word: str) -> str:
    return (analyzer().query_terms(word) or [word])[0] if word.isalpha() else word
