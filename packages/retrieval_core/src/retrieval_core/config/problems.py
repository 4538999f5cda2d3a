"""What is wrong with settings, in lines that name each, say what is expected and what was given, and show no secret."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from retrieval_core.config.addresses import without_secrets

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

SECRETS = frozenset({"api_key", "url", "base_url", "host", "options"})
"""Names of settings whose values, and whatever is in them, no message may show."""
_LIST, _TABLE = 'Input should be a list such as ["a", "b"]', 'Input should be a table such as {"a": 1}'
_EXPECTED = {
    **dict.fromkeys(("tuple_type", "list_type"), _LIST),
    **dict.fromkeys(("dict_type", "mapping_type"), _TABLE),
    "finite_number": "Input should be a finite number; null where there is to be no bound",
}
"""What is said of values that are written otherwise than Python would name them, by Pydantic's type of error."""


def problems_of(
    error: ValidationError,
    known: Callable[[tuple[int | str, ...]], Collection[str]],
    name: Callable[[str], str] = str,
    secrets: Collection[str] | None = SECRETS,
) -> list[str]:
    """Return a line for each thing that Pydantic found wrong.

    Args:
        error: What it says.
        known: Returns the names that may be meant by an unknown one, from where it stands.
        name: Returns what a setting with a dotted key is called where it was given.
        secrets: Names of settings, and of tables of them, whose values are not shown; ``None`` for all.
    """
    return [_line(detail, known, name, secrets) for detail in error.errors(include_url=False)]


def _line(
    detail: ErrorDetails,
    known: Callable[[tuple[int | str, ...]], Collection[str]],
    name: Callable[[str], str],
    secrets: Collection[str] | None,
) -> str:
    path = tuple(map(str, detail["loc"]))
    key = name(".".join(path))
    if detail["type"] == "missing":
        return f"{key}: not set"
    if detail["type"] == "extra_forbidden":
        near = get_close_matches(path[-1], known(detail["loc"]), n=1)
        return f"{key}: unknown setting" + (f"; did you mean {near[0]}?" if near else "")
    is_secret = secrets is None or not set(path).isdisjoint(secrets) or detail["type"].endswith("model_type")
    of_a_section = detail["type"] == "value_error" and isinstance(detail["input"], Mapping)  # it says which setting
    given = "" if is_secret or of_a_section else f", got {shown(detail['input'])}"
    return f"{key}: {_EXPECTED.get(detail['type'], detail['msg'].removeprefix('Value error, '))}{given}"


def shown(value: Any) -> str:
    """Return a value as a message may show it: of a table or a list only that it is one, as anything may be in it."""
    if isinstance(value, (Mapping, list, tuple, set)):
        return "a table" if isinstance(value, Mapping) else "a list"
    return f"{without_secrets(repr(value)):.80}"
