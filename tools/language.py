"""Check that texts for users follow docs/dev/english.md.

Usage: ``python tools/language.py [--warnings] [PATH...]``; the default path is the repository. The check fails on
offences in READMEs, pages for users, help texts, messages, and docstrings of public names. On other pages it counts
warnings; ``--warnings`` lists them. Code, quotations and instructions for language models are exempt.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS = 25
MOST_HELP_CHARACTERS = 60
STRICT_PAGES = re.compile(r"README\.md|packages/\w+/README\.md|docs/[\w-]+\.md")
IGNORED = re.compile(r"(?:tests|benchmarks|tools|site|dist)/|noxfile|CHANGELOG|docs/dev/english|(?:.*/)?\.(?!github)")
PUBLIC_PLACES = {"errors", "ports", "testing"}
"""Modules and packages whose names are public without an ``__all__``."""
INSTRUCTIONS = re.compile(r"_?[A-Z_]*(?:PROMPT|FORM|ANSWER|REPAIR|RULE|WITHOUT_DOCUMENTS)[A-Z_]*")
"""Constants that are sent to language models: they are measured, and every change is measured again."""

_IS = r"(?:is|are|was|were|be|been|being)"
_VERB = rf"(?:{_IS}|has|have|had|does|do|did|can|cannot|could|fails?|lacks?)"
_NOTHING = "nothing|none|nobody|neither|no|not|something|anything"
OPENINGS = {
    r"(?:What(?!['\u2019]s)|Whatever|Who|Whoever|Whom|Whose|By whom|Whether what|Of(?! course))\b": "name the subject",
    r"Where\b": "name the subject, or begin with 'If'",
}
"""Openings of sentences other than questions, and how to begin instead."""
WORDS = {
    rf"where (?:{_NOTHING}|that {_VERB}|there {_IS}|(?:it|they|one) {_VERB}(?= [\w§]))": "if",
    r"(?<!let )(?<!leave )(?<!stand )alone": "only",
    r"left alone|leaves? (?:\w+ )?alone|pass(?:es|ed|ing)? over(?! to)": "skip, ignore, do not change",
    r"by (?:its |their |the )?(?:meaning|words)|words first": "vector search, keyword search",
    r"(?:dense|lexical|both) sides?": "vector search, keyword search, both searches",
    r"st(?:and|ands|ood|anding) in(?: for)?|stand-ins?": "fall back to, replace, fake",
    rf"{_IS} (?:told|asked|taken for|taken in|taken out)": "an active verb: you get, X calls, X reports",
    r"(?:do|does|did|doing|done) without": "skip, fall back to",
    r"of (?:its|their|your|our|his|her|my|one['\u2019]s) own": "your own X, a custom X, a separate X",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"(?:document|file|page|setting|result|field|message|text|chunk|answer)s? (?:tells?|says?)": "contains, reports",
    r"(?:is|was|are|were) over(?! ?\d| [§a])": "time out, end",
    r"stands? at|one order": "rank, position, ranked list",
    r"made again|less than (?:was |is )?asked for": "retry; degraded",
    r"what was found|asked text|text asked": "result; query",
    r"\w+\(s\)": "the right plural",
}
"""Words that are ruled out, and what to write instead."""


class Text(NamedTuple):
    """A text for users."""

    kind: str
    line: int
    value: str


class Offence(NamedTuple):
    """Offending words, and what to write instead."""

    line: int
    words: str
    instead: str


_ADVICE = (*OPENINGS.values(), *WORDS.values())
_OPENING = re.compile("|".join(f"(?P<r{number}>{rule})" for number, rule in enumerate(OPENINGS)))
_RULES = "|".join(f"(?P<r{number}>{rule})" for number, rule in enumerate(WORDS, len(OPENINGS)))
_WORD = re.compile(rf"\b(?:{_RULES})(?!\w)", re.IGNORECASE)
_CODE = re.compile(r"``.+?``|`[^`]*`|https?://\S+|<[^>\s][^>]*>|\"[^\"]*\"|“[^”]*”")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?:])[)\"'*_]*\s+(?=[\"'(*_]*[A-Z§])|;\s+|\s+[\u2013\u2014]\s+|\s*\|\s*")
_ENTRY = re.compile(r"^(?:\s*(?:[-*+]|\d+\.)\s+|\s+\*{0,2}\w+(?: \([^)]*\))?: (?=\S)|\s*[A-Z][a-z]+:\s*$)")
_PROSE = re.compile(r"(?:[A-Za-z§][a-z§'\u2019-]*[,;:.]?\s+){2,}[a-z§]+")
_NO_PROSE = re.compile(r"\\[bws(]|\b(?:SELECT|FROM|WHERE|CREATE)\b|</|\{[a-z-]+:")
_ALL = re.compile(r"^__all__[^\[(]*[\[(](.*?)[\])]", re.DOTALL | re.MULTILINE)


def paragraphs(text: str, first: int) -> Iterator[tuple[bool, list[tuple[int, str]]]]:
    """Yield whether a paragraph is a heading, and its numbered lines; code blocks are left out."""
    found: list[tuple[int, str]] = []
    fence, block = "", -1
    for number, line in enumerate(text.expandtabs().split("\n"), first):
        bare, indent = line.strip(), len(line) - len(line.lstrip())
        opened = "-->" if bare.startswith("<!--") else bare[:3] if bare.startswith(("```", "~~~")) else ""
        if fence or opened:
            end = fence or opened
            fence = "" if (end in bare if fence or end == "-->" else False) else end
            continue
        if block >= 0 and (not bare or indent > block):
            continue
        block = indent if bare.endswith("::") or bare.startswith((">>>", "...")) else -1
        heading = bare.startswith("#")
        if found and (not bare or heading or bare.startswith("|") or _ENTRY.match(line)):
            yield False, found
            found = []
        if heading:
            yield True, [(number, bare.lstrip("# "))]
        elif bare and not bare.startswith((">>>", "...")):
            found.append((number, _ENTRY.sub("", line).strip()))
    if found:
        yield False, found


def offences(text: Text) -> Iterator[Offence]:
    """Yield the offences in one text."""
    if text.kind == "help" and len(text.value) > MOST_HELP_CHARACTERS:
        yield Offence(text.line, text.value, f"at most {MOST_HELP_CHARACTERS} characters, not {len(text.value)}")
    for heading, lines in paragraphs(text.value, text.line):
        joined = _CODE.sub("§", _LINK.sub(r"\1", " ".join(line for _, line in lines)))
        for sentence in filter(None, _END.split(joined)):
            clean = sentence.strip("\"'(*_ >")
            words = [word for word in clean.split() if re.search(r"[\w§]", word)]
            begins = _OPENING.match(clean) if not heading and len(words) > 3 and "?" not in sentence[-3:] else None
            hits = [*filter(None, [begins]), *(hit for hit in _WORD.finditer(clean) if hit.start() or not begins)]
            problems = [(hit[0], _ADVICE[int(str(hit.lastgroup)[1:])]) for hit in hits]
            if len(words) > MOST_WORDS:
                problems.append((" ".join(words[:4]), f"at most {MOST_WORDS} words a sentence, not {len(words)}"))
            for offending, instead in problems:
                starts = (
                    number for part in (offending, offending.split()[0]) for number, line in lines if part in line
                )
                yield Offence(next(starts, lines[0][0]), offending, instead)


def literal(node: ast.AST | None) -> str:
    """Return the text of a string or an f-string, with § for each of its values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "§" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def docstrings(node: ast.Module | ast.ClassDef, public: set[str], *, everything: bool) -> Iterator[ast.Expr]:
    """Yield the docstrings of public names, of attributes too, and of commands."""
    for before, after in zip([None, *node.body], node.body, strict=False):
        targets = getattr(before, "targets", [getattr(before, "target", None)])
        name = getattr(targets[0], "id", "_")
        is_public = before is None or (name[0] != "_" and (everything or name in public))
        if isinstance(after, ast.Expr) and literal(after.value) and is_public:
            yield after
        if not isinstance(after, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        calls = [ast.unparse(decorator) for decorator in after.decorator_list]
        is_command = any(re.search(r"\.(?:command|group)\(", call) for call in calls)
        named = everything or after.name in public or after.name.endswith("Config")
        if is_command or (named and not after.name.startswith(("_", "test_"))):
            if isinstance(after, ast.ClassDef):
                yield from docstrings(after, public, everything=True)
            elif isinstance(first := after.body[0], ast.Expr) and literal(first.value):
                yield first


def python_texts(path: str, source: str, public: set[str]) -> Iterator[Text]:
    """Yield the docstrings of public names, the help texts and the messages of a Python file."""
    tree = ast.parse(source)
    parts = re.split(r"[/.]", path.removesuffix(".py").removesuffix("__init__"))
    everything = not PUBLIC_PLACES.isdisjoint(parts)
    found = [] if any(part.startswith("_") for part in parts) else list(docstrings(tree, public, everything=everything))
    if path.endswith("__init__.py") or found[1:] or found[:1] != tree.body[:1]:  # the module has public names
        yield from (Text("docstring", node.lineno, literal(node.value)) for node in found)
    seen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) or (
            isinstance(node, ast.Assign) and INSTRUCTIONS.fullmatch(ast.unparse(node.targets[0]))
        ):
            seen.update(map(id, ast.walk(node.value)) if not isinstance(node.value, ast.Call) else ())
        if isinstance(node, ast.keyword) and node.arg == "help" and literal(node.value):
            seen.add(id(node.value))
            yield Text("help", node.value.lineno, literal(node.value))
        if isinstance(node, ast.JoinedStr):
            seen.update(map(id, node.values))
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in seen:
            value = literal(node)
            is_word_list = len(value.split()) > MOST_WORDS and not re.search("[.,:;]", value)
            if _PROSE.search(value) and not _NO_PROSE.search(value) and not is_word_list:
                yield Text("message", node.lineno, value)


