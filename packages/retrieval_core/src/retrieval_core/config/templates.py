"""Templates for one passage, text with the names of fields in braces; and what may stand between two passages."""

from __future__ import annotations

from string import Formatter

from retrieval_core.errors import ConfigurationError

DEFAULT_TEMPLATE = "[{rank}] {citation}\n{text}"
BLANK_LINE = "\n\n"


def parse_template(template: str) -> tuple[tuple[str, str | None], ...]:
    """Split a template into pieces of literal text, each with the name of the field behind it.

    Raises:
        ConfigurationError: A brace is unbalanced, or a field asks for more than a name.
    """
    try:
        pieces = tuple(Formatter().parse(template))
    except ValueError as error:
        msg = f"{error}; double each literal brace: {{{{ or }}}}"
        raise ConfigurationError(msg) from error
    for _, name, specification, conversion in pieces:
        if name == "" or specification or conversion or (name and "[" in name):
            msg = "a field of a template must be only a name in braces, as in {title}"
            raise ConfigurationError(msg)
    return tuple((literal, name) for literal, name, _, _ in pieces)


def checked_delimiter(delimiter: str) -> str:
    """Return a delimiter that can be marked where a passage holds it, without harm to what is written there.

    Raises:
        ConfigurationError: Every text has it, or it holds the mark.
    """
    is_common = len(delimiter) == 1 or (delimiter.isspace() and delimiter != BLANK_LINE)
    if not is_common and "\\" not in delimiter:
        return delimiter
    msg = (
        f"the delimiter {delimiter!r:.40} can't be distinguished from the text of chunks; use several characters that "
        "are not all white space and no backslash, for instance a line of ---, or an empty line"
    )
    raise ConfigurationError(msg)
