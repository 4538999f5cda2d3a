"""Change one table of a TOML file. All other characters stay, comments too."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from retrieval_core_mcp.setup.errors import NotEditableError

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADER = re.compile(r"\s*\[")
_SPACE_OR_COMMENT = re.compile(r"\s*(?:#.*)?$")
_MARK = "\ufeff"


def entry_of(text: str, group: str, name: str) -> Any:
    """Return the table ``[group.name]``; ``None`` if there is none.

    Raises:
        NotEditableError: The text is not TOML, or not built as expected.
    """
    return _read(text, group).get(group, {}).get(name)


def with_entry(text: str, group: str, name: str, entry: Mapping[str, object] | None) -> str:
    """Return the text with a table at its end, or without it if that is ``None``.

    Raises:
        NotEditableError: The text is not TOML, or the table can't be added to it or removed from it.
    """
    expected = _read(text, group)
    mark, body = text[: text.startswith(_MARK)], text.removeprefix(_MARK)
    before = mark + (_without(body, group, name) if name in expected.get(group, {}) else body)
    after = before
    if entry is None:
        expected.get(group, {}).pop(name, None)
        if not expected.get(group, True):
            del expected[group]
    else:
        expected.setdefault(group, {})[name] = dict(entry)
        after = _with(before, group, name, entry)
    found = _read(after, group)
    if entry is None and not found.get(group, True):
        del found[group]
    if found != expected:
        msg = f"its {group} are written in an unusual form"
        raise NotEditableError(msg)
    return after


def _with(text: str, group: str, name: str, entry: Mapping[str, object]) -> str:
    import tomlkit  # noqa: PLC0415 - for who has a TOML file

    newline = "\r\n" if "\r\n" in text else "\n"
    table = tomlkit.dumps({group: {name: dict(entry)}}).strip().replace("\n", newline) + newline
    if not text.removeprefix(_MARK).strip():
        return text.rstrip() + table
    return text + newline * (not text.endswith("\n")) + newline + table


def _without(text: str, group: str, name: str) -> str:
    """Return a text without a table and the tables in it. Comments behind them, and blank lines, stay."""
    header = re.compile(rf"""\s*\[\s*["']?{re.escape(group)}["']?\s*\.\s*["']?{re.escape(name)}["']?\s*[].]""")
    kept: list[str] = []
    table: list[str] = []
    for line in text.splitlines(keepends=True):
        if _HEADER.match(line) and (table or header.match(line)):
            kept += _behind(table)
            table = [line] if header.match(line) else []
            kept += [] if table else [line]
        else:
            (table or kept).append(line)
    if kept and table and not kept[-1].strip():  # the blank line before a table at the end
        kept.pop()
    return "".join(kept + _behind(table))


def _behind(table: list[str]) -> list[str]:
    """Return the comments and blank lines at the end of a table, which are about what follows."""
    at = len(table)
    while at and _SPACE_OR_COMMENT.match(table[at - 1]):
        at -= 1
    return table[at:]


def _read(text: str, group: str) -> dict[str, Any]:
    try:
        whole = tomllib.loads(text.removeprefix(_MARK))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        msg = f"it is not TOML ({error})"
        raise NotEditableError(msg) from None
    if not isinstance(whole.get(group, {}), dict):
        msg = f"its {group} is not a table"
        raise NotEditableError(msg)
    return whole
