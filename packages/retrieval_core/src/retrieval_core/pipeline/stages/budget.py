"""Fitting passages into a token budget: what goes first, and what is shortened when only the best are left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.stages.assemble import arrange, ledger_of, passages_of, render
from retrieval_core.pipeline.stages.expand import ROLES, Item, expand, with_quotes
from retrieval_core.pipeline.stages.repetition import Removed, without_repetition
from retrieval_core.text.sentences import sentence_ends
from retrieval_core.types import Quote, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from retrieval_core.config import ContextConfig
    from retrieval_core.pipeline.stages.expand import Surroundings
    from retrieval_core.ports import TokenCounter
    from retrieval_core.types import ContextPassage, Hit, LedgerEntry


_CHARACTERS_PER_TOKEN = 8
"""More than most texts have. A text with more is counted in growing parts until it exceeds the budget."""


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


def assemble(hits: Sequence[Hit], around: Surroundings, settings: ContextConfig, count: TokenCounter) -> Assembled:
    """Return hits with what stands around them, as one text of at most ``settings.max_tokens`` tokens.

    Args:
        hits: Best first; one that comes again is passed over.
        around: What was read around them; what is missing there is done without.
        settings: What to put around hits, and the budget.
        count: Counts the tokens of a text. It may be any function: the bound holds for what it says of the whole text.
    """
    return fit(expand(hits, around, settings), around.texts, settings, count)


def fit(items: Iterable[Item], texts: Mapping[str, str], settings: ContextConfig, count: TokenCounter) -> Assembled:
    """Fit items into the budget.

    Where not all of them fit, first goes what cannot be shown: primaries of which not one sentence fits, other items
    that alone are longer than the budget, and parents that do not fit beside the primaries, where these fit. A primary
    that alone is longer than the budget is cut after whole sentences: its first one counts, and as many more as the
    others leave room for are shown. Then go neighbours across a border, siblings, parents, and primaries: those of the
    worst primary first, and of these the farthest from it. Of the ``min_primaries`` best, those that went come back,
    best first, where one sentence of each primary there then fits, and the lowest of these are cut for it.

    So a primary that is kept with some ``min_primaries`` is kept with every higher one. With a counter by which less
    text can be more tokens, more may go than has to.

    Args:
        items: In their order.
        texts: Whole documents by id, as far as they are known.
        settings: The budget, and how passages are written.
        count: Counts the tokens of a text. What it raises is raised.

    Raises:
        InvalidParameterError: The counter returned something else than a number of tokens.
    """
    given = tuple(items)
    count = _checked(count)
    sheet = _Sheet(texts, settings, count)
    kept, repeated = without_repetition(given)
    dropped: tuple[Removed, ...] = ()
    if not sheet.fits(kept):
        dropped = _too_long(given, sheet)
        while True:
            kept, repeated = _without(dropped, given) if dropped else (kept, repeated)
            shorter = tuple(_cut_where_too_long(item, sheet) for item in kept)
            alone = {item.id: sheet.alone(item) for item in shorter}
            unshowable = _longer_than_the_budget(kept, alone, settings) or _crowding_out(shorter, sheet)
            if not unshowable:
                break
            dropped += unshowable
        whole = {item.id: item for item in kept}
        kept, fallen = _with_the_best(shorter, *_dropped_until_it_fits(shorter, alone, sheet), sheet)
        kept = _grown(kept, [one for one, other in zip(whole.values(), shorter, strict=True) if one != other], sheet)
        dropped += tuple(replace(gone, item=whole[gone.item.id]) for gone in fallen)
    pieces = arrange(kept, merged=settings.window > 0)
    each = render(pieces, texts, settings)
    text = settings.delimiter.join(each)
    removed = (*dropped, *_as_it_came_out(repeated, kept))
    own = {item.id: count(_text(item)) for item in (*kept, *(gone.item for gone in dropped)) if not sheet.exceeds(item)}
    return Assembled(
        kept,
        passages_of(pieces, texts, [count(passage) for passage in each]),
        text,
        count(text) if text else 0,
        ledger_of(pieces, removed, own),
    )


def _checked(count: TokenCounter) -> TokenCounter:
    """Return a counter that refuses to give what is no number of tokens."""

    def checked(text: str, /) -> int:
        tokens = count(text)
        if type(tokens) is not int or tokens < 0:
            msg = f"a token counter must return a whole number of at least 0, and this one returned {tokens!r:.80}"
            raise InvalidParameterError(msg)
        return tokens

    return checked


def _text(item: Item) -> str:
    return "\n".join(quote.text for quote in item.quotes)


@dataclass(frozen=True, slots=True)
class _Sheet:
    """What items are written on, to see how long they get.

    A text that is far longer than the budget is counted only until it exceeds it.
    """

    texts: Mapping[str, str]
    settings: ContextConfig
    count: TokenCounter
    _exceeding: dict[tuple[object, ...], bool] = field(default_factory=dict[tuple[object, ...], bool])
    _lengths: dict[tuple[object, ...], int] = field(default_factory=dict[tuple[object, ...], int])
    _first_sentences: dict[tuple[object, ...], Item] = field(default_factory=dict[tuple[object, ...], Item])

    def alone(self, item: Item) -> int:
        """Return the tokens of the text that one item makes."""
        if (length := self._lengths.get(key := _key(item))) is None:
            length = self._lengths[key] = self.length((item,))
        return length

    def first_sentence_of(self, item: Item) -> Item:
        if (first := self._first_sentences.get(key := _key(item))) is None:
            first = self._first_sentences[key] = _versions(item)(0)
        return first

    def exceeds(self, item: Item) -> bool:
        """Return whether an item's own text has more tokens than the budget; only a long text is counted for it."""
        limit = self.settings.max_tokens
        size = _CHARACTERS_PER_TOKEN * limit
        if sum(len(quote.text) for quote in item.quotes) <= size:
            return False
        if (known := self._exceeding.get(key := _key(item))) is None:
            text = _text(item).strip()
            while size < len(text) and self.count(text[:size]) <= limit:
                size *= 2
            known = self._exceeding[key] = size < len(text) or self.count(text) > limit
        return known

    def length(self, items: Sequence[Item]) -> int:
        """Return the tokens of the text that items make, 0 for none; more than the budget if one of them exceeds it."""
        if not items:
            return 0
        if any(map(self.exceeds, items)):
            return self.settings.max_tokens + 1
        pieces = arrange(items, merged=self.settings.window > 0)
        return self.count(self.settings.delimiter.join(render(pieces, self.texts, self.settings)))

    def fits(self, items: Sequence[Item]) -> bool:
        return self.length(items) <= self.settings.max_tokens


