"""The query syntax: ``"a phrase"`` must occur, ``-word`` must not, ``path:`` and ``field:value`` filter.

Everything else is text, and so is everything that only looks like syntax. The rules keep questions, code, log lines and
commands as they are:

- After a colon or an equals sign and a space comes a value, which is text.
- A quoted phrase stands between white space or punctuation. If any quotation mark of the query is not one of a phrase,
  as in code, JSON and log lines, then none is. A query that ends with ``?`` is a question: it quotes, and requires
  nothing.
- If nothing has a phrase, nothing is found. A query with more than eight other words is a sentence that quotes
  something, and is then searched by its words.
- Exclusions stand at the end of the query. If a word elsewhere begins with a hyphen, as the options of a command do,
  then phrases and exclusions are text. A word of one or two letters is excluded as ``-"go"``.
- ``path:`` and ``field:`` are directly before their value, and ``field`` is a field of the index.
- Something to search for is left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

PATH = "path"
MOST_WORDS = 8
"""Words besides its phrases that a query may have; one with more is a sentence, which quotes names."""
MOST_PARTS = 16
"""A query with more parts that look like syntax is a text."""

_QUOTES = str.maketrans(dict.fromkeys("\u201c\u201d\u201e\u201f", '"'))
"""Typographic quotation marks count as plain ones."""
_PART = re.compile(
    r"""(?<!\S)(?<![:=]\s)(?:
        (?P<minus>-?)(?:
            (?P<name>[^\W\d][\w.-]*):(?P<value>"[^"]*"|[^\s":][^\s"]*)
          | "(?P<phrase>[^"]*)"(?P<mark>[.,;!?)]*)
        )
      | -(?P<word>[^\W\d_][\w-]{2,})
    )(?!\S)""",
    re.VERBOSE,
)
_OPTION = re.compile(r"(?<!\S)-\S")
_LOOKS = re.compile('["\u201c\u201d\u201e\u201f:]|\\s-')
_WORD_ON_BOTH_SIDES = re.compile(r"\w\w")


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A condition on a field; of :data:`PATH`, on the path of the file.

    Attributes:
        value: As it was typed. ``*`` stands for any run of characters and ``?`` for one.
        is_excluded: Whether the field must not have the value.
    """

    name: str
    value: str
    is_excluded: bool = False

    def __str__(self) -> str:
        return f"{'-' * self.is_excluded}{self.name}:{_quoted(self.value)}"


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query, taken apart.

    Attributes:
        text: What is searched for.
        required: Phrases that must occur in each result.
        excluded: Words and phrases that must not occur.
        conditions: On fields, and on paths.
        unread: Conditions that are text, since the store can't look up their fields.
    """

    text: str
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    conditions: tuple[FieldValue, ...] = ()
    unread: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything of the query is syntax."""
        return bool(self.required or self.excluded or self.conditions or self.unread)

    @property
    def is_sentence(self) -> bool:
        """Whether the query is a sentence that quotes something, rather than a few words and what they require."""
        return len(self.text.split()) - sum(len(phrase.split()) for phrase in self.required) > MOST_WORDS

    def summary(self) -> str:
        """Return one line that says what was understood; it is empty if all is text."""
        paths = [each for each in self.conditions if each.name == PATH]
        told = {
            "required": [f'"{phrase}"' for phrase in self.required],
            "excluded": [_quoted(phrase) for phrase in self.excluded],
            "path": [f"{'not ' * each.is_excluded}{each.value}" for each in paths],
            "field": [str(each) for each in self.conditions if each.name != PATH],
            "text, as this store can't look up fields (pass a filter)": self.unread,
        }
        return " \u00b7 ".join(f"{name}: {', '.join(each)}" for name, each in told.items() if each)


