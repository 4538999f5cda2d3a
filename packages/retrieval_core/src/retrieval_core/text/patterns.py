r"""Regular expressions that are matched line by line in linear time, and the literals that a match must contain.

The engine is RE2, the one library that this module wraps. Its syntax is Python's without what needs backtracking:
lookaround and backreferences. ``\d``, ``\w``, ``\s`` and ``\b`` are ASCII.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from retrieval_core.errors import InvalidParameterError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_PATTERN = 1_000
"""Characters."""
SHORTEST_LITERAL = 3
"""Characters of a literal by which documents are selected."""

_ESCAPE = re.compile(
    r"\\(?:x\{[^}]*\}|x[0-9a-fA-F]{2}|[pP]\{[^}]*\}|[pP].|[0-7]{1,3}|Q(?:(?!\\E).)*(?:\\E)?|.)", re.DOTALL
)
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\Q(?:(?!\\E).)*(?:\\E)?|\\.|[^\]\\])*\]", re.DOTALL)
_GROUP = re.compile(r"\((?:\?(?:P?<\w+>|[a-zA-Z-]*:))?")
_FLAGS = re.compile(r"\(\?([a-zA-Z-]+)\)")
_REPEATED = re.compile(r"(?:[*+?]|\{(\d+)(?:,\d*)?\})\??")
_ENDS = {"^": "(?m:^)", r"\A": "(?m:^)", "$": "(?m:$)", r"\z": "(?m:$)", r"\Z": "(?m:$)"}
"""Ends of the text, which is one line, whatever flags the pattern has."""
_NOT_SUPPORTED = re.compile(r"\(\?(?:<?[=!]|>|P=|\()|(?<!\\)(?:\\\\)*\\[1-9]|[*+?}]\+")
_LITERALS_ONLY = re.compile(r"\\[pP]\{[^}]*\}|\\.|\(\?P?<\w+>|\(\?[a-zA-Z-]+", re.DOTALL)

Clause = frozenset[str]
"""Literals of which a match contains at least one, in any case."""


class LinePattern(NamedTuple):
    """A compiled pattern.

    Attributes:
        regex: The compiled pattern of RE2, for bytes. It matches within lines, never across them.
        clauses: Literals that each matching line contains, at least one of each clause, in any case. Each has at least
            :data:`SHORTEST_LITERAL` characters.
    """

    regex: Any
    clauses: tuple[Clause, ...]


def compile_pattern(
    pattern: str, *, literal: bool = False, ignore_case: bool | None = None, word: bool = False
) -> LinePattern:
    """Compile a pattern that is matched within lines.

    Args:
        pattern: A regular expression in the syntax of RE2.
        literal: Whether the pattern is text, without special characters.
        ignore_case: Whether case is ignored. Default: if the pattern has no uppercase letter.
        word: Whether only whole words match: no letter, digit or underscore comes directly before or after.

    Raises:
        InvalidParameterError: The pattern is empty, too long or invalid, or needs what RE2 lacks.
        MissingExtraError: The extra ``grep`` is not installed.
    """
    re2 = _engine()
    if not pattern or len(pattern) > LONGEST_PATTERN:
        msg = f"the pattern must have 1 to {LONGEST_PATTERN} characters, got {len(pattern)}"
        raise InvalidParameterError(msg)
    try:
        pattern.encode()
    except UnicodeEncodeError as error:
        msg = f"{_named(pattern)} has a lone surrogate, which is no character and in no text. Remove it"
        raise InvalidParameterError(msg) from error
    if "\n" in pattern or "\r" in pattern or (not literal and _has_newline(pattern)):
        msg = f"{_named(pattern)} has a line break, and patterns match within lines. Search for one of the lines"
        raise InvalidParameterError(msg)
    if ignore_case is None:
        letters = pattern if literal else _LITERALS_ONLY.sub("", pattern)
        ignore_case = letters == letters.lower()
    text: str = re2.escape(pattern) if literal else _within_line(pattern)
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    options.never_capture = True
    options.case_sensitive = not ignore_case
    try:
        re2.compile(text, options)  # alone, so that its brackets are its own
        whole = rf"(?m:^|[^\pL\pN_])(?:{text})(?m:$|[^\pL\pN_])" if word else text
        regex = re2.compile(whole.encode(), options)
    except re2.error as error:
        raise _invalid(pattern, error) from error
    folds = ignore_case or (not literal and "(?" in pattern)
    found = (frozenset({pattern}),) if literal else _clauses_of(text)
    return LinePattern(regex, tuple(_searchable(found, folds=folds)))


def _engine() -> Any:
    try:
        import re2  # noqa: PLC0415 - only those who search for patterns pay for it
    except ImportError as error:
        raise MissingExtraError("grep", "grep") from error
    return re2


def _named(pattern: str) -> str:
    return f"the pattern {pattern!r:.80}"


def _has_newline(pattern: str) -> bool:
    return any(escape[0] in {r"\n", r"\r"} for escape in _ESCAPE.finditer(_CLASS.sub("", pattern)))


def _invalid(pattern: str, error: Exception) -> InvalidParameterError:
    reason = error.args[0] if error.args else ""
    reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    what, _, part = reason.partition(": ")
    reason = reason if part in pattern else what
    if _NOT_SUPPORTED.search(pattern):
        advice = (
            "It has no lookaround, backreferences, atomic groups or possessive quantifiers; search for a simpler "
            "pattern and read the lines"
        )
    elif "repetition size" in reason or "too large" in reason:
        advice = "Repeat at most 1,000 times, or use * or +"
    else:
        advice = "To search for the text as it is, set literal (-F)"
    msg = f"{_named(pattern)} is no regular expression of RE2: {reason}. {advice}"
    return InvalidParameterError(msg)


def _within_line(pattern: str) -> str:
    """Return a pattern whose anchors are those of a line."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        token = _CLASS.match(pattern, at) or _ESCAPE.match(pattern, at)
        text = token[0] if token else pattern[at]
        parts.append(_ENDS.get(text, text))
        at += len(text)
    return "".join(parts)


