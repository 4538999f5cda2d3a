"""What of several statements in one sentence belongs together: a figure to its own subject, a part to its whole."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from retrieval_core.claims.units import same_dimension

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval_core.claims.figures import Figure
    from retrieval_core.claims.statements import Statement, Word

_BOUNDARIES = (
    re.compile(r";\s|,\s|\s(?:and|but|while|whereas)\s"),
    re.compile(r";\s|,\s(?:and|but)\s|\s(?:but|while|whereas)\s"),
)
"""The second parts fewer: A has 4 and 5, while B has 6 and 7."""
_RATE = re.compile(
    r"(?<!\w)(?:(?:per|an?|each|every)[ ]|/[ ]?)(second|minute|hour|day|week|month|quarter|year)(?!\w)|"
    r"(?<!\w)(hourly|daily|weekly|monthly|quarterly|yearly|annually)(?!\w)",
    re.IGNORECASE,
)
_PERIODS = {"daily": "day", "annually": "year"}
_ADVERBS = {"day": "daily", "year": "annually"}
_BETWEEN = {
    ":": "to", "-": "to", "\u2013": "to", "to": "to", "of": "of", "out of": "of", "in": "of", "/": "of", "^": "^",
    "**": "^",
}  # fmt: skip
_MOST_CLAUSES = 12


class _Clause(NamedTuple):
    words: frozenset[str]
    figures: tuple[Figure, ...]
    before: tuple[tuple[int, str], ...]
    """The words with their places."""


def other_rates(mine: Statement, theirs: Statement) -> Iterator[tuple[str, str]]:
    """Yield periods that something happens in, each with the evidence's other one: per day, per week."""
    own, other = _rates(mine), _rates(theirs)
    for period in own:
        rival = next((name for name in other if name not in own), None)
        if period not in other and rival is not None:
            yield own[period], other[rival]


def rate_words(mine: Statement, theirs: Statement) -> frozenset[str]:
    """Return words of periods that the evidence has in another form: daily, a day."""
    shared = _rates(mine).keys() & _rates(theirs).keys()
    return frozenset(form for period in shared for form in (period, f"{period}ly", _ADVERBS.get(period, period)))


def _rates(statement: Statement) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _RATE.finditer(statement.text):
        name = (match[1] or match[2]).lower()
        found.setdefault(_PERIODS.get(name, name.removesuffix("ly")), match[0].strip())
    return found


def turned_figures(mine: Statement, theirs: Statement) -> Iterator[tuple[str, str]]:
    """Yield two figures that only belong together the other way round in the evidence: 3:1 and 1:3, 7 of 10."""
    other = _pairs(theirs)
    for pair, shown in _pairs(mine).items():
        first, sign, second = pair
        if first != second and pair not in other and (second, sign, first) in other:
            yield shown, other[second, sign, first]


def _pairs(statement: Statement) -> dict[tuple[str, str, str], str]:
    found: dict[tuple[str, str, str], str] = {}
    figures = statement.figures
    for one, two in pairwise(figures):
        between = statement.text[one.span.end : two.span.start]
        sign = _BETWEEN.get(between.strip().lower()) if len(between) < 10 else None
        if sign is not None:
            found.setdefault((one.value, sign, two.value), statement.text[one.span.start : two.span.end])
    return found


def mixed(mine: Statement, theirs: Statement) -> Iterator[tuple[Figure, Figure]]:
    """Yield figures that the evidence has for something else, each with the one that it has for the same.

    An evidence of several clauses is looked at, such as ``A has 4 and B has 8``, or the cells of a table's row. A
    figure is another one's where its clause has a subject that the claim does not have, and a clause that has more of
    the claim's words, or another of its figures, has one of the same kind.
    """
    if not mine.figures or len(theirs.figures) < 2:
        return
    for boundary in _BOUNDARIES:
        yield from _mixed(mine, _clauses(theirs, boundary))


def _mixed(mine: Statement, clauses: list[_Clause]) -> Iterator[tuple[Figure, Figure]]:
    if not 2 <= len(clauses) <= _MOST_CLAUSES:
        return
    times: dict[str, int] = {}
    for clause in clauses:
        for word in clause.words:
            times[word] = times.get(word, 0) + 1
    own = _forms(mine)
    places = [_place(clauses, figure) for figure in mine.figures]
    for figure, place in zip(mine.figures, places, strict=True):
        if place is None:
            continue
        home = clauses[place]
        others = {where for where in places if where not in {None, place}}
        shared = sum(times[word] == 1 for word in home.words & own)
        subjects = _before(home, figure, times)
        for number, clause in enumerate(clauses):
            rival = next((found for found in clause.figures if _alike(found, figure)), None)
            if number == place or rival is None or any(found.value == rival.value for found in mine.figures):
                continue
            more = sum(times[word] == 1 for word in clause.words & own) > shared
            more |= bool(_before(clause, rival, times) & own)
            labelled = number in others and len(clause.figures) > 1
            if labelled or (not others and more and subjects and not subjects & own):
                yield figure, rival
                break


def _before(clause: _Clause, figure: Figure, times: dict[str, int]) -> set[str]:
    """Return the words of a clause before a figure that no other clause has: what the figure is about."""
    where = next((found.span.start for found in clause.figures if found.value == figure.value), 0)
    return {word for start, word in clause.before if start < where and times[word] == 1}


def _clauses(statement: Statement, boundary: re.Pattern[str]) -> list[_Clause]:
    ends = [match.start() for match in boundary.finditer(statement.text)]
    bounds = [0, *ends, len(statement.text)]
    found: list[_Clause] = []
    for start, end in pairwise(bounds):
        figures = tuple(figure for figure in statement.figures if start <= figure.span.start < end)
        if figures:
            words = tuple(
                (word.start, form) for word in statement.words if start <= word.start < end and (form := _form(word))
            )
            found.append(_Clause(frozenset(form for _, form in words), figures, words))
    return found


def _form(word: Word) -> str:
    """Return what a word is compared by; of a letter such as the one of ``plan A`` itself."""
    if len(word.typed) == 1 and word.typed.isupper():
        return word.typed
    return "" if word.is_quiet else word.concept


def _forms(statement: Statement) -> frozenset[str]:
    return frozenset(form for word in statement.words if (form := _form(word)))


def _place(clauses: list[_Clause], figure: Figure) -> int | None:
    """Return the one clause that has a figure; ``None`` where none or several have it."""
    places = [
        place for place, clause in enumerate(clauses) if any(found.value == figure.value for found in clause.figures)
    ]
    return places[0] if len(places) == 1 else None


def _alike(one: Figure, other: Figure) -> bool:
    return (
        one.value != other.value
        and (one.number is None) == (other.number is None)
        and same_dimension(one.unit, other.unit)
        and is_year(one) == is_year(other)
    )


def is_year(figure: Figure) -> bool:
    """Whether a figure looks like a year."""
    return figure.value.isdigit() and len(figure.value) == 4 and figure.value[0] in "12"
