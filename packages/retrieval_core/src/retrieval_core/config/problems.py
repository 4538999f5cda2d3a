"""Describe problems of settings: one line each, with the expected and the given value, but no secrets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from retrieval_core.config.addresses import without_secrets
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

SECRETS = frozenset({"api_key", "url", "base_url", "host", "custom"})
"""Names of settings whose values, and whatever is in them, no message may show."""
NOT_SHOWN = object()
"""The input of a problem whose message says all, or whose value may be a secret."""
_LIST, _TABLE = 'Input should be a list such as ["a", "b"]', 'Input should be a table such as {"a": 1}'
_EXPECTED = {
    **dict.fromkeys(("tuple_type", "list_type"), _LIST),
    **dict.fromkeys(("dict_type", "mapping_type"), _TABLE),
    "finite_number": "Input should be a finite number, or null for no limit",
}
"""What is said of values that are written otherwise than Python would name them, by Pydantic's type of error."""


def problems_of(
    error: ValidationError,
    *,
    name: Callable[[str], str] = str,
    meant: Callable[[tuple[int | str, ...]], Sequence[str]] | None = None,
    expected: Callable[[ErrorDetails], str | None] = lambda _: None,
    secrets: Collection[str] | None = SECRETS,
) -> list[str]:
    """Return a line for each thing that Pydantic found wrong.

    Args:
        error: What it says.
        name: Returns what a setting with a dotted key is called where it was given.
        meant: Returns the names that may be meant by an unknown one, the best first, from where it stands.
        expected: Returns what a value must be, in place of Pydantic's words.
        secrets: Names of settings, and of tables of them, whose values are not shown; ``None`` for all.
    """
    problems: list[str] = []
    for detail in error.errors(include_url=False):
        path = tuple(map(str, detail["loc"]))
        line = f"{name('.'.join(path))}: "
        if detail["type"] == "missing":
            line += "not set"
        elif detail["type"] == "extra_forbidden":
            near = meant(detail["loc"]) if meant is not None else ()
            line += "unknown setting" + (f"; did you mean {near[0]}?" if near else "")
        else:
            usual = _EXPECTED.get(detail["type"], detail["msg"].removeprefix("Value error, "))
            line += expected(detail) or usual
            is_secret = (
                secrets is None
                or not set(path).isdisjoint(secrets)
                or any(part.endswith("_API_KEY") for part in path)  # a vendor's variable in place of a setting
                or detail["type"].endswith("model_type")
                or detail["input"] is NOT_SHOWN
            )
            # What is wrong with a whole section says itself which setting it is.
            of_a_section = detail["type"] == "value_error" and isinstance(detail["input"], Mapping)
            line += "" if is_secret or of_a_section else f", got {shown(detail['input'])}"
        problems.append(line)
    return problems


def refusal(
    what: str, problems: Sequence[str], missing_keys: Sequence[str] = (), *, origin: str = "", advice: str = ""
) -> ConfigurationError:
    """Return an error that names what has problems, such as ``the configuration has``, and lists each in a line.

    Raise it outside the handler of Pydantic's error, so that no traceback leads to what was given.
    """
    count = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
    msg = f"{what} {count}{origin}:\n  " + "\n  ".join(problems) + advice
    return ConfigurationError(msg, missing_keys=missing_keys, problems=problems)


def shown(value: Any) -> str:
    """Return a value as a message may show it; of a table or a list only its kind, as it may contain secrets."""
    if isinstance(value, (Mapping, list, tuple, set)):
        return "a table" if isinstance(value, Mapping) else "a list"
    return f"{without_secrets(repr(value)):.80}"
