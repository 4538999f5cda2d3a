"""The marks by which an answer names its sources, and what of an answer needs one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core.answer.prompt import MISSING
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_IN_RANGE = 20
"""The most numbers that ``[1-9]`` may stand for; of a longer range only the ends are read."""

_OPEN, _CLOSE = "[\\[【［]", "[\\]】］]"  # noqa: RUF001
_INSIDE = "[^\\[\\]【】［］\\n]"  # noqa: RUF001
_NAMED = r"(?i:(?:passage|source|document|doc|snippet|reference|ref)s?[ ]?#?)?"
_ITEM = rf"\^?{_NAMED}\s?(\d{{1,15}})(?:\s?[-‐-―−~]\s?(\d{{1,15}}))?"  # noqa: RUF001
_PLAIN_ITEM = _ITEM.replace("(\\d", "(?:\\d")
# The look ahead bounds what is tried at a bracket, and makes the end of a growing text as good as any other.
MARKER = (
    rf"{_OPEN}(?={_INSIDE}{{1,60}}{_CLOSE})\s?{_PLAIN_ITEM}(?:\s?(?:[,;、，；/&]|and\b)\s?{_PLAIN_ITEM})*+"  # noqa: RUF001
    rf"(?:†{_INSIDE}*+)?\s?{_CLOSE}(?!\()"
)
"""Matches ``[1]``, ``[1, 2]``, ``[1-3]``, ``【1】`` and the like, but not the text of a link."""
HALF_MARKER = rf"(?:{_OPEN}{_INSIDE}{{0,60}})?\Z"
"""Matches at the end of a text, and where a marker may be that is not complete yet."""

_MARKER = re.compile(MARKER)
_NUMBERS = re.compile(_ITEM)
_TICKS = re.compile("`+")
_FENCE = re.compile(r"[\s>]*(?:(?:[-*+•]|\d{1,9}[.)])[^\S\n]+)?(`{3,}|~{3,})[^\n]*(?:\n|\Z)")
_LAST_FENCE = re.compile(r"[^\S\n]*>?[^\S\n]*(`{3,}|~{3,})")
_IDENTIFIER = re.compile(r"(?:\A|[^\w-])(?:[a-z]|\w{1,40}_\w{1,40})\Z")
_INDEXED = re.compile(r"\s?=[^=]|\.[a-z_]\w*[ (=.]|\[\D")
_BETWEEN = re.compile(r"\s*(?:[,;]|and)?\s*\Z")


@dataclass(frozen=True, slots=True)
class Marker:
    """A mark that names passages.

    Attributes:
        numbers: In their order, each once; not necessarily of passages that there are.
        span: Where it stands, its brackets included.
    """

    numbers: tuple[int, ...]
    span: Span


def markers_of(text: str) -> tuple[Marker, ...]:
    """Return the marks of a sentence, in order.

    ``[1]``, ``[1][2]``, ``[1, 2]``, ``[1-3]``, ``[^1]``, ``[Source 1]`` and the same in full-width brackets are marks.
    What is in code, the text of a link (``[1](url)``), the definition of a note (``[1]: …``), an index (``a[1]``) and
    an interval (``[0, 1]``) is none. Takes time in proportion to the text.
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


_FEWEST = 30
"""Words of an introduction or an admission that may say something beside."""
_HEADING = re.compile(r"#{1,6}(?:\s[^\n]*)?\Z")
_BOLD = re.compile(r"(\*\*|__)[^*_\n]{1,100}\1:?\Z")
_DEFINITION = re.compile(r"\[\^?\w{1,20}\]:")
_QUESTION = re.compile("[?？؟][\"'”’»)\\]*_]*\\Z")  # noqa: RUF001
_EMPHASIS = re.compile(r"\A[\s>]*(?:[-*+•]\s+|\d{1,9}[.)]\s+)?[*_\"'“]*|[*_\"'”]+\Z")
_POLITE = re.compile(
    r"(?:hello|hi|hi there|hey|sure|sure thing|certainly|of course|absolutely|great question|good question|thank you"
    r"|thanks|you're welcome|happy to help|i hope (?:this|that) helps|hope (?:this|that) helps"
    r"|(?:please )?let me know if [^.!?]{0,100})[.!]*",
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
_CLAIMS_MORE = re.compile(r"\d|[;:]|\b(?:but|however|although|though|while|only|except|instead|yet)\b", re.IGNORECASE)


def says_something(text: str) -> bool:
    """Whether a sentence of an answer claims something, and so needs a source. When in doubt, it does.

    These claim nothing: what has neither letters nor digits; headings, and lines in bold alone; the head of a table;
    the definition of a note; what introduces a list or block, up to the colon at its end, unless it is long; questions;
    greetings; and that the passages do not tell, unless there is a figure in it or a ``but``. ``Yes.`` claims
    something, though no passage can be found by it.
    """
    said = plain(text)
    if said.startswith(("```", "~~~")):
        return True
    if _HEADING.match(said) or _BOLD.match(said) or _DEFINITION.match(said) or _is_table_head(said):
        return False
    words = _EMPHASIS.sub("", said).replace("’", "'")  # noqa: RUF001
    is_short = len(words.split()) <= _FEWEST
    is_introduction = is_short and words.endswith((":", "："))  # noqa: RUF001
    is_empty = not any(character.isalnum() for character in said)
    if is_empty or is_introduction or _QUESTION.search(said) or _POLITE.fullmatch(words):
        return False
    return not (is_short and _admits(words))


def _admits(words: str) -> bool:
    """Whether it is said that the passages do not tell, and nothing else."""
    if words.rstrip(".!").casefold() == MISSING.rstrip(".").casefold():
        return True
    admission = _ADMISSION.match(words)
    return admission is not None and _CLAIMS_MORE.search(words, admission.end()) is None


def _is_table_head(text: str) -> bool:
    rule = text[text.rfind("\n") + 1 :]
    return "|" in rule and "-" in rule and not rule.strip(" \t\r:|-") and text.count("\n") <= 1