def parse_query(query: str, fields: Collection[tuple[str, str]] | None = None) -> ParsedQuery:
    """Take a query apart. No text is an error.

    Args:
        query: As it was typed.
        fields: Names and values of the conditions that the index can test; all others are text. ``None`` for all.
            Paths need not be among them.
    """
    if _LOOKS.search(query) is None:
        return ParsedQuery(query)
    plain = query.translate(_QUOTES)
    parts = [each for each in _PART.finditer(plain) if _can_be_syntax(each, fields)]
    if len(parts) > MOST_PARTS:
        return ParsedQuery(query)
    if plain.count('"') != sum(each.group().count('"') for each in parts):
        parts = [each for each in parts if '"' not in each.group()]
    parts = _without_options(plain, parts)
    required, excluded, conditions = _contents(parts)
    text = _text_left(query, parts)
    if not _has_content(text):  # a filter needs a text to rank by; an exclusion alone is none
        if not conditions or excluded:
            return ParsedQuery(query)
        text = " ".join(each.value for each in conditions)
    if text.endswith(("?", "\uff1f")):
        required = ()
    if not (required or excluded or conditions):
        return ParsedQuery(query)
    return ParsedQuery(text, required, excluded, conditions)


def contains_phrase(text: str, phrase: str) -> bool:
    """Return whether a text contains a phrase as whole words; case and white space do not matter.

    Args:
        text: As :func:`folded` returns it.
        phrase: Likewise.
    """
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        if not _is_in_word(text, start) and not _is_in_word(text, end):
            return True
        start = text.find(phrase, start + 1)
    return False


def folded(text: str) -> str:
    """Return a text as phrases are compared with it: without case, and with single spaces."""
    return " ".join(text.casefold().split())


def _is_in_word(text: str, place: int) -> bool:
    """Return whether a place is inside a word; scripts without spaces have no words to be inside of."""
    return (
        0 < place < len(text)
        and _WORD_ON_BOTH_SIDES.match(text, place - 1) is not None
        and _unspaced().search(text, place - 1, place + 1) is None
    )


@cache
def _unspaced() -> re.Pattern[str]:
    from retrieval_core.text.analysis import BY_CHARACTER  # noqa: PLC0415 - loads the stemmer

    return re.compile(f"[{BY_CHARACTER}]")


def _can_be_syntax(part: re.Match[str], fields: Collection[tuple[str, str]] | None) -> bool:
    name, value, phrase = part["name"], part["value"], part["phrase"]
    if name is None:
        return phrase is None or _has_content(phrase)
    value = value.strip('"')
    if not _has_content(value) and "*" not in value:
        return False
    return name == PATH or (value[0] not in "/\\" and (fields is None or (name, value) in fields))


def _without_options(query: str, parts: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Return the parts without phrases and exclusions if the query is a command, or else those that can be meant."""
    starts = {each.start() for each in parts}
    excluding = {each.start() for each in parts if each["word"] or (each["minus"] and each["phrase"] is not None)}
    end = len(query)
    for part in reversed(parts):
        if query[part.end() : end].strip():
            break
        end = part.start()
    if all(each.start() in starts for each in _OPTION.finditer(query)) and all(start >= end for start in excluding):
        return list(parts)
    return [each for each in parts if each["name"] is not None]


def _contents(parts: Sequence[re.Match[str]]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[FieldValue, ...]]:
    required: dict[str, None] = {}
    excluded: dict[str, None] = {}
    conditions: dict[FieldValue, None] = {}
    for part in parts:
        if part["name"] is not None:
            conditions[FieldValue(part["name"], part["value"].strip('"'), bool(part["minus"]))] = None
        elif part["word"] is not None or part["minus"]:
            excluded[" ".join((part["word"] or part["phrase"]).split())] = None
        else:
            required[" ".join(part["phrase"].split())] = None
    return tuple(required), tuple(excluded), tuple(conditions)


def _text_left(query: str, parts: Sequence[re.Match[str]]) -> str:
    """Return the query without the parts, but with the words of its phrases."""
    left: list[str] = []
    end = 0
    for part in parts:
        left.append(query[end : part.start()])
        if part["phrase"] is not None and not part["minus"]:
            left.append(part["phrase"] + part["mark"])
        end = part.end()
    return " ".join("".join([*left, query[end:]]).split())


def _has_content(text: str) -> bool:
    return any(map(str.isalnum, text))


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text else text
