"""Words that a question writes apart and the indexed passages write as one: ``roll back`` and ``rollback``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.text.analysis import Analyzer


@dataclass(frozen=True, slots=True)
class WordQuery:
    """What a search by words looks for.

    Attributes:
        terms: Each counts by itself, as often as it is repeated.
        pairs: The two terms of a pair count only in passages that have both.
    """

    terms: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = ()


def word_query(analyzer: Analyzer, text: str, count_passages: Callable[[Sequence[str], int | None], int]) -> WordQuery:
    """Analyse a question, and search for two neighbouring words as one where the passages prefer that form.

    They do where more passages have the one word than have both apart. Both forms are then searched for; the parts
    alone are not, as ``back`` and ``roll`` say little about ``rollback``.

    Args:
        count_passages: Returns how many passages have all of the terms; it stops counting at the number given.
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
