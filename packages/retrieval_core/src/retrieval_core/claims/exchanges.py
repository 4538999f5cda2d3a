"""Whether two statements have the same words with their parts exchanged: who did it to whom, what came from where."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from retrieval_core.claims.statements import Statement

_PIVOTS = frozenset({"to", "than", "from", "before", "after", "against"})
_SYMMETRIC = frozenset({"and", "or", "meet", "marri", "equal", "between", "border"})
_CONJUNCTIONS = frozenset(
    {
        "when",
        "if",
        "because",
        "since",
        "while",
        "until",
        "although",
        "as",
        "once",
        "whenever",
        "after",
        "unless",
        "that",
    }
)
_BEING = frozenset({"is", "are", "was", "were", "be", "been", "being"})
_PARTICIPLE = re.compile(r"(?:ed|en|wn|ght|ade|uilt|old|eld|one|ept|ost|un)\Z")
_MOST = 40
"""Words that two statements share, where they are compared."""


def swapped(mine: Statement, theirs: Statement) -> tuple[str, ...]:
    """Return two words that stand the other way round in two statements; none where everything is in its place.

    Only words that stand once in each are looked at. A phrase that moved to the front is no exchange, so between words
    that are neither names nor figures no comma may stand.
    """
    own, other = _order(mine), _order(theirs)
    shared = {name for name in own if name in other}
    if not 3 <= len(shared) <= _MOST or _is_passive(mine) != _is_passive(theirs):
        return ()
    figures = {figure.value for figure in mine.figures}
    named = {name for name in shared if own[name].is_name or other[name].is_name}
    one, two = ([name for name in order if name in shared and name not in _PIVOTS] for order in (own, other))
    apart = [place for place, pair in enumerate(zip(one, two, strict=True)) if pair[0] != pair[1]]
    if len(apart) == 2 and len(one) > 3 and apart[1] > apart[0] + 1:
        return own[one[apart[0]]].typed, own[one[apart[1]]].typed
    for pivot in (name for name in own if name in shared and name not in _SYMMETRIC and name not in named):
        moved = [name for name in one if own[name].start < own[pivot].start and other[name].start > other[pivot].start]
        back = [name for name in one if own[name].start > own[pivot].start and other[name].start < other[pivot].start]
        if not (moved and back):
            continue
        for first, second in product(moved, back):
            both = first in named and second in named
            alike = (first in figures) == (second in figures)
            if both or (alike and not _may_be_turned(mine, theirs)):
                return own[first].typed, own[second].typed
    return ()


def _may_be_turned(mine: Statement, theirs: Statement) -> bool:
    """Whether one of them may begin with the clause that the other ends with."""
    return any(
        "," in statement.text or any(word.typed.lower() in _CONJUNCTIONS for word in statement.words)
        for statement in (mine, theirs)
    )


class _Place(NamedTuple):
    start: int
    is_name: bool
    """Or a figure."""
    typed: str


def _order(statement: Statement) -> dict[str, _Place]:
    """Return, in order, the words and figures that stand once."""
    entries = [
        (word.concept, _Place(word.start, word.is_name, word.typed))
        for word in statement.words
        if not word.is_quiet or word.typed.lower() in _PIVOTS
    ]
    entries += [
        (figure.value, _Place(figure.span.start, is_name=True, typed=figure.value)) for figure in statement.figures
    ]
    times = Counter(name for name, _ in entries)
    return {name: place for name, place in sorted(entries, key=lambda entry: entry[1]) if times[name] == 1}


def _is_passive(statement: Statement) -> bool:
    forms = [word.typed.lower() for word in statement.words]
    return any(
        form in _BEING and any(_PARTICIPLE.search(following) for following in forms[place + 1 : place + 3])
        for place, form in enumerate(forms)
    )
