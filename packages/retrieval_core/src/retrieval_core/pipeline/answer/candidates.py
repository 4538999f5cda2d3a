"""The blocks of a pack's passages that an answer can be made of, word for word."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import groupby, islice
from math import fsum, log
from typing import TYPE_CHECKING

from retrieval_core.text.markdown import parse_markdown
from retrieval_core.text.sentences import ASKS, INTRODUCES, LINK, sentences_of, units_of
from retrieval_core.types import Quote, Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.text.sentences import Kind
    from retrieval_core.types import ContextPack, ContextPassage

MOST = 14
"""Candidates of an answer, which a cross-encoder reads. Of 20, the best one was on the right page no more often."""
MOST_READ = 2000
"""Blocks of a pack that are looked at, from its beginning; a pack of 12,000 tokens has a few hundred."""
FEWEST_TERMS = 4
"""Terms of what is more than a title, a label or the rest of something."""
RANK_OFFSET = 10
"""How slowly a later passage counts less: the eleventh counts half."""
OF_TITLES = 0.5
"""How much a word of the question counts that only the titles above a sentence have."""


@dataclass(frozen=True, slots=True)
class QuoteCandidate:
    """A block of a passage, or a run of the sentences, items or rows of one that is too long.

    Attributes:
        part: Which of the passage's quotes it is in, from 0.
        span: Where it stands in that quote's text.
        heads: What it needs to be understood, there too and in order: see :class:`~retrieval_core.text.sentences.Unit`.
        headings: The titles above it in that quote.
        section: Everything that stands next to each other under these, this one too.
        terms: What it consists of, for comparing it with others.
        words: How much of the question it has, in [0, 1].
    """

    passage: ContextPassage
    part: int
    span: Span
    heads: tuple[Span, ...] = ()
    kind: Kind = "text"
    headings: tuple[str, ...] = ()
    section: tuple[Span, ...] = ()
    terms: frozenset[str] = frozenset()
    words: float = 0.0

    @property
    def said(self) -> str:
        """Its own words."""
        return self.passage.citation.quotes[self.part].text[self.span.start : self.span.end]

    @property
    def text(self) -> str:
        """Its words, with those that it needs to be understood."""
        whole = self.passage.citation.quotes[self.part].text
        return "\n".join(whole[span.start : span.end] for span in (*self.heads, self.span))

    @property
    def above(self) -> str:
        """The titles that it stands under, on one line; may be empty."""
        citation = self.passage.citation
        return " > ".join(dict.fromkeys(filter(None, (citation.title, *citation.section_path, *self.headings))))

    def grown(self, longest: int) -> QuoteCandidate:
        """Return it with what follows it in its section, up to a length; it stays at the beginning."""
        place = self.section.index(self.span)
        end = self.span.end
        room = longest - len(self.text)
        for span in self.section[place + 1 :]:
            if span.end - end > room:
                break
            room -= span.end - end
            end = span.end
        return replace(self, span=Span(self.span.start, end))

    @property
    def sentences(self) -> tuple[Span, ...]:
        """The sentences of a paragraph, in its quote; empty for anything else, which is not cut."""
        said = self.said
        if self.kind != "text" or self.heads or [block.kind for block in parse_markdown(said)] != ["paragraph"]:
            return ()
        start = self.span.start
        return tuple(Span(start + each.span.start, start + each.span.end) for each in sentences_of(said))

    def beginning_with(self, sentence: Span) -> QuoteCandidate:
        """Return it without what stands before one of its sentences."""
        return replace(self, span=Span(sentence.start, self.span.end))

    @property
    def quoted_from(self) -> tuple[int, int]:
        """The number of its passage, and which quote of that: what its spans are of."""
        return self.passage.citation.number, self.part

    def quoted(self, span: Span) -> Quote:
        """Return a stretch of the quote that it is in."""
        quote = self.passage.citation.quotes[self.part]
        if quote.span is None:
            return Quote(quote.text[span.start : span.end])
        start = quote.span.start
        return Quote(quote.text[span.start : span.end], Span(start + span.start, start + span.end))


def candidates(pack: ContextPack, analyzer: Analyzer, query: str, *, most: int = MOST) -> tuple[QuoteCandidate, ...]:
    """Return the blocks of a pack that most likely answer a question, best first, none twice.

    Likely is what has many of the question's words, rare ones before common ones, in a passage that stands early in
    the pack. Headings, pictures, lists of links, questions and fragments are left out, unless there is nothing else.

    Args:
        pack: Its citations' quotes are divided; what the passages' texts have beside them is never taken.
        analyzer: Makes the terms that are compared.
        query: The question.
        most: The most that are returned, at least 1.
    """
    once: dict[tuple[str, Span | str], QuoteCandidate] = {}
    for candidate in islice(_divided(pack), MOST_READ):
        once.setdefault(_identity(candidate), candidate)
    read = [replace(one, terms=frozenset(analyzer.terms(one.said))) for one in once.values()]
    worded = [candidate for candidate in read if candidate.terms]
    chosen = [candidate for candidate in worded if _says_something(candidate, analyzer)] or worded
    weights = _weights(frozenset(analyzer.query_terms(query)), chosen)
    titles = {title: frozenset(analyzer.terms(title)) for title in {candidate.above for candidate in chosen}}
    scored = [replace(one, words=_share(one.terms, weights, titles[one.above])) for one in chosen]
    return tuple(nsmallest(most, scored, key=lambda one: (-one.words * _standing(one), one.passage.citation.number)))


def _divided(pack: ContextPack) -> Iterator[QuoteCandidate]:
    for passage in pack.passages:
        for part, quote in enumerate(passage.citation.quotes):
            candidates = [QuoteCandidate(passage, part, *unit) for unit in units_of(quote.text)]
            for (_, is_whole), together in groupby(candidates, lambda one: (one.headings, _is_whole(one))):
                own = list(together)
                section = tuple(one.span for one in own) if is_whole else ()
                yield from (replace(one, section=section or (one.span,)) for one in own)


def _is_whole(candidate: QuoteCandidate) -> bool:
    """Whether it is neither a fragment nor the introduction of something that is not there."""
    return candidate.kind != "rest" and not any(open_end.search(candidate.said) for open_end in (ASKS, INTRODUCES))


def _identity(candidate: QuoteCandidate) -> tuple[str, Span | str]:
    citation, own = candidate.passage.citation, candidate.span
    place = citation.quotes[candidate.part].span
    if place is None:
        return citation.document_id, candidate.said
    return citation.document_id, Span(place.start + own.start, place.start + own.end)


def _says_something(candidate: QuoteCandidate, analyzer: Analyzer) -> bool:
    """Whether it is more than a fragment, and neither a question nor a list of links."""
    text = candidate.said
    if not _is_whole(candidate):
        return False
    unlinked = LINK.sub(" ", text)
    terms = candidate.terms if unlinked == text else frozenset(analyzer.terms(unlinked))
    return len(terms) >= FEWEST_TERMS or any(mark in text for mark in ("```", "|"))


def _weights(query: frozenset[str], among: Sequence[QuoteCandidate]) -> dict[str, float]:
    """Return how much each term of a question tells: much where few sentences have it."""
    counts = Counter(term for candidate in among for term in candidate.terms & query)
    return {term: log(1 + len(among) / counts[term]) for term in sorted(counts)}


def _share(terms: frozenset[str], weights: dict[str, float], titles: frozenset[str]) -> float:
    """Return the part of a question's weight that a sentence has; what only its titles have counts half."""
    whole = fsum(weights.values())
    if not whole:
        return 0.0
    own = fsum(weight for term, weight in weights.items() if term in terms)
    return (own + OF_TITLES * fsum(weight for term, weight in weights.items() if term in titles - terms)) / whole


def _standing(candidate: QuoteCandidate) -> float:
    return RANK_OFFSET / (RANK_OFFSET + candidate.passage.citation.number - 1)
