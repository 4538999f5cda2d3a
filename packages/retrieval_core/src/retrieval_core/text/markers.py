"""The marks by which an answer names its sources, and what of an answer needs one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core.text.figures import figures_in
from retrieval_core.text.sentences import ASKS, LIST_ITEM
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING = "I could not find that information in the provided documents."
"""The specification's words for an answer that the passages do not hold."""

MOST_IN_RANGE = 20
"""The most numbers that ``[1-9]`` may stand for; of a longer range only the ends are read."""

_OPEN, _CLOSE = r"(?:\\?\[|[【［])", r"(?:\\?\]|[】］])"  # noqa: RUF001
_INSIDE = "[^\\[\\]【】［］\\n]"  # noqa: RUF001
_NAMED = r"(?i:(?:passage|source|document|doc|snippet|reference|ref|citation|cite)s?[ ]?:?[ ]?)?#?"
_ITEM = rf"\^?{_NAMED}\s?(\d{{1,15}})(?:\s?[-‐-―−~]\s?(\d{{1,15}}))?\^?"  # noqa: RUF001
_PLACE = r"(?:,?\s?(?:pages?|pp?\.|sections?|sec\.|§|chapters?|ch\.|lines?)\s?\d{1,9}(?:\s?[-‐-―−]\s?\d{1,9})?)?"  # noqa: RUF001
_PLAIN_ITEM = _ITEM.replace("(\\d", "(?:\\d") + _PLACE
# The look ahead bounds what is tried at a bracket, and makes the end of a growing text as good as any other.
MARKER = (
    rf"{_OPEN}(?={_INSIDE}{{1,60}}{_CLOSE})\s?{_PLAIN_ITEM}(?:\s?(?:[,;、，；/&]|and\b)\s?{_PLAIN_ITEM})*+"  # noqa: RUF001
    rf"(?:†[^\[\]【】［］\n\\]*+|\.)?\s?{_CLOSE}(?!\()"  # noqa: RUF001
)
"""Matches ``[1]``, ``[1, 2]``, ``[1-3]``, ``【1】`` and the like, but not the text of a link."""
HALF_MARKER = rf"(?:{_OPEN}{_INSIDE}{{0,60}}|\\)?\Z"
"""Matches at the end of a text, and where a marker may be that is not complete yet."""

_MARKER = re.compile(MARKER)
_NUMBERS = re.compile(_ITEM + _PLACE)
_TICKS = re.compile("`+")
_FENCE = re.compile(rf"[\s>]*(?:{LIST_ITEM}[^\S\n]+)?(`{{3,}}|~{{3,}})[^\n]*(?:\n|\Z)")
_LAST_FENCE = re.compile(r"[^\S\n]*>?[^\S\n]*(`{3,}|~{3,})")
_IDENTIFIER = re.compile(r"(?:\A|[^\w-])(?:[a-z]|\w{1,40}_\w{1,40})\Z")
_INDEXED = re.compile(r"\s?=[^=]|\.[a-z_]\w*[ (=.]|\[\D")
_BETWEEN = re.compile(r"\s*+(?:[,;]|and)?\s*+\Z")


@dataclass(frozen=True, slots=True)
class Marker:
    """A mark that names passages.

    Attributes:
        numbers: Numbers in their order, each once; passages with these numbers may not exist.
        span: Position, with the brackets.
    """

    numbers: tuple[int, ...]
    span: Span


def markers_of(text: str) -> tuple[Marker, ...]:
    """Return the marks of a sentence, in order.

    ``[1]``, ``[1][2]``, ``[1, 2]``, ``[1-3]``, ``[^1]``, ``[#1]``, ``[Source: 1]``, ``[1, p. 3]`` and the same in
    full-width or escaped brackets are marks.
    Brackets in code, the text of a link (``[1](url)``), the definition of a note (``[1]: …``), an index (``a[1]``) and
    an interval (``[0, 1]``) are not. Takes time in proportion to the text.
    """
    return tuple(_markers(text))


def _markers(text: str) -> Iterator[Marker]:
    last, was_none = -1, False
    for start, end in _outside_code(text):
        for match in _MARKER.finditer(text, start, end):
            begin = match.start()
            was_none = was_none if begin == last else _is_none(text, begin, match.end())
            last = match.end()
            numbers = _numbers(match.group())
            if not was_none and (0 not in numbers or len(numbers) == 1):
                yield Marker(numbers, Span(begin, last))


def _is_none(text: str, begin: int, end: int) -> bool:
    """Whether what looks like a marker is a definition or an index."""
    if text.startswith(":", end) and not text[text.rfind("\n", 0, begin) + 1 : begin].strip():
        return True
    glued = text[max(0, begin - 64) : begin]
    if not glued or not (glued[-1].isalnum() or glued[-1] in ")]"):
        return False
    return _INDEXED.match(text, end) is not None or _IDENTIFIER.search(glued) is not None


