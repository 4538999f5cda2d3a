"""Fit chunks into a token budget: count each text once, drop in order, count the whole text at the end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from retrieval_core.pipeline.stages.assemble import (
    PackPassage,
    Removed,
    arrange,
    ledger_of,
    passages_of,
    render,
    without_repetition,
)
from retrieval_core.pipeline.stages.expand import ROLES, Item, expand, with_quotes
from retrieval_core.text.sentences import OMISSION, sentence_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from retrieval_core.config import ContextConfig
    from retrieval_core.pipeline.stages.expand import Surroundings
    from retrieval_core.types import ContextPassage, Hit, LedgerEntry, Quote


CHARACTERS_PER_TOKEN = 16
"""More than text has. A text with more characters for each token of the budget is too long, and is not counted."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """A context within its budget.

    Attributes:
        items: What is shown, in order; assembling these again changes nothing.
        passages: The same, as it is shown.
        text: The passages as one text.
        tokens: Of the text, by the counter that was used.
        ledger: One entry for every item that was considered.
    """

    items: tuple[Item, ...]
    passages: tuple[ContextPassage, ...]
    text: str
    tokens: int
    ledger: tuple[LedgerEntry, ...]


def assemble(
    hits: Sequence[Hit], around: Surroundings, settings: ContextConfig, count: Callable[[str], int]
) -> Assembled:
    """Return hits with their surroundings, as one text of at most ``settings.max_tokens`` tokens.

    Args:
        hits: Best first; a repeated one is skipped.
        around: What was read around them; it may lack some of it.
        settings: What to put around hits, and the budget.
        count: Counts the tokens of a text. It may be any function: the bound holds for its count of the whole text.
    """
    return fit(expand(hits, around, settings), around.texts, settings, count)


def fit(
    items: Iterable[Item], texts: Mapping[str, str], settings: ContextConfig, counter: Callable[[str], int]
) -> Assembled:
    """Fit items into the budget.

    If not all of them fit, each is counted by itself, once. Then these are dropped, in this order:

    1. Parents and neighbors that do not fit beside the primaries, and primaries of which not one sentence fits.
    2. Neighbors across a border, siblings, parents, then primaries: those of the worst primary first, and of these the
       farthest from it.

    The ``min_primaries`` best stay as long as one sentence of each fits: the lowest of them are cut after whole
    sentences. A primary that by itself is longer than the budget is cut to its first sentence, and to more sentences if
    the others leave room. In the end the whole text is counted; if it is too long, the same is done with less room.

    Args:
        items: In their order.
        texts: Whole documents by id, if they are known.
        settings: The budget, and how passages are written.
        counter: Counts the tokens of a text. What it raises is raised.

    Raises:
        InvalidParameterError: The counter returned something else than a number of tokens.
    """
    given = tuple(items)
    count = cache(counter)
    costs = _Costs(settings, count)
    kept, repeated = without_repetition(given)
    dropped: tuple[Removed, ...] = ()
    sheet = None if any(map(costs.is_huge, kept)) else _Sheet.of(kept, texts, settings, count)
    if sheet is None or sheet.tokens > settings.max_tokens:
        while unshowable := tuple(_unshowable(kept, costs)):
            dropped += unshowable
            gone = {removed.item.id for removed in dropped}
            # Text that only dropped items would have shown has to be shown by others.
            kept, repeated = without_repetition(item for item in given if item.id not in gone)
        whole, room, unused, step = kept, costs.room, 0, 1
        while True:
            kept, fallen = _choose(whole, room, unused, costs)
            sheet = _Sheet.of(kept, texts, settings, count)
            if sheet.tokens <= settings.max_tokens:
                break
            excess = max(sheet.tokens - settings.max_tokens, step)
            step *= 2
            if any(item.role != "primary" for item in kept):
                unused += excess
            else:
                room -= excess
        dropped += fallen
    counted = (item for item in (*kept, *(gone.item for gone in dropped)) if not costs.is_huge(item))
    return Assembled(
        kept,
        passages_of(sheet.pieces, texts, [count(passage) for passage in sheet.passages]),
        sheet.text,
        sheet.tokens,
        ledger_of(
            sheet.pieces, (*dropped, *_with_outcomes(repeated, kept)), {item.id: count(_text(item)) for item in counted}
        ),
    )


def _text(item: Item) -> str:
    return "\n".join(quote.text for quote in item.quotes)


class _Sheet(NamedTuple):
    """Items as they are written."""

    pieces: tuple[PackPassage, ...]
    passages: tuple[str, ...]
    text: str
    tokens: int

    @classmethod
    def of(
        cls, items: Sequence[Item], texts: Mapping[str, str], settings: ContextConfig, count: Callable[[str], int]
    ) -> _Sheet:
        pieces = arrange(items, merged=settings.window > 0)
        passages = render(pieces, texts, settings)
        text = settings.delimiter.join(passages)
        return cls(pieces, passages, text, count(text) if text else 0)


class _Costs:
    """Estimates how many tokens an item adds to the whole text."""

    def __init__(self, settings: ContextConfig, count: Callable[[str], int]) -> None:
        self.settings = settings
        self._count = count
        self._overhead = count("")  # such as marks of begin and end, which the whole text has once
        self.room = settings.max_tokens + self._tokens(settings.delimiter)  # nothing follows the last item
        self._most_characters = CHARACTERS_PER_TOKEN * settings.max_tokens
        self._known_cuts: dict[tuple[str, tuple[Quote, ...]], list[tuple[int, int]]] = {}

    def is_huge(self, item: Item) -> bool:
        """Return whether an item is too long for the budget, without counting its tokens."""
        return sum(len(quote.text) for quote in item.quotes) > self._most_characters

    def of(self, item: Item) -> int:
        """Return the tokens of an item with its heading and a delimiter; more than the room if it is huge."""
        if self.is_huge(item):
            return self.room + 1
        if self.settings.window and item.role in {"sibling", "cross_page"}:
            return self._tokens(_text(item))  # it becomes a part of its hit's passage
        passage = render((PackPassage((item,), item),), {}, self.settings)[0]
        return self._tokens(passage) + self._tokens(self.settings.delimiter)

    def shortest(self, item: Item) -> Item:
        """Return an item cut to its first sentence, or as it is if that is no longer."""
        cuts = self._cuts(item)
        first = _cut(item, *cuts[0]) if cuts else item
        return item if self.of(item) <= self.of(first) else first

    def longest(self, item: Item, room: int) -> Item:
        """Return an item with as many of its sentences as there is room for, but at least the first one."""
        best = self.shortest(item)
        if best is item:
            return best
        used = self.of(best)
        for (previous, begin), (position, end) in pairwise(self._cuts(item)):
            is_next_quote = position > previous
            used += self._tokens(item.quotes[position].text[0 if is_next_quote else begin : end])
            used += self._tokens(OMISSION) if is_next_quote else 0
            if used > room:
                break
            best = _cut(item, position, end)
        return best

    def _tokens(self, text: str) -> int:
        return max(0, self._count(text) - self._overhead)

    def _cuts(self, item: Item) -> list[tuple[int, int]]:
        """Return where an item can be cut after a sentence: the number of the quote, and the offset in it."""
        key = item.id, item.quotes
        if key not in self._known_cuts:
            cuts: list[tuple[int, int]] = []
            left = self._most_characters
            for position, quote in enumerate(item.quotes):
                text = quote.text[:left]
                left -= len(text)
                cuts += ((position, end) for end in sentence_ends(text))
            self._known_cuts[key] = cuts[:-1]
        return self._known_cuts[key]


def _cut(item: Item, position: int, end: int) -> Item:
    return with_quotes(item, (*item.quotes[:position], item.quotes[position].part(0, end)), shortened=True)


def _unshowable(items: Sequence[Item], costs: _Costs) -> Iterator[Removed]:
    """Yield the primaries of which nothing fits, and the surroundings that do not fit beside the others."""
    limit = costs.settings.max_tokens
    room = costs.room
    for item in items:
        if item.role == "primary":
            tokens = costs.of(item)
            if tokens > costs.room:
                tokens = costs.of(costs.shortest(item))
            if tokens > costs.room:
                yield Removed(item, f"not even one sentence of it fits into {limit} tokens")
            else:
                room -= tokens
    for item in items:
        if item.role != "primary" and costs.of(item) > costs.room:
            yield Removed(item, f"it is longer than the whole budget of {limit} tokens")
        elif item.role == "parent" and 0 <= room < costs.of(item):
            # Left to its turn, it would take all neighbors and the parents behind it along.
            yield Removed(item, f"it does not fit into {limit} tokens beside the hits")


def _choose(
    items: Sequence[Item], room: int, unused: int, costs: _Costs
) -> tuple[tuple[Item, ...], tuple[Removed, ...]]:
    """Return the items that fit into a number of tokens, some of them cut, and those that are dropped for it.

    Args:
        room: For the primaries, and what they leave for their surroundings.
        unused: Tokens of it that only primaries may use, since surroundings took more than was estimated.
    """
    limit = costs.settings.max_tokens
    order = sorted(items, key=lambda item: (ROLES.index(item.role), item.rank, item.distance))
    best = [item for item in order if item.role == "primary"][: costs.settings.min_primaries]
    reserved: dict[str, int] = {}  # one sentence of each of the best
    for item in best:
        tokens = costs.of(costs.shortest(item))
        if tokens <= room:
            reserved[item.id] = tokens
            room -= tokens
    refused = {item.id for item in best} - reserved.keys()
    shown: dict[str, Item] = {}
    dropped: list[Removed] = []
    growing: list[Item] = []
    is_full = is_cut = False
    for item in order:
        version = item if costs.of(item) <= costs.room else costs.shortest(item)
        more = costs.of(version) - reserved.get(item.id, 0)
        if item.id in refused:
            reason = f"not even one sentence of it fits into {limit} tokens beside the better passages"
            dropped.append(Removed(item, reason))
            is_full = True
        elif more <= room - (unused if item.role != "primary" else 0) and not (
            is_cut if item.id in reserved else is_full
        ):
            shown[item.id] = version
            room -= more
            if version is not item:
                growing.append(item)
        elif item.id in reserved:
            shown[item.id] = costs.shortest(item)
            if not is_cut:
                growing.append(item)
            is_full = is_cut = True
        else:
            dropped.append(Removed(item, f"left out to stay within {limit} tokens"))
            is_full = True
    for item in growing:
        before = costs.of(shown[item.id])
        shown[item.id] = costs.longest(item, room - unused + before)
        room += before - costs.of(shown[item.id])
    return tuple(shown[item.id] for item in items if item.id in shown), tuple(dropped[::-1])


def _with_outcomes(repeated: Iterable[Removed], kept: Iterable[Item]) -> Iterator[Removed]:
    """Yield items whose text is in others, with what became of those."""
    shown = {item.id for item in kept}
    for removed in repeated:
        lost = [name for name in removed.within if name not in shown]
        reason = f"{removed.reason}, and {', '.join(lost)} was dropped" if lost else removed.reason
        yield replace(removed, reason=reason)
