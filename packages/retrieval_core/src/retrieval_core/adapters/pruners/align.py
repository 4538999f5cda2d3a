"""The assignment of results to the sentences of passages: values by position, shortened texts by their letters."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from unicodedata import normalize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Sized

T = TypeVar("T")

_STOPS = re.compile(r"[.!?]+")
_NO_LETTERS = re.compile(r"[\W_]+")
_MISSING = 0.2
"""The greatest share of a stretch's letters that may be missing."""
_LEFT_OVER = 0.1
"""The greatest share of the shortened text's letters that may come from nowhere."""
_MOST_STATES = 16


def rows_of(values: Iterable[T], passages: Sequence[Sized]) -> tuple[tuple[T, ...], ...]:
    """Return the values of all sentences, in their order, as one row for each passage."""
    following = iter(values)
    return tuple(tuple(islice(following, len(passage))) for passage in passages)


class _State(NamedTuple):
    """The best alignment that ends at a position of the shortened text.

    Attributes:
        missing: Letters that had to be taken for missing.
        before: The position before the last stretch.
        kept: Whether the last stretch is in the shortened text.
    """

    missing: int
    before: int
    kept: bool


def aligned(sentences: Sequence[str], shortened: str) -> tuple[bool, ...] | None:
    """Return which sentences a shortened text was made of.

    The shortening model may divide sentences differently, and lose white space, marks and rare characters. So letters
    and digits are compared, stretch by stretch between full stops: each is in the shortened text, where those before it
    end, or it is not. Of the alignments that use up the text, the one with the fewest missing letters counts. A
    sentence is kept where at least half of its letters are; one without letters where its neighbours are.

    Returns:
        ``None`` where the text cannot have been made of these sentences.
    """
    left = _letters(shortened)
    stretches = [[_letters(part) for part in _STOPS.split(sentence)] for sentence in sentences]
    ways = _ways([stretch for parts in stretches for stretch in parts], left)
    at = max(ways[-1])
    if len(left) - at > _LEFT_OVER * len(left):
        return None
    found: list[bool] = []
    for states in reversed(ways[1:]):
        state = states[at]
        found.append(state.kept)
        at = state.before
    shares = [_share(parts, [found.pop() for _ in parts]) for parts in stretches]
    kept = [share is not None and share >= 0.5 for share in shares]
    for position, share in enumerate(shares):
        if share is None:
            kept[position] = all(kept[max(0, position - 1) : position] + kept[position + 1 : position + 2])
    return tuple(kept)


def _ways(stretches: Sequence[str], left: str) -> list[dict[int, _State]]:
    """Return for the beginning and after each stretch the best state at each position of the shortened text."""
    ways = [{0: _State(0, 0, kept=False)}]
    for stretch in stretches:
        after: dict[int, _State] = {}
        for at, state in ways[-1].items():
            _keep_best(after, at, _State(state.missing, at, kept=False))
            if stretch and (matched := _matched(stretch, left, at)):
                missing = state.missing + len(stretch) - matched
                _keep_best(after, at + matched, _State(missing, at, kept=True))
        # More states occur only in repetitive texts.
        farthest = sorted(after, reverse=True)[:_MOST_STATES]
        ways.append({at: after[at] for at in farthest})
    return ways


def _keep_best(states: dict[int, _State], at: int, state: _State) -> None:
    if at not in states or state.missing < states[at].missing:
        states[at] = state


def _matched(stretch: str, left: str, at: int) -> int:
    """Return how many letters of a stretch stand at a position, the others missing; 0 where too many are missing."""
    if left.startswith(stretch, at):
        return len(stretch)
    allowed = int(_MISSING * len(stretch))
    end = at
    for letter in stretch:
        if left[end : end + 1] == letter:
            end += 1
        elif allowed == 0:
            return 0
        else:
            allowed -= 1
    return end - at


def _share(parts: Sequence[str], kept: Sequence[bool]) -> float | None:
    """Return the share of a sentence's letters that is kept, ``None`` where it has none."""
    letters = sum(map(len, parts))
    if not letters:
        return None
    return sum(len(part) for part, is_kept in zip(parts, kept, strict=True) if is_kept) / letters


def _letters(text: str) -> str:
    return _NO_LETTERS.sub("", normalize("NFKC", text).casefold())
