"""Change one entry of a JSON file. All other characters stay, comments and trailing commas too."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from retrieval_core_mcp.setup.errors import NotEditableError

if TYPE_CHECKING:
    from collections.abc import Mapping

_STRING = r'"(?:[^"\\\r\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_COMMA = re.compile(r"\s*,")
_SPACE = re.compile(r"\s*")
_COLON = re.compile(r"\s*:\s*")
_VISIBLE = re.compile(r"[^\r\n]")
_INDENTED = re.compile(r"\n([ \t]+)\S")
_MARK = "\ufeff"
_DECODER = json.JSONDecoder()


class _Member(NamedTuple):
    """The places of a member's name and value in the text."""

    name: int
    value: int
    end: int


@dataclass(frozen=True)
class _Object:
    """The place of an object in the text, from its opening bracket to its closing one."""

    start: int
    end: int
    members: Mapping[str, _Member]


class _JsonText:
    """A text, its value, and where the parts of it are."""

    def __init__(self, text: str, group: str) -> None:
        self.text = text
        self.group = group
        # Of the same length, so that places in one are places in the other.
        self.uncommented = _COMMENT.sub(_blank, text.replace(_MARK, " ", text.startswith(_MARK)))
        self.plain = _TRAILING_COMMA.sub(_blank, self.uncommented)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        indented = _INDENTED.search(self.plain)
        self.indent = "  " if indented is None else indented[1]

    @cached_property
    def value(self) -> dict[str, Any]:
        """The value; that of a blank text is an empty object.

        Raises:
            NotEditableError: There is none, or it is not built as expected.
        """
        try:
            whole: Any = json.loads(self.plain if self.plain.strip() else "{}", object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            msg = f"it is not JSON ({error})"
            raise NotEditableError(msg) from None
        if not isinstance(whole, dict) or not isinstance(whole.get(self.group, {}), dict):  # pyright: ignore[reportUnknownMemberType]
            msg = f'it is not a JSON object in which "{self.group}" is an object, too'
            raise NotEditableError(msg)
        return whole  # pyright: ignore[reportUnknownVariableType]

    def object_at(self, start: int) -> _Object:
        """Return the object that begins at a place."""
        members: dict[str, _Member] = {}
        at = self._after(_SPACE, start + 1)
        while self.plain[at] != "}":
            name, end = _DECODER.raw_decode(self.plain, at)
            value = self._after(_COLON, end)
            _, end = _DECODER.raw_decode(self.plain, value)
            members[name] = _Member(at, value, end)
            at = self._after(_SPACE, end)
            if self.plain[at] == ",":
                at = self._after(_SPACE, at + 1)
        return _Object(start, at, members)

    def added(self, where: _Object, name: str, value: object) -> str:
        """Return the text with another member at the end of an object."""
        text = self.text
        last = list(where.members.values())[-1] if where.members else None
        content = len(text[: where.end].rstrip())
        has_comma = last is not None and _COMMA.match(self.uncommented, last.end) is not None
        comma, ending = ("", ",") if has_comma else ("," if last else "", "")
        before = text[:content] if last is None else text[: last.end] + comma + text[last.end : content]
        key = json.dumps(name, ensure_ascii=False)
        if self._is_inline(where):
            return f"{before}{' ' * (last is not None)}{key}: {_rendered(value)}{ending}{text[content:]}"
        outer = self._indent_at(where.start)
        indent = outer + self.indent if last is None else self._indent_at(last.name)
        closing = "" if "\n" in text[content : where.end] else self.newline + outer
        member = f"{self.newline}{indent}{key}: {self._rendered(value, indent)}{ending}"
        return before + member + closing + text[content:]

    def replaced(self, where: _Object, name: str, value: object) -> str:
        """Return the text with another value of a member."""
        member = where.members[name]
        new = _rendered(value) if self._is_inline(where) else self._rendered(value, self._indent_at(member.name))
        return self.text[: member.value] + new + self.text[member.end :]

    def removed(self, where: _Object, name: str) -> str:
        """Return the text without a member of an object; comments around it stay."""
        text, member = self.text, where.members[name]
        start, end = member.name, member.end
        comma = _COMMA.match(self.uncommented, end)
        if comma is not None:
            end = comma.end()
        line_end = min(at for at in (text.find("\n", end), where.end, len(text)) if at >= 0)
        if text[end:line_end].strip():  # something follows on its line
            end = self._after(_SPACE, end)
        else:
            start = len(text[:start].rstrip())
        before = text[:start]
        names = list(where.members)
        if comma is None and names.index(name):  # the last one, and the one before needs its comma no more
            former = where.members[names[names.index(name) - 1]]
            at = self._after(_COMMA, former.end) - 1
            before = text[:at] + text[at + 1 : start]
        return before + text[end:]

    def _is_inline(self, where: _Object) -> bool:
        root = self.text[self.plain.index("{") : self.plain.rindex("}")]
        is_short = "\n" not in self.text[where.start : where.end]
        return is_short and (bool(where.members) or ("\n" not in root and bool(root[1:].strip())))

    def _indent_at(self, place: int) -> str:
        line = self.text[self.text.rfind("\n", 0, place) + 1 : place].removeprefix(_MARK)
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _rendered(self, value: object, indent: str) -> str:
        text = json.dumps(value, ensure_ascii=False, indent=self.indent)
        return text.replace("\n", self.newline + indent)

    def _after(self, pattern: re.Pattern[str], place: int) -> int:
        found = pattern.match(self.plain if pattern is not _COMMA else self.uncommented, place)
        return place if found is None else found.end()


def entry_of(text: str, group: str, name: str) -> Any:
    """Return the entry called ``name`` of the object called ``group``; ``None`` if there is none.

    Raises:
        NotEditableError: The text is not JSON with comments, or not built as expected.
    """
    return _JsonText(text, group).value.get(group, {}).get(name)


def with_entry(text: str, group: str, name: str, entry: Mapping[str, object] | None) -> str:
    """Return the text with an entry, or without it if that is ``None``. A blank text is an empty object.

    Raises:
        NotEditableError: The text is not JSON with comments, or not built as expected.
    """
    old = _JsonText(text, group)
    expected = {**old.value, group: {**old.value.get(group, {})}}
    if entry is None:
        expected[group].pop(name, None)
    else:
        expected[group][name] = dict(entry)
    after = _changed(old, group, name, entry)
    if _JsonText(after, group).value != expected:
        msg = "its form is unusual"
        raise NotEditableError(msg)
    return after


def _changed(old: _JsonText, group: str, name: str, entry: Mapping[str, object] | None) -> str:
    if not old.plain.strip():
        content = old.text.rstrip()
        between = old.newline if content.strip(_MARK) else ""
        whole = json.dumps({group: {} if entry is None else {name: entry}}, ensure_ascii=False, indent=old.indent)
        return content + between + whole.replace("\n", old.newline) + old.newline
    root = old.object_at(old.plain.index("{"))
    if group not in root.members:
        return old.text if entry is None else old.added(root, group, {name: entry})
    servers = old.object_at(root.members[group].value)
    if entry is None:
        return old.removed(servers, name) if name in servers.members else old.text
    return old.replaced(servers, name, entry) if name in servers.members else old.added(servers, name, entry)


def _rendered(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _blank(found: re.Match[str]) -> str:
    """Replace what a match is by spaces, unless it is a string."""
    return found[0] if found[0].startswith('"') else _VISIBLE.sub(" ", found[0])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        msg = "a name is in one of its objects twice"
        raise NotEditableError(msg)
    return found
