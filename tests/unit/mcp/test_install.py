"""The text of a configuration file with and without an entry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")


from retrieval_core_mcp.install.json_text import with_entry, without_entry

if TYPE_CHECKING:
    from collections.abc import Mapping


TEXTS = st.text(max_size=8) | st.just("half of a pair: \ud800")
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
SERVERS = st.dictionaries(TEXTS.filter(lambda name: name != "documents"), VALUES, max_size=4)


@st.composite
def configurations(draw: st.DrawFn, group: str) -> str:
    """Draw the text of a configuration, in one of the forms in which programs and people write it."""
    settings = draw(st.dictionaries(TEXTS, VALUES, max_size=3))
    members = list(settings.items())
    if draw(st.booleans()):
        members.insert(draw(st.integers(0, len(members))), (group, draw(SERVERS)))
    separators = draw(st.sampled_from([None, (",", ":"), (" , ", " : ")]))
    indent = draw(st.sampled_from([None, 2, 4, "\t"]))
    escaped = r"\ud800" in repr(members) or draw(st.booleans())
    text = json.dumps(dict(members), indent=indent, separators=separators, ensure_ascii=escaped)
    text = text if draw(st.booleans()) else text.replace("\n", "\r\n")
    return draw(st.sampled_from(["", "\ufeff", " \n"])) + text + draw(st.sampled_from(["", "\n", "\r\n\t"]))


def read(text: str) -> dict[str, Any]:
    return json.loads(text.removeprefix("\ufeff")) if text.strip() else {}


ODD = '{"n": 1.50E+3, "d": {"a": 1, "a": 2}, "servers": {"\\u0041": {"x":\t-0.0}  }, "e": "\\/"}'
"""What a program that reads and writes JSON would write in another way, or lose."""


@given(text=configurations("servers"), entry=st.dictionaries(TEXTS, VALUES, min_size=1))
@example(text=ODD, entry={"command": "x"})
def test_only_the_entry_is_written(text: str, entry: Mapping[str, object]) -> None:
    """The text around it is the same, character for character."""
    after = with_entry(text, "servers", "documents", {"args": [], **entry})
    assert read(after)["servers"]["documents"] == {"args": [], **entry}
    changed = with_entry(after, "servers", "documents", {"other": 1})
    assert read(changed) == {**read(after), "servers": {**read(after)["servers"], "documents": {"other": 1}}}
    if read(text).get("servers"):
        assert without_entry(after, "servers", "documents") == text
        assert without_entry(changed, "servers", "documents") == text
