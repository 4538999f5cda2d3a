"""Texts that may be taken for the frame that passages are shown in."""

from __future__ import annotations

from hypothesis import strategies as st

PIECES = [
    "[2] Doc: a.md",
    "[1] Doc: ",
    "\\",
    "\\\\[3] Doc: b | Section: c",
    " | Section: ",
    " | Page: 3",
    "| Rows: 1-2",
    " (id: x)",
    " > ",
    ">",
    "\\u000a",
    "\\U0001f600",
    "\\uD800",
    "---",
    "\n",
    "\n\n",
    "\n\n---\n\n",
    "\r\n",
    "\x85",
    "\u2028",
    "\x0b",
    "\x00",
    "\u202e",
    "\u200b",
    "\ud83d",
    "\ude00",
    "\U000e0041",
    "［2］ Doc： a",  # noqa: RUF001
    "  ",
    "Doc: ",
    "[",
    "]",
    "7",
    "Plain words.",
    "Ünï",
]
ANY_TEXT = st.lists(st.sampled_from(PIECES) | st.text(st.characters(), max_size=4), max_size=8).map("".join)
