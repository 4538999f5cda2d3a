"""Definitions in source code, found with the grammars of tree-sitter (the extra ``code``).

Grammars name their nodes alike: ``function_definition``, ``method_declaration``, ``struct_item``, ``class``. So one
rule finds the definitions of all languages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LANGUAGES = frozenset(
    "bash c c-sharp cpp go java javascript kotlin lua php python ruby rust scala swift tsx typescript".split()  # noqa: SIM905
)
"""Languages whose grammars the extra ``code`` has."""
_MAKERS = {
    "php": ("php", "language_php"),
    "tsx": ("typescript", "language_tsx"),
    "typescript": ("typescript", "language_typescript"),
}
"""The package and the function of a grammar where these are not called as the language is."""

_SUFFIX = "(?:_(?:declaration|definition|item|specifier|spec))?"
_INNER = re.compile(rf"(?:\w+_)?(?:constructor|destructor|function|init|macro|method|type|type_alias){_SUFFIX}")
_OUTER = re.compile(
    rf"(?:\w+_)?(?:class|enum|extension|impl|interface|mod|module|namespace|object|protocol|record|struct|trait|union){_SUFFIX}"
)
_ASSIGNED = frozenset({"arrow_function", "class", "function_definition", "function_expression", "generator_function"})
_NAMES = ("name", "key", "property", "left")
_IDENTIFIER = re.compile(r"(?:\w+_)?identifier|constant|word")
_WRAPPER = re.compile(r"\w+_(?:declaration|definition|statement)")
_WRAPPED_WITH = re.compile(r"annotation|attribute\w*|comment|decorator|modifiers?|template_parameter_list")
_RECEIVER = re.compile(r"(\w+)\s*(?:\[.*\])?\s*\)$")
_DEEPEST = 6
"""How many nodes are between a definition and the next one in it."""
_LONGEST_NAME = 120


@dataclass(slots=True)
class Definition:
    """A definition of several lines.

    Attributes:
        name: As the code has it.
        first: The first of its lines, from 0.
        last: The line after its last one.
        inner: Definitions in it, if it is a class, a module or the like.
    """

    name: str
    first: int
    last: int
    inner: list[Definition] = field(default_factory=list["Definition"])


def find_definitions(text: str, language: str | None) -> list[Definition]:
    """Return the definitions in source code, in order; none if there is no grammar of the language."""
    parser = _parser(language) if language in LANGUAGES else None
    if parser is None:
        return []
    return list(_below(parser.parse(text.encode()).root_node, 0))


@cache
def _parser(language: str) -> Any:
    package, maker = _MAKERS.get(language, (language.replace("-", "_"), "language"))
    try:
        tree_sitter = import_module("tree_sitter")
        grammar = import_module(f"tree_sitter_{package}")
    except ImportError:
        return None
    return tree_sitter.Parser(tree_sitter.Language(getattr(grammar, maker)()))


def _below(node: Any, depth: int) -> Iterator[Definition]:
    """Yield the definitions below a node."""
    for child in node.named_children:
        if child.start_point.row == child.end_point.row:
            continue
        is_outer = _OUTER.fullmatch(child.type) is not None
        name = _name(child, is_definition=is_outer or _INNER.fullmatch(child.type) is not None)
        if name is not None:
            inner = list(_below(child, 0)) if is_outer else []
            yield Definition(name, _first_line(child), child.end_point.row + 1, inner)
        elif depth < _DEEPEST:
            yield from _below(child, depth + 1)


def _name(node: Any, *, is_definition: bool) -> str | None:
    """Return the name of a definition; ``None`` for another node."""
    if not is_definition:
        value = node.child_by_field_name("value") or node.child_by_field_name("right")
        if value is None or value.type not in _ASSIGNED:
            return None
    named = next((found for name in _NAMES if (found := node.child_by_field_name(name)) is not None), None)
    if named is None:
        named = node
        while (declarator := named.child_by_field_name("declarator")) is not None:  # in C, around the name
            named = declarator
        if named is node:
            others = (each for each in node.named_children if _IDENTIFIER.fullmatch(each.type))
            named = node.child_by_field_name("type") or next(others, None)
    if named is None:
        return None
    name = " ".join(named.text.decode("utf-8", "replace").split())[:_LONGEST_NAME]
    receiver = node.child_by_field_name("receiver")
    owner = _RECEIVER.search(receiver.text.decode("utf-8", "replace")) if receiver is not None else None
    return f"{owner[1]}.{name}" if owner is not None else name


def _first_line(node: Any) -> int:
    """Return the first line of a definition, with its decorators and the like."""
    parent = node.parent
    while parent is not None and parent.parent is not None and _WRAPPER.fullmatch(parent.type):
        others = [child.type for child in parent.named_children if child.id != node.id]
        if not all(map(_WRAPPED_WITH.fullmatch, others)):
            break
        node, parent = parent, parent.parent
    return node.start_point.row
