"""Change one entry of a JSON file. All others keep their values and order, and the file its indentation."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_INDENTED = re.compile(r"\n([ \t]+)\S")
_MARK = "\ufeff"


class NotEditableError(Exception):
    """A text can't be changed without the danger that something in it is lost; the message says why."""


def entry_of(text: str, group: str, name: str) -> Any:
    """Return the entry called ``name`` of the object called ``group``; ``None`` if there is none.

    Raises:
        NotEditableError: The text is not plain JSON, or not built as expected.
    """
    return _read(text, group).get(group, {}).get(name)


def with_entry(text: str, group: str, name: str, entry: Mapping[str, object] | None) -> str:
    """Return the text with an entry, or without it if that is ``None``. A blank text is an empty object.

    Raises:
        NotEditableError: The text is not plain JSON, or not built as expected.
    """
    whole = _read(text, group)
    servers = whole.setdefault(group, {})
    if entry is None:
        servers.pop(name, None)
    else:
        servers[name] = dict(entry)
    indented = _INDENTED.search(text)
    indent = "  " if indented is None else indented[1]
    end = text[len(text.rstrip()) :].replace("\r", "") if text.strip() else "\n"
    written = json.dumps(whole, ensure_ascii=r"\u" in text, indent=indent) + end
    return text[: text.startswith(_MARK)] + (written.replace("\n", "\r\n") if "\r\n" in text else written)


def _read(text: str, group: str) -> dict[str, Any]:
    try:
        whole: Any = json.loads(text.removeprefix(_MARK) if text.strip() else "{}", object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        msg = f"it is not plain JSON, without comments and without commas before a closing bracket ({error})"
        raise NotEditableError(msg) from None
    if not isinstance(whole, dict) or not isinstance(whole.get(group, {}), dict):  # pyright: ignore[reportUnknownMemberType]
        msg = f'it is not a JSON object in which "{group}" is an object, too'
        raise NotEditableError(msg)
    return whole  # pyright: ignore[reportUnknownVariableType]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        msg = "a name is in one of its objects twice"
        raise NotEditableError(msg)
    return found
