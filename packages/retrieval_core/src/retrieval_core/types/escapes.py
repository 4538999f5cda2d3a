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
    from collections.abc import Iterable, Mapping, Sequence

    Facts = Mapping[str, object]

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
MOST_HTML_CHARACTERS = 300
"""Characters of a text in a table."""
MOST_ANSWER_CHARACTERS = 3_000
MOST_ROWS = 20
"""Hits and passages in a list."""

_REPR = Repr()
_REPR.maxdict = _REPR.maxtuple = _REPR.maxlist = 4
_REPR.maxstring = 40


def render_line(kind: str, facts: Facts, lines: Sequence[object] = ()) -> str:
    """Return a value as one line, such as ``Hit(id='a.md#0', score=0.85, source='a.md', text='The moon …')``.

    Args:
        kind: The name of its type.
        facts: What to show of it.
        lines: What it contains, one line each.
    """
    line = f"{kind}({', '.join(f'{name}={_line(fact)}' for name, fact in _present(facts).items())})"
    numbered = [f"  {rank}. {each!r}" for rank, each in enumerate(lines[:MOST_ROWS], 1)]
    return "\n".join((line, *numbered, *(f"  {more}" for more in _more(len(lines)))))


def render_html(
    kind: str, facts: Facts, details: Facts, rows: tuple[Sequence[str], Iterable[Sequence[object]]] | None = None
) -> str:
    """Return a value as an HTML table with escaped text, without scripts, styles and links.

    Args:
        kind: The name of its type.
        facts: What to show of it.
        details: What to show of it as well.
        rows: The head and the rows of what it contains, in place of the details.
    """
    shown = _present(facts)
    text = {"text": shown.pop("text")} if "text" in shown else {}
    if rows is None:
        return _table((kind, ""), _present({**shown, **details, **text}).items())
    above = f"<p>{_cell(text['text'], MOST_ANSWER_CHARACTERS)}</p>" if text else ""
    return _caption(shown) + above + _table(*rows)


def _caption(facts: Facts) -> str:
    more = ", ".join(f"{name}: {_line(fact)}" for name, fact in facts.items() if name != "query")
    return f"<p><b>{_cell(facts.get('query', ''))}</b><br>{_cell(more)}</p>"


def _present(facts: Facts) -> dict[str, object]:
    return {name: _rounded(fact) for name, fact in facts.items() if fact not in (None, "", (), {})}


def _rounded(fact: object) -> object:
    return round(fact, 4) if isinstance(fact, float) else fact


def _line(fact: object) -> str:
    if isinstance(fact, PurePath):  # its end says most
        path = str(fact)
        return repr(path if len(path) <= MOST_CHARACTERS else f"…{path[1 - MOST_CHARACTERS :]}")
    return repr(_shorten(fact, MOST_CHARACTERS)) if isinstance(fact, str) else _REPR.repr(fact)


def _shorten(text: str, most: int) -> str:
    # Twice the room, for white space, so that a book is not read as a whole.
    short = " ".join(text[: 2 * most].split())
    return short if len(short) <= most and len(text) <= 2 * most else f"{short[: most - 1].rstrip()}…"


def _more(count: int) -> list[str]:
    return [f"… {count - MOST_ROWS} more"] if count > MOST_ROWS else []


def _cell(fact: object, most: int = MOST_HTML_CHARACTERS) -> str:
    from html import escape  # noqa: PLC0415 - only notebooks ask for it

    text = _shorten(str(fact) if isinstance(fact, (str, PurePath)) else _REPR.repr(_rounded(fact)), most)
    return escape("".join(letter if letter.isprintable() else "\ufffd" for letter in text))


def _table(head: Sequence[str], items: Iterable[Sequence[object]]) -> str:
    rows = list(items)
    lines = [f"<tr>{''.join(f'<td>{_cell(fact)}</td>' for fact in row)}</tr>" for row in rows[:MOST_ROWS]]
    lines += [f'<tr><td colspan="{len(head)}">{_cell(more)}</td></tr>' for more in _more(len(rows))]
    names = "".join(f"<th>{_cell(name)}</th>" for name in head)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


class Display:
    """Renders a value as one line and as HTML."""

    __slots__ = ()

    def _facts(self) -> Mapping[str, object]:
        """Return what to show, by name."""
        return {}

    def _details(self) -> Mapping[str, object]:
        """Return what there is room for in a table only."""
        return {}

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[object]]] | None:
        """Return what the value contains as a table: its head and its rows; ``None`` for a table of its facts."""
        return None

    def _lines(self) -> Sequence[object]:
        """Return the items that have their own line."""
        return ()

    @staticmethod
    def _facts_of(part: Display) -> Mapping[str, object]:
        return part._facts()

    @staticmethod
    def _details_of(part: Display) -> Mapping[str, object]:
        return part._details()

    def __repr__(self) -> str:

        return render_line(type(self).__name__, self._facts(), self._lines())

    def _repr_html_(self) -> str:

        return render_html(type(self).__name__, self._facts(), self._details(), self._rows())
