"""Nothing of what was found and of what stands around it is said twice."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from retrieval_core.pipeline.stages.expand import ROLES, Item, place_of, with_quotes
from retrieval_core.types import Quote, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Removed:
    """An item that is not shown, and why.

    Attributes:
        within: The ids of the items that have its text, where that is why.
    """

    item: Item
    reason: str
    within: tuple[str, ...] = ()


class _Taken(NamedTuple):
    """A stretch of a document that an item has the text of."""

    start: int
    end: int
    id: str
    text: str


def without_repetition(items: Iterable[Item]) -> tuple[tuple[Item, ...], tuple[Removed, ...]]:
    """Cut out of every item what a better one says already.

    Better is the better role, then the earlier place. Texts are compared by where they stand in their document; those
    that do not tell are compared by id alone. Of two items that claim the same place for different texts, the worse
    one's place is not believed. Of items with one id the best is taken, and the others are passed over.

    What is withheld of a primary is cut out of what stands around the primaries too, though not out of other primaries.

    Returns:
        What is left, in the order of the items; and the items of which nothing is left.
    """
    given = tuple(items)
    best: dict[str, Item] = {}
    for item in sorted(given, key=lambda item: (ROLES.index(item.role), place_of(item))):
        best.setdefault(item.id, item)
    taken: dict[str, list[_Taken]] = {}
    withheld = _withheld(best.values())
    left: dict[str, Item] = {}
    removed: list[Removed] = []
    for item in best.values():
        said = taken.setdefault(item.chunk.document_id, [])
        quotes: list[Quote] = []
        within: dict[str, None] = {}
        for quote in item.quotes:
            repeated = _overlapping(quote, said)
            if not all(_has_text_of(quote, other) for other in repeated):
                quotes.append(Quote(quote.text))
            else:
                within |= dict.fromkeys(other.id for other in repeated)
                quotes += _unsaid(quote, repeated)
        if item.role != "primary":
            for stretch in withheld.get(item.chunk.document_id, ()):
                cut = [part for quote in quotes for part in _unsaid(quote, _overlapping(quote, (stretch,)))]
                within |= {} if cut == quotes else {stretch.id: None}
                quotes = cut
        if quotes:
            left[item.id] = item if tuple(quotes) == item.quotes else with_quotes(item, tuple(quotes))
            for quote in quotes:
                if quote.span is not None:
                    insort(said, _Taken(quote.span.start, quote.span.end, item.id, quote.text))
        else:
            reason = f"its text is in {', '.join(within)} already" if within else "it has no text"
            removed.append(Removed(item, reason, tuple(within)))
    names = dict.fromkeys(item.id for item in given)
    return tuple(left[name] for name in names if name in left), tuple(removed)


def _withheld(items: Iterable[Item]) -> dict[str, list[_Taken]]:
    """Return the stretches of each document that are not shown, though they are in what was found."""
    stretches: dict[str, list[_Taken]] = {}
    for item in items:
        for quote in item.withheld:
            if quote.span is not None:
                stretch = _Taken(quote.span.start, quote.span.end, item.id, quote.text)
                stretches.setdefault(item.chunk.document_id, []).append(stretch)
    return stretches


def _overlapping(quote: Quote, said: Sequence[_Taken]) -> Sequence[_Taken]:
    """Return which of some stretches that stand in order, and do not overlap, share text with a quote."""
    if quote.span is None:
        return ()
    first = bisect_right(said, quote.span.start, key=lambda other: other.end)
    return said[first : bisect_left(said, quote.span.end, lo=first, key=lambda other: other.start)]


def _has_text_of(quote: Quote, other: _Taken) -> bool:
    """Return whether a quote has the same text where it overlaps: spans of chunks may count from each page's start."""
    begin = 0 if quote.span is None else quote.span.start
    start, end = max(begin, other.start), min(begin + len(quote.text), other.end)
    return quote.text[start - begin : end - begin] == other.text[start - other.start : end - other.start]


def _unsaid(quote: Quote, repeated: Sequence[_Taken]) -> Iterable[Quote]:
    """Yield the parts of a quote that lie in none of the stretches and hold more than white space."""
    if quote.span is None or not repeated:
        if quote.text.strip():
            yield quote
        return
    begin = quote.span.start
    edges = [begin, *(edge for other in repeated for edge in (other.start, other.end)), quote.span.end]
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        text = quote.text[start - begin : end - begin] if start < end else ""
        if text.strip():
            yield Quote(text, Span(start, end))
