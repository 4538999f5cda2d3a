"""What a query to several indexes may ask for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.config.model import named_mode
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.options import OF_EACH, QueryOptions, checked_values, chosen
from retrieval_core.pipeline.planning import MAX_TOP_K, checked_number, condition_of
from retrieval_core.pipeline.stages.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.planning import Filters
    from retrieval_core.ports import Message

_NAME = re.compile(r"[^\s:]+")

MAX_OF_EACH = 100
"""Hits of each index, unless the caller or ``limits.max_results`` sets another maximum: `max_results_per_query` of the
specification."""
SHARED_CANDIDATES = 30
"""The least that each index is asked for, so that scores can be told apart; measured, more makes no difference."""


@dataclass(frozen=True, slots=True)
class FederatedPlan(Plan):
    """The settings of one query, and what it asks of each index, which makes a plan of its own.

    Attributes:
        names: Of the indexes, in their order.
        of_each: The options of each index.
        instead: In place of ``of_each``, by the name of the index.
    """

    names: tuple[str, ...] = ()
    of_each: QueryOptions = field(default_factory=QueryOptions)
    instead: Mapping[str, QueryOptions] = field(default_factory=dict[str, QueryOptions])

    def of(self, name: str) -> QueryOptions:
        """Return the options of an index."""
        return self.instead.get(name, self.of_each)

    @property
    def without_transforms(self) -> FederatedPlan:
        """The same for a question that was rewritten: it stands alone, and is searched for as it is."""
        of_each: QueryOptions = {**self.of_each, "transforms": (), "variants": None, "history": None}
        return replace(self, of_each=of_each, history=(), instead={})


def make_federated_plan(
    filters: Filters, options: QueryOptions, *, weights: Mapping[str, float], config: RetrievalConfig, reranked: int
) -> FederatedPlan:
    """Put settings and a caller's arguments together.

    Args:
        filters: What every passage must pass.
        options: The caller's.
        weights: Of all indexes.
        config: The settings.
        reranked: How many hits are reranked; 0 for none.

    Raises:
        FilterError: The filter is not well formed.
        InvalidParameterError: An argument is outside its range, or names an index that there is not.
    """
    options = checked_values(options)
    top_k, most = options.get("top_k"), options.get("max_results_per_query")
    allowed = config.limits.max_results
    top_k = checked_number("top_k", config.search.top_k if top_k is None else top_k, allowed)
    if most is None:
        most = allowed if "max_results" in config.limits.model_fields_set else MAX_OF_EACH
    most = min(checked_number("max_results_per_query", most, MAX_TOP_K), allowed)
    of_each: dict[str, Any] = {name: value for name, value in options.items() if name in OF_EACH}
    names = _names(options.get("indexes"), weights)
    of_each["top_k"] = min(most, max(top_k, reranked, SHARED_CANDIDATES))
    transforms = options.get("transforms")
    if transforms is not None:
        of_each["transforms"] = chosen(transforms, transforms)  # which ones there are is for each index to say
    return FederatedPlan(
        mode=named_mode(of_each.get("mode") or config.search.mode),
        top_k=top_k,
        candidates=top_k,
        condition=condition_of(filters),
        transforms=tuple(dict.fromkeys(config.transform.use if transforms is None else transforms)),
        history=cast("tuple[Message, ...]", options.get("history", ())),
        names=names,
        of_each=cast("QueryOptions", of_each),
    )


def _names(indexes: object, weights: Mapping[str, float]) -> tuple[str, ...]:
    if indexes is None:
        names = tuple(weights)
    elif (
        not isinstance(indexes, Sequence)
        or isinstance(indexes, (str, bytes))
        or not indexes
        or not all(isinstance(name, str) for name in cast("Sequence[object]", indexes))
    ):
        msg = f"indexes must be a list of names of indexes, got {indexes!r:.80}"
        raise InvalidParameterError(msg)
    else:
        names = tuple(dict.fromkeys(cast("Sequence[str]", indexes)))
    for name in names:
        if name not in weights:
            msg = f"there is no index {name!r:.80}; there are {', '.join(weights)}"
            raise InvalidParameterError(msg)
    if not (left := tuple(name for name in names if weights[name])):
        msg = f"no index is left to ask: {', '.join(names)} have the weight 0"
        raise InvalidParameterError(msg)
    return left


def checked_weights(names: Mapping[str, object], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the weight of each index, 1 where it has none.

    Raises:
        InvalidParameterError: There is no index, a name cannot be used, or a weight is negative or of no index.
    """
    if not names:
        msg = "there is no index to search; name at least one"
        raise InvalidParameterError(msg)
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"the name of an index is text without white space and colons, got {name!r:.80}"
            raise InvalidParameterError(msg)
    for name, weight in weights.items():
        if name not in names:
            msg = f"there is a weight for {name!r:.80}, which is no index; there are {', '.join(names)}"
            raise InvalidParameterError(msg)
        if type(weight) not in {int, float} or not isfinite(weight) or weight < 0:
            msg = f"the weight of the index {name} must be a number of at least 0, got {weight!r:.80}"
            raise InvalidParameterError(msg)
    return {name: float(weights.get(name, 1.0)) for name in names}
