"""Excerpts: the sentences of a text that bear most on a question, for a place that is too small for all of it."""

from __future__ import annotations

from collections import Counter
from math import fsum, log
from typing import TYPE_CHECKING

from retrieval_core.text.sentences import sentence_ends
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from retrieval_core.text.analysis import Analyzer

OMISSION = "\n[…]\n"
"""Stands where something between two quotes is left out."""


class Excerpter:
    """Cuts passages down to the sentences that bear most on a question, for a place that is too small for all of them.

    A sentence counts by the words of the question that it has; a word that few sentences of its passage have counts
    more. What bears equally on the question stands in its order, so that an excerpt without any of its words is the
    passage's beginning.

    Args:
        question: Whose words are looked for.
        analyzer: Turns words into terms.
    """

    def __init__(self, question: str, analyzer: Analyzer) -> None:
        self._wanted = frozenset(analyzer.query_terms(question))
        self._analyzer = analyzer

    def excerpt(self, passage: str, size: int) -> str:
        """Return what fits of a passage: the sentences that bear most on the question, in the passage's order.

        Args:
            passage: Its text.
            size: The most code points, :data:`OMISSION` between two stretches included.

        Returns:
            All of the passage where it fits, and nothing where not even one sentence does.
        """
        if len(passage) <= size:
            return passage
        spans = _sentences(passage)
        held = [self._wanted.intersection(self._analyzer.terms(passage[span.start : span.end])) for span in spans]
        counts = Counter(term for terms in held for term in terms)
        weights = {term: log(1 + len(held) / count) for term, count in counts.items()}
        scores = [fsum(weights[term] for term in sorted(terms)) for terms in held]
        chosen = _chosen(spans, sorted(range(len(spans)), key=lambda at: (-scores[at], at)), size)
        return _joined(passage, spans, chosen)


def _chosen(spans: Sequence[Span], order: Sequence[int], size: int) -> Collection[int]:
    """Return which of some sentences fit, those that come first in an order before the others."""
    chosen: set[int] = set()
    left = size + len(OMISSION)  # the first stretch has nothing before it
    for at in order:
        cost = spans[at].end - spans[at].start + len(OMISSION)
        if at - 1 in chosen:  # what is between two neighbours stands in place of the mark
            cost += spans[at].start - spans[at - 1].end - len(OMISSION)
        if at + 1 in chosen:
            cost += spans[at + 1].start - spans[at].end - len(OMISSION)
        if cost <= left:
            chosen.add(at)
            left -= cost
    return chosen


def _joined(text: str, spans: Sequence[Span], chosen: Collection[int]) -> str:
    stretches: list[Span] = []
    before = -2
    for at in sorted(chosen):
        if at == before + 1:
            stretches[-1] = Span(stretches[-1].start, spans[at].end)
        else:
            stretches.append(spans[at])
        before = at
    return OMISSION.join(text[span.start : span.end] for span in stretches)


def _sentences(text: str) -> list[Span]:
    begin, found = 0, list[Span]()
    for end in sentence_ends(text):
        found.append(Span(end - len(text[begin:end].lstrip()), end))
        begin = end
    return found
