"""The marks by which an answer names its sources, what of an answer needs one, and sentences of a stream."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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
LONGEST = 2000
"""Code points of a sentence; a longer one is cut, a block of code behind a line and anything else behind a word."""
_AHEAD = 200
"""How far behind the longest sentence is looked, for what tells where it ends."""
_WINDOW = LONGEST + _AHEAD

_GAP = r"[^\S\n]*+"
_SPACE = re.compile(r"\s*")
_BULLET_ITEM = rf"{LIST_ITEM}[^\S\n]"
_TOKEN = re.compile(r"`+|\n|[.!?…؟۔।]+|[。！？｡]+")  # noqa: RUF001
_EAST_ASIAN = frozenset("。！？｡")  # noqa: RUF001
_CLOSERS = re.compile("[\"'”’»」』”’）)\\]*_]*")  # noqa: RUF001
_SEVERAL = rf"{MARKER}(?:{_GAP}(?:[,;]{_GAP})?{MARKER})*+"
_MARKERS = re.compile(rf"{_GAP}{_SEVERAL}(?:\.(?=\s|\Z))?")
_MARKER_LINE = re.compile(rf"{_GAP}\n{_GAP}{_SEVERAL}\.?(?={_GAP}(?:\n|\Z))")
_MAY_BE_MARKERS = re.compile(rf"\s*+(?:{MARKER}[\s,;.]*+)*+{HALF_MARKER}")
_ENDS_IN_MARKER = re.compile(rf"{MARKER}\Z")
_RULE = r"(?:(?:-[^\S\n]*){3,}|(?:\*[^\S\n]*){3,}|(?:_[^\S\n]*){3,})(?=\n|\Z)"
_BLOCK = re.compile(rf"{_BULLET_ITEM}|\||#{{1,6}}\s|```|~~~|\*\*\S|[\[【［]\s?\^?\d|{_RULE}")  # noqa: RUF001
"""What begins a line that does not go on with the sentence above it."""
_MAY_BE_BLOCK = re.compile(r"(?:\d{1,9}[.)]?|#{1,6}|`{1,2}|~{1,2}|[+•]|[-*_][-*_\s]*|[\[【［]\s?\^?)\Z")  # noqa: RUF001
_LINE = re.compile(rf"\||#{{1,6}}(?=\s|\Z)|{_RULE}")
"""What begins a line that is a sentence, whatever follows it."""
_TABLE_RULE = re.compile(r"\n[^\S\n]*\|[ \t]*:?-[ \t\r:|-]*(?=\n|\Z)")
_MAY_BE_TABLE_RULE = re.compile(r"\n[^\S\n]*(?:\|[ \t\r:|-]*)?\Z")
_PREFIX = rf"(?:>[^\S\n]?)*+(?:{_BULLET_ITEM}[^\S\n]*+)?"
_OPEN_FENCE = re.compile(rf"{_PREFIX}(?:(`{{3,}})[^`\n]*|(~{{3,}})[^\n]*)(?=\n|\Z)")
_MAY_BE_START = re.compile(
    rf"{_PREFIX}(?:`{{1,2}}|~{{1,2}}|`{{3,}}[^`\n]*|~{{3,}}[^\n]*)?\Z"
    r"|(?:>[^\S\n]?)*+(?:\d{1,9}[.)]?|#{1,6}|[+•]|[-*_][-*_\s]*)\Z"
)
_FENCE_LINE = re.compile(rf"(?:^|\n){_GAP}>?{_GAP}(`{{3,}}|~{{3,}}){_GAP}(?:{MARKER}{_GAP})*+(?=\n|\Z)")
_ITEM_NUMBER = re.compile(r"\A[\s>*_+•-]*\d{1,9}\Z")
_SHORT = re.compile(
    r"(?:\A[\s>*_+•-]*(?i:yes|no|yep|nope|correct|right|true|false|indeed|exactly|absolutely|certainly|sure|of course)"
    r"|(?:\A|[^\w.])(?:Mrs?|Ms|Drs?|Profs?|St|Mt|vs|cf|approx|Figs?|Eqs?|Nos?|Vol|pp?|al|eds?|Jr|Sr|Gen|Col|Sgt|Lt|Rev"
    r"|Hon|Inc|Ltd|e\.g|i\.e|ca|bzw|Nr|z\.B)"
    r"|(?:\A[\s>*_+•-]*|(?:\b[A-Z]\w{0,30}\.?|\bby)[ ])[A-HJ-Z]|\b(?:[A-Z]\.){1,5}[A-Z])\Z"
)
"""What does not end with its full stop: an abbreviation, an initial, and an answer that the next sentence explains."""
_LOOK_BACK = 64


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


class SentenceStream:
    """A text that comes in pieces, and its sentences.

    However a text is cut into pieces, its sentences are the same. They stand in order, do not overlap, and are all of
    the text but for white space. A sentence is given away as soon as no further text can change it.

    Headings, table rows (the head with the rule below it), list items, rules and blocks of code count as sentences.
    Markers of citations belong to the sentence that they stand behind, even behind its full stop or on a line of their
    own. ``Yes.`` stays with the sentence behind it, without which it cannot be checked. The work is linear in the
    text's length; a piece costs at most what reading :data:`LONGEST` code points costs.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._rest = ""  # what is in no sentence yet
        self._offset = 0  # of the rest, in the text
        self._decided = 0  # of the rest: the next sentence does not end before
        self._begins_line = True
        self._fence = ""

    @property
    def text(self) -> str:
        """Everything that came so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def feed(self, piece: str) -> tuple[Span, ...]:
        """Add a piece, and return the sentences that are complete with it."""
        self._pieces.append(piece)
        self._rest += piece
        return self._sentences(ended=False)

    def end(self) -> tuple[Span, ...]:
        """Return the sentences that are left; nothing may come afterwards."""
        return self._sentences(ended=True)

    def _sentences(self, *, ended: bool) -> tuple[Span, ...]:
        found: list[Span] = []
        at = self._after_space(0)
        while window := self._rest[at : at + _WINDOW]:
            end = self._end(window, final=ended or len(window) == _WINDOW)
            if end is None:
                break
            if end > LONGEST:
                end = _cut(window, in_lines=bool(self._fence))
            else:
                self._fence = ""
            found.append(Span(self._offset + at, self._offset + at + len(window[:end].rstrip())))
            self._decided, self._begins_line = 0, False
            at = self._after_space(at + end)
        self._rest = self._rest[at:]
        self._offset += at
        return tuple(found)

    def _after_space(self, at: int) -> int:
        end = _end_of(_SPACE, self._rest, at)
        self._begins_line = self._begins_line or "\n" in self._rest[at:end]
        return end

    def _end(self, window: str, *, final: bool) -> int | None:
        """Return where the sentence ends that a window begins with; ``None`` where that is not certain yet.

        If it is final, what is there decides; what is certain before stays so, whatever follows.
        """
        if self._begins_line and not self._fence and not self._decided:
            if not final and _MAY_BE_START.match(window):
                return None
            if _LINE.match(window):
                return _end_of_line(window, final=final)
            if (fence := _OPEN_FENCE.match(window)) is not None:
                self._fence = fence[1] or fence[2]
                self._decided = fence.end()
        return (self._end_of_fence if self._fence else self._end_of_text)(window, final=final)

    def _end_of_text(self, window: str, *, final: bool) -> int | None:
        while (token := _TOKEN.search(window, self._decided)) is not None:
            if token.end() == len(window) and not final:
                self._decided = token.start()
                return None
            kind = {"`": _code, "\n": _line_end}.get(window[token.start()], _full_stop)
            found = kind(window, token.start(), token.end(), final)
            if found is None:
                self._decided = token.start()
                return None
            if found.is_end:
                return found.at
            self._decided = found.at
        self._decided = len(window)
        return len(window) if final else None

    def _end_of_fence(self, window: str, *, final: bool) -> int | None:
        start = self._decided or (0 if self._begins_line else 1)
        for closing in _FENCE_LINE.finditer(window, start):
            if not closing[1].startswith(self._fence):
                continue
            if closing.end() == len(window) and not final:
                return None
            return _behind_markers(window, closing.end(), final=final)
        self._decided = max(start, window.rfind("\n"))
        return len(window) if final else None


class _Found(NamedTuple):
    """How far a text is decided, and whether a sentence ends there."""

    at: int
    is_end: bool = False


def _code(window: str, start: int, end: int, final: bool) -> _Found | None:
    """Pass over code within a line."""
    closed = end_of_code(window, start, end, len(window))
    if not final and (closed == len(window) or (closed is None and "\n" not in window[end:])):
        return None
    return _Found(end if closed is None else closed)


def _line_end(window: str, start: int, end: int, final: bool) -> _Found | None:
    """Tell whether a sentence ends with its line: before an empty one, and before what is no running text."""
    following = _end_of(_SPACE, window, end)
    at_end = following == len(window)
    if not final and (at_end or _MAY_BE_MARKERS.match(window, start)):
        return None
    if not at_end and "\n" not in window[end:following]:
        if (markers := _MARKER_LINE.match(window, start)) is not None:
            return _Found(markers.end())
        if not final and _MAY_BE_BLOCK.match(window, following):
            return None
        if not _begins_anew(window, start, following):
            return _Found(following)
    return _Found(start, is_end=True)


def _begins_anew(window: str, before: int, at: int) -> bool:
    """Whether the line that begins at ``at`` does not go on with the one that ends at ``before``."""
    if _BLOCK.match(window, at) or (window[at] == ">" and window[0] != ">"):
        return True
    line = window[max(0, before - _LOOK_BACK) : before].rstrip()
    return not window[at].islower() and (line.endswith((":", "：")) or _ENDS_IN_MARKER.search(line) is not None)  # noqa: RUF001


def _full_stop(window: str, start: int, end: int, final: bool) -> _Found | None:
    """Tell whether a sentence ends with a full stop or the like."""
    if _ITEM_NUMBER.search(window, max(0, start - _LOOK_BACK), start):
        return _Found(end)
    closed = _end_of(_CLOSERS, window, end)
    behind = _behind_markers(window, closed, final=final)
    if behind is None:
        return None
    if window[start] in _EAST_ASIAN:
        return _Found(behind, is_end=True)
    at = _end_of(_SPACE, window, behind)
    following = window[at : at + 1]
    is_cited = behind > closed
    if following.islower():  # the marker begins the next sentence, as in "It is so. [1] states that ..."
        is_end, is_cited, behind = is_cited and window[closed].isspace(), False, closed
    else:
        is_end = at > behind or not following or (is_cited and following.isupper())
    if not is_cited and _SHORT.search(window, max(0, start - _LOOK_BACK), start):
        is_end = False
    return _Found(behind, is_end=True) if is_end else _Found(end)


def _behind_markers(window: str, at: int, *, final: bool) -> int | None:
    """Return where the markers end that stand behind ``at``, or in the next line alone; ``None`` if not certain yet."""
    if not final and _MAY_BE_MARKERS.match(window, at):
        return None
    for pattern in (_MARKERS, _MARKER_LINE):
        if (found := pattern.match(window, at)) is not None:
            return found.end()
    return at


def _end_of_line(window: str, *, final: bool) -> int | None:
    """Return where a heading, a rule or a table row ends; the head of a table ends with the rule below it."""
    end = window.find("\n")
    if end < 0:
        return len(window) if final else None
    if window[0] != "|":
        return end
    if not final and _MAY_BE_TABLE_RULE.match(window, end):
        return None
    rule = _TABLE_RULE.match(window, end)
    return _behind_markers(window, end if rule is None else rule.end(), final=final)


def _cut(window: str, *, in_lines: bool) -> int:
    """Return where to cut what is longer than a sentence may be."""
    line = window.rfind("\n", 1, LONGEST + 1) if in_lines else -1
    if line > 0:
        return line
    return next((at for at in range(LONGEST, LONGEST // 2, -1) if window[at].isspace()), LONGEST)


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where what a pattern matches at a place ends; the place itself where it does not match."""
    return at if (found := pattern.match(text, at)) is None else found.end()