def _key(item: Item) -> tuple[object, ...]:
    return item.id, item.role, item.quotes, item.shortened


def _too_long(items: Iterable[Item], sheet: _Sheet) -> tuple[Removed, ...]:
    """Return what stands around the primaries and is longer than the budget with nothing beside it."""
    reason = f"it is longer than the whole budget of {sheet.settings.max_tokens} tokens"
    around = {item.id: item for item in items if item.role != "primary" and _text(item).strip()}
    return tuple(Removed(item, reason) for item in around.values() if sheet.alone(item) > sheet.settings.max_tokens)


def _cut_where_too_long(item: Item, sheet: _Sheet) -> Item:
    """Return an item; of a primary that alone is longer than the budget, its first sentence."""
    is_too_long = item.role == "primary" and sheet.alone(item) > sheet.settings.max_tokens
    return sheet.first_sentence_of(item) if is_too_long else item


def _longer_than_the_budget(
    items: Iterable[Item], alone: Mapping[str, int], settings: ContextConfig
) -> tuple[Removed, ...]:
    """Return the primaries of which there can be nothing; ``alone`` has the tokens of what would be left of each."""
    reason = f"not even one sentence of it fits into {settings.max_tokens} tokens"
    return tuple(
        Removed(item, reason) for item in items if item.role == "primary" and alone[item.id] > settings.max_tokens
    )


def _crowding_out(items: Sequence[Item], sheet: _Sheet) -> tuple[Removed, ...]:
    """Return the parents for which there is no room beside the primaries, where these fit.

    Left to their turn, they would take all neighbours and the parents behind them along.
    """
    room = sheet.settings.max_tokens - sheet.length([item for item in items if item.role == "primary"])
    if room < 0:
        return ()
    reason = f"it does not fit into {sheet.settings.max_tokens} tokens beside the hits"
    long = (item for item in items if item.role == "parent" and sheet.alone(item) > room)
    return tuple(Removed(item, reason) for item in long)


def _without(dropped: Iterable[Removed], given: Iterable[Item]) -> tuple[tuple[Item, ...], tuple[Removed, ...]]:
    """Return the other items without repetition: what only dropped ones would have said has to be said by others."""
    gone = {removed.item.id for removed in dropped}
    return without_repetition(item for item in given if item.id not in gone)


def _dropped_until_it_fits(
    items: Sequence[Item], estimates: Mapping[str, int], sheet: _Sheet
) -> tuple[tuple[Item, ...], tuple[Removed, ...]]:
    """Drop as few as possible; ``estimates``, tokens by id, say where the search for the right number begins."""
    order = sorted(items, key=lambda item: (ROLES.index(item.role), item.rank, item.distance))[::-1]

    def without(number: int) -> tuple[Item, ...]:
        gone = {item.id for item in order[:number]}
        return tuple(item for item in items if item.id not in gone)

    left = accumulate((-estimates[item.id] for item in order), initial=sum(estimates.values()))
    guess = next((number for number, tokens in enumerate(left) if tokens <= sheet.settings.max_tokens), len(order))
    number = _first(len(order), lambda number: sheet.fits(without(number)), guess)
    reason = f"left out to stay within {sheet.settings.max_tokens} tokens"
    return without(number), tuple(Removed(item, reason) for item in order[:number])


