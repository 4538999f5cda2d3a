"""The sentences of a text that is still growing."""

from __future__ import annotations

import re
from typing import NamedTuple

from retrieval_core.text.markers import HALF_MARKER, MARKER, end_of_code
from retrieval_core.text.sentences import LIST_ITEM
from retrieval_core.types import Span

LONGEST = 2000
"""Code points of a sentence; a longer one is cut, a block of code behind a line and anything else behind a word."""
_AHEAD = 200
"""How far behind the longest sentence is looked, for what tells where it ends."""
_WINDOW = LONGEST + _AHEAD

_GAP = r"[^\S\n]*+"
_SPACE = re.compile(r"\s*")
_ITEM = rf"{LIST_ITEM}[^\S\n]"
_TOKEN = re.compile(r"`+|\n|[.!?…؟۔।]+|[。！？｡]+")  # noqa: RUF001
_EAST_ASIAN = frozenset("。！？｡")  # noqa: RUF001
_CLOSERS = re.compile("[\"'”’»」』”’）)\\]*_]*")  # noqa: RUF001
_SEVERAL = rf"{MARKER}(?:{_GAP}(?:[,;]{_GAP})?{MARKER})*+"
_MARKERS = re.compile(rf"{_GAP}{_SEVERAL}(?:\.(?=\s|\Z))?")
_MARKER_LINE = re.compile(rf"{_GAP}\n{_GAP}{_SEVERAL}\.?(?={_GAP}(?:\n|\Z))")
_MAY_BE_MARKERS = re.compile(rf"\s*+(?:{MARKER}[\s,;.]*+)*+{HALF_MARKER}")
_ENDS_IN_MARKER = re.compile(rf"{MARKER}\Z")
_RULE = r"(?:(?:-[^\S\n]*){3,}|(?:\*[^\S\n]*){3,}|(?:_[^\S\n]*){3,})(?=\n|\Z)"
_BLOCK = re.compile(rf"{_ITEM}|\||#{{1,6}}\s|```|~~~|\*\*\S|[\[【［]\s?\^?\d|{_RULE}")  # noqa: RUF001
"""What begins a line that does not go on with the sentence above it."""
_MAY_BE_BLOCK = re.compile(r"(?:\d{1,9}[.)]?|#{1,6}|`{1,2}|~{1,2}|[+•]|[-*_][-*_\s]*|[\[【［]\s?\^?)\Z")  # noqa: RUF001
_LINE = re.compile(rf"\||#{{1,6}}(?=\s|\Z)|{_RULE}")
"""What begins a line that is a sentence, whatever follows it."""
_TABLE_RULE = re.compile(r"\n[^\S\n]*\|[ \t]*:?-[ \t\r:|-]*(?=\n|\Z)")
_MAY_BE_TABLE_RULE = re.compile(r"\n[^\S\n]*(?:\|[ \t\r:|-]*)?\Z")
_PREFIX = rf"(?:>[^\S\n]?)*+(?:{_ITEM}[^\S\n]*+)?"
_FENCE = re.compile(rf"{_PREFIX}(?:(`{{3,}})[^`\n]*|(~{{3,}})[^\n]*)(?=\n|\Z)")
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
            if (fence := _FENCE.match(window)) is not None:
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
