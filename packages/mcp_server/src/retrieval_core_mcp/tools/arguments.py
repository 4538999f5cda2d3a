"""Reading and checking the arguments of a call, with messages that say what to change."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from retrieval_core_mcp.fitting import has_lone_surrogate, in_one_line
from retrieval_core_mcp.tools.tool import LONGEST_ID, ToolFailure
from retrieval_core_mcp.wording import requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic_core import ErrorDetails

    from retrieval_core.service.service_context import ServiceModel
    from retrieval_core_mcp.tools.tool import DeclaredTool

INDEX = "index"
"""The argument that names the index, where the server has several."""
_NUMBER = re.compile(r"\s*\d{1,18}\s*", re.ASCII)
_TEXTS = frozenset({"query", "id", "quote", "source", "path", "pattern", "cursor", INDEX})


def read_arguments(tool: DeclaredTool, given: Mapping[str, Any], names: Sequence[str]) -> ServiceModel:
    """Return the arguments of a call, validated.

    Assistants send an object or a number as text now and then; these are read as what they say.

    Args:
        tool: Its request has further fields, which callers can't set.
        names: Those that they can; the argument ``index`` was taken out of ``given`` already.

    Raises:
        ToolFailure: Something is wrong; the message has a line for each problem.
    """
    arguments = {key: value if key in _TEXTS else _read(value) for key, value in given.items()}
    broken = [key for key, value in arguments.items() if has_lone_surrogate(key) or has_lone_surrogate(value)]
    if broken:
        keys = ", ".join(in_one_line(key, 60) for key in broken[:10])
        msg = f"{keys}: the text contains half of a surrogate pair, which is no character. Send it without that half."
        raise ToolFailure(msg)
    allowed = (*tool.arguments, *tool.more_arguments)
    problems = [_unknown(tool.name, name, names) for name in arguments if name not in allowed]
    known = {name: value for name, value in arguments.items() if name in allowed}
    try:
        request = tool.request.model_validate(known)
    except ValidationError as error:
        problems += [_describe(tool.name, detail) for detail in error.errors(include_url=False)]
    else:
        empty = [_EMPTY[name] for name in ("query", "quote") if name in known and not str(known[name]).strip()]
        if not problems and not empty:
            return request
        problems += empty
    raise ToolFailure("\n".join([*dict.fromkeys(problems)][:10])) from None


_EMPTY = {
    "query": "query: it is empty. Write a query in plain language.",
    "quote": "quote: it is empty. Give the words of the document.",
    "pattern": "pattern: it is empty. Give the text or regular expression to look for.",
}


def index_named(given: Any, indexes: Iterable[str]) -> str:
    """Return the name of the index that a call asks, or the only one where it names none.

    Raises:
        ToolFailure: There is none of that name, or none is named and there are several.
    """
    names = tuple(indexes)
    if given is None and len(names) == 1:
        return names[0]
    if isinstance(given, str) and given in names:
        return given
    there_are = ", ".join(names[:20])
    if given is None:
        msg = f"index: it is missing, and there are several. Name one of {there_are}."
        raise ToolFailure(msg)
    near = get_close_matches(given[:LONGEST_ID], names, n=1) if isinstance(given, str) else ()
    hint = f" Did you mean {near[0]}?" if near else ""
    msg = f"index: there is no index {shown(given)}.{hint} There are {there_are}."
    raise ToolFailure(msg)


def shown(value: object) -> str:
    """Return a value as one short line, for an answer."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a number with very many digits"  # some have more than can be written
    return in_one_line(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)[:200], 80)


def _read(value: object) -> object:
    """Return what a text says that is a number or an object; everything else as it is."""
    if not isinstance(value, str):
        return value
    if _NUMBER.fullmatch(value):
        return int(value)
    if value.lstrip().startswith(("{", "[")):
        try:
            decoded: object = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return cast("object", decoded) if isinstance(decoded, dict) else value
    return value


def _unknown(tool: str, given: str, names: Sequence[str]) -> str:
    name = in_one_line(given, 60)
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    takes = f" It takes {', '.join(names)}." if names else " It takes none."
    return f"{name}: the tool {tool} has no such argument.{hint}{takes}"


def _describe(tool: str, detail: ErrorDetails) -> str:
    name = in_one_line(str(detail["loc"][0]), 60)
    value: object = detail["input"]
    came = f"the string {json.dumps(shown(value), ensure_ascii=False)}" if isinstance(value, str) else shown(value)
    match detail["type"]:
        case "missing":
            return f"{name}: it is missing; the tool {tool} needs it."
        case "string_too_long":
            most = detail.get("ctx", {}).get("max_length", LONGEST_ID)
            given = f"{len(value):,}" if isinstance(value, str) else "too many"
            return f"{name}: it has {given} characters, and at most {most:,} are allowed. Send a shorter one."
        case "string_too_short":
            return _EMPTY.get(name, f"{name}: it is empty. Give the id of a result.")
        case "dict_type":
            return f'{name}: give a JSON object, for instance {{"year": {{"$gte": 2020}}}}; {came} was given.'
        case _:
            return f"{name}: {requirement(detail)}; {came} was given."
