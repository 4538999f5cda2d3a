"""Templates for one passage: text with the names of fields in braces."""

from __future__ import annotations

from string import Formatter

from retrieval_core.errors import ConfigurationError

DEFAULT_TEMPLATE = "[{rank}] {citation}\n{text}"


def parse_template(template: str) -> tuple[tuple[str, str | None], ...]:
    """Split a template into pieces of literal text, each with the name of the field behind it.

    Raises:
        ConfigurationError: A brace is unbalanced, or a field asks for more than a name.
    """
    try:
        pieces = tuple(Formatter().parse(template))
    except ValueError as error:
        msg = f"{error}; double a brace that is meant as one: {{{{ or }}}}"
        raise ConfigurationError(msg) from error
    for _, name, specification, conversion in pieces:
        if name == "" or specification or conversion or (name and "[" in name):
            msg = "a field of a template is a name in braces and no more, as in {title}"
            raise ConfigurationError(msg)
    return tuple((literal, name) for literal, name, _, _ in pieces)
