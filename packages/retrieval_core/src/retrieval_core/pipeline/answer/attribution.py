"""From the marks in an answer to the words of the passages that its sentences can be from, and how far to rely on it.

A quote can be the source of a sentence if it has enough of its words, rare ones counting more, and all of its figures.
That does not prove the sentence: a ``not`` changes no other word. Proof is the job of a verifier.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from retrieval_core.text.analysis import Analyzer
from retrieval_core.text.figures import Writing, figures_in
from retrieval_core.text.markers import Marker, markers_of, noted, plain, says_something
from retrieval_core.text.matching import (
    FEW,
    GAIN,
    Claim,
    ClaimMatch,
    SearchedPassage,
    content_words,
    find_contradiction,
    has_figures,
    has_words,
    holds,
    union,
)
from retrieval_core.types import AnswerSentence, Attribution, Confidence, Quote, SentenceCheck, Span, format_citation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import ContextPassage, Relevance

__all__ = ["AttributionIndex", "Marker", "markers_of", "plain", "says_something"]

CITED = 0.4
"""The least part of a sentence, by the weight of its words, that a passage holds which it can be from.

Halfway between the most that a passage held of a sentence from elsewhere (0.25) and the least of one of its own (0.57),
for the 30 longer sentences that ``tests/support/attribution_cases.py`` has for choosing. Of the 30 for checking, all 17
that are from their passage are found there, none of the 6 with another figure, and none in the passages that they are
not from.
"""
AUTOMATIC = 0.65
"""The same where the sentence does not name the passage: nearer to its own words, since nobody else vouches for it.

