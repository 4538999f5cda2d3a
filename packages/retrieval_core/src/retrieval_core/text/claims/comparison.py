"""Compare a claim with a sentence: the same words, or the same except for one exact difference.

Both become a list of content words: stems of words, names, figures with units, dates, periods such as ``month``, and
words such as ``must``. Each word is negated if a ``not`` or a similar word precedes it.

A claim is supported if the sentence contains all its words in the same order. The sentence may have more words only if
they keep its meaning:

- clauses before and after, or between subject and predicate,
- text between two commas, and text after the last word of the claim,
- a word after an article or ``of``.

None of these words may negate or limit, and a negated claim must be complete. A pronoun refers to the beginning of the
sentence before it.

A claim is contradicted under the same conditions, with one difference: in a figure, unit, date or name, or in the
negation of one word. The sentence then has no further plain words in between. Everything else is neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Literal, NamedTuple

from retrieval_core.text.claims.reading import APART, COMMA, JOINED, Reading, Token

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_EXACT = frozenset({"name", "figure", "date", "period"})
"""Of these, another one in the same place is an exact difference."""
_SUPPOSED = frozenset({"if", "unless", "when", "whether"})
_LEAST = 2
"""Words of a claim that can be judged."""
_MOST = 100
"""Words of a claim, and of a sentence, that are compared; longer ones are neither."""
_MOST_STEPS = 10_000
"""Of a comparison; where words repeat without end, it is neither."""
_NAME = 3
"""Words of a name."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of a claim and a sentence: the text in each, or the word that is negated in only one of them."""

    claim: str
    sentence: str
    is_denial: bool = False


class _State(NamedTuple):
    """How far a claim and a sentence were compared.

    Attributes:
        loose: Whether the sentence has a plain word that was left out.
        jumped: Whether it has a clause that was left out before a conjunction.
        bound: Whether the next words must be equal.
    """

    mine: int
    theirs: int
    difference: tuple[int, int, int, int] | None = None
    loose: bool = False
    jumped: bool = False
    bound: bool = False


def compare(claim: Reading, sentence: Reading, context: Iterable[Token] = ()) -> Difference | Literal["same"] | None:
    """Return ``"same"`` if a sentence supports a claim, a difference if it contradicts it, otherwise ``None``.

    Args:
        context: Words that a pronoun in the sentence may refer to.
    """
    mine, theirs = tuple(token for token in claim.tokens if token.kind != "pronoun"), sentence.tokens
    if not _LEAST <= len(mine) <= _MOST or not 0 < len(theirs) <= _MOST:
        return None
    known = {token.form for token in context}
    difference: Difference | None = None
    seen: set[tuple[object, ...]] = set()
    open_states = [_State(0, start) for start in _starts(sentence)][::-1]
    for _ in range(_MOST_STEPS):
        if not open_states:
            return difference
        state = open_states.pop()
        if state.difference is not None and not _is_telling(state.difference, mine, theirs):
            continue
        found = state.difference and (mine[state.difference[0]].is_denied, theirs[state.difference[2]].is_denied)
        if (key := (*state[:2], found, *state[3:])) in seen:
            continue
        seen.add(key)
        if state.mine == len(mine):
            if state.difference is None and _may_end(state, mine, sentence):
                return "same"
            difference = difference or _difference(state, mine, sentence)
            continue
        if state.theirs < len(theirs):
            if sentence.is_english and state.mine and not state.bound:
                open_states += _left_out(state, theirs)
            open_states += _next(state, mine, theirs, known)  # looked at first, as nothing is left out there
    return None


def _starts(sentence: Reading) -> Iterator[int]:
    """Yield where in a sentence a claim may begin."""
    yield 0
    tokens = sentence.tokens
    if not sentence.is_english:
        return
    if not tokens[0].is_condition:
        for start, token in enumerate(tokens[1:], start=1):
            if (
                token.border == APART
                or (token.border == JOINED and not any(one.is_denied or one.is_condition for one in tokens[:start]))
                or (token.border == COMMA and not _limited(tokens[:start]))
            ):
                yield start


def _next(state: _State, mine: Sequence[Token], theirs: Sequence[Token], known: set[str]) -> Iterator[_State]:
    """Yield the states behind the next word of both, where these are equal or differ exactly."""
    own, other = mine[state.mine], theirs[state.theirs]
    if other.kind == "pronoun":
        yield from _stood_for(state, mine, known)
    elif _equal(own, other):
        after = state._replace(mine=state.mine + 1, theirs=state.theirs + 1, bound=False)
        if own.is_denied == other.is_denied:
            yield after
        elif state.difference is None:
            yield after._replace(difference=(state.mine, after.mine, state.theirs, after.theirs))
    elif state.difference is None and not state.bound and own.is_denied == other.is_denied:
        yield from _altered(state, mine, theirs)


