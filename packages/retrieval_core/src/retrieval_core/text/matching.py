"""What of a sentence of an answer stands in a passage, and where; and whether the words there contradict it.

:func:`find_contradiction` says that a sentence is contradicted, never that it is supported: if it has another figure
than the quote beside the same word, or if one of the two is negated in words that both have, and the other has nothing
like a negation. Everything else, such as an exception or an opposite in other words, is left to a verifier.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from retrieval_core.text.analysis import STOP_WORDS, Analyzer
from retrieval_core.text.figures import Figure, figures_in
from retrieval_core.text.sentences import sentences_of, trim

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from retrieval_core.types import Citation, Quote, Span

NEIGHBOURS = 3
"""The most sentences of one quote; a fact is seldom spread over more."""
MOST_QUOTES = 2
"""The most places of a passage that one sentence is from."""
GAIN = 0.12
"""The least part that a further place or passage adds: about one word of eight."""
_PER_SENTENCE = 0.04
"""What a further sentence must add to be quoted too."""
_PER_FIGURES = 0.2
"""What having all figures is worth, against words."""
_LONGEST = 800
"""Code points of what is taken for a sentence of a passage; a longer one is cut."""
_SCALES = {"thousand": 3, "million": 6, "billion": 9}
_IN_SCALE = re.compile(r"\bin (?:[A-Za-z$€£]{1,10} )?(thousand|million|billion)s?\b", re.IGNORECASE)
"""What says of the figures of a table that zeros are left out."""
FEW = 3
"""Words of a claim that can differ from another claim by one of them alone."""
_NEARLY_WHOLE = 0.75
"""The least part of a claim of so few words that a passage holds which it can be from.

Of two or three words that are as rare, one that is missing leaves two thirds at most.
"""


class _Unit(NamedTuple):
    """A sentence of a passage's quote, in the quote's text.

    Attributes:
        heads: The headings above it, or the head of its table.
    """

    quote: int
    span: Span
    heads: str


class Claim(NamedTuple):
    """A sentence of an answer, or a part of one.

    Attributes:
        weights: Of its terms; they add up to 1. Bit ``n`` of a mask stands for term ``n``.
        figures: None of them twice.
    """

    terms: tuple[str, ...]
    weights: tuple[float, ...]
    figures: tuple[Figure, ...] = ()

    def share(self, mask: int) -> float:
        """Return the weight of the terms in a mask, in [0, 1]."""
        return sum(weight for place, weight in enumerate(self.weights) if mask >> place & 1)


@dataclass(frozen=True, slots=True)
class ClaimMatch:
    """What of a claim stands in a passage.

    Attributes:
        windows: The units from the first to the last, in the order in which they were chosen.
        figures: The places of those of the claim that are there, in the same unit or one that says the same.
        around: The terms that the passage's title or section has.
    """

    windows: tuple[tuple[int, int], ...] = ()
    mask: int = 0
    share: float = 0.0
    figures: frozenset[int] = frozenset()
    around: int = 0


class SearchedPassage:
    """A passage's sentences, and in which of them each term is.

    Args:
        citation: The passage's; what is found is word for word of its quotes.
        analyzer: Turns text into terms.

    Attributes:
        places: The sentences with a term, from 0 in the passage's order.
        terms_around: The terms of its title and of the headings that it stands under.
    """

    def __init__(self, citation: Citation, analyzer: Analyzer) -> None:
        self.citation = citation
        self.places: dict[str, list[int]] = {}
        self._units = tuple(_units(citation.quotes))
        self._figures: dict[int, tuple[Figure, ...]] = {}
        self._texts = tuple(quote.text for quote in citation.quotes)
        self._folded = ""
        self._around = " ".join((citation.title or "", *citation.section_path))
        self.terms_around = frozenset(content_words(analyzer.terms(self._around)))
        self._scales = {
            _SCALES[found[1].lower()] for quote in citation.quotes for found in _IN_SCALE.finditer(quote.text)
        }
        for place, unit in enumerate(self._units):
            for term in content_words(analyzer.terms(f"{unit.heads} {self._text(unit)}")):
                self.places.setdefault(term, []).append(place)

    def __len__(self) -> int:
        return len(self._units)

    def match(self, claim: Claim) -> ClaimMatch:
        """Return the few neighbouring sentences that have most of a claim, and others that add to them."""
        masks: dict[int, int] = {}
        for bit, term in enumerate(claim.terms):
            for place in self.places.get(term, ()):
                masks[place] = masks.get(place, 0) | 1 << bit
        if not claim.terms:
            masks = dict.fromkeys(range(len(self._units)), 0)
        found = ClaimMatch(around=sum(1 << bit for bit, term in enumerate(claim.terms) if term in self.terms_around))
        known: dict[int, frozenset[int]] = {}
        while len(found.windows) < MOST_QUOTES:
            further = self._further(claim, masks, found, known)
            if further is None:
                break
            found = further
        return found

    def _further(
        self, claim: Claim, masks: dict[int, int], found: ClaimMatch, known: dict[int, frozenset[int]]
    ) -> ClaimMatch | None:
        """Return a match with the window that adds most to it; ``None`` where none adds enough."""
        best, most = None, GAIN if found.windows else 0.0
        shares: dict[int, float] = {}
        for first in masks:
            mask, figures = found.mask, found.figures
            for last in range(first, min(first + NEIGHBOURS, len(self._units))):
                if self._units[last].quote != self._units[first].quote:
                    break
                if last not in masks:
                    continue
                mask |= masks[last]
                if claim.figures:
                    figures = figures | self._figures_at(last, claim.figures, known)
                if mask not in shares:
                    shares[mask] = claim.share(mask)
                share = shares[mask]
                if found.windows and share - found.share < GAIN:
                    continue
                gain = share - found.share - _PER_SENTENCE * (last - first)
                if claim.figures:
                    gain += _PER_FIGURES * len(figures - found.figures) / len(claim.figures)
                if gain > most:
                    best, most = ClaimMatch((*found.windows, (first, last)), mask, share, figures, found.around), gain
        return best

    def _figures_at(self, place: int, wanted: Sequence[Figure], known: dict[int, frozenset[int]]) -> frozenset[int]:
        if place in known:
            return known[place]
        if place not in self._figures:
            unit = self._units[place]
            figures = figures_in(f"{self._around}\n{unit.heads}\n{self._text(unit)}")
            scaled = (one.scaled(zeros) for zeros in sorted(self._scales) for one in figures)
            self._figures[place] = (*figures, *scaled)
        figures = self._figures[place]
        known[place] = frozenset(n for n, figure in enumerate(wanted) if any(map(figure.equals, figures)))
        return known[place]

    def has_name(self, name: str, terms: Iterable[str]) -> bool:
        """Whether a name stands in the passage, its title or a heading: by its terms, or as it is typed.

        Args:
            name: With digits or blanks in it, it must stand there as it is.
            terms: The name's.
        """
        terms = tuple(content_words(terms))
        if terms and name.isalpha() and all(term in self.places or term in self.terms_around for term in terms):
            return True
        if not self._folded:
            self._folded = " ".join(" ".join((self._around, *self._texts)).split()).casefold()
        typed = re.escape(" ".join(name.split()).casefold())
        return re.search(rf"(?<!\w){typed}(?!\w)", self._folded) is not None

    def quotes(self, windows: Iterable[tuple[int, int]]) -> tuple[Quote, ...]:
        """Return the words of some windows, in the passage's order; those that touch are one quote."""
        joined: list[tuple[int, int]] = []
        for first, last in sorted(windows):
            before = joined[-1] if joined else None
            if before and first <= before[1] + 1 and self._units[first].quote == self._units[before[1]].quote:
                joined[-1] = (before[0], max(last, before[1]))
            else:
                joined.append((first, last))
        return tuple(self._quote(self._units[first], self._units[last]) for first, last in joined)

    def _quote(self, first: _Unit, last: _Unit) -> Quote:
        return self.citation.quotes[first.quote].part(first.span.start, last.span.end)

    def _text(self, unit: _Unit) -> str:
        return self.citation.quotes[unit.quote].text[unit.span.start : unit.span.end]