Of the 17 sentences for checking, 15 are found without a marker, and none in another passage than its own.
"""
SHARE = 0.25
"""The least part that a passage holds which has the sentence together with others: what no passage held by accident."""
_OTHER_WORD = "zzkq"


class AttributionIndex:
    """The passages that the sentences of an answer can be from.

    Prepared once for a pack.

    Args:
        passages: Of a pack; of several with one number the first counts.
        analyzer: Turns text into terms; best the language's that the passages are in. English by default.
    """

    def __init__(self, passages: Sequence[ContextPassage], analyzer: Analyzer | None = None) -> None:
        self._analyzer = analyzer or Analyzer()
        self._passages: dict[int, SearchedPassage] = {}
        for passage in passages:
            if passage.citation.number not in self._passages:
                self._passages[passage.citation.number] = SearchedPassage(passage.citation, self._analyzer)
        self._count = sum(map(len, self._passages.values()))
        self._writing: Writing | None = None
        self._counts: Counter[str] = Counter()
        for passage in self._passages.values():
            self._counts.update({term: len(places) for term, places in passage.places.items()})

    def attribute(self, text: str, span: Span) -> AnswerSentence:
        """Return a sentence of an answer with its sources.

        Each number of a marker gives one attribution, in the order in which they first occur. A marker belongs to the
        sentence, or to the part of it after the previous marker. The attribution has quotes if the passage contains
        at least :data:`CITED` of that part. With less, but at least :data:`SHARE`, it has quotes if all passages
        cited there contain the part together. Otherwise the passage may contain :data:`AUTOMATIC` of the sentence.
        In each case no figure may be missing or have another unit. A sentence or part of
        :data:`~retrieval_core.text.matching.FEW` words must be contained nearly whole.

        A sentence without a marker gets the passage that contains most of it, if that is at least :data:`AUTOMATIC`.
        No figure may be missing, and all names must be in the passage, its title or a heading. Lines of a list of
        sources, with only the number and the name of a passage, get none.

        Args:
            text: The sentence with its markers.
            span: Its position in the answer.
        """
        markers, says = markers_of(text), says_something(text)
        if self._is_listed(text, markers):
            return AnswerSentence(span, text, says_something=False)
        attributions: tuple[Attribution, ...] = ()
        if markers:
            attributions = self._cited(text, markers, span.start)
        elif says:
            attributions = self._found(text)
        return AnswerSentence(span, text, says, attributions)

    def check(self, sentence: AnswerSentence, index: int) -> AnswerSentence:
        """Return a sentence without its sources and with a verdict, if the words that it is from contradict it.

        Args:
            sentence: The sentence with its sources. A passage with too little of it is compared at its best part.
            index: Index of the sentence in its answer, from 0.
        """
        if not sentence.says_something:
            return sentence
        text = plain(sentence.text)
        quotes = [(each.number, quote) for each in sentence.attributions for quote in self._quotes(each, text)]
        found = find_contradiction(text, [quote.text for _, quote in quotes]) if quotes else None
        if found is None:
            return sentence
        number, quote = next((number, quote) for number, quote in quotes if found.quote in quote.text)
        start = quote.text.index(found.quote)
        attributions = tuple(
            each if each.problem == "unknown" else replace(each, citation=None, problem="contradicted")
            for each in sentence.attributions
        )
        check = SentenceCheck(index, "contradicted", number, quote.part(start, start + len(found.quote)), found.reason)
        return replace(sentence, attributions=attributions, check=check)

    def _quotes(self, attribution: Attribution, text: str) -> tuple[Quote, ...]:
        if attribution.citation is not None:
            return attribution.citation.quotes
        if (passage := self._passages.get(attribution.number)) is None:
            return ()
        return passage.quotes(passage.match(self._claim(text)).windows)

    def _cited(self, text: str, markers: Sequence[Marker], offset: int) -> tuple[Attribution, ...]:
        where: dict[int, Span] = {}
        for marker in markers:
            for number in marker.numbers:
                where.setdefault(number, Span(offset + marker.span.start, offset + marker.span.end))
        whole = self._claim(plain(text))
        claims = {number: self._claim(part) for number, part in _parts(text, markers).items()}
        together: dict[Claim, list[int]] = {}
        for number in where:
            claim = claims.get(number, whole)
            together.setdefault(claim if len(claim.terms) >= FEW else whole, []).append(number)
        held: dict[int, ClaimMatch] = {}
        for claim, numbers in together.items():
            held |= self._held(claim, numbers, CITED)
            if claim != whole:  # a part may end with its marker in the middle: "As [1] shows, ..."
                held |= self._held(whole, [number for number in numbers if number not in held], AUTOMATIC)
        return tuple(self._attribution(number, marker, held.get(number)) for number, marker in where.items())

    def _held(self, claim: Claim, numbers: Sequence[int], least: float) -> dict[int, ClaimMatch]:
        matches = {number: self._passages[number].match(claim) for number in numbers if number in self._passages}
        held = {number: match for number, match in matches.items() if holds(claim, match, least)}
        return held | _held_together(claim, matches, held, least)

    def _attribution(self, number: int, marker: Span | None, match: ClaimMatch | None) -> Attribution:
        if (passage := self._passages.get(number)) is None:
            return Attribution(number, marker, problem="unknown")
        if match is None:
            return Attribution(number, marker, problem="unsupported")
        return Attribution(number, marker, replace(passage.citation, quotes=passage.quotes(match.windows)))

    def _is_listed(self, text: str, markers: Sequence[Marker]) -> bool:
        number, span = (markers[0].numbers[0], markers[0].span) if markers else noted(text)
        passage = self._passages.get(number)
        if passage is None or text[: span.start].strip(" \t-*+•"):
            return False
        citation = passage.citation
        names = f"{citation.title or ''} {citation.source or ''} {format_citation(citation)}"
        listed = self._analyzer.terms(plain(text)[0 if markers else span.end :])
        return bool(listed) and set(listed) <= set(self._analyzer.terms(names))

    def _found(self, text: str) -> tuple[Attribution, ...]:
        claim = self._claim(plain(text))
        if len(claim.terms) < FEW:
            return ()
        best, found, names = None, ClaimMatch(), None
        for most, number in sorted(((self._most(claim, number), -number) for number in self._passages), reverse=True):
            if most < AUTOMATIC or most <= found.share:
                break
            match = self._passages[-number].match(claim)
            if match.share <= found.share or not holds(claim, match, AUTOMATIC):
                continue
            names = self._names(text) if names is None else names
            if all(self._passages[-number].has_name(name, terms) for name, terms in names.items()):
                best, found = -number, match
        return () if best is None else (self._attribution(best, None, found),)

    def _names(self, text: str) -> dict[str, list[str]]:
        if self._writing is None:
            citations = [passage.citation for passage in self._passages.values()]
            quotes = (quote.text for citation in citations for quote in citation.quotes)
            around = (name for citation in citations for name in (citation.title or "", *citation.section_path))
            self._writing = Writing((*quotes, *around))
        return {name: self._analyzer.terms(name) for name in self._writing.names_of(plain(text))}

    def _most(self, claim: Claim, number: int) -> float:
        places = self._passages[number].places
        return sum(weight for term, weight in zip(claim.terms, claim.weights, strict=True) if term in places)

    def _claim(self, text: str) -> Claim:
        # A word that is in no text keeps the stop words out where there is nothing else.
        terms = content_words(self._analyzer.query_terms(f"{_OTHER_WORD} {text}"))
        terms = tuple(dict.fromkeys(term for term in terms if _OTHER_WORD not in term))
        weights = [log(1 + self._count / max(1, self._counts[term])) for term in terms]
        total = sum(weights) or 1.0
        figures = dict.fromkeys(figures_in(text))
        return Claim(terms, tuple(weight / total for weight in weights), tuple(figures))


def _held_together(
    claim: Claim, matches: dict[int, ClaimMatch], held: dict[int, ClaimMatch], least: float
) -> dict[int, ClaimMatch]:
    """Return the matches that hold a claim only with the others, and add to them."""
    partial = {number: match for number, match in matches.items() if match.share >= SHARE}
    together = union(partial.values())
    if len(partial) < 2 or not has_words(claim, together, least) or not has_figures(claim, together):
        return {}
    added: dict[int, ClaimMatch] = {}
    for number in partial.keys() - held.keys():
        others = union(match for other, match in partial.items() if other != number)
        gain = claim.share(together.mask) - claim.share(others.mask)
        if gain >= GAIN or not together.figures <= others.figures:
            added[number] = partial[number]
    return added


def _parts(text: str, markers: Sequence[Marker]) -> dict[int, str]:
    """Return the part of a sentence that each number stands behind, if its markers stand behind different ones.

    A part begins behind the marker before; the last one goes on to the end.
    """
    groups: list[list[Marker]] = [[markers[0]]]
    for before, marker in pairwise(markers):
        if any(character.isalnum() for character in text[before.span.end : marker.span.start]):
            groups.append([marker])
        else:
            groups[-1].append(marker)
    parts: dict[int, str] = {}
    begin = 0
    for place, group in enumerate(groups if len(groups) > 1 else ()):
        end = len(text) if place + 1 == len(groups) else group[-1].span.end
        part = plain(text[begin:end])
        for number in {number for marker in group for number in marker.numbers}:
            parts[number] = f"{parts[number]} {part}" if number in parts else part
        begin = end
    return parts


def confidence_in(relevance: Relevance) -> Confidence | None:
    """Return the confidence in the passages of a search; ``None`` if nothing indicates whether they answer."""
    if relevance.value is None:
        return None
    return Confidence(relevance.value, relevance.value, explanation=relevance.explanation)


def with_support(confidence: Confidence, sentences: Sequence[AnswerSentence]) -> Confidence:
    """Return the confidence in an answer: that in its passages, times the part of it that they support.

    Where sentences were verified, those count that are said to be supported; one that is contradicted, not found or was
    not looked at does not. Otherwise those count that have a source.

    Args:
        confidence: In the passages.
        sentences: All of the answer's; only those that say something count. Where none does, nothing is supported.
    """
    telling = [sentence for sentence in sentences if sentence.says_something]
    if not telling:
        return _times(confidence, 0.0, "Nothing was answered.")
    verdicts = [sentence.check.verdict for sentence in telling if sentence.check is not None]
    count = _counted(len(telling), "sentence")
    if verdicts.count("contradicted") == len(verdicts):  # which is found without a verifier, too
        sourced = sum(sentence.has_source for sentence in telling)
        told = f"{sourced} of {count} of the answer {'has' if len(telling) == 1 else 'have'} a source."
        if verdicts:
            told += f" The passages contradict {len(verdicts)}."
        return _times(confidence, sourced / len(telling), told)
    supported = verdicts.count("supported")
    parts = [f"The passages support {supported} of {count} of the answer"]
    parts += [f"contradict {wrong}"] if (wrong := verdicts.count("contradicted")) else []
    told = f"{' and '.join(parts)}."
    if missed := len(telling) - len(verdicts):
        told += f" {_counted(missed, 'sentence')} could not be verified."
    return _times(confidence, supported / len(telling), told)


def _times(confidence: Confidence, support: float, told: str) -> Confidence:
    return replace(
        confidence,
        value=min(1.0, max(0.0, confidence.retrieval * support)),
        support=support,
        explanation=f"{confidence.explanation} {told}".strip(),
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