def _stood_for(state: _State, mine: Sequence[Token], known: set[str]) -> Iterator[_State]:
    """Yield the states behind a pronoun, and behind what the claim has in its place."""
    for end in range(state.mine, min(state.mine + _NAME + 1, len(mine))):
        if end > state.mine and (mine[end - 1].form not in known or mine[end - 1].is_denied):
            return
        yield state._replace(mine=end, theirs=state.theirs + 1)


def _altered(state: _State, mine: Sequence[Token], theirs: Sequence[Token]) -> Iterator[_State]:
    """Yield the states behind a figure, unit, date or name that is another one, but for what a claim is about."""
    own, other = mine[state.mine], theirs[state.theirs]
    if own.kind != other.kind or own.kind not in _EXACT or (state.mine == 0 and not _is_number(own)):
        return
    if own.figure is not None and other.figure is not None and not own.figure.is_like(other.figure):
        return
    most = _NAME if own.kind == "name" else 1
    for length, others in product(range(1, most + 1), repeat=2):
        end, until = state.mine + length, state.theirs + others
        if most == 1 or (_is_name(mine[state.mine : end], length) and _is_name(theirs[state.theirs : until], others)):
            yield state._replace(mine=end, theirs=until, difference=(state.mine, end, state.theirs, until))


def _left_out(state: _State, theirs: Sequence[Token]) -> Iterator[_State]:
    """Yield the states behind what the sentence may have more than the claim."""
    start = state.theirs
    token, after = theirs[start], theirs[start + 1] if start + 1 < len(theirs) else None
    if (
        after is not None
        and max(token.border, after.border) < JOINED
        and not token.is_denied
        and (token.is_attribute or token.kind == after.kind == "name")
    ):
        yield state._replace(theirs=start + 1, loose=True, bound=True)
    between_commas = token.border == COMMA
    for place in range(start + 1, len(theirs)):
        if theirs[place - 1].is_denied or theirs[place - 1].is_condition:
            return
        joined = theirs[place].border >= JOINED
        if joined or (between_commas and theirs[place].border):
            between_commas = between_commas and joined
            yield state._replace(theirs=place, jumped=joined, bound=True)


def _may_end(state: _State, mine: Sequence[Token], sentence: Reading) -> bool:
    """Whether what the sentence has behind the claim's last word leaves its meaning."""
    rest = sentence.tokens[state.theirs :]
    if not rest:
        return not (state.loose and _denies(mine))
    if not sentence.is_english:
        return False
    if state.jumped and not rest[0].border:
        return False  # the last words may be the beginning of another clause
    end = next((place for place, token in enumerate(rest) if token.border >= JOINED), len(rest))
    if end < len(rest) and rest[end].is_condition:
        return False
    if any(token.is_denied or token.kind in {"limit", "modal"} for token in rest[:end]):
        return False
    return not (_denies(mine) and (state.loose or (end and not rest[0].border)))


def _is_telling(place: tuple[int, int, int, int], mine: Sequence[Token], theirs: Sequence[Token]) -> bool:
    """Whether a difference in that place can contradict: enough is alike, and it is not said of another case."""
    start, end, begun, _ = place
    is_alike = len(mine) - (end - start) >= 1 + (mine[start].kind in _EXACT)
    return is_alike and not any(token.form in _SUPPOSED for token in _clause_before(theirs, begun))


def _difference(state: _State, mine: Sequence[Token], sentence: Reading) -> Difference | None:
    if state.difference is None or state.loose:
        return None
    start, end, begun, until = state.difference
    own, other = mine[start:end], sentence.tokens[begun:until]
    denial = own[0].is_denied != other[0].is_denied
    # Whoever denies a part does not deny the whole: what a denial in the sentence is about must be in the claim.
    rest = sentence.tokens[state.theirs :]
    if denial and other[0].is_denied and rest and not rest[0].border:
        return None
    if not _may_end(state._replace(difference=None), () if denial else mine, sentence):
        return None
    return Difference(
        " ".join(token.typed for token in own), " ".join(token.typed for token in other), is_denial=denial
    )


def _clause_before(tokens: Sequence[Token], place: int) -> Sequence[Token]:
    """Return the words from the beginning of a clause to a place in it."""
    begin = next((start for start in range(place, 0, -1) if tokens[start].border), 0)
    return tokens[begin:place]


def _denies(tokens: Sequence[Token]) -> bool:
    return any(token.is_denied for token in tokens)


def _limited(tokens: Sequence[Token]) -> bool:
    return any(token.is_denied or token.is_condition or token.kind in {"limit", "modal"} for token in tokens)


def _is_number(token: Token) -> bool:
    return token.figure is not None and token.figure.number is not None and not token.figure.is_year


def _is_name(tokens: Sequence[Token], count: int) -> bool:
    """Whether so many words make one name."""
    return (
        len(tokens) == count
        and all(token.kind == "name" for token in tokens)
        and all(two.start - one.end == 1 for one, two in pairwise(tokens))
    )


def _equal(own: Token, other: Token) -> bool:
    if own.figure is not None and other.figure is not None:
        return own.figure.equals(other.figure)
    return own.form == other.form and (own.figure is None) == (other.figure is None)