def public_names(base: Path) -> set[str]:
    """Return the names in ``__all__`` of all files below a folder."""
    sources = [path.read_text("utf-8") for path in base.glob("packages/*/src/**/*.py")]
    lists = [found[1] for source in sources if (found := _ALL.search(source))]
    return {name for found in lists for name in re.findall(r"[\"'](\w+)[\"']", found)}


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def main(arguments: list[str]) -> int:
    """Print all offences; return 1 if there are any besides warnings."""
    given = [Path(argument).resolve() for argument in arguments if argument != "--warnings"] or [ROOT]
    base = ROOT if all(path.is_relative_to(ROOT) for path in given) else given[0]
    public = public_names(base)
    files = {
        file for at in given for file in ([at] if at.is_file() else at.rglob("*.*")) if file.suffix in {".md", ".py"}
    }
    failed = warned = 0
    for file in sorted(files):
        path = file.relative_to(base).as_posix()
        if IGNORED.match(path):
            continue
        source, is_page = file.read_text("utf-8"), file.suffix == ".md"
        texts = [Text("page", 1, source)] if is_page else python_texts(path, source, public)
        found = sorted((offence.line, text.kind, offence) for text in texts for offence in offences(text))
        warning = is_page and not STRICT_PAGES.fullmatch(path)
        failed, warned = failed + len(found) * (not warning), warned + len(found) * warning
        if not warning or "--warnings" in arguments:
            for line, kind, offence in found:
                print(f"{path}:{line}: {kind}: {offence.words!r}: {offence.instead}")
        elif found:
            print(f"{path}: {count(len(found), 'warning')}")
    print(f"{count(failed, 'offence')}, {count(warned, 'warning')}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
