"""From settings and arguments to what one query asks of the stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from retrieval_core.config.model import named_mode
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.options import check_single, checked_values, chosen
from retrieval_core.pipeline.stages.state import Plan
from retrieval_core.types import freeze
from retrieval_core.types.filters import Filter, MetadataFilter
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.ports import Message, Side, Store, Variant

    Filters: TypeAlias = Filter | MetadataFilter | Mapping[str, Any] | None

MAX_TOP_K = 1000
_PLANNED = frozenset(
    {"top_k", "mode", "score_threshold", "transforms", "variants", "history", "session_id", "use_cache"}
)
"""Options that have a field in the plan of their own."""


class Planner:
    """Makes the plans of queries to one index.

    Args:
        config: The settings of every query.
        store: The store that is searched.
        has_embedder: Whether queries can be embedded.
        transformers: Names of the transformers that there are.
        reranks: Whether hits are reranked.
    """

    def __init__(
        self,
        config: RetrievalConfig,
        store: Store,
        *,
        has_embedder: bool,
        transformers: Sequence[str] = (),
        reranks: bool = False,
    ) -> None:
        self._config = config
        self._store = store
        self._has_embedder = has_embedder
        self._transformers = transformers
        self._reranks = reranks
        self._plain: tuple[frozenset[Side], Plan] | None = None

    def __call__(self, filters: Filters, options: QueryOptions) -> Plan:
        """Return the plan of a query; see :func:`make_plan`."""
        sides = sides_of(self._store)
        if not options and filters is None and self._plain is not None and self._plain[0] == sides:
            return self._plain[1]
        plan = make_plan(
            self._config,
            filters,
            options,
            store=self._store,
            has_embedder=self._has_embedder,
            transformers=self._transformers,
            reranks=self._reranks,
        )
        if not options and filters is None:
            self._plain = sides, plan  # until the store learns what it can do
        return plan


def make_plan(
    config: RetrievalConfig,
    filters: Filters,
    options: QueryOptions,
    *,
    store: Store,
    has_embedder: bool,
    transformers: Sequence[str] = (),
    reranks: bool = False,
) -> Plan:
    """Put settings and a caller's arguments together.

    Raises:
        FilterError: The filter is not well formed.
        InvalidParameterError: An argument is outside its range, or asks for what store or embedder cannot do.
        TypeError: An argument is for several indexes only.
    """
    check_single(options)
    options = checked_values(options)
    settings = config.search
    sides = sides_of(store)
    wanted, top_k = options.get("mode"), options.get("top_k")
    if wanted is None and not has_embedder and "mode" not in settings.model_fields_set:
        wanted = "lexical"  # the default is hybrid, which has no vectors here
    wanted = named_mode(settings.mode if wanted is None else wanted)
    top_k = checked_number("top_k", settings.top_k if top_k is None else top_k, config.limits.max_results)
    if wanted != "lexical" and not has_embedder:
        msg = f"mode {wanted!r} needs an embedder and there is none; use mode 'lexical', or set embedder.kind"
        raise InvalidParameterError(msg)
    if wanted == "lexical" and "lexical" not in sides:
        msg = "this store has no keyword search; use mode 'dense'"
        raise InvalidParameterError(msg)
    if wanted == "hybrid" and "lexical" not in sides:
        wanted = "dense"  # the result's metadata says so
    if settings.fusion == "native" and wanted == "hybrid" and "search_both" not in store.capabilities:
        msg = "search.fusion = 'native' needs a store with native hybrid search, such as lancedb; use 'zscore'"
        raise InvalidParameterError(msg)
    # Diverse passages are chosen before they are reranked: more of them would be those that had been passed over.
    reranked = config.reranker.candidates if reranks and settings.search_type != "mmr" else 0
    fetch_k = max(settings.fetch_k, top_k) if settings.search_type == "mmr" else None
    return Plan(
        mode=wanted,
        has_words="lexical" in sides,
        top_k=top_k,
        candidates=max(settings.candidates, top_k, reranked, fetch_k or 0),
        condition=condition_of(filters),
        fusion=settings.fusion,
        dense_weight=settings.dense_weight,
        score_threshold=options.get("score_threshold", settings.score_threshold),
        on_unscored=settings.on_unscored,
        fetch_k=fetch_k,
        lambda_mult=settings.lambda_mult,
        reranked=reranked,
        transforms=_transforms(transformers, config, options),
        variants=cast("tuple[Variant, ...]", options.get("variants", ())),
        history=cast("tuple[Message, ...]", options.get("history", ())),
        session_id=options.get("session_id"),
        use_cache=options.get("use_cache") is not False,
        options=freeze({name: value for name, value in options.items() if name not in _PLANNED}),
    )


def checked_number(name: str, number: object, most: int) -> int:
    """Return a number of hits that is asked for.

    Raises:
        InvalidParameterError: It is no whole number from 1 to ``most``.
    """
    if type(number) is not int or not 1 <= number <= most:
        told = "" if most == MAX_TOP_K else ", the limit of limits.max_results"
        msg = f"{name} must be a whole number between 1 and {most}{told}, got {number!r:.80}"
        raise InvalidParameterError(msg)
    return number


def _transforms(transformers: Sequence[str], config: RetrievalConfig, options: QueryOptions) -> tuple[str, ...]:
    wanted = options.get("transforms")
    if wanted is not None:
        return chosen(wanted, transformers)
    # A configured one that needs a language model is absent where there is none, as other stages are.
    return tuple([name for name in config.transform.use if name in transformers])


def sides_of(store: Store) -> frozenset[Side]:
    """Return the ways in which a store can be searched; one that does not say has both."""
    return store.sides


def condition_of(filters: Filters) -> Filter | None:
    """Return the filter that a caller means; an empty object, as programs build it, means none."""
    if filters is None or isinstance(filters, Filter):
        return filters
    if isinstance(filters, MetadataFilter):
        return filters.as_filter()
    return None if filters == {} else parse_filter(filters)
