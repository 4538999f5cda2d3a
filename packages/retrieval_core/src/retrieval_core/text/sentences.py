"""Sentences and list items of a text, the units that answers quote, and excerpts of a length."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from math import fsum, log
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from retrieval_core.text.markdown import parse_markdown
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.text.markdown import Block

LIST_ITEM = r"(?:[-*+•]|\d{1,9}[.)])"
"""Matches the mark of a list's item, behind which white space stands."""
_CLOSED = "[\"'”’»)\\]*_]*\\Z"  # noqa: RUF001
ASKS = re.compile(f"[?？؟]{_CLOSED}")  # noqa: RUF001
INTRODUCES = re.compile(f"[:：]{_CLOSED}")  # noqa: RUF001
"""Found in what ends with a colon, whatever closes behind it."""

# A full stop before a lower-case letter mostly ends an abbreviation; the number of a note may follow it. East Asian
# full stops need no space after them. That nothing is tried in the middle of several marks keeps rows of dots cheap.
# It begins with all marks in one set, which is looked for much quicker than what may not stand before them.
SENTENCE_END = re.compile(
    r"[.!?…؟۔।。！？｡](?:"  # noqa: RUF001
    r"(?<=[.!?…؟۔।])(?<![.!?…؟۔।]{2})[.!?…؟۔।]*+[\"'”’»)\]]*(?:\[\w{1,4}\])*\s++(?![a-z])"  # noqa: RUF001
    r"|(?<=[。！？｡])[。！？｡]*[」』”’）]*\s*)"  # noqa: RUF001
)
"""Matches from the mark that ends a sentence to the beginning of the next one."""

# What has no full stops ends with a paragraph, or before the next row or item.
_BREAK = re.compile(r"\n[^\S\n]*\n\s*|\n(?=[^\S\n]*(?:\||" + LIST_ITEM + "))")
FENCE = re.compile(
    r"^[^\S\n]*(?:(?:[-*+]|\d{1,9}[.)])[^\S\n]+)?(?:`{3,}(?=[^`\n]*$)|~{3,})(?P<info>[^\n]*)(?:\n|\Z)", re.MULTILINE
)
"""Matches the line that opens or closes a block of code, also of one inside of a list's item."""
_HEADING = re.compile(r"[^\S\n]*(?:#|<!--)")
_ROW = re.compile(r"[^\S\n]*\|")
_RULE = re.compile(r"[^\S\n]*\|[ \t:|-]*")
"""The line below the head of a table."""
_ITEM_NUMBER = re.compile(r"(?:^|\n)[^\S\n]*\d{1,3}\Z")
_HEADINGS = re.compile(r"(?:#{1,6}[^\S\n][^\n]*(?:\n\s*+|\Z))+")
_TABLE_HEAD = re.compile(r"\|[^\n]*\n[^\S\n]*\|[ \t:|-]*(?=\n)")
_ITEM = re.compile(rf"[^\S\n]*{LIST_ITEM}[^\S\n]")
_LINE_START = 12
"""How far before its full stop the line of an item's number is looked for to begin, in code points."""
Kind: TypeAlias = Literal["text", "row", "rest"]
"""The last: a fragment, such as a part of a block of code that is too long or does not end."""

LONGEST_BLOCK = 1200
"""Code points of a block with what introduces it; a longer one is divided."""
LONGEST_RUN = 400
"""Code points of a paragraph, and of the runs of sentences, items or rows that what is longer is divided into."""

LINK = re.compile(r"!?\[[^\]\n]{0,300}\](?:\([^)\n]{0,2000}\)|\[[^\]\n]{0,300}\])|<?\bhttps?://[^\s>]{1,2000}>?")
_NUMBER = re.compile(r"\s*(\d{1,9})[.)]\s")
_MAY_SWALLOW = re.compile(r"[`~<]|^(?: {4}|\t)", re.MULTILINE)
OMISSION = "\n[…]\n"
"""Stands where something between two quotes is left out."""


def sentence_ends(text: str) -> list[int]:
    """Return the offsets at which a text may be cut so that whole sentences stand before, white space left out.

    Paragraphs, table rows and list items end a sentence too; the number of an item is no sentence. Nothing ends with a
    heading, with the head of a table alone, or inside a fenced block of code: what stands before would say nothing. The
    last offset is the end of the text, white space left out; a text of white space has none.
    """
    begin, whole = len(text) - len(text.lstrip()), len(text.rstrip())
    ends = {_without_space(text, match.start()) for match in _BREAK.finditer(text)}
    for match in SENTENCE_END.finditer(text):
        at = match.start()
        # The digit is looked for first, since few full stops follow one.
        if not (text[at - 1 : at].isdecimal() and _ITEM_NUMBER.search(text, max(0, at - _LINE_START), at)):
            ends.add(_without_space(text, match.end()))
    inside = sorted(end for end in ends if begin < end < whole)
    return [*_saying_something(text, inside), whole] if whole else []