def _numbers(marker: str) -> tuple[int, ...]:
    found: list[int] = []
    for match in _NUMBERS.finditer(marker.split("†", 1)[0]):
        first, last = int(match[1]), int(match[2] or match[1])
        found += range(first, last + 1) if 0 <= last - first < MOST_IN_RANGE else (first, last)
    return tuple(dict.fromkeys(found))


def _outside_code(text: str) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a text that are not code; code within a line ends in that line."""
    begin = 0
    if (fence := _FENCE.match(text)) is not None:
        last = text.rstrip().rfind("\n", fence.end() - 1) + 1
        while last > fence.end() and _LAST_FENCE.match(text, last) is None:  # a line of marks may follow the fence
            last = text.rfind("\n", 0, last - 1) + 1
        closing = _LAST_FENCE.match(text, last) if last >= fence.end() else None
        if closing is None:
            return
        begin = closing.end()
    at = begin
    while (ticks := _TICKS.search(text, at)) is not None:
        at = ticks.end()
        if (end := end_of_code(text, ticks.start(), ticks.end(), len(text))) is not None:
            yield begin, ticks.start()
            begin = at = end
    yield begin, len(text)


def end_of_code(text: str, start: int, end: int, until: int) -> int | None:
    """Return where the code ends whose opening ticks stand from ``start`` to ``end``; ``None`` if not in their line."""
    line = text.find("\n", end, until)
    for match in _TICKS.finditer(text, end, until if line < 0 else line):
        if match.end() - match.start() == end - start:
            return match.end()
    return None


def noted(text: str) -> tuple[int, Span]:
    """Return the number that a text defines as a note's (``[1]: …``), and where that stands; else 0 and nothing."""
    note = _NOTE.match(text)
    return (0, Span(0, 0)) if note is None else (int(note[1]), Span(*note.span()))


def plain(sentence: str) -> str:
    """Return a sentence without its marks, and without the white space and commas that set them off."""
    parts: list[str] = []
    at = 0
    for marker in markers_of(sentence):
        part = sentence[at : marker.span.start]
        parts.append("" if parts and _BETWEEN.match(part) else part.rstrip())
        at = marker.span.end
    rest = sentence[at:]
    return ("".join(parts) + rest).strip() if parts else sentence.strip()


_MOST_INTRODUCING = 20
"""Words of an introduction or an admission; a longer one says something beside."""
_MOST_LABELLING = 6
"""Words of a line in bold, of a heading, or of a cell in the head of a table, that may be a name for what follows."""
_LEAD = re.compile(rf"[\s>]*(?:{LIST_ITEM}\s+)?[*_\"'“]*")
_EMPHASIS = "*_\"'”“"
_HEADING = re.compile(r"#{1,6}(?:\s([^\n]*))?\Z")
_BOLD = re.compile(r"(\*\*|__)([^*_\n]{1,100})\1:?\Z")
_DEFINITION = re.compile(r"\[\^?\w{1,20}\]:\s*")
_NOTE = re.compile(r"\[\^?(\d{1,15})\]:\s*")
_TARGET = re.compile(r"\S*(?:\s+(?:\"[^\"\n]*\"|'[^'\n]*'|\([^()\n]*\)))?\s*\Z")
_NUMBERED = re.compile(
    r"\s*(?:(?i:step|option|part|phase|method|example|section|chapter)\s\d{1,3}(?:[.:)](?=\s)|:?\Z)"
    r"|\d{1,3}[.)](?=\s))"
)
"""What numbers a heading: "2. ", "Step 3"."""
_VERB = (
    r"(?:am|is|are|was|were|be|been|has|have|had|can|could|may|might|must|will|would|shall|should|does|do|did"
    r"|\w+n['’]t)\b"  # noqa: RUF001
)
_CLAIMS = re.compile(
    rf"\b(?:{_VERB}|(?:yes|no|not|never|none|nobody|nothing|cannot|true|false|correct)\b)", re.IGNORECASE
)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_POLITE = re.compile(
    r"(?:hello|hi|hi there|hey|sure|sure thing|certainly|of course|absolutely|great question|good question|thank you"
    r"|thanks|you're welcome|happy to help|i hope (?:this|that) helps|hope (?:this|that) helps"
    r"|(?:please )?let me know if you(?:'d like| would like| need| want| have)\b[^.!?,;:–—()]{0,80})[.!]*",  # noqa: RUF001
    re.IGNORECASE,
)
_ADMISSION = re.compile(
    r"(?:(?:unfortunately|however|but|sorry|i'm sorry|i am sorry),? ?(?:but )?)?"
    r"(?:i (?:could not|couldn't|cannot|can't|can not|did not|didn't|was unable to|am unable to) find\b"
    r"|(?:(?:the|these|those|this) )?(?:(?:provided|given|retrieved|available) )?"
    r"(?:documents?|passages?|sources?|snippets?|context|texts?) (?:provided )?"
    r"(?:do|does|did) ?n(?:ot|'t) (?:contain|mention|say|tell|provide|include|specify|state|give|describe|address)\b"
    r"|none of the [a-z ]{0,30}(?:documents|passages|sources|snippets) "
    r"(?:contains?|mentions?|says?|tells?|provides?|includes?|specif(?:y|ies)|states?|gives?|describes?)\b)",
    re.IGNORECASE,
)
_ASKED = re.compile(
    r"(?:\s+(?:any|anything|information|details|more|further|specific|about|on|regarding|concerning|as to|of)\b)*"
    r"\s+(?:whether|if|how|what|when|where|who|why|which)\b",
    re.IGNORECASE,
)
"""What is left open behind an admission: whatever follows is not claimed."""
_MORE = (
    r"[\d,;:–—()|]"  # noqa: RUF001
    r"|\b(?:and|but|however|although|though|while|only|except|instead|yet|because|since|as|so|than|beyond|besides"
    r"|otherwise|other|else|reasons?|doubts?|wrong|contrary|contradict\w*|exceptions?|problems?|errors?|faults?)\b"
    r"|[.!?](?=\s)"
)
_CLAIMS_MORE = re.compile(_MORE, re.IGNORECASE)
_CLAUSE = re.compile(rf"\bthat\b(?!\s+(?:information|answer|detail|question|in\b)|[.!]*\Z)|\b{_VERB}", re.IGNORECASE)


