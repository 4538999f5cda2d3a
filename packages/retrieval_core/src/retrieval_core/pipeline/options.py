"""The options of a query, in place of the configuration, checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypedDict, cast

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Message, Variant

if TYPE_CHECKING:
    from retrieval_core.types import SearchMode

ROLES = frozenset({"system", "user", "assistant"})
MOST_TURNS = 100
LONGEST_TURN = 10_000
"""What a conversation may hold: whoever has it condensed looks at the last turns alone."""


class QueryOptions(TypedDict, total=False):
    """Keyword arguments of everything that takes a question; ``None``, or left out, means what is configured."""

    top_k: int | None
    """The most hits, 1 to 1000."""
    mode: SearchMode | None
    """By meaning (``dense``), by words (``lexical``), or by both (``hybrid``)."""
    score_threshold: float | None
    """The least cosine similarity of a passage with the question, in [0, 1]; with 0, what was found by words alone has
    its similarity too."""
    transforms: Sequence[str] | None
    """Names of the transformers that look at the question first; an empty list for none."""
    variants: Sequence[Variant] | None
    """Further texts to search for beside the question, 16 at most, which the caller's own query expansion made."""
    history: Sequence[Message | Mapping[str, Any]] | None
    """The turns of the conversation before the question, oldest first: messages, or objects with ``role`` and
    ``content``. The last 100 count, each with its first 10,000 characters."""
    session_id: str | None
    """Whose question it is; counts where the semantic cache is kept for each session."""
    use_cache: bool | None
    """Whether the answer may be one that was kept from before; without, it is searched for anew, and not kept."""
    indexes: Sequence[str] | None
    """Of several indexes alone: the names of those to ask; all of them where it is not given."""
    max_results_per_query: int | None
    """Of several indexes alone: the most passages taken from each, 1 to 1000."""


class AnswerOptions(QueryOptions, total=False):
    """The options of any query, and those of an answer; ``None``, or left out, means what is configured."""

    max_tokens: int | None
    """The budget of the passages that the answer is written from, at least 1."""
    verify: bool | None
    """Whether each sentence of a written answer is held against the passages."""
    prompt_override: str | None
    """Instructions to the language model in place of the configured ones."""


OF_SEVERAL = ("indexes", "max_results_per_query")
OF_EACH = tuple(name for name in QueryOptions.__annotations__ if name not in OF_SEVERAL)
"""The options that one index has."""


def check_names(options: Mapping[str, Any], known: Sequence[str] = OF_EACH) -> None:
    """Refuse arguments that there are not, as Python does for those of a signature.

    Raises:
        TypeError: There is no such argument.
    """
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            msg = f"unexpected keyword argument {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            raise TypeError(msg)


def turns(history: object) -> tuple[Message, ...]:
    """Return a conversation as messages.

    Raises:
        InvalidParameterError: It is no list of turns that have a known role and text.
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
    """Return the names of transformers that a query asks for, each once.

    Raises:
        InvalidParameterError: It is no list of names, or there is none of such a name.
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
