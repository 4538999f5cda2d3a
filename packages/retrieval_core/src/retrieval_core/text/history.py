"""The turns of a conversation that a question may lean on, and texts of models made short and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.ports import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

TURNS = 3
"""The specification's: the last three, of either side."""
ASSISTANT_CHARACTERS = 200
"""The specification's: what was answered is long, and its beginning says what it is about."""
USER_CHARACTERS = 1000


def last_turns(query: str, history: Sequence[Message]) -> tuple[Message, ...]:
    """Return the last turns before a question, oldest first, each on one line and cut to its length.

    Blank messages and those of the system are no turns, and neither is the question itself, which some callers have
    at the end of their history already.
    """
    spoken = [message for message in history if message.role != "system" and message.content.strip()]
    if spoken and spoken[-1].role == "user" and key(spoken[-1].content) == key(query):
        del spoken[-1]
    return tuple(
        Message(message.role, clipped(message.content, USER_CHARACTERS if _is_user(message) else ASSISTANT_CHARACTERS))
        for message in spoken[-TURNS:]
    )


def last_of_user(turns: Sequence[Message]) -> str | None:
    """Return what the user said last, if anything."""
    return next((turn.content for turn in reversed(turns) if _is_user(turn)), None)


def _is_user(message: Message) -> bool:
    return message.role == "user"


def clipped(text: str, limit: int) -> str:
    """Return a text on one line of at most so many code points, cut before a word where that loses little."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    start = line[:limit]
    space = line.rfind(" ", 0, limit + 1)
    return start[:space] if space > limit * 0.8 else start


def is_searchable(text: str) -> bool:
    """Whether there is a letter or a digit in a text: without one, no side finds anything by it."""
    return any(map(str.isalnum, text))


def key(text: str) -> str:
    """Return what two texts share that differ in case, white space and marks at their ends alone."""
    return " ".join(text.casefold().split()).strip(" ?!.,;:'\"")
