"""A cheap check of an English sentence against the words it is quoted from: negations and figures.

It says that a sentence is contradicted, never that it is supported. A sentence is contradicted if it has another figure
than the quote beside the same word, or if one of the two is negated in words that both have, and the other has nothing
like a negation. Everything else, such as an exception or an opposite in other words, is left to a verifier.
"""

from __future__ import annotations

import re
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from retrieval_core.text.analysis import STOP_WORDS, Analyzer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LEAST_SHARED = 0.4
"""The part of the words of the shorter of two texts that both must have, for one to be about the other."""
LEAST_NEGATED = 0.5
"""The part of the words after a negation that the other text must have."""
_ANALYZER = Analyzer()
_SCOPE = 6
"""Words after a negation that it may be about."""
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n\s*\n")
_TOKEN = re.compile(r"v?\d+(?:[.,]\d+|[ \u00a0]\d{3}\b)*|[^\W\d_]+(?:['\u2019][^\W\d_]+)?|%|[,;:()]")
_COUNTS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBERS = {word: f"{n}" for n, word in enumerate(_COUNTS)} | {word: f"{n}0" for n, word in enumerate(_TENS, 2)}
_PART = re.compile(f"{'|'.join(_TENS)}|hundred|thousand|million|billion|dozen|half|quarter")
"""What is a part of a larger number."""
_NEGATION = re.compile(
    "not?|never|cannot|without|nor|neither|none|nothing|nobody|unable|impossible|un(?:supported|available|affected)"
    "|disa(?:llow|ble)(?:ed|d|s)?|lack(?:s|ing)?|.+n't"
)
_EXCEPTION = re.compile("only|unless|except|until|instead|rather|last")
_LIKE_NEGATION = re.compile(
    "off|out|skip|stop|remov|drop|ignor|prevent|avoid|hard|rare|miss|refus|reject|deni|forbid|forbidden|prohibit|fail"
    "|option|unnecessari|limit|exclus|alon|least|most|beyond|apart|otherwis|opposit|free|exempt|exclud|separ"
)
"""Stems that may say the same as a negation."""
_BREAK = re.compile("[,;:()]|and|but|which|because|if|although|though|while")
"""The ends of a negation's scope."""


class Contradiction(NamedTuple):
    """The part of a quote that a sentence contradicts, and how."""

    quote: str
    reason: str


class _Figure(NamedTuple):
    """A number, with the stems of the words before and after it; these are empty if they say nothing."""

    value: str
    before: str
    after: str

    def is_of_the_same(self, other: _Figure) -> bool:
        if self.after and other.after:
            return self.after == other.after
        return bool(self.before) and self.before == other.before


def find_contradiction(sentence: str, quotes: Sequence[str]) -> Contradiction | None:
    """Return the part of some quotes that an English sentence certainly contradicts, or ``None``.

    Args:
        sentence: Without the numbers of its sources.
        quotes: The words that it is from.
    """
    words = _words(sentence)
    parts = [(part, _words(part)) for quote in quotes for part in _SENTENCE.split(quote) if part.strip()]
    everything = [word for _, tokens in parts for word in tokens]
    if not parts or _shared(words, everything) < LEAST_SHARED:
        return None
    known = {(figure.value, _digits(figure.value)) for figure in _figures(everything)}
    figures = list(_figures(words))
    said = {figure.value for figure in figures}
    for figure in figures:
        if any(figure.value == value or _digits(figure.value) == digits != "" for value, digits in known):
            continue
        for part, tokens in parts:
            for other in _figures(tokens):
                if figure.is_of_the_same(other) and other.value not in said:
                    return Contradiction(part, f"The quote says {other.value}, the sentence {figure.value}.")
    part, tokens = max(parts, key=lambda each: _shared(words, each[1]))
    if _shared(words, tokens) >= LEAST_SHARED:
        if _is_negated(words, tokens):
            return Contradiction(part, "The sentence is negated, the quote is not.")
        if _is_negated(tokens, words):
            return Contradiction(part, "The quote is negated, the sentence is not.")
    return None


def _words(text: str) -> list[str]:
    return [token.replace("\u2019", "'").lower() for token in _TOKEN.findall(text)]


def _is_negated(words: Sequence[str], others: Sequence[str]) -> bool:
    """Whether the first has one negation, of words that the second has, and that has nothing like one."""
    places = [place for place, word in enumerate(words) if _NEGATION.fullmatch(word)]
    if len(places) != 1 or any(map(_NEGATION.fullmatch, others)):
        return False
    if "but" in words[places[0] :] or any(map(_EXCEPTION.fullmatch, (*words, *others))):
        return False
    if any(map(_LIKE_NEGATION.fullmatch, {*map(_stem, others)} - {*map(_stem, words)})):
        return False
    about = _content(islice(takewhile(lambda word: not _BREAK.fullmatch(word), words[places[0] + 1 :]), _SCOPE))
    return bool(about) and len(about & _content(others)) >= LEAST_NEGATED * len(about)


def _figures(words: Sequence[str]) -> Iterator[_Figure]:
    """Yield the numbers of a text, but for *one*, and parts of larger ones."""
    for place, word in enumerate(words):
        around = [*reversed(words[max(0, place - 2) : place])], words[place + 1 : place + 3]
        before, after = (next((each for each in some if each not in {",", "(", ")"}), "") for some in around)
        value = _NUMBERS.get(word) or (re.sub(r"[v,\s]", "", word) if word.lstrip("v")[:1].isdecimal() else None)
        if value and word != "one" and after not in _NUMBERS and not any(map(_PART.fullmatch, (before, after))):
            yield _Figure(value, *(_stem(each) if _says_something(each) else "" for each in (before, after)))


def _digits(value: str) -> str:
    """Return the digits of a number without the zeros around them, the same for 1230 m and 1.23 km; empty for few."""
    digits = value.replace(".", "").strip("0")
    return digits if len(digits) > 1 and value.count(".") < 2 else ""


def _says_something(word: str) -> bool:
    return word == "%" or (word not in STOP_WORDS and word[:1].isalnum() and not _NEGATION.fullmatch(word))


def _shared(words: Iterable[str], others: Iterable[str]) -> float:
    first, second = _content(words), _content(others)
    return len(first & second) / max(1, min(len(first), len(second)))


def _content(words: Iterable[str]) -> frozenset[str]:
    return frozenset(map(_stem, filter(_says_something, words)))


def _stem(word: str) -> str:
    return next(iter(_ANALYZER.terms(word)), word)
