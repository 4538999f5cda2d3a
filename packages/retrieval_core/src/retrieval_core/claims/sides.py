"""What two statements say the opposite of: opposites, and what one of them denies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.claims.words import without_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval_core.claims.statements import Statement, Word

_NEAR = 40
"""Code points from a word that are still its surroundings."""
_MOST_RIVALS = 8
"""Places of a word among which the one with the most alike surroundings is looked for."""


def sides_of(mine: Statement, theirs: Statement) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
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
            same_head = mine.sides.get(denier.head) == theirs.sides.get(denier.head)  # not enabled, and disabled
            if not agree and not same_head and denier.head in heads:
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
