"""What of a claim an evidence lacks, and where it says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core.claims.exchanges import swapped
from retrieval_core.claims.figures import Figure, figures_in
from retrieval_core.claims.statements import Statement, Word, statement_of
from retrieval_core.claims.units import same_dimension, same_quantity
from retrieval_core.claims.words import exclusive, without_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NEAR = 40
"""Code points from a word that are still its surroundings."""
_MOST_RIVALS = 8
"""Places of a word among which the one with the most alike surroundings is looked for."""
_MOST_FREE = 60
_MOST_MISSING = 10
"""Figures that are paired."""
_ARTICLES = frozenset({"the", "a", "an"})
_PREPOSITIONS = frozenset({"of", "in", "on", "at", "with", "from", "by", "for", "into", "under"})
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
        """Whether the evidence has all figures and names of the claim."""
        return not (self.missing_figures or self.missing_names)


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
    lacking = [word for word in mine.content if not _covers(their_words, theirs, word)]
    names = [word for word in lacking if word.is_name]
    known = around.forms
    strange = [word.typed for word in names if word.concept not in known and word.base not in known]
    commands = [code for code in mine.code if code not in " ".join(theirs.text.split())]
    other_names = (*_other_commands(commands, theirs), *_other_names(mine, theirs, names))
    other_words = tuple(dict.fromkeys((*_excluding(mine, theirs), *_in_its_place(mine, theirs, around))))
    opposites, denied = _sides(mine, theirs)
    exchanged = swapped(mine, theirs)
    total = len(mine.content) + len(mine.figures)
    subject = {word.start for word in mine.content[:1]}
    nearby = [word for word in lacking if word.concept in known and (word.is_name or word.start in subject)]
    lost = len(lacking) - 0.5 * len(nearby) + len(figures)
    replaced = {word for words, _ in other_names for word in words.split()} | {word for word, _ in other_words}
    excused = [word for word in lacking if word.typed in replaced]
    left = total - len(excused) - len(other_figures)
    lost_else = lost - sum(0.5 if word in nearby else 1.0 for word in excused) - len(other_figures)
    return Differences(
        tuple(figure.value for figure in figures),
        tuple(other_figures),
        (*commands, *strange),
        other_names,
        other_words,
        opposites,
        denied,
        exchanged,
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
        return False
    if one.number is None:
        return _kind(one.value) == _kind(other.value)
    is_year = [value.isdigit() and len(value) == 4 and value[0] in "12" for value in (one.value, other.value)]
    if one.unit or other.unit:
        return same_dimension(one.unit, other.unit)
    return is_year[0] == is_year[1]


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
        first = command.split()[0]
        rival = next((other for other in theirs.code if other.split()[0] == first), None)
        if rival is not None:
            yield command, rival


def _in_its_place(mine: Statement, theirs: Statement, around: Statement) -> Iterator[tuple[str, str]]:
    """Yield words, each with what the evidence has between the same neighbours or behind the same preposition.

    Between neighbours it may be another word for the same, unless the text has the claim's word for something else.
    """
    other = _slots(theirs)
    for slot, (word, _) in _slots(mine).items():
        rival, following = other.get(slot, (word, ()))
        if rival.concept == word.concept or rival.base in mine.forms or word.base in following:
            continue
        if slot[2] or word.base in around.forms or word.base in theirs.forms:
            yield word.typed, rival.typed


def _slots(statement: Statement) -> dict[tuple[str, str, bool], tuple[Word, tuple[str, ...]]]:
    """Return the words that say something by their places, each with the two words behind it.

    A place is what stands before and behind, or two words before of which the second is a preposition
    (which is the third of it).
    """
    words = [word for word in statement.words if word.typed.lower() not in _ARTICLES]
    forms = [_NUMBERS.get(word.base, word.base) for word in words]
    padded = ["", "", *forms, "", ""]
    found: dict[tuple[str, str, bool], tuple[Word, tuple[str, ...]]] = {}
    for place, word in enumerate(words):
        if word.is_quiet:
            continue
        entry = word, tuple(padded[place + 3 : place + 5])
        before, last, behind = padded[place], padded[place + 1], padded[place + 3]
        if last in _PREPOSITIONS:
            found.setdefault((before, last, True), entry)
        elif last or behind:
            found.setdefault((last, behind, False), entry)
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


def _sides(mine: Statement, theirs: Statement) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return words of which the evidence has the opposite, and those that one of the two denies."""
    opposites: list[tuple[str, str]] = []
    denied: list[tuple[str, bool]] = []
    agree = any(word.is_denied and word.concept in theirs.denies for word in mine.content)
    once: dict[tuple[str, int], Word] = {}
    for word in mine.content:
        once.setdefault((word.concept, word.side), word)
    for word in once.values():
        rivals = [other for other in theirs.content if other.concept == word.concept][:_MOST_RIVALS]
        if not rivals:
            opposites += _by_prefix(word, mine, theirs)
            continue
        rival = rivals[0]
        if len(theirs.sides[word.concept]) > 1:
            rival = max(rivals, key=lambda other: _alike_around(mine, word, theirs, other))
        if rival.side == word.side:
            continue
        if rival.is_denied or word.is_denied:
            denier, heads = (word, theirs.forms) if word.is_denied else (rival, mine.forms)
            if not agree and denier.head in heads:
                denied.append((word.typed, word.is_denied))
        elif rival.base != word.base:
            opposites.append((word.typed, rival.typed))
    if len({is_denied for _, is_denied in denied}) > 1:  # each denies what the other does not: it stands elsewhere
        denied = []
    return tuple(opposites), tuple(dict.fromkeys(word for word, _ in denied))


def _by_prefix(word: Word, mine: Statement, theirs: Statement) -> Iterator[tuple[str, str]]:
    """Yield a word and its opposite where one of the two has a prefix that denies: safe, unsafe."""
    plain = without_prefix(word.typed)
    for other in theirs.content:
        if other.side == word.side and (other.base == plain or without_prefix(other.typed) == word.base):
            if other.concept not in mine.sides:
                yield word.typed, other.typed
            return


def _alike_around(mine: Statement, word: Word, theirs: Statement, other: Word) -> tuple[int, bool]:
    return len(_near(mine, word) & _near(theirs, other)), word.side == other.side


def _near(statement: Statement, word: Word) -> set[str]:
    return {
        other.base
        for other in statement.words
        if other is not word and not other.is_quiet and abs(other.start - word.start) <= _NEAR
    }
