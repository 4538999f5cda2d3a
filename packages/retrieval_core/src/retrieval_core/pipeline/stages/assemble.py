"""From items to passages and back: neighbours put together, with their citations, and nothing said twice."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from retrieval_core.config.model import parse_template
from retrieval_core.pipeline.stages.expand import ROLES, Item, place_of, with_quotes
from retrieval_core.text.sentences import OMISSION, trim
from retrieval_core.types import Citation, ContextPassage, LedgerEntry, PageSpan, Quote, Span, format_citation
from retrieval_core.types.escapes import escape_name, escape_text, unescape_name, unescape_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.config import ContextConfig

CUT = " […]"
"""Stands where sentences were cut off at the end of a passage."""
ADJACENT = "\n\n"
"""Stands between the quotes of two chunks that follow each other, where the text between them is not known."""
_RANGE = r"-?\d+(?:-(?:-?\d+))?"
_HEADING = re.compile(
    r"(?:\A|(?<=\n))\[([0-9]{1,9})\] Doc: ([^\n]*?)"
    rf"(?::({_RANGE}))?(?: \| Page: ({_RANGE}))?(?: \| Section: ([^\n]*?))?(?: \| Rows: ({_RANGE}))?"
    rf"(?: \| Items: ({_RANGE}))?(?:\n|\Z)"
)
_ENDS = re.compile(r"(-?\d+)(?:-(-?\d+))?")


@dataclass(frozen=True, slots=True)
class PackPassage:
    """Items that are shown as one passage, in the document's order.

    Attributes:
        head: The best of them, which gives the passage its place and its name.
    """

    items: tuple[Item, ...]
    head: Item


def arrange(items: Sequence[Item], *, merged: bool) -> tuple[PackPassage, ...]:
    """Put items into passages: each its own, or those that follow each other in a document as one.

    Args:
        items: In their order.
        merged: Whether neighbours become one passage; parents never do.
    """
    if not merged:
        return tuple(PackPassage((item,), item) for item in items)
    pieces = [PackPassage((item,), item) for item in items if item.role == "parent"]
    chunks = sorted(
        (item for item in items if item.role != "parent"),
        key=lambda item: (item.chunk.document_id, item.chunk.chunk_index, item.id),
    )
    run: list[Item] = []
    for item in chunks:
        if run and not _follows(run[-1], item):
            pieces.append(_piece(run))
            run = []
        run.append(item)
    if run:
        pieces.append(_piece(run))
    return tuple(sorted(pieces, key=lambda piece: place_of(piece.head)))


def _piece(run: Sequence[Item]) -> PackPassage:
    return PackPassage(tuple(run), min(run, key=place_of))


def _follows(first: Item, second: Item) -> bool:
    return (
        first.chunk.document_id == second.chunk.document_id and first.chunk.chunk_index + 1 == second.chunk.chunk_index
    )


def render(pieces: Sequence[PackPassage], texts: Mapping[str, str], settings: ContextConfig) -> tuple[str, ...]:
    """Return each passage as the model sees it, numbered from 1; the context is these, joined by the delimiter."""
    template = _template(settings.template)
    rendered: list[str] = []
    for number, piece in enumerate(pieces, start=1):
        citation, text = cite(piece, number, texts)
        fields = {
            "number": str(number),
            "citation": format_citation(citation),
            "text": escape_text(text),
            "title": escape_name(citation.title or ""),
            "source": escape_name(citation.source or ""),
            "role": piece.head.role,
        }
        rendered.append("".join(literal + fields.get(name or "", "") for literal, name in template))
    return tuple(rendered)


_template = lru_cache(maxsize=64)(parse_template)


def cite(piece: PackPassage, number: int, texts: Mapping[str, str]) -> tuple[Citation, str]:
    """Return where a passage comes from, and its quotes as one text with a mark where something is left out.

    Quotes that follow each other become one where the document's text is known.
    """
    chunks = [item.chunk for item in piece.items]
    best = piece.head.chunk
    segments = _segments(piece, texts.get(best.document_id))
    citation = Citation(
        number,
        best.document_id,
        tuple(chunk.id for chunk in chunks),
        tuple(quote for _, quote in segments),
        source=best.source,
        title=best.title,
        page_span=_pages(chunk.page_span for chunk in chunks),
        section_path=_common_path([chunk.section_path for chunk in chunks]),
        row_range=_joined(chunk.row_range for chunk in chunks),
        item_range=_joined(chunk.item_range for chunk in chunks),
    )
    text = _trimmed(segments[0][1].text)
    text += "".join(separator + _trimmed(quote.text) for separator, quote in segments[1:])
    return citation, text + CUT if piece.items[-1].shortened else text


def _segments(piece: PackPassage, text: str | None) -> list[tuple[str, Quote]]:
    """Return the quotes of a passage, each with what stands before it; those that touch have become one."""
    runs: list[tuple[str, list[Quote]]] = []
    before: Item | None = None
    for item in piece.items:
        for position, quote in enumerate(item.quotes):
            follows = position == 0 and before is not None and not before.shortened
            gap = _gap(runs[-1][1][-1], quote, text) if follows else None
            if gap is None:
                neighbours = follows and before is not None and _ends_whole(before) and _begins_whole(item)
                runs.append((ADJACENT if neighbours else OMISSION, [quote]))
            else:
                runs[-1][1].extend((Quote(gap), quote) if gap else (quote,))
        before = item
    return [(separator, _one(quotes)) for separator, quotes in runs]


def _one(quotes: Sequence[Quote]) -> Quote:
    first, last = quotes[0].span, quotes[-1].span
    if len(quotes) == 1 or first is None or last is None:
        return quotes[0]
    lines = quotes[0].lines and quotes[-1].lines and (quotes[0].lines[0], quotes[-1].lines[1])
    return Quote("".join(quote.text for quote in quotes), Span(first.start, last.end), lines=lines)


def _gap(last: Quote, quote: Quote, text: str | None) -> str | None:
    """Return the white space between two quotes, ``None`` where it is not known or something else stands there."""
    if last.span is None or quote.span is None or last.span.end > quote.span.start:
        return None
    if last.span.end == quote.span.start:
        return ""
    gap = (text or "")[last.span.end : quote.span.start]
    return gap if len(gap) == quote.span.start - last.span.end and not gap.strip() else None


def _ends_whole(item: Item) -> bool:
    quote, span = item.quotes[-1], item.chunk.span
    if quote.span is None or span is None:
        return item.chunk.text.endswith(quote.text)
    return quote.span.end == span.end


def _begins_whole(item: Item) -> bool:
    quote, span = item.quotes[0], item.chunk.span
    if quote.span is None or span is None:
        return item.chunk.text.startswith(quote.text)
    return quote.span.start == span.start


def _trimmed(text: str) -> str:
    """Return a text without empty lines at its beginning and without white space at its end.

    What its first line is indented by stays: in code it means something.
    """
    kept = trim(text, 0, len(text), keep_indentation=True)
    return text[kept.start : kept.end] if kept else ""


def _pages(spans: Iterable[PageSpan | None]) -> PageSpan | None:
    known = [span for span in spans if span is not None]
    return PageSpan(min(span.first for span in known), max(span.last for span in known)) if known else None


def _joined(ranges: Iterable[tuple[int, int] | None]) -> tuple[int, int] | None:
    """Return ranges of rows or items as one; ``None`` where they do not continue each other, as in two tables."""
    joined: tuple[int, int] | None = None
    for following in ranges:
        if following is None or (joined is not None and not joined[0] <= following[0] <= joined[1] + 1):
            return None
        joined = following if joined is None else (joined[0], max(joined[1], following[1]))
    return joined


def _common_path(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    shared: list[str] = []
    for level in zip(*paths, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return tuple(shared)


def passages_of(
    pieces: Sequence[PackPassage], texts: Mapping[str, str], tokens: Sequence[int]
) -> tuple[ContextPassage, ...]:
    """Return the passages of a pack.

    Args:
        pieces: In their order.
        texts: Whole documents by id, as far as they are known.
        tokens: What each takes by itself.
    """
    passages: list[ContextPassage] = []
    for number, (piece, count) in enumerate(zip(pieces, tokens, strict=True), start=1):
        citation, text = cite(piece, number, texts)
        primaries = sorted((item for item in piece.items if item.role == "primary"), key=lambda item: item.rank)
        passages.append(
            ContextPassage(
                piece.head.id,
                piece.head.role,
                text,
                citation,
                tuple(item.hit for item in primaries),
                piece.head.hit.id,
                count,
                any(item.shortened or item.withheld for item in piece.items),
            )
        )
    return tuple(passages)


def ledger_of(
    pieces: Sequence[PackPassage], removed: Iterable[Removed], tokens: Mapping[str, int]
) -> tuple[LedgerEntry, ...]:
    """Return one entry for each item: those shown, in order, then those that are not."""
    entries: list[LedgerEntry] = []
    for number, piece in enumerate(pieces, start=1):
        for item in piece.items:
            reasons = ["only sentences relevant to the query are shown"] if item.withheld else []
            reasons += ["cut after whole sentences to fit the budget"] if item.shortened else []
            outcome = "shortened" if reasons else "kept"
            reason = ", and ".join(reasons)
            entries.append(
                LedgerEntry(item.id, item.chunk.document_id, item.role, outcome, reason, number, tokens.get(item.id))
            )
    entries += (
        LedgerEntry(
            gone.item.id,
            gone.item.chunk.document_id,
            gone.item.role,
            "dropped",
            gone.reason,
            tokens=tokens.get(gone.item.id),
        )
        for gone in removed
    )
    return tuple(entries)


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
    one's place is not believed. Of items with one id the best is taken, and the others are skipped.

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
                quotes.append(Quote(quote.text, lines=quote.lines))
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
        if start < end and quote.text[start - begin : end - begin].strip():
            yield quote.part(start - begin, end - begin)


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A passage as it can be read from a context.

    Attributes:
        number: The one in its heading.
    """

    number: int
    document_id: str
    text: str
    page_span: PageSpan | None = None
    section_path: tuple[str, ...] = ()
    row_range: tuple[int, int] | None = None
    item_range: tuple[int, int] | None = None
    lines: tuple[int, int] | None = None


