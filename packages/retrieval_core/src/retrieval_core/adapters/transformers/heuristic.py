"""Condensing a conversation without a language model: the user's last question before a short new one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retrieval_core.errors import checked_count
from retrieval_core.ports import QueryTransformer, Transformed, Variant
from retrieval_core.text.analysis import UNSPACED
from retrieval_core.text.prompting import TURNS, clipped, last_of_user, last_turns

if TYPE_CHECKING:
    from retrieval_core.ports import QueryContext

SHORT = 7
"""The most words of a question that is searched for with the one before it."""

# Two such characters count as a word.
_UNSPACED = re.compile(f"[{UNSPACED}]")
# So that a question behind it is not cut off where questions may be 512 code points long.
_LONGEST = 300


class HeuristicCondenser(QueryTransformer):
    """Puts the user's last question before a short one; a :class:`~retrieval_core.ports.QueryTransformer`.

    A question of at most ``words`` words is searched for twice with equal weight: as it is, and behind the question
    before it. Longer ones are left as they are. It works in any language, as no list of words is involved.

    Measured on follow-up questions about finance, nDCG@10: .274 against .255 for the last turn alone, .111 for all
    turns in one and .305 for rewrites by people (``benchmarks/conversation.py``; ``docs/dev/measurements.md`` has the
    choice of ``words`` and its cross-check).

    Args:
        words: The length of the longest question that is taken to lean on the one before it, at least 1.

    Raises:
        InvalidParameterError: ``words`` is less than 1.
    """

    def __init__(self, *, words: int = SHORT) -> None:
        self._words = checked_count(words, "words", "to leave conversations out, use no condenser")

    @property
    def id(self) -> str:
        """Names the method and its settings."""
        return f"heuristic condense: words={self._words} turns={TURNS} characters={_LONGEST}"

    async def probe(self) -> str:
        """Say how it works."""
        return "by a rule, without a language model"

    async def _transform(self, query: str, context: QueryContext) -> Transformed:
        """Return both questions as one, with the one that was asked as a variant; nothing for a long one."""
        previous = last_of_user(last_turns(query, context.history))
        if previous is None:
            return Transformed()
        length = words_in(query)
        if length > self._words:
            return Transformed(reason=f"taken to stand alone: it has {length} words")
        variant = Variant("last turn", query)
        reason = f"taken to lean on the question before it: it has {length} words"
        return Transformed(query=f"{clipped(previous, _LONGEST)} {query}", variants=(variant,), reason=reason)


def words_in(text: str) -> int:
    """Return the length of a text in words; two characters of a script without spaces count as one."""
    unspaced = len(_UNSPACED.findall(text))
    return len(_UNSPACED.sub(" ", text).split()) + -(-unspaced // 2)