def _with_the_best(
    items: Sequence[Item], left: tuple[Item, ...], fallen: tuple[Removed, ...], sheet: _Sheet
) -> tuple[tuple[Item, ...], tuple[Removed, ...]]:
    """Bring back those of the best primaries of which a sentence fits beside those that are there, and cut for them.

    Args:
        items: All that there were, in their order.
        left: Those that are there; nothing but primaries where one is missing.
        fallen: Those that are not.
    """
    best = [item for item in items if item.role == "primary"][: sheet.settings.min_primaries]
    shown = {item.id for item in left}
    missing = [item.id for item in best if item.id not in shown]
    there, refused, step = left, set[str](), 1
    while missing:
        tried = shown.union(missing[:step])
        more = tuple(item for item in items if item.id in tried)
        if sheet.fits([sheet.first_sentence_of(item) for item in more]):
            there, shown, missing, step = more, tried, missing[step:], 2 * step
        elif step > 1:
            step = 1
        else:
            refused.add(missing.pop(0))
    reason = f"not even one sentence of it fits into {sheet.settings.max_tokens} tokens beside the better passages"
    return (
        there if there is left else _shortened(there, sheet),
        tuple(
            replace(gone, reason=reason) if gone.item.id in refused else gone
            for gone in fallen
            if gone.item.id not in shown
        ),
    )


def _shortened(primaries: Sequence[Item], sheet: _Sheet) -> tuple[Item, ...]:
    """Cut the lowest of some primaries after whole sentences; one sentence of each is known to fit."""
    firsts = [sheet.first_sentence_of(item) for item in primaries]
    whole, number = list(primaries), len(primaries)
    # All from `cut` on are cut to one sentence; then as much of the best of them as there is room for comes back.
    cut = number - _first(number, lambda lowest: sheet.fits(whole[: number - lowest] + firsts[number - lowest :]))
    return _grown(whole[:cut] + firsts[cut:], whole[cut : cut + 1], sheet)


def _grown(items: Sequence[Item], whole: Iterable[Item], sheet: _Sheet) -> tuple[Item, ...]:
    """Return items within the budget with as many more sentences of some of them as there is room for.

    Args:
        items: In their order.
        whole: Those that were cut to their first sentence, uncut, best first; others are passed over.
    """
    grown = list(items)
    places = {item.id: place for place, item in enumerate(grown)}
    for item in whole:
        if (place := places.get(item.id)) is None:
            continue
        version, last = _versions(item), len(_cuts(item))
        before, after = grown[:place], grown[place + 1 :]
        less = _first(last, lambda cut: sheet.fits([*before, version(last - cut), *after]))  # noqa: B023
        grown[place] = version(last - less)
    return tuple(grown)


def _cuts(item: Item) -> list[tuple[int, int]]:
    """Return where an item may be cut after a sentence: the quote, and the offset in it."""
    cuts = [(position, end) for position, quote in enumerate(item.quotes) for end in sentence_ends(quote.text)]
    return cuts[:-1]


def _versions(item: Item) -> Callable[[int], Item]:
    """Return what gives an item with its first sentence for 0, with its first two for 1, and so on up to all of it."""
    cuts = _cuts(item)

    def version(number: int) -> Item:
        if number == len(cuts):
            return item
        position, end = cuts[number]
        text, span = item.quotes[position].text, item.quotes[position].span
        quote = Quote(text[:end], None if span is None else Span(span.start, span.start + end))
        return with_quotes(item, (*item.quotes[:position], quote), shortened=True)

    return version


def _as_it_came_out(repeated: Iterable[Removed], kept: Iterable[Item]) -> Iterator[Removed]:
    """Yield what was repeated with what became of the items that have its text."""
    shown = {item.id for item in kept}
    for removed in repeated:
        lost = [name for name in removed.within if name not in shown]
        reason = f"{removed.reason}, and {', '.join(lost)} was dropped" if lost else removed.reason
        yield replace(removed, reason=reason)


def _first(limit: int, holds: Callable[[int], bool], guess: int = 0) -> int:
    """Return the smallest number up to a limit for which something holds that, once true, mostly stays true.

    Where it does not, the number returned still is one for which it holds, unless it is the limit, which is not always
    tried. The search begins at the guess and goes away from it in growing steps.
    """
    low, high, step = 0, limit, 1
    number = min(guess, limit)
    while low < high:
        if holds(number):
            high = number
            number = high - step
        else:
            low = number + 1
            number = low + step
        step *= 2
        if not low <= number < high:
            number = (low + high) // 2
    return high
