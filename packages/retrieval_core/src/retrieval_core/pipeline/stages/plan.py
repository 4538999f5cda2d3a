"""What one query asks of the stages, once configuration and arguments are put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.pipeline.stages.fuse import FusionMethod
    from retrieval_core.ports import Message, Variant
    from retrieval_core.types import SearchMode
    from retrieval_core.types.filters import Filter


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of one query. All of them are in the cache key but those that change no result (``compare=False``).

    Attributes:
        mode: Which sides are searched.
        top_k: The most hits, at least 1.
        candidates: How many to ask of each side, at least ``top_k``.
        condition: What every passage must pass.
        has_words: Whether the store can be searched by words at all.
        fusion: How the sides are combined; ``native`` leaves it to the store.
        dense_weight: In [0, 1]; the lexical side has the rest.
        score_threshold: The least dense score, in [0, 1]; ``None`` for none.
        on_unscored: What a threshold does to passages that have no dense score.
        fetch_k: From how many of the best ``top_k`` different ones are chosen; ``None`` for plain relevance.
        lambda_mult: In [0, 1]: relevance against difference, where hits are to be different.
        reranked: How many hits are put into a better order before the best ``top_k`` are taken; 0 for none.
        transforms: Names of the transformers that look at the question first, in their order.
        variants: Further texts to search for, which the caller gave.
        history: The turns of the conversation before the question, oldest first.
        session_id: Whose question it is, where results are not shared between sessions.
        use_cache: Whether the result may be one that was kept.
        options: Further options of the query, by name; a stage reads its own.
        indexes: The plan of each of several indexes that are searched, by name; empty for one.
    """

    mode: SearchMode
    top_k: int
    candidates: int
    condition: Filter | None = None
    has_words: bool = True
    fusion: FusionMethod | Literal["native"] = "zscore"
    dense_weight: float = 0.5
    score_threshold: float | None = None
    on_unscored: Literal["drop", "keep"] = "drop"
    fetch_k: int | None = None
    lambda_mult: float = 0.5
    reranked: int = 0
    transforms: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    history: tuple[Message, ...] = ()
    session_id: str | None = field(default=None, compare=False)
    use_cache: bool = field(default=True, compare=False)
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    indexes: Mapping[str, Plan] = field(default_factory=dict[str, "Plan"], hash=False)

    @property
    def shortlist(self) -> int:
        """How many hits the search hands on, at least ``top_k``."""
        return max(self.top_k, self.reranked)
