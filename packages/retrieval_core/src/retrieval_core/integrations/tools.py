"""An index as a function that agents call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from retrieval_core.errors import InvalidParameterError, QueryValidationError, checked_count
from retrieval_core.integrations.hits import engine_of
from retrieval_core.pipeline.options import (
    MAX_TOP_K,
    QueryOptions,
    checked_number,
    checked_values,
    condition_of,
    query_options,
)
from retrieval_core.types.results import AS_DATA

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from retrieval_core.pipeline.options import Filters
    from retrieval_core.pipeline.query_engine import QueryEngine
    from retrieval_core.types import ContextPack

DESCRIPTION = "Search the documents for the passages that answer a question."
NOTHING = "nothing was found"
_DOCSTRING = """{description} Each passage follows a line with its source, such as [1] Doc: guide.md:12-18.

Args:
    query: A question or keywords in plain language. "a phrase" is required; path:docs/* searches only these files.
"""
"""Without a section on what is returned: frameworks leave it out, or send it to the model as markup."""


@overload
def as_tool(
    index: QueryEngine | str | Path,
    *,
    name: str = ...,
    description: str = ...,
    max_tokens: int = ...,
    filters: Filters = ...,
    is_async: Literal[False] = ...,
    **options: Unpack[QueryOptions],
) -> Callable[[str], str]: ...


@overload
def as_tool(
    index: QueryEngine | str | Path,
    *,
    name: str = ...,
    description: str = ...,
    max_tokens: int = ...,
    filters: Filters = ...,
    is_async: Literal[True],
    **options: Unpack[QueryOptions],
) -> Callable[[str], Coroutine[Any, Any, str]]: ...


def as_tool(
    index: QueryEngine | str | Path,
    *,
    name: str = "search_documents",
    description: str = DESCRIPTION,
    max_tokens: int = 4_000,
    filters: Filters = None,
    is_async: bool = False,
    **options: Unpack[QueryOptions],
) -> Callable[[str], Any]:
    """Return a function that searches an index, for agents of any framework.

    Frameworks read its name, types and docstring: pydantic-ai, the OpenAI Agents SDK, DSPy, smolagents and LangChain
    take it as it is. It returns the text of :meth:`retrieval_core.Index.context`: passages with ``path:lines``, after
    a note if the search was degraded or the passages may not answer. For a query that can't be searched, it returns
    the reason, so that the model can correct it. All other errors are raised.

    Args:
        index: An open index, or several of :func:`retrieval_core.open_indexes`; or the path of one.
        name: Name of the function: letters, digits and underscores.
        description: A sentence on when to search, such as "Search the handbook for rules on leave and expenses."
        max_tokens: Token budget of the passages, at least 1. Default: 4,000.
        filters: Metadata filter that every passage must match. The model can't change it. Default: no filter.
        is_async: Whether to return a coroutine function. The other one blocks the thread of its caller.
        **options: Options of each query; see :class:`~retrieval_core.pipeline.options.QueryOptions`.

    Raises:
        InvalidParameterError: ``index`` is neither an index nor a path, or ``name``, ``max_tokens`` or an option is
            invalid.
        FilterError: The filter is invalid.
        ConfigurationError: The settings of the index are wrong, or there is no token counter.
        TypeError: There is no such option.

    Example::

        with open_index("notes.db") as index:
            search = as_tool(index, description="Search the notes about the moon.")
            print(search("how far away is the moon"))
    """
    if not name.isidentifier():
        msg = f"name must be the name of a function, such as search_notes, got {name!r:.80}"
        raise InvalidParameterError(msg)
    engine, condition = engine_of(index), condition_of(filters)
    budget, options = checked_count(max_tokens, "max_tokens"), checked_values(query_options(options))
    if (top_k := options.get("top_k")) is not None:
        checked_number("top_k", top_k, MAX_TOP_K)
    _ = engine.token_counter  # if there is none, an agent shouldn't be the first to learn it

    def search(query: str) -> str:
        try:
            return _text_of(engine.context(query, condition, max_tokens=budget, **options))
        except QueryValidationError as error:
            return f"Error: {error}"

    async def search_async(query: str) -> str:
        try:
            return _text_of(await engine.acontext(query, condition, max_tokens=budget, **options))
        except QueryValidationError as error:
            return f"Error: {error}"

    tool = search_async if is_async else search
    tool.__name__ = tool.__qualname__ = name
    tool.__doc__ = _DOCSTRING.format(description=description.strip())
    tool.__annotations__ = {"query": str, "return": str}  # classes, for frameworks that don't read names of them
    return tool


def _text_of(pack: ContextPack) -> str:
    """Return what is to be said of a search, and then the passages."""
    said = [f"Note: {item.stage}: {item.reason}" for item in pack.degraded]
    if not pack.passages:
        return "\n".join([*said, pack.note or NOTHING])
    return "\n".join([*said, *filter(None, (pack.note,)), AS_DATA, "", pack.context_pack])
