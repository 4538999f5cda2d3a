"""The port for query transformers, which rewrite or expand a question before the search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from retrieval_core.ports.models import Message
    from retrieval_core.ports.stores import Candidate, Side
    from retrieval_core.types import Usage

BOTH_SIDES: frozenset[Side] = frozenset({"dense", "lexical"})


@dataclass(frozen=True, slots=True)
class QueryContext:
    """The context of a question.

    Attributes:
        history: The turns of the conversation before it, oldest first.
    """

    history: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """A further text to search for beside the question.

    Attributes:
        kind: A word for people: ``sub-question``, ``keywords``, ``passage`` …
        sides: Where it is searched for, within the query's mode.
        is_passage: Whether it is embedded as a passage, not as a question.
        weight: Above 0; the question itself has 1.
    """

    kind: str
    text: str
    sides: frozenset[Side] = BOTH_SIDES
    is_passage: bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Linked:
    """Chunks that a question leads to without a search.

    Attributes:
        kind: A word for people for what led there, such as ``graph``.
        text: What led there: the entities and relations, for instance.
        candidates: Best first; they need not carry their chunks.
        weight: Above 0; the question itself has 1.
    """

    kind: str
    text: str
    candidates: tuple[Candidate, ...]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Transformed:
    """The result of a transformer.

    Attributes:
        query: Searched for in place of the question; ``None`` leaves the question as it is.
        variants: Searched for beside it.
        linked: Further candidates.
        reason: One sentence for the trace; may be empty.
    """

    query: str | None = None
    variants: tuple[Variant, ...] = ()
    linked: tuple[Linked, ...] = ()
    reason: str = ""
    usage: Usage | None = None


class QueryTransformer(Protocol):
    """Rewrites or expands a question before the search. Each call is one attempt at its provider.

    Where it fails, the question is searched for as it is, and the result says so.
    """

    @property
    def id(self) -> str:
        """Names method, model, prompt and settings: two transformers with the same id do alike."""
        ...

    async def transform(self, query: str, context: QueryContext) -> Transformed | str:
        """Transform a question.

        Args:
            query: The normalised question; after a conversation, made to stand alone.
            context: The conversation before it.

        Returns:
            What to search for; plain text is searched for in place of the question.

        Raises:
            ServiceError: The provider failed, or gave nothing that could be used.
        """
        ...
