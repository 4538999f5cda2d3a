"""What of a sentence of an answer stands in a passage, and where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from retrieval_core.text.figures import Figure, figures_in
from retrieval_core.text.sentences import sentences_of, trim
from retrieval_core.types import Quote, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Citation

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
        quote = self.citation.quotes[first.quote]
        start, end = first.span.start, last.span.end
        begin = None if quote.span is None else quote.span.start
        return Quote(quote.text[start:end], None if begin is None else Span(begin + start, begin + end))

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
