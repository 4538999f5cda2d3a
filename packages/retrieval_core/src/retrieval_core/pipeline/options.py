"""Options of a query: they override the configuration, and are checked before the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Message, Variant

if TYPE_CHECKING:
    from retrieval_core.types import SearchMode

ROLES = frozenset({"system", "user", "assistant"})
MOST_TURNS = 100
LONGEST_TURN = 10_000
"""Limits of a conversation; a condenser reads the last turns only."""


class QueryOptions(TypedDict, total=False):
    """Keyword arguments of every search; ``None`` means the configured value."""

    top_k: int | None
    """Maximum number of results, 1 to 1000."""
    mode: SearchMode | None
    """``hybrid``, ``dense`` (vector search only) or ``lexical`` (keyword search only)."""
    score_threshold: float | None
    """Minimum cosine similarity of query and chunk, 0 to 1."""
    transforms: Sequence[str] | None
    """Names of the query transformers to apply; an empty list applies none."""
    variants: Sequence[Variant] | None
    """Up to 16 more texts to search for, for example from your own query expansion."""
    history: Sequence[Message | Mapping[str, Any]] | None
    """Earlier turns of the conversation, oldest first, with ``role`` and ``content``. The last 100 turns are used,
    10,000 characters of each."""
    session_id: str | None
    """ID of the user's session, for a semantic cache per session."""
    use_cache: bool | None
    """Whether to return and store cached results."""
    indexes: Sequence[str] | None
    """Names of the indexes to search, if several are open."""
    max_results_per_query: int | None
    """Maximum number of results from each index, 1 to 1000, if several are open."""


class AnswerOptions(QueryOptions, total=False):
    """Keyword arguments of every method that answers; ``None`` means the configured value."""

    max_tokens: int | None
    """Token budget of the context, at least 1."""
    verify: bool | None
    """Whether to check each sentence of a written answer against the context."""
    prompt_override: str | None
    """Instructions for the language model instead of the configured ones."""


OF_SEVERAL = ("indexes", "max_results_per_query")
OF_EACH = tuple(name for name in QueryOptions.__annotations__ if name not in OF_SEVERAL)
"""The options of a single index."""


def query_options(**options: Unpack[QueryOptions]) -> QueryOptions:
    """Return the options that are given, without those that are ``None``."""
    return cast("QueryOptions", {name: value for name, value in options.items() if value is not None})


def answer_options(**options: Unpack[AnswerOptions]) -> AnswerOptions:
    """Return the options that are given, without those that are ``None``."""
    return cast("AnswerOptions", {name: value for name, value in options.items() if value is not None})


def check_names(options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Reject unknown names, as Python does for the arguments of a function.

    Raises:
        TypeError: There is no such argument.
    """
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            msg = f"unexpected keyword argument {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            raise TypeError(msg)


def check_single(options: QueryOptions) -> None:
    """Reject options that only several indexes have.

    Raises:
        TypeError: There is one.
    """
    for name in OF_SEVERAL:
        if name in options:
            msg = f"{name}: only several indexes have this option, and this is a single one; see open_indexes()"
            raise TypeError(msg)


def turns(history: object) -> tuple[Message, ...]:
    """Return a conversation as messages.

    Raises:
        InvalidParameterError: The history is not a list of turns with a known role and text.
    """
    if history is None:
        return ()
    if not isinstance(history, Sequence) or isinstance(history, (str, bytes)):
        msg = f"history must be a list of turns, oldest first, got {type(history).__name__}"
        raise InvalidParameterError(msg)
    given = cast("Sequence[object]", history)
    first = max(0, len(given) - MOST_TURNS)
    return tuple([_turn(number, turn) for number, turn in enumerate(given[first:], first + 1)])


def _turn(number: int, turn: object) -> Message:
    if isinstance(turn, Message):
        role, content = turn.role, turn.content
    elif isinstance(turn, Mapping):
        fields = cast("Mapping[str, Any]", turn)
        role, content = fields.get("role"), fields.get("content")
    else:
        role = content = None
    if not isinstance(role, str) or role not in ROLES or not isinstance(content, str):
        msg = (
            f"turn {number} of the history must be a Message, or an object with role ({', '.join(sorted(ROLES))}) and "
            f"content (text), got {turn!r:.80}"
        )
        raise InvalidParameterError(msg)
    return Message(role, content[:LONGEST_TURN])  # pyright: ignore[reportArgumentType] - one of the roles


def chosen(transforms: object, available: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the transformers of a query, each once.

    Raises:
        InvalidParameterError: The value is not a list of names, or a name is unknown.
    """
    if not isinstance(transforms, Sequence) or isinstance(transforms, (str, bytes)):
        msg = f"transforms must be a list of names, got {transforms!r:.80}"
        raise InvalidParameterError(msg)
    given = cast("Sequence[object]", transforms)
    for name in given:
        if not isinstance(name, str) or name not in available:
            there_are = ", ".join(sorted(available)) or "none; some of them need a language model, see llm.kind"
            msg = f"there is no transformer {name!r:.80}; there are {there_are}"
            raise InvalidParameterError(msg)
    return tuple(dict.fromkeys(cast("Sequence[str]", given)))
