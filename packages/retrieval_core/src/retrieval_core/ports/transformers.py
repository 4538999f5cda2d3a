"""The port for query transformers, which rewrite or expand a question before the search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from retrieval_core.ports.index_values import Candidate, Side
    from retrieval_core.ports.models import Message
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
    """A further text to search for, in addition to the query.

    Attributes:
        kind: A readable word: ``sub-question``, ``keywords``, ``passage`` …
        sides: The searches that use it, within the query's mode.
        is_passage: Whether it is embedded as a chunk, not as a query.
        weight: Above 0; the query itself has 1.
    """

    kind: str
    text: str
    sides: frozenset[Side] = BOTH_SIDES
    is_passage: bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Linked:
    """Chunks that a transformer found without a search.

    Attributes:
        kind: A readable word for their origin, such as ``graph``.
        text: Their origin in detail, for instance the entities and relations.
        candidates: The chunks, best first. Their contents may be missing.
        weight: Above 0; the query itself has 1.
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
    """Rewrite or expand a query before the search. Each call is one attempt at its provider.

    If it fails, the query is searched for unchanged, and the result is degraded.
    """

    @property
    def id(self) -> str:
        """Names method, model, prompt and settings: two transformers with the same id do alike."""
        ...

    async def transform(self, query: str, context: QueryContext) -> Transformed | str:
        """Transform a query.

        Args:
            query: The normalised query. A follow-up question is already complete.
            context: The conversation before it.

        Returns:
            Texts to search for. Plain text replaces the query.

        Raises:
            ServiceError: The provider failed, or gave nothing that could be used.
        """
        ...
