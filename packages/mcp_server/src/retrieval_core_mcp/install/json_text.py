"""Changing one entry in the text of a JSON file; every other character stays as it is."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_INDENTED = re.compile(r"\n([ \t]+)\S")
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class NotEditableError(Exception):
    """A text cannot be changed without the danger that something in it is lost; the message says why."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A name in an object, and where in the text it, its value and the end of that stand."""

    name: str
    start: int
    value: int
    end: int


def entry_of(text: str, group: str, name: str) -> Any:
    """Return the entry called ``name`` of the object called ``group``; ``None`` where there is none.

    Raises:
        NotEditableError: The text is not plain JSON, or not built as expected.
    """
    _, entry = _find(text, group, name)
    return None if entry is None else json.loads(text[entry.value : entry.end])


def with_entry(text: str, group: str, name: str, entry: Mapping[str, object]) -> str:
    """Return the text with an entry, in place of the one of that name, else behind all others.

    A blank text becomes one with the entry alone.

    Raises:
        NotEditableError: The text is not plain JSON, or not built as expected.
    """
    outer, inner = _find(text, group, name)
    if inner is not None:
        return text[: inner.value] + _shown(text, entry, 2) + text[inner.end :]
    if outer is not None:
        return _added(text, outer.value, name, entry, 2)
    text = text if text.strip() else "{}\n"
    return _added(text, text.index("{"), group, {name: entry}, 1)


def without_entry(text: str, group: str, name: str) -> str:
    """Return the text without an entry.

    Raises:
        NotEditableError: The text is not plain JSON, or not built as expected.
    """
    outer, entry = _find(text, group, name)
    if outer is None or entry is None:
        return text
    members = _members(text, outer.value)
    at = members.index(entry)
    if at:
        return text[: members[at - 1].end] + text[entry.end :]
    if len(members) > 1:
        return text[: entry.start] + text[members[1].start :]
    return text[: outer.value] + "{}" + text[outer.end :]


def _added(text: str, brace: int, name: str, value: object, level: int) -> str:
    """Return the text with a member behind those of the object whose brace stands at an index."""
    member = _line(text, level) + json.dumps(name, ensure_ascii=False) + ": " + _shown(text, value, level)
    if members := _members(text, brace):
        end = members[-1].end
        return text[:end] + "," + member + text[end:]
    return text[: brace + 1] + member + _line(text, level - 1) + text[text.index("}", brace) :]


def _shown(text: str, value: object, level: int) -> str:
    return json.dumps(value, ensure_ascii=False, indent=_indentation(text)).replace("\n", _line(text, level))


def _line(text: str, level: int) -> str:
    """Return what begins a line of a text at a level of objects."""
    return ("\r\n" if "\r\n" in text else "\n") + _indentation(text) * level


def _indentation(text: str) -> str:
    found = _INDENTED.search(text)
    return "  " if found is None else found[1]


def _find(text: str, group: str, name: str) -> tuple[_Member | None, _Member | None]:
    """Return where the object called ``group`` stands, and in it the entry called ``name``."""
    if not text.strip():
        return None, None
    try:
        whole = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        msg = f"it is not plain JSON, without comments and without commas before a closing bracket ({error})"
        raise NotEditableError(msg) from None
    if not isinstance(whole, dict):
        msg = "it is not a JSON object"
        raise NotEditableError(msg)
    outer = _only(text, text.index("{"), group)
    if outer is None:
        return None, None
    if text[outer.value] != "{":
        msg = f'"{group}" in it is not an object'
        raise NotEditableError(msg)
    return outer, _only(text, outer.value, name)


def _only(text: str, brace: int, name: str) -> _Member | None:
    found = [member for member in _members(text, brace) if member.name == name]
    if len(found) > 1:
        msg = f'"{name}" is in it twice'
        raise NotEditableError(msg)
    return found[0] if found else None


def _members(text: str, brace: int) -> list[_Member]:
    """Return the members of the object whose brace stands at an index of a text that is JSON."""
    found: list[_Member] = []
    at = _skip(text, brace + 1)
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        found.append(_Member(name, at, value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
