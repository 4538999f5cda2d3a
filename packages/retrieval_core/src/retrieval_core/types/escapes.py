"""Text that can be written and shown: valid Unicode, escapes of headings and names, and short views of values.

The escapes cost nothing in the ordinary case: only a line that looks like a heading, and a name that could be taken for
more than a name, are written in another way, and both can be read back.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from reprlib import Repr
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Inside of a character class: what steers a terminal, turns the direction of writing or ends a line, and halves of
surrogate pairs, which cannot be printed."""
INVISIBLE = CONTROLS + r"\xad\u180e\u200b\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"
"""Inside of a character class: controls, and what cannot be seen (but not what joins letters and emoji)."""

_BREAKS = r"\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_OPEN, _CLOSE = r"\[［【〔〖⟦❲", r"\]］】〕〗⟧❳"  # noqa: RUF001
_VOID = r"[\xad\u200b-\u200f\u2060-\u2064\ufeff]{0,9}"
_TAIL = (
    rf"[{_CLOSE}][^\w{_BREAKS}]{{0,40}}[DdＤｄ]{_VOID}[OoＯｏОоΟο]{_VOID}[CcＣｃСсϹϲ]"  # noqa: RUF001
    rf"(?:uments?|s)?[^\w:：∶{_BREAKS}]{{0,20}}[:：∶]"  # noqa: RUF001
)
"""Ends what looks like ``[2] Doc:``, in whatever brackets and letters."""
_MAY_HOLD_A_HEADING = re.compile(_TAIL)
_LINE = rf"(?:\A|(?<=[{_BREAKS}]))([^\w\\{_BREAKS}]*)"
_HEADING = rf"(?=[{_OPEN}][^{_CLOSE}{_BREAKS}]{{1,40}}{_TAIL})"
_HEADING_LINE = re.compile(rf"{_LINE}(\\*){_HEADING}")
_ESCAPED_LINE = re.compile(rf"{_LINE}\\(\\*){_HEADING}")

_HEAD = re.compile(
    rf"(?:\A|(?<=[{_BREAKS}]))(?:[^\S{_BREAKS}]|[\xad\u200b-\u200f\u2060-\u2064\ufeff]){{0,40}}"
    rf"(?=[{_OPEN}]\d{{1,9}}[{_CLOSE}]\s)"
)

_IN_NAMES = re.compile(
    rf"[{INVISIBLE}]|\|(?=\s*(?i:Doc|Page|Section|Rows|Items|Title)\s*:)|(?<!\S)>(?!\S)|\((?=\s*(?i:id)\s*:)"
    r"|\\(?=u[0-9a-f]{4}|U[0-9a-f]{8})"
)
_MARKS = frozenset("|>(\\")
"""Of printable ASCII, what ``_IN_NAMES`` begins with."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8}))")


def valid_unicode(text: str) -> str:
    """Return text that UTF-8 can express: surrogates that make a pair are joined, and lone ones become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def escape_text(text: str) -> str:
    r"""Return a passage's text with a backslash before each bracket that begins what looks like a passage's heading.

    That is a line such as ``[2] Doc: …``, in whatever brackets, behind white space or marks, and after a line end of
    any kind. Where backslashes stand there already, there is one more. Everything else stays as it is.
    """
    if "]" not in text and text.isascii():  # as most passages, and found in a hundredth of the time
        return text
    return _HEADING_LINE.sub(r"\1\2\\", text) if _MAY_HOLD_A_HEADING.search(text) else text


def unescape_text(text: str) -> str:
    """Return the text that :func:`escape_text` was given."""
    return _ESCAPED_LINE.sub(r"\1\2", text) if _MAY_HOLD_A_HEADING.search(text) else text


def escape_heads(text: str) -> str:
    r"""Return a chunk's text with a backslash before what looks like the line above a search result.

    That is one such as ``[2] guide.md:12-18``: a number in brackets, and a space. All other text stays as it is.
    """
    if "]" not in text and text.isascii():
        return text
    return _HEAD.sub(lambda match: f"{match[0]}\\", text)


def escape_name(name: str) -> str:
    r"""Return a name, such as a document's id or a heading, that stays on its line and in its part of that.

    What cannot be seen, a bar before ``Section:`` and the like, a lone ``>``, a bracket before ``id:``, and a backslash
    that would begin such an escape are written as ``\u`` and four hexadecimal digits, or ``\U`` and eight.
    """
    if name.isascii() and name.isprintable() and _MARKS.isdisjoint(name):  # as most names
        return name
    return _IN_NAMES.sub(lambda match: _escaped(match[0]), name)


def unescape_name(name: str) -> str:
    """Return the name that :func:`escape_name` was given."""
    return _ESCAPE.sub(lambda match: _character(match[1] or match[2], match[0]), name)


def _escaped(character: str) -> str:
    point = ord(character)
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _character(digits: str, otherwise: str) -> str:
    point = int(digits, 16)
    return chr(point) if point < 0x110000 else otherwise


MOST_CHARACTERS = 60
"""Characters of a text in a line."""
MOST_ROWS = 20
"""Items of a value that have their own line."""

_REPR = Repr()
_REPR.maxdict = _REPR.maxtuple = _REPR.maxlist = 4
_REPR.maxstring = 40


def _line(fact: object) -> str:
    if isinstance(fact, PurePath):  # its end says most
        path = str(fact)
        return repr(path if len(path) <= MOST_CHARACTERS else f"…{path[1 - MOST_CHARACTERS :]}")
    if isinstance(fact, str):
        return repr(_shorten(fact))
    return _REPR.repr(round(fact, 4) if isinstance(fact, float) else fact)


def _shorten(text: str) -> str:
    # Twice the room, for white space, so that a book is not read as a whole.
    short = " ".join(text[: 2 * MOST_CHARACTERS].split())
    is_whole = len(short) <= MOST_CHARACTERS and len(text) <= 2 * MOST_CHARACTERS
    return short if is_whole else f"{short[: MOST_CHARACTERS - 1].rstrip()}…"


class Display:
    """Shows a value as one line, such as ``Hit(id='a.md#0', score=0.85, source='a.md', text='The moon …')``.

    A line follows for each item that the value contains.
    """

    __slots__ = ()

    def _facts(self) -> Mapping[str, object]:
        """Return what to show, by name."""
        return {}

    def _lines(self) -> Sequence[object]:
        """Return the items that have their own line."""
        return ()

    @staticmethod
    def _facts_of(part: Display) -> Mapping[str, object]:
        return part._facts()

    def __repr__(self) -> str:
        shown = ((name, fact) for name, fact in self._facts().items() if fact not in (None, "", (), {}))
        lines = [f"{type(self).__name__}({', '.join(f'{name}={_line(fact)}' for name, fact in shown)})"]
        items = self._lines()
        lines += (f"  {rank}. {item!r}" for rank, item in enumerate(items[:MOST_ROWS], 1))
        if len(items) > MOST_ROWS:
            lines.append(f"  … {len(items) - MOST_ROWS} more")
        return "\n".join(lines)
