"""A short ``repr`` and a table for notebooks, for results and what they contain.

All text is shortened and escaped: documents may be hostile.
"""

from __future__ import annotations

from pathlib import PurePath
from reprlib import Repr
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Facts = Mapping[str, object]

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
        """Return what has a line of its own."""
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