def parse_context(text: str, delimiter: str = "\n\n") -> tuple[ShownPassage, ...]:
    r"""Split the text of a context into its passages, whatever they contain; it must have the default template.

    Text before the first heading is skipped. If a hit of ``formatted_context`` contains the delimiter, its text keeps
    the mark that escapes it.

    Args:
        text: ``ContextPack.context_pack``, or ``RetrievalResult.formatted_context`` without scores.
        delimiter: Separator of the passages; must end with a line break. Default: a blank line, as in ``context_pack``;
            ``formatted_context`` has ``"\n\n---\n\n"``.

    Returns:
        The passages with number, document, lines, pages, section and text.

    Example::

        with open_index("notes.db") as index:
            for passage in parse_context(index.context("how far away is the moon").context_pack):
                print(passage.number, passage.text)
    """
    headings = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]]
    passages: list[ShownPassage] = []
    for heading, end in zip_longest(headings, ends):
        shown = text[heading.end() :] if end is None else text[heading.end() : end].removesuffix(delimiter)
        number, name, lines, pages, section, rows, items = heading.groups()
        passages.append(
            ShownPassage(
                int(number),
                unescape_name(name),
                unescape_text(shown),
                None if pages is None else PageSpan(*_ends(pages)),
                () if section is None else tuple(map(unescape_name, section.split(" > "))),
                None if rows is None else _ends(rows),
                None if items is None else _ends(items),
                None if lines is None else _ends(lines),
            )
        )
    return tuple(passages)


def _ends(written: str) -> tuple[int, int]:
    ends = _ENDS.fullmatch(written)
    assert ends is not None  # noqa: S101 - the heading was matched by it
    return int(ends[1]), int(ends[2] or ends[1])
