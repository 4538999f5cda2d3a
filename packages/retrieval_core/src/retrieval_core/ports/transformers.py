"""The ports for query transformers, which rewrite or expand a query before the search, and for further retrievers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from retrieval_core.ports.index_values import Candidate
from retrieval_core.ports.plugin import Plugin, are, call_plugin, calls_plugin, is_finite, is_text
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.ports.index_values import Side
    from retrieval_core.ports.models import Message
    from retrieval_core.types import Usage

BOTH_SIDES: frozenset[Side] = frozenset({"dense", "lexical"})
HEAVIEST = 1000.0
"""The most that a weight may be: far beyond it, sums of scores would not be numbers."""


class Retriever(Plugin):
    """Finds chunks in its own way: an index of another program, a web search, a table of answers."""

    port_role = "the retriever"
    port_calls = ("search",)

    @calls_plugin
    async def search(self, query: str, k: int = 10) -> Sequence[Candidate]:
        """Find chunks.

        Args:
            query: The normalized query.
            k: The most to return, at least 1.

        Returns:
            Best first, each with its chunk and a score of which higher is better; the pipeline applies the filter.

        Raises:
            ServiceError: The provider failed, or gave no candidates.
        """
        answer = await call_plugin(self._search, query, k)
        if not are_candidates(answer):
            raise self._refuse(f"it gave {answer!r:.80}, which are no candidates")
        found = {item.chunk_id for item in answer[:k]}
        if not found <= {item.chunk_id for item in answer[:k] if item.chunk is not None}:
            raise self._refuse("it gave candidates without their chunks; make them Candidate(…, chunk=…)")
        return answer

    @abstractmethod
    async def _search(self, query: str, k: int) -> Sequence[Candidate]: ...


def are_candidates(answer: object) -> bool:
    """Return whether this is what a search should find."""
    return are(answer, _is_candidate)


def _is_candidate(item: Any) -> bool:
    if not isinstance(item, Candidate) or not isinstance(item.chunk_id, str) or not is_finite(item.score):  # pyright: ignore[reportUnnecessaryIsInstance]
        return False
    return item.chunk is None or (isinstance(item.chunk, Chunk) and item.chunk.id == item.chunk_id)  # pyright: ignore[reportUnnecessaryIsInstance]


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


QUERY_KINDS: Mapping[str, tuple[frozenset[Side], float]] = {
    "text": (BOTH_SIDES, 1.0),
    "keywords": (frozenset({"lexical"}), 0.5),
    "passage": (frozenset({"dense"}), 0.5),
}
"""Kinds of further queries that callers give, with the searches that use them and their weights."""


def variant_of(kind: str, text: str) -> Variant:
    """Return a further query of one of the :data:`QUERY_KINDS`; a passage is embedded as a chunk."""
    sides, weight = QUERY_KINDS[kind]
    return Variant(kind, text, sides, is_passage=kind == "passage", weight=weight)


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


class QueryTransformer(Plugin):
    """Rewrites or expands a query before the search. Each call is one attempt at its provider.

    If it fails, the query is searched for unchanged, and the result is degraded.
    """

    port_role = "the transformer"
    port_calls = ("transform",)

    @calls_plugin
    async def transform(self, query: str, context: QueryContext) -> Transformed:
        """Transform a query.

        Args:
            query: The normalized query. A follow-up question is already complete.
            context: The conversation before it.

        Returns:
            Texts to search for.

        Raises:
            ServiceError: The provider failed, or gave nothing that could be used.
        """
        answer = await call_plugin(self._transform, query, context)
        made: object = Transformed(query=answer) if isinstance(answer, str) else answer
        if not isinstance(made, Transformed):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._refuse(f"it gave {made!r:.80}, which is neither text nor a Transformed")
        if (problem := _problem(made)) is not None:
            raise self._refuse(problem)
        return made

    @abstractmethod
    async def _transform(self, query: str, context: QueryContext) -> Transformed | str:
        """Return texts to search for. Plain text replaces the query."""


def is_variant(value: Any) -> TypeGuard[Variant]:
    """Return whether a value is a variant that can be searched for."""
    return (
        isinstance(value, Variant)
        and is_text(value.text)
        and isinstance(value.sides, (frozenset, set))  # pyright: ignore[reportUnnecessaryIsInstance]
        and value.sides <= BOTH_SIDES
        and type(value.is_passage) is bool
        and isinstance(value.kind, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        and _is_weight(value.weight)
    )


def _problem(made: Transformed) -> str | None:
    if made.query is not None and not is_text(made.query):
        return f"it gave {made.query!r:.80} as the question"
    if not isinstance(made.variants, (tuple, list)) or not isinstance(made.linked, (tuple, list)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return f"it gave {made!r:.120}, whose variants or linked are no tuple"
    for variant in cast("tuple[object, ...]", made.variants):
        if not is_variant(variant):
            return f"it gave {variant!r:.120}, which is no Variant with a text, a set of sides and a weight above 0"
    for link in cast("tuple[object, ...]", made.linked):
        if not _is_linked(link):
            return f"it gave {link!r:.120}, which is no Linked with candidates and a weight above 0"
    return None


def _is_weight(value: Any) -> bool:
    return is_finite(value) and 0 < value <= HEAVIEST


def _is_linked(value: Any) -> bool:
    return (
        isinstance(value, Linked)
        and isinstance(value.kind, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        and isinstance(value.text, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        and are_candidates(value.candidates)
        and _is_weight(value.weight)
    )
