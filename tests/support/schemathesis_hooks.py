"""What a schema can't say of a request to grep: its pattern is one of RE2, and its cursor one that grep gave."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from retrieval_core.errors import InvalidParameterError
from retrieval_core.text.patterns import compile_pattern


def filter_body(context: Any, body: Any) -> bool:
    """Return whether to send a body: not if it is refused for a reason that the schema doesn't know."""
    del context
    if not isinstance(body, dict):
        return True
    given = cast("dict[str, Any]", body)
    pattern = given.get("pattern")
    if not isinstance(pattern, str):
        return True
    if isinstance(given.get("cursor"), str):
        return False
    try:
        compile_pattern(pattern, literal=given.get("literal") is True)
    except InvalidParameterError:
        return not 1 <= len(pattern) <= 1000  # the schema says so itself
    return True


# Type checkers run where Schemathesis isn't installed.
import_module("schemathesis").hook(filter_body)