def _saying_something(text: str, ends: list[int]) -> Iterator[int]:
    """Yield the offsets, in order, before which neither a heading, nor the head of a table, nor a half block stands."""
    fences = [match.start() for match in FENCE.finditer(text)] if "```" in text or "~~~" in text else []
    before, quiet = 0, -1  # in a line, nothing that says something ends before `quiet`
    for end in ends:
        start = text.rfind("\n", before, end) + 1
        if start or quiet < 0:
            row = _RULE.match(text, start)
            is_label = _HEADING.match(text, start) or (row and not _follows_row(text, start))
            quiet = len(text) if is_label else row.end() if row else 0
        if end > quiet and not bisect_left(fences, end) % 2:
            yield end
        before = end


def _follows_row(text: str, start: int) -> bool:
    """Whether the line before the one that begins here is a table's too."""
    before = text.rfind("\n", 0, max(0, start - 1)) + 1
    return _ROW.match(text, before, start) is not None


def _without_space(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, or what stands for one: a table row, a list item, a block of code.

    Attributes:
        span: Where it stands in its text, without white space around it.
        heads: What it needs to be understood where others are left out, in the text's order: the headings directly
            above it, and the head of its table or the words that introduce its list. Empty where these are part of it.
        introduces_next: Whether it ends with a colon above a list, a table or a fenced block of code, and so says
            little without the sentence after it.
    """

    span: Span
    heads: tuple[Span, ...] = ()
    introduces_next: bool = False


def sentences_of(text: str) -> tuple[Sentence, ...]:
    """Return the sentences of a text, in order; together they are all of it but for white space.

    They end where :func:`sentence_ends` says, so the first one below a heading has the heading, and the first row of a
    table its head.
    """
    found: list[Sentence] = []
    above: Span | None = None
    group: Span | None = None  # the table's head, or the words that introduce the list
    begin = 0
    for end in sentence_ends(text):
        start = body = end - len(text[begin:end].lstrip())
        if (headings := _HEADINGS.match(text, start, end)) is not None:
            body = headings.end()
            above, group = None, None  # its own
        elif found and text[found[-1].span.end - 1] == ":":
            group = found[-1].span
            found[-1] = replace(found[-1], introduces_next=_is_block(text, start))
        elif group is not None and not _goes_on(text, begin, start):
            group = None
        found.append(Sentence(Span(start, end), tuple(head for head in (above, group) if head is not None)))
        if headings is not None:
            above = Span(start, _without_space(text, body))
        if (head := _TABLE_HEAD.match(text, body, end)) is not None:
            group = Span(body, _without_space(text, head.end()))
        begin = end
    return tuple(found)


def _goes_on(text: str, end: int, start: int) -> bool:
    """Whether what begins at ``start`` belongs to the list or the table that what ended before it is in."""
    return text.count("\n", end, start) < 2 or _ITEM.match(text, start) is not None


def _is_block(text: str, start: int) -> bool:
    """Whether a fenced block of code, a list or a table begins at ``start``."""
    return text.startswith(("```", "~~~"), start) or any(kind.match(text, start) for kind in (_ITEM, _ROW))


def trim(text: str, start: int, end: int, *, keep_indentation: bool = False) -> Span | None:
    """Return a range without the white space around it, ``None`` where nothing else is in it."""
    part = text[start:end]
    kept = part.rstrip()
    if not kept:
        return None
    first = len(kept) - len(kept.lstrip())
    if keep_indentation:
        first = kept.rfind("\n", 0, first) + 1
    return Span(start + first, start + len(kept))


class Unit(NamedTuple):
    """What a text is divided into.

    Attributes:
        span: Where it stands in the text.
        heads: What it needs to be understood, above it and in order: the words that introduce its list and the first
            item, or the head of its table. Empty where these are part of it.
        headings: The titles above it in the text, the outermost first.
    """

    span: Span
    heads: tuple[Span, ...] = ()
    kind: Kind = "text"
    headings: tuple[str, ...] = ()


def units_of(text: str) -> list[Unit]:
    """Return what a text is divided into, in order, without headings and comments; no two spans overlap.

    A unit with its heads stands alone as Markdown: what comes after it is not swallowed by an open block of code.
    """
    begin = _end_of_open_code(text)
    units = list(_fragments(text, Span(0, begin)))
    path: dict[int, str] = {}
    for group in _groups(text, _blocks(text, begin)):
        if group[0].kind == "heading":
            path = {level: title for level, title in path.items() if level < group[0].level}
            path[group[0].level] = group[0].title
            if len(group) == 1:
                continue
        for unit in _divided(text, group):
            if unit.kind == "rest" or not _stands_alone(text, unit):
                units += _fragments(text, unit.span)
            else:
                units.append(unit._replace(headings=tuple(path.values())))
    return units


def _end_of_open_code(text: str) -> int:
    """Return the end of the block of code that a text begins inside of; 0 where it does not.

    Its first fence names no language then, and the next one does, or nothing follows.
    """
    fences = list(islice(FENCE.finditer(text), 2))
    if not fences or fences[0]["info"].strip():
        return 0
    is_last = len(fences) == 1 and not text[fences[0].end() :].strip()
    return fences[0].end() if is_last or (len(fences) > 1 and fences[1]["info"].strip()) else 0


def _blocks(text: str, begin: int) -> Iterator[Block]:
    """Yield the blocks of a text from an offset on."""
    for block in parse_markdown(text[begin:]):
        parts = tuple(Span(begin + part.start, begin + part.end) for part in block.parts)
        yield replace(block, span=Span(begin + block.span.start, begin + block.span.end), parts=parts)


def _groups(text: str, blocks: Iterable[Block]) -> list[list[Block]]:
    """Return blocks, each with what introduces it and what goes on with it."""
    groups: list[list[Block]] = []
    for block in blocks:
        if groups and _belongs(text, groups[-1][-1], block):
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _belongs(text: str, before: Block, block: Block) -> bool:
    """Whether a block is introduced by the one before it, or goes on with its numbers."""
    if block.kind == "heading" or _is_html(text, block) or _is_html(text, before):
        return False
    if before.kind == "heading":
        return block.kind != "paragraph"
    if _introduces(text, before) or (block.kind == "list" and _is_continued(text, block.span.start)):
        return True
    is_quotation = text.startswith(">", before.span.start)
    return block.kind in {"code", "table"} and before.kind in {"paragraph", "list"} and not is_quotation


def _introduces(text: str, block: Block) -> bool:
    return block.kind != "code" and INTRODUCES.search(text, block.span.start, block.span.end) is not None


def _is_html(text: str, block: Block) -> bool:
    return block.kind == "code" and text[block.span.start : block.span.start + 4].lstrip(" ").startswith("<")


def _is_continued(text: str, start: int) -> bool:
    """Whether a numbered list begins at another number than 1."""
    item = _NUMBER.match(text, start)
    return item is not None and int(item[1]) > 1


def _divided(text: str, group: Sequence[Block]) -> Iterator[Unit]:
    """Yield a group as one unit or, where it is too long, in runs of its parts."""
    whole = Span(group[0].span.start, group[-1].span.end)
    is_prose = len(group) == 1 and group[0].kind == "paragraph" and text[whole.start] not in ">|"
    if _is_html(text, group[0]) or _is_continued(text, whole.start):
        yield Unit(whole, kind="rest")
    elif whole.end - whole.start <= (LONGEST_RUN if is_prose else LONGEST_BLOCK):
        yield Unit(whole)
    else:
        runs: list[Unit] = []
        for part in _with_leads(text, group):
            if runs and part.span.end - runs[-1].span.start <= LONGEST_RUN:
                runs[-1] = runs[-1]._replace(span=Span(runs[-1].span.start, part.span.end))
            else:
                runs.append(part)
        yield from runs


def _with_leads(text: str, group: Sequence[Block]) -> list[Unit]:
    """Return the parts of a group: a block's first one together with what introduces it, the others below that."""
    found: list[Unit] = []
    lead: Span | None = None
    for block in group:
        parts = _parts(text, block)
        is_table = block.kind == "table"
        is_numbered = block.kind == "list" and _NUMBER.match(text, block.span.start) is not None
        heads = (*([lead] if lead else ()), *(parts[:1] if is_table or is_numbered else ()))
        for number, part in enumerate(parts):
            if (number == 0 and lead is not None) or (number == 1 and is_table):
                found[-1] = found[-1]._replace(span=Span(found[-1].span.start, part.end))
            else:
                found.append(Unit(part, heads if number else (), "row" if number and is_table else "text"))
        lead = parts[-1] if block.kind == "heading" or _introduces(text, block) else None
    return found


def _parts(text: str, block: Block) -> list[Span]:
    """Return what a block may be divided into: sentences, items, the head of a table and its rows."""
    start, end = block.span.start, block.span.end
    if block.kind == "table":
        head = Span(start, block.parts[0].start if block.parts else end)
        parts = [Span(head.start, head.start + len(text[head.start : head.end].rstrip())), *block.parts]
    elif block.parts:
        parts = list(block.parts)
    elif block.kind == "paragraph":
        said = text[start:end]
        ends = [match.end() for match in re.finditer(r"[^\n]+", said)] if said[0] == "|" else sentence_ends(said)
        parts = list[Span]()
        begin = 0
        for stop in ends:
            parts.append(Span(start + stop - len(said[begin:stop].lstrip()), start + stop))
            begin = stop
    else:
        parts = [block.span]
    return [cut for part in parts for cut in (_cut(text, part) if block.kind == "paragraph" else [part])]


def _cut(text: str, span: Span) -> Iterator[Span]:
    """Yield parts of bounded length, cut at white space where there is some."""
    start, end = span.start, span.end
    while start < end:
        stop = min(end, start + LONGEST_RUN)
        if stop < end:
            stop = next((at for at in range(stop, start + LONGEST_RUN // 2, -1) if text[at].isspace()), stop)
        if (part := trim(text, start, stop)) is not None:
            yield part
        start = stop


def _stands_alone(text: str, unit: Unit) -> bool:
    """Whether it is short enough, and what comes after it is read as text."""
    said = "\n\n".join(text[span.start : span.end] for span in (*unit.heads, unit.span))
    if unit.span.end - unit.span.start > LONGEST_BLOCK + LONGEST_RUN:
        return False
    return _MAY_SWALLOW.search(said) is None or parse_markdown(f"{said}\n\n[1]")[-1].kind == "paragraph"


def _fragments(text: str, span: Span) -> Iterator[Unit]:
    """Yield the lines between fences, in parts."""
    begin = span.start
    for fence in FENCE.finditer(text, span.start, span.end):
        yield from (Unit(part, kind="rest") for part in _cut(text, Span(begin, fence.start())))
        begin = fence.end()
    yield from (Unit(part, kind="rest") for part in _cut(text, Span(begin, span.end)))


class Excerpter:
    """Cuts passages down to the part that bears most on a question, for a place that is too small for all of them.

    A line or sentence counts by the words of the question that it has; a word that few of them have counts more. Those
    at both ends are left out, so that an excerpt is one stretch of the text.

    Args:
        question: Whose words are looked for.
        analyzer: Turns words into terms.
    """

    def __init__(self, question: str, analyzer: Analyzer) -> None:
        self._wanted = frozenset(analyzer.query_terms(question))
        self._analyzer = analyzer

    def excerpt(self, passage: str, size: int) -> str:
        """Return the stretch of whole lines and sentences of a passage that is left if the lesser end goes first.

        Without any of the question's words, that is the passage's beginning.

        Args:
            passage: Its text.
            size: The most code points.

        Returns:
            All of the passage where it fits, and nothing where not even one line or sentence does.
        """
        if len(passage) <= size:
            return passage
        spans = _lines_and_sentences(passage)
        held = [self._wanted.intersection(self._analyzer.terms(passage[span.start : span.end])) for span in spans]
        counts = Counter(term for terms in held for term in terms)
        weights = {term: log(1 + len(held) / count) for term, count in counts.items()}
        scores = [fsum(weights[term] for term in sorted(terms)) for terms in held]
        kept = _stretch(spans, scores, size)
        return "" if kept is None else passage[kept.start : kept.end]


def _lines_and_sentences(text: str) -> list[Span]:
    breaks = {0, *sentence_ends(text), *(match.start() for match in re.finditer("\n", text)), len(text)}
    parts = (
        trim(text, start, end, keep_indentation=not start or text[start] == "\n")
        for start, end in pairwise(sorted(breaks))
    )
    return [part for part in parts if part is not None]


def _stretch(spans: Sequence[Span], scores: Sequence[float], size: int) -> Span | None:
    """Return what is left of parts in order if those at the ends go, the lesser first, until the rest is short enough.

    Of two that count the same, the one goes that is farther from the middle of what counts.
    """
    if not spans:
        return None
    total = fsum(scores)
    middle = fsum(score * (span.start + span.end) / 2 for score, span in zip(scores, spans, strict=True)) / (total or 1)
    first, last = 0, len(spans) - 1
    while first < last and spans[last].end - spans[first].start > size:
        is_first_lesser = scores[first] < scores[last]
        if scores[first] == scores[last]:
            is_first_lesser = middle - spans[first].start > spans[last].end - middle
        first, last = first + is_first_lesser, last - (not is_first_lesser)
    while last + 1 < len(spans) and spans[last + 1].end - spans[first].start <= size:
        last += 1
    while first and spans[last].end - spans[first - 1].start <= size:
        first -= 1
    kept = Span(spans[first].start, spans[last].end)
    return kept if kept.end - kept.start <= size else None
