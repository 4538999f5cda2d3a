"""The terms of a lexical search, with words that the passages write as one: ``roll back`` and ``rollback``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from retrieval_core.text.analysis import Analyzer


MOST_TERMS = 128
"""The most terms of a question, repeated ones included: the work for a chunk grows with more than their number."""
MOST_REPEATS = 8
"""How often a repeated term counts at most."""


def limited(terms: Iterable[str]) -> list[str]:
    """Return the first :data:`MOST_TERMS` terms in their order, each at most :data:`MOST_REPEATS` times."""
    counts = Counter[str]()
    kept: list[str] = []
    for term in terms:
        counts[term] += 1
        if counts[term] <= MOST_REPEATS:
            kept.append(term)
    return kept[:MOST_TERMS]


@dataclass(frozen=True, slots=True)
class WordQuery:
    """An analysed question.

    Attributes:
        terms: Each counts as often as it is repeated.
        pairs: The two terms of a pair count only in passages that have both.
    """

    terms: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = ()


def word_query(analyzer: Analyzer, text: str, count_passages: Callable[[Sequence[str], int | None], int]) -> WordQuery:
    """Analyse a question; two neighbouring words that passages mostly write as one are searched for as one too.

    That is, where more passages have the one word than have both parts. The parts then count only together, as
    ``back`` and ``roll`` say little about ``rollback``.

    Args:
        count_passages: Returns how many passages have all of the terms; may stop counting at the number given.
    """
    terms = analyzer.query_terms(text)
    pairs: list[tuple[str, str]] = []
    end_of_last = 0
    for compound in analyzer.open_compounds(text):
        if compound.span.start < end_of_last:
            continue
        joined = count_passages([compound.joined], None)
        if joined == 0 or count_passages(compound.parts, joined) >= joined:
            continue
        for part in compound.parts:
            if part in terms:
                terms.remove(part)
        terms.append(compound.joined)
        pairs.append(compound.parts)
        end_of_last = compound.span.end
    return WordQuery(tuple(terms), tuple(pairs))
