"""What looks at a question before it is searched for: puts it in other words, or names what else to search for."""

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
    """What is known around a question.

    Attributes:
        history: The turns of the conversation before it, oldest first.
    """

    history: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """Something to search for beside the question.

    Attributes:
        kind: What it is, in one word for people: ``sub-question``, ``keywords``, ``passage`` …
        text: What is searched for.
        sides: How it is searched for; a side that the query's mode leaves out is left out here too.
        is_passage: Whether it is embedded as passages are, and not as questions are.
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
        kind: What led there, in one word for people, such as ``graph``.
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
    """What a transformer made of a question.

    Attributes:
        query: Is searched for in place of the question; ``None`` leaves the question as it is.
        variants: Are searched for beside it.
        linked: Chunks that are candidates too.
        reason: One sentence for the trace; may be empty.
        usage: What a model took, where it tells.
    """

    query: str | None = None
    variants: tuple[Variant, ...] = ()
    linked: tuple[Linked, ...] = ()
    reason: str = ""
    usage: Usage | None = None


class QueryTransformer(Protocol):
    """Looks at a question before it is searched for. Each call is one attempt at its provider.

    Where it fails, the question is searched for as it is, and the result says so.
    """

    @property
    def id(self) -> str:
        """Names method, model, prompt and settings: two transformers with the same id do alike."""
        ...

    async def transform(self, query: str, context: QueryContext) -> Transformed | str:
        """Transform a question.

        Args:
            query: The normalised question; where there was a conversation, made to stand alone.
            context: What is known around it.

        Returns:
            What to search for; plain text is searched for in place of the question.

        Raises:
            ServiceError: The provider failed, or gave nothing that could be used.
        """
        ...