def says_something(text: str) -> bool:
    """Whether a sentence of an answer claims something, and so needs a source. When in doubt, it does.

    These claim nothing if they contain no figure: headings, bold lines and head cells of a table that are no
    sentences; short introductions of a list or block, up to the colon at their end;
    questions; greetings; and statements that the passages contain no answer, unless a clause follows. Text without
    letters and digits, and definitions of links, claim nothing either. ``Yes.`` claims something.
    """
    said = plain(text)
    if said.startswith(("```", "~~~")):
        return True
    if not any(character.isalnum() for character in said):
        return False
    if (definition := _DEFINITION.match(said)) is not None:
        return _TARGET.match(said, definition.end()) is None
    labels = _labels(said)
    return _claims(said) if labels is None else not all(labels)


def _labels(said: str) -> tuple[bool, ...] | None:
    """Tell of each part of a heading, a line in bold or a table's head whether it is a label; of others, ``None``."""
    if (heading := _HEADING.match(said)) is not None:
        return (_is_label(heading[1] or "", is_heading=True),)
    if (bold := _BOLD.match(said)) is not None:
        return (_is_label(bold[2]),)
    if _is_table_head(said):
        head = said[: said.rfind("\n")] if "\n" in said else ""
        return tuple(_is_label(_YEAR.sub("", cell)) for cell in head.split("|"))
    return None


def _claims(said: str) -> bool:
    """Whether running text claims something."""
    words = said[_end_of_lead(said) :].rstrip(_EMPHASIS).replace("’", "'")  # noqa: RUF001
    if _POLITE.fullmatch(words) or (words.endswith((":", "：")) and len(words.split()) <= _MOST_INTRODUCING):  # noqa: RUF001
        return bool(figures_in(words))
    return bool(figures_in(words)) if ASKS.search(said) else not _admits(words)


def _end_of_lead(text: str) -> int:
    """Return where a sentence begins, behind the mark of its list and what emphasizes it."""
    lead = _LEAD.match(text)
    return 0 if lead is None else lead.end()


def _is_label(text: str, *, is_heading: bool = False) -> bool:
    """Whether a text is but a name for what follows, as headings are."""
    number = _NUMBERED.match(text)
    name = (text if number is None else text[number.end() :]).strip(f" \t{_EMPHASIS}")
    most = 2 * _MOST_LABELLING if is_heading else _MOST_LABELLING
    if name.endswith((".", "!", "。")) or len(name.split()) > most or figures_in(name):
        return False
    return is_heading or name.endswith(("?", "？")) or _CLAIMS.search(name) is None  # noqa: RUF001


def _admits(words: str) -> bool:
    """Whether it is said that the passages do not tell, and nothing else."""
    if words.rstrip(".!").casefold() == MISSING.rstrip(".").casefold():
        return True
    admission = _ADMISSION.match(words)
    if admission is None or len(words.split()) > _MOST_INTRODUCING or _CLAIMS_MORE.search(words, admission.end()):
        return False
    asked = _ASKED.match(words, admission.end())
    return not figures_in(words) and (asked is not None or _CLAUSE.search(words, admission.end()) is None)


def _is_table_head(text: str) -> bool:
    rule = text[text.rfind("\n") + 1 :]
    return "|" in rule and "-" in rule and not rule.strip(" \t\r:|-") and text.count("\n") <= 1