def holds(claim: Claim, match: ClaimMatch, least: float) -> bool:
    """Whether a match has all figures of a claim, and at least so much of its words, if it has any.

    A claim of :data:`FEW` words or less must be held nearly whole, but what it is about may stand in the title.
    """
    return bool(match.windows) and has_figures(claim, match) and has_words(claim, match, least)


def has_words(claim: Claim, match: ClaimMatch, least: float) -> bool:
    """Whether a match has enough words of a claim, or figures where the claim has nothing else."""
    if not claim.terms:
        return bool(claim.figures)
    if claim.share(match.mask) < least:
        return False
    return len(claim.terms) > FEW or claim.share(match.mask | match.around) >= _NEARLY_WHOLE


def has_figures(claim: Claim, match: ClaimMatch) -> bool:
    """Whether a match has all figures of a claim."""
    return len(match.figures) == len(claim.figures)


def union(matches: Iterable[ClaimMatch]) -> ClaimMatch:
    """Return which terms and figures of a claim are in any of its matches."""
    mask, around, figures = 0, 0, frozenset[int]()
    for match in matches:
        mask, around, figures = mask | match.mask, around | match.around, figures | match.figures
    return ClaimMatch(mask=mask, figures=figures, around=around)


def _units(quotes: Sequence[Quote]) -> Iterator[_Unit]:
    for number, quote in enumerate(quotes):
        for sentence in sentences_of(quote.text):
            heads = " ".join(quote.text[head.start : head.end] for head in sentence.heads)[:_LONGEST]
            for span in _pieces(quote.text, sentence.span):
                yield _Unit(number, span, heads)


def _pieces(text: str, span: Span) -> Iterator[Span]:
    """Cut what is too long for a quote: at a line where there is one, else at white space."""
    start = span.start
    while start < span.end:
        end = span.end
        if end - start > _LONGEST:
            line, word = (text.rfind(mark, start + 1, start + _LONGEST) for mark in "\n ")
            end = line if line > 0 else word if word > 0 else start + _LONGEST
        if (piece := trim(text, start, end)) is not None:
            yield piece
        start = end


def content_words(terms: Iterable[str]) -> Iterator[str]:
    """Leave out numbers, which are compared as figures."""
    return (term for term in terms if not term.isdecimal())


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
"""Parts of larger numbers."""
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
