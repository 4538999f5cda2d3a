"""Rules of ``.gitignore`` files, with git's meaning and in bounded time.

Paths are bytes, as git matches them: ``?`` is one byte. Each rule becomes a regular expression that never goes back
behind the last ``*`` of a name and the last ``**``, so that no rule takes long, whoever wrote it. (pathspec 1.1 takes
85 s to compare ``*a*a*a*a*a*a*b`` with a name of 100 letters.)

Source: https://git-scm.com/docs/gitignore, and for what it leaves open ``dir.c`` and ``wildmatch.c`` of git 2.39.
"""

from __future__ import annotations

import os
import re
import stat
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = ".gitignore"
LONGEST_RULE = 4096
"""Bytes of a line, as many as a path has on Linux; longer ones are passed over."""

_STAR = b"[^/]*"
_FOLDERS = b"(?:[^/]*/)*"
"""For ``**/``."""
_REST = b".*"
"""For ``**`` at the end."""
_SPECIAL = re.compile(rb"[*?[\\]")
_CLASSES = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, [*range(32), 127])),
    b"digit": string.digits,
    b"graph": string.ascii_letters + string.digits + string.punctuation,
    b"lower": string.ascii_lowercase,
    b"print": string.ascii_letters + string.digits + string.punctuation + " ",
    b"punct": string.punctuation,
    b"space": string.whitespace,
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a ``.gitignore`` file.

    Attributes:
        expression: Matches a whole path relative to the file's folder, or a whole name where ``by_name``.
        negated: Whether what matches is not ignored.
        folders_only: Whether only folders match.
        by_name: Whether the name alone is compared, at any depth.
    """

    expression: re.Pattern[bytes]
    negated: bool
    folders_only: bool
    by_name: bool

    def matches(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether the rule is about a path relative to the folder of its file."""
        if self.folders_only and not is_folder:
            return False
        return self.expression.fullmatch(path.rpartition(b"/")[2] if self.by_name else path) is not None


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules that hold in a folder: its own, and below them those of the folders above.

    Attributes:
        own: Of the folder's own file; the last one that matches decides.
        name: Of the folder.
        above: The rules that hold in the folder above; ``None`` at the root of a working tree.
    """

    own: tuple[Rule, ...] = ()
    name: bytes = b""
    above: IgnoreRules | None = None

    def ignore(self, name: bytes, *, is_folder: bool) -> bool:
        """Whether a file or folder of this folder is ignored."""
        rule = self._deciding_rule(name, is_folder=is_folder)
        return rule is not None and not rule.negated

    def include_folder(self, name: bytes) -> IgnoreRules:
        """Return the rules without those that ignore a folder of this folder; rules that include it again stay."""
        rules = self
        while (rule := rules._deciding_rule(name, is_folder=True)) is not None and not rule.negated:
            rules = rules._without(rule)
        return rules

    def _deciding_rule(self, name: bytes, *, is_folder: bool) -> Rule | None:
        path, rules = name, self
        while True:
            for rule in reversed(rules.own):
                if rule.matches(path, is_folder=is_folder):
                    return rule
            if rules.above is None:
                return None
            path, rules = rules.name + b"/" + path, rules.above

    def _without(self, rule: Rule) -> IgnoreRules:
        levels: list[IgnoreRules] = [self]
        while (above := levels[-1].above) is not None:
            levels.append(above)
        rules: IgnoreRules | None = None
        for level in reversed(levels):
            rules = IgnoreRules(tuple(own for own in level.own if own is not rule), level.name, rules)
        return rules or self


def read_rules(folder: Path) -> tuple[Rule, ...]:
    """Return the rules of a folder's own ``.gitignore``; none where it has none, or one that is a link, as for git.

    Raises:
        OSError: The file cannot be read.
    """
    file = folder / FILE_NAME
    try:
        state = file.lstat()
    except (FileNotFoundError, PermissionError):  # nothing in a folder that cannot be entered is read
        return ()
    return parse_rules(file.read_bytes()) if stat.S_ISREG(state.st_mode) else ()


def working_tree(folder: Path) -> tuple[Path, ...]:
    """Return the folders from the root of git's working tree down to a folder; the folder alone outside of one.

    Args:
        folder: Without symbolic links.
    """
    for root in (folder, *folder.parents):
        if os.path.exists(root / ".git"):  # noqa: PTH110 - false, and no error, if it cannot be entered
            below = folder.relative_to(root).parts
            return tuple(root.joinpath(*below[:depth]) for depth in range(len(below) + 1))
    return (folder,)


def parse_rules(text: bytes) -> tuple[Rule, ...]:
    """Return the rules of a file; lines that can match nothing are left out, as git passes over them."""
    lines = (line.removesuffix(b"\r") for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    return tuple(rule for line in lines if len(line) <= LONGEST_RULE and (rule := _rule(line)) is not None)


def _rule(line: bytes) -> Rule | None:
    if line.startswith(b"#"):
        return None
    pattern = _without_trailing_spaces(line)
    negated = pattern.startswith(b"!")
    pattern = pattern[negated:]
    folders_only = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    by_name = b"/" not in pattern
    expression = _expression(pattern.removeprefix(b"/"), by_name=by_name)
    if expression is None:
        return None
    return Rule(re.compile(expression, re.DOTALL), negated, folders_only, by_name)


def _without_trailing_spaces(line: bytes) -> bytes:
    r"""Return a line without the spaces at its end, but for one after a backslash."""
    kept = line.rstrip(b" ")
    slashes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if slashes % 2 and len(kept) < len(line) else kept


def _expression(pattern: bytes, *, by_name: bool) -> bytes | None:
    """Return a regular expression for a pattern; ``None`` for one that matches nothing."""
    tokens = _tokens(pattern, by_name=by_name)
    parts = [b"/".join(map(_name, _split(part, b"/"))) for part in _split(tokens, _FOLDERS)]
    return _with_gaps(parts, _FOLDERS) if tokens else None


def _name(tokens: list[bytes]) -> bytes:
    return _with_gaps([b"".join(part) for part in _split(tokens, _STAR)], _STAR)


def _with_gaps(parts: list[bytes], gap: bytes) -> bytes:
    """Return an expression of parts with gaps between them.

    What stands between two gaps matches where it first can: whatever follows has the most room then.
    """
    first, *others = parts
    middle = [b"(?>" + gap + b"?" + part + b")" for part in others[:-1]]
    return b"".join((first, *middle, *(gap + part for part in others[-1:])))


def _split(tokens: list[bytes], separator: bytes) -> list[list[bytes]]:
    parts: list[list[bytes]] = [[]]
    for token in tokens:
        if token == separator:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _tokens(pattern: bytes, *, by_name: bool) -> list[bytes]:
    """Return a pattern as expressions of one byte each, ``/``, and the three kinds of star; nothing where it is broken.

    A ``**`` takes up folders only between slashes. What git compares as plain text, up to the first special character,
    counts as a slash for it.
    """
    first = _SPECIAL.search(pattern)
    tokens: list[bytes] = []
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        if char == b"*":
            end = len(pattern) - len(pattern[at:].lstrip(b"*"))
            after = pattern[end : end + 1]
            begins = not tokens or tokens[-1] in (b"/", _FOLDERS) or (first is not None and at == first.start())
            if by_name or end - at == 1 or not begins or after not in (b"", b"/"):
                tokens.append(_STAR)
            else:
                tokens.append(_FOLDERS if after else _REST)
                end += len(after)
            at = end
        elif char == b"[":
            found = _byte_class(pattern, at + 1)
            if found is None:
                return []
            token, at = found
            tokens.append(token)
        else:
            at += char == b"\\"
            if at == len(pattern):
                return []
            token = pattern[at : at + 1]
            tokens.append(b"[^/]" if char == b"?" else b"/" if token == b"/" else re.escape(token))
            at += 1
    return tokens


def _byte_class(pattern: bytes, at: int) -> tuple[bytes, int] | None:
    """Return the expression of a class such as ``[!a-z[:digit:]]``, and where it ends; ``None`` where it is broken.

    It begins at ``at``, behind its bracket.
    """
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members: set[int] = set()
    start = at
    previous: int | None = None
    while at == start or pattern[at : at + 1] != b"]":
        named = re.compile(rb"\[:([^\]]*):\]").match(pattern, at)
        if named is not None:
            if named[1] not in _CLASSES:
                return None
            members.update(_CLASSES[named[1]].encode())
            at, previous = named.end(), None
            continue
        is_range = pattern[at : at + 1] == b"-" and previous is not None and pattern[at + 1 : at + 2] not in (b"", b"]")
        at += is_range
        at += pattern[at : at + 1] == b"\\"
        if at >= len(pattern):
            return None
        byte = pattern[at]
        members.update(range(previous, byte + 1) if is_range and previous is not None else (byte,))
        at, previous = at + 1, None if is_range else byte
    bytes_ = [byte for byte in range(1, 256) if (byte in members) is not negated and byte != ord("/")]
    return (b"[" + b"".join(b"\\x%02x" % byte for byte in bytes_) + b"]" if bytes_ else b"(?!)"), at + 1