def _searchable(clauses: Sequence[Clause], *, folds: bool) -> list[Clause]:
    """Return clauses whose literals can be looked up, each cut to the longest part that can.

    Args:
        folds: Whether the pattern ignores case somewhere: of letters outside ASCII, more than two may be the same.
    """
    kept = [
        frozenset(max(_parts(literal, folds=folds), key=len, default="") for literal in clause) for clause in clauses
    ]
    return [clause for clause in kept if min(map(len, clause), default=0) >= SHORTEST_LITERAL]


def _parts(literal: str, *, folds: bool) -> list[str]:
    return re.split("[^\x01-\x7f]+" if folds else "\0+", literal)


def _clauses_of(pattern: str) -> tuple[Clause, ...]:
    """Return what each match must contain; less than it could where the syntax is unusual, never more."""
    clauses, end = _alternatives(pattern, 0)
    return clauses if end == len(pattern) else ()


def _alternatives(pattern: str, at: int) -> tuple[tuple[Clause, ...], int]:
    """Return the clauses of alternatives, and where they end: at a closing bracket, or at the end."""
    branches: list[tuple[Clause, ...]] = []
    while True:
        clauses, at = _branch(pattern, at)
        branches.append(clauses)
        if at == len(pattern) or pattern[at] == ")":
            break
        at += 1
    if len(branches) == 1:
        return branches[0], at
    best = [max(clauses, key=lambda clause: min(map(len, clause)), default=frozenset[str]()) for clauses in branches]
    return ((frozenset[str]().union(*best),) if all(best) else ()), at


def _branch(pattern: str, at: int) -> tuple[tuple[Clause, ...], int]:
    """Return the clauses of one alternative, and where it ends."""
    clauses: list[Clause] = []
    run = ""
    while at < len(pattern) and pattern[at] not in "|)":
        inner: tuple[Clause, ...] = ()
        letter = ""
        if flags := _FLAGS.match(pattern, at):
            at = flags.end()
        elif group := _GROUP.match(pattern, at):
            inner, at = _alternatives(pattern, group.end())
            at += 1
        elif token := _CLASS.match(pattern, at) or _ESCAPE.match(pattern, at):
            at = token.end()
            if len(token[0]) == 2 and not token[0][1].isalnum():
                letter = token[0][1]
        else:
            letter, at = pattern[at] if pattern[at] not in ".^$" else "", at + 1
        least, is_repeated = 1, False
        while repeated := _REPEATED.match(pattern, at):
            at, is_repeated = repeated.end(), True
            least = min(least, int(repeated[1]) if repeated[1] else int(repeated[0][0] == "+"))
        if letter and least:
            run += letter
        if not letter or is_repeated:
            clauses.append(frozenset({run}))
            run = ""
        if least:
            clauses.extend(inner)
    clauses.append(frozenset({run}))
    return tuple(clause for clause in clauses if min(map(len, clause)) >= SHORTEST_LITERAL), at
