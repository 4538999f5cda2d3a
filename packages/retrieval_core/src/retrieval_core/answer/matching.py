"""What of a sentence of an answer stands in a passage, and where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from retrieval_core.claims import figures_of
from retrieval_core.sentences import sentences_of
from retrieval_core.types import Quote, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from retrieval_core.analysis import Analyzer
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
_DECIMAL = re.compile(r"-?\d{1,20}(?:\.\d{1,20})?")


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
    """

    terms: tuple[str, ...]
    weights: tuple[float, ...]
    figures: frozenset[str]

    def share(self, mask: int) -> float:
        """Return the weight of the terms in a mask, in [0, 1]."""
        return sum(weight for place, weight in enumerate(self.weights) if mask >> place & 1)


@dataclass(frozen=True, slots=True)
class Match:
    """What of a claim stands in a passage.

    Attributes:
        windows: The units from the first to the last, in the order in which they were chosen.
        figures: Those of the claim that are there.
    """

    windows: tuple[tuple[int, int], ...] = ()
    mask: int = 0
    share: float = 0.0
    figures: frozenset[str] = frozenset()


class SearchedPassage:
    """A passage's sentences, and in which of them each term is.

    Args:
        citation: The passage's; what is found is word for word of its quotes.
        analyzer: Turns text into terms.

    Attributes:
        places: The sentences with a term, from 0 in the passage's order.
    """

    def __init__(self, citation: Citation, analyzer: Analyzer) -> None:
        self.citation = citation
        self.places: dict[str, list[int]] = {}
        self._units = tuple(_units(citation.quotes))
        self._figures: dict[int, frozenset[str]] = {}
        self._around = " ".join((citation.title or "", *citation.section_path))
        self._scales = {
            _SCALES[found[1].lower()] for quote in citation.quotes for found in _IN_SCALE.finditer(quote.text)
        }
        for place, unit in enumerate(self._units):
            for term in content_words(analyzer.terms(f"{unit.heads} {self._text(unit)}")):
                self.places.setdefault(term, []).append(place)

    def __len__(self) -> int:
        return len(self._units)

    def match(self, claim: Claim) -> Match:
        """Return the few neighbouring sentences that have most of a claim, and others that add to them."""
        masks: dict[int, int] = {}
        for bit, term in enumerate(claim.terms):
            for place in self.places.get(term, ()):
                masks[place] = masks.get(place, 0) | 1 << bit
        if not claim.terms:
            masks = dict.fromkeys(range(len(self._units)), 0)
        found = Match()
        while len(found.windows) < MOST_QUOTES:
            further = self._further(claim, masks, found)
            if further is None:
                break
            found = further
        return found

    def _further(self, claim: Claim, masks: dict[int, int], found: Match) -> Match | None:
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
                figures = figures | self._figures_of(last, claim.figures)
                if mask not in shares:
                    shares[mask] = claim.share(mask)
                share = shares[mask]
                if found.windows and share - found.share < GAIN:
                    continue
                gain = share - found.share - _PER_SENTENCE * (last - first)
                if claim.figures:
                    gain += _PER_FIGURES * len(figures - found.figures) / len(claim.figures)
                if gain > most:
                    best, most = Match((*found.windows, (first, last)), mask, share, figures), gain
        return best

    def _figures_of(self, place: int, wanted: frozenset[str]) -> frozenset[str]:
        if not wanted:
            return wanted
        if place not in self._figures:
            unit = self._units[place]
            figures = figures_of(f"{self._around}\n{unit.heads}\n{self._text(unit)}")
            self._figures[place] = figures.union(*(_scaled(figures, scale) for scale in self._scales))
        return self._figures[place] & wanted

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


def holds(claim: Claim, match: Match, least: float) -> bool:
    """Whether a match has all figures of a claim, and at least so much of its words, if it has any."""
    enough = match.share >= least if claim.terms else bool(claim.figures)
    return enough and bool(match.windows) and claim.figures <= match.figures


def union(matches: Iterable[Match]) -> Match:
    """Return which terms and figures of a claim are in any of its matches."""
    mask, figures = 0, frozenset[str]()
    for match in matches:
        mask, figures = mask | match.mask, figures | match.figures
    return Match(mask=mask, figures=figures)


def _units(quotes: Sequence[Quote]) -> Iterator[_Unit]:
    for number, quote in enumerate(quotes):
        for sentence in sentences_of(quote.text):
            heads = " ".join(quote.text[head.start : head.end] for head in sentence.heads)[:_LONGEST]
            for span in _pieces(quote.text, sentence.span):
                yield _Unit(number, span, heads)


def _pieces(text: str, span: Span) -> Iterator[Span]:
    """Cut what is too long for a quote: at a line where there is one, else at white space."""
    start = span.start
    while span.end - start > _LONGEST:
        line, word = (text.rfind(mark, start + 1, start + _LONGEST) for mark in "\n ")
        end = line if line > 0 else word if word > 0 else start + _LONGEST
        if piece := text[start:end].rstrip():
            yield Span(start, start + len(piece))
        start = end + (text[end].isspace() if end < span.end else 0)
    if text[start : span.end].strip():
        yield Span(start, span.end)


def _scaled(figures: frozenset[str], zeros: int) -> Iterator[str]:
    """Yield figures with so many zeros more, in the form of :func:`~retrieval_core.claims.figures_of`."""
    for figure in figures:
        if _DECIMAL.fullmatch(figure):
            whole, _, fraction = figure.lstrip("-").partition(".")
            digits = (whole + fraction[:zeros].ljust(zeros, "0")).lstrip("0") or "0"
            rest = fraction[zeros:].rstrip("0")
            yield ("-" if figure.startswith("-") else "") + digits + (f".{rest}" if rest else "")


def content_words(terms: Iterable[str]) -> Iterator[str]:
    """Leave out parts of words, and numbers, which are compared as figures."""
    return (term for term in terms if not term.startswith("_") and not term.isdecimal())
