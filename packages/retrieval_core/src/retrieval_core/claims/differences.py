"""What of a claim an evidence lacks, and where it says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core.claims.alignments import strange_in
from retrieval_core.claims.clauses import is_year, mixed, other_rates, rate_words, turned_figures
from retrieval_core.claims.exchanges import swapped
from retrieval_core.claims.figures import Figure, figures_in
from retrieval_core.claims.sides import sides_of
from retrieval_core.claims.statements import Statement, Word, statement_of
from retrieval_core.claims.units import same_dimension, same_quantity
from retrieval_core.claims.words import exclusive, without_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_FREE = 60
_MOST_MISSING = 10
"""Figures that are paired."""
_ARTICLES = frozenset({"the", "a", "an"})
_PREPOSITIONS = frozenset({"of", "in", "on", "at", "with", "from", "by", "for", "into", "under", "per"})
_COORDINATE = frozenset({"and", "but", "or"})
_CONJUNCTIONS = _COORDINATE | {"while", "whereas"}
_ALL = frozenset({"all", "every", "each", "entire", "whole", "everyone", "everybody"})
_NUMBERS = {"are": "is", "were": "is", "was": "is", "be": "is"}


@dataclass(frozen=True, slots=True)
class Differences:
    """How a claim and an evidence differ; empty where they do not. Pairs hold the claim's word first.

    Attributes:
        missing_figures: That the evidence has in no form or unit.
        other_figures: Missing ones, each with the evidence's in its place.
        missing_names: Words written as names or code that the evidence does not have.
        other_names: Missing ones, each with the evidence's in its place.
        other_words: Of words that exclude one another, such as days and colours.
        opposites: Words of which one says the opposite of the other.
        denied: Words of both that one of them denies.
        swapped: Words that are the other way round: whose part is whose, what came first.
        missing_words: Other words that the evidence does not have, in no form that is known here.
        strange_words: Those of them that stand in what is else the evidence's wording, or that the sentence is about
            while the context does not have them: facts that were altered or added.
        covered: The part of the claim's words, figures and names that the evidence has, in [0, 1].
        covered_else: The same, where what the evidence has another of is left out.
    """

    missing_figures: tuple[str, ...] = ()
    other_figures: tuple[tuple[str, str], ...] = ()
    missing_names: tuple[str, ...] = ()
    other_names: tuple[tuple[str, str], ...] = ()
    other_words: tuple[tuple[str, str], ...] = ()
    opposites: tuple[tuple[str, str], ...] = ()
    denied: tuple[str, ...] = ()
    swapped: tuple[str, ...] = ()
    missing_words: tuple[str, ...] = ()
    strange_words: tuple[str, ...] = ()
    covered: float = 1.0
    covered_else: float = 1.0

    @property
    def contradict(self) -> bool:
        """Whether the evidence says otherwise, if it speaks of the same at all."""
        return bool(
            self.other_figures or self.other_names or self.other_words or self.opposites or self.denied or self.swapped
        )

    @property
    def nothing_missing(self) -> bool:
        """Whether the evidence has all figures and names of the claim, and no word in it is strange."""
        return not (self.missing_figures or self.missing_names or self.strange_words)


def missing_figures(claim: str, evidence: str) -> tuple[str, ...]:
    """Return the figures of a claim that an evidence does not have, in any form or unit."""
    known = figures_in(evidence)
    return tuple(figure.value for figure in figures_in(claim) if not _has(known, figure))


def differences(claim: str | Statement, evidence: str | Statement, context: str | Statement = "") -> Differences:
    """Hold a claim against an evidence.

    Args:
        claim: A sentence.
        evidence: One sentence or a few.
        context: The text that the evidence is from: a name that stands there is not missing, since the evidence may
            call it "it". The work is linear in its length, and grows with claim times evidence.
    """
    mine, theirs = _statement(claim), _statement(evidence)
    around = _statement(context)
    figures = [figure for figure in mine.figures if not _has(theirs.figures, figure)]
    free = [figure for figure in theirs.figures if not _has(mine.figures, figure)]
    other_figures = list(_paired(figures, free, mine, theirs))
    their_words = theirs.forms
    rated = rate_words(mine, theirs)
    lacking = [
        word for word in mine.content if not _covers(their_words, theirs, word) and word.typed.lower() not in rated
    ]
    names = [word for word in lacking if word.is_name]
    known = around.forms
    unknown = [word.typed for word in names if word.concept not in known and word.base not in known]
    commands = [code for code in mine.code if code not in " ".join(theirs.text.split())]
    other_names = (
        *_other_commands([code for code in commands if code not in around.code], theirs),
        *_other_names(mine, theirs, names),
    )
    strange, altered = strange_in(mine, theirs, around, lacking)
    other_names = (*other_names, *(pair for pair in altered if pair not in other_names))
    rates, places = tuple(other_rates(mine, theirs)), tuple(_in_its_place(mine, theirs, around))
    places = (*places, *_all_or_part(mine, theirs, free))
    other_words = tuple(dict.fromkeys((*rates, *_excluding(mine, theirs), *places)))
    other_figures += turned_figures(mine, theirs)
    if not figures:
        pairs = ((_shown(mine, figure), _shown(theirs, other)) for figure, other in mixed(mine, theirs))
        other_figures += dict.fromkeys(pairs)
    opposites, denied = sides_of(mine, theirs)
    exchanged = swapped(mine, theirs)
    total = len(mine.content) + len(mine.figures)
    subject = {word.start for word in mine.content[:1]}
    nearby = [word for word in lacking if word.concept in known and (word.is_name or word.start in subject)]
    lost = len(lacking) - 0.5 * len(nearby) + len(figures)
    replaced = {word for words, _ in other_names for word in words.split()} | {word for word, _ in other_words}
    excused = [word for word in lacking if word.typed in replaced]
    others = min(len(other_figures), len(figures))
    left = total - len(excused) - others
    lost_else = lost - sum(0.5 if word in nearby else 1.0 for word in excused) - others
    return Differences(
        tuple(figure.value for figure in figures),
        tuple(other_figures),
        (*commands, *unknown),
        other_names,
        other_words,
        opposites,
        denied,
        exchanged,
        tuple(dict.fromkeys(word.typed for word in lacking if not word.is_name)),
        strange,
        covered=1 - lost / total if total else 0.0,
        covered_else=1 - lost_else / left if left else 0.0,
    )


def _statement(text: str | Statement) -> Statement:
    return statement_of(text) if isinstance(text, str) else text


def _has(known: Sequence[Figure], figure: Figure) -> bool:
    return any(_equal(figure, other) for other in known)


def _equal(one: Figure, other: Figure) -> bool:
    if one.number is None or other.number is None:
        return one.value in other.values
    if "/" in one.value + other.value and "%" in {one.unit, other.unit}:
        share, other_share = (
            number if unit == "%" else 100 * number
            for number, unit in ((one.number, one.unit), (other.number, other.unit))
        )
        return abs(share - other_share) < 0.5
    return same_quantity(one.number, one.unit, other.number, other.unit)


def _covers(known: frozenset[str], theirs: Statement, word: Word) -> bool:
    if word.concept in known or word.base in known or word.typed.lower() in known:
        return True
    plain = without_prefix(word.typed)
    if plain is not None and plain in known:
        return True
    if "-" in word.typed or "." in word.typed:
        parts = [part for part in word.typed.lower().replace(".", "-").split("-") if part]
        return not word.is_name and all(part in known for part in parts)
    return len(word.typed) >= 6 and any(_same_root(word, other) for other in theirs.content)


def _same_root(word: Word, other: Word) -> bool:
    """Whether two words begin with the same letters but for endings that a stemmer leaves: explain, explanation."""
    length = min(len(word.base), len(other.base))
    shared = next((place for place in range(length) if word.base[place] != other.base[place]), length)
    return not word.is_name and shared >= 5 and max(len(word.base), len(other.base)) - shared <= 3


def _paired(
    missing: Sequence[Figure], free: Sequence[Figure], mine: Statement, theirs: Statement
) -> Iterator[tuple[str, str]]:
    """Yield each missing figure with the free one that stands among the most words of the same kind."""
    left = list(free[:_MOST_FREE])
    for figure in missing[:_MOST_MISSING]:
        around = _around(mine, figure)
        alike = [other for other in left if _alike(figure, other)]
        if around and not (figure.unit and len(alike) == 1):  # the price in a table is told by its currency alone
            alike = [other for other in alike if around & _around(theirs, other)]
        if not alike:
            continue
        best = max(alike, key=lambda other: (len(around & _around(theirs, other)), bool(other.unit)))
        left.remove(best)
        yield _shown(mine, figure), _shown(theirs, best)


def _alike(one: Figure, other: Figure) -> bool:
    if (one.number is None) != (other.number is None):
        return not (one.unit or other.unit) and {_kind(one.value), "." in other.value} == {"version", True}
    if one.number is None:
        return _kind(one.value) == _kind(other.value)
    if one.unit or other.unit:
        return same_dimension(one.unit, other.unit)
    return is_year(one) == is_year(other)


def _kind(value: str) -> str:
    if value.startswith("#"):
        return "ordinal"
    return "time" if ":" in value else "date" if "-" in value or "/" in value else "version"


def _around(statement: Statement, figure: Figure) -> set[str]:
    near = [
        word.base
        for word in statement.words
        if not word.is_quiet and figure.span.start - 30 <= word.start <= figure.span.end + 30
    ]
    return set(near)


def _shown(statement: Statement, figure: Figure) -> str:
    return statement.text[figure.span.start : figure.span.end].strip()


def _other_commands(commands: Sequence[str], theirs: Statement) -> Iterator[tuple[str, str]]:
    for command in commands:
        parts = command.split()
        rivals = [other for other in theirs.code if other.split()[0] == parts[0]]
        if rivals:
            rival = max(rivals, key=lambda other: len(set(parts) & set(other.split())))
            yield command, rival


def _in_its_place(mine: Statement, theirs: Statement, around: Statement) -> Iterator[tuple[str, str]]:
    """Yield words, each with what the evidence has between the same neighbours or behind the same preposition.

    Between neighbours it may be another word for the same, unless the text has the claim's word for something else.
    """
    other = _slots(theirs)
    behind: dict[str, set[str]] = {}
    clauses = {word.concept for (last, _, _), entries in other.items() if last in _CONJUNCTIONS for word, _ in entries}
    for (before, last, is_preposition), entries in other.items():
        if is_preposition and before in _COORDINATE:
            behind.setdefault(last, set()).update(entry[0].concept for entry in entries)
    for slot, [(word, _), *_] in _slots(mine).items():
        entries = other.get(slot, [])
        if not entries or (slot[2] and word.concept in behind.get(slot[1], ())):
            continue
        if mine.figures and not slot[0] and word.concept in clauses:  # whose figure it is is told elsewhere
            continue
        rival, following = next((entry for entry in entries if entry[0].concept == word.concept), entries[0])
        if rival.concept == word.concept or rival.base in mine.forms or word.base in following:
            continue
        if slot[2] or word.base in around.forms or word.base in theirs.forms:
            yield word.typed, rival.typed


def _slots(statement: Statement) -> dict[tuple[str, str, bool], list[tuple[Word, tuple[str, ...]]]]:
    """Return the words that say something by their places, each with the two words behind it.

    A place is what stands before and behind, or two words before of which the second is a preposition
    (which is the third of it).
    """
    words = [word for word in statement.words if word.typed.lower() not in _ARTICLES]
    forms = [_NUMBERS.get(word.base, word.base) for word in words]
    padded = ["", "", *forms, "", ""]
    found: dict[tuple[str, str, bool], list[tuple[Word, tuple[str, ...]]]] = {}
    for place, word in enumerate(words):
        if word.is_quiet:
            continue
        entry = word, tuple(padded[place + 3 : place + 5])
        before, last, behind = padded[place], padded[place + 1], padded[place + 3]
        if last in _PREPOSITIONS:
            found.setdefault((before, last, True), []).append(entry)
        elif last or behind:
            found.setdefault((last, behind, False), []).append(entry)
    return found


def _other_names(mine: Statement, theirs: Statement, lacking: Sequence[Word]) -> Iterator[tuple[str, str]]:
    """Yield names that the evidence lacks, each with one of the evidence that the claim lacks.

    Of names with a part in common, such as a title, the other parts are meant.
    """
    lost = {word.typed for word in lacking}
    free = [(name, [part for part in name.split() if part.lower() not in mine.forms]) for name in theirs.names]
    free = [entry for entry in free if entry[1]]
    for name in mine.names:
        parts = name.split()
        missing = [part for part in parts if part in lost]
        shared = {part for part in parts if part not in lost}
        rivals = [
            entry
            for entry in free
            if missing
            and shared == {part for part in entry[0].split() if part not in entry[1]}
            and _is_code(name) == _is_code(entry[0])
        ]
        if rivals:
            free.remove(rivals[0])
            yield " ".join(missing), " ".join(rivals[0][1])


def _is_code(name: str) -> bool:
    return any(mark in "_./@-:0123456789" for mark in name)


def _all_or_part(mine: Statement, theirs: Statement, free: Sequence[Figure]) -> Iterator[tuple[str, str]]:
    """Yield a word that means all where the evidence has a part: all of the seats, half of the seats."""
    part = next((figure for figure in free if figure.number is not None and "/" in figure.value), None)
    word = next((word for word in mine.words if word.typed.lower() in _ALL), None)
    if part is not None and word is not None and not any(other.typed.lower() in _ALL for other in theirs.words):
        yield word.typed, _shown(theirs, part)


def _excluding(mine: Statement, theirs: Statement) -> Iterator[tuple[str, str]]:
    sets = exclusive()
    own, other = {word.base for word in mine.words}, {word.base for word in theirs.words}
    for word in mine.words:
        number = sets.get(word.base)
        if number is None or word.base in other:
            continue
        for rival in theirs.words:
            if sets.get(rival.base) == number and rival.base not in own:
                yield word.typed, rival.typed
                break
