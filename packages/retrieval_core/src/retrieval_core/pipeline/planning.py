"""From settings and arguments to what one query asks of the stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from retrieval_core.config.modes import named_mode
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.options import check_single, chosen, turns
from retrieval_core.pipeline.stages.plan import Plan
from retrieval_core.pipeline.stages.transform import MOST_VARIANTS, is_variant
from retrieval_core.ports import SearchesBoth
from retrieval_core.types.filters import Filter, MetadataFilter
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.search_index import Parts
    from retrieval_core.ports import Side, Store, Variant

    Filters: TypeAlias = Filter | MetadataFilter | Mapping[str, Any] | None

MAX_TOP_K = 1000


def make_plan(parts: Parts, config: RetrievalConfig, filters: Filters, options: QueryOptions) -> Plan:
    """Put settings and a caller's arguments together.

    Raises:
        FilterError: The filter is not well formed.
        InvalidParameterError: An argument is outside its range, or asks for what store or embedder cannot do.
        TypeError: An argument is for several indexes only.
    """
    check_single(options)
    settings = config.search
    sides = sides_of(parts.store)
    wanted, top_k = options.get("mode"), options.get("top_k")
    if wanted is None and parts.embedder is None and "mode" not in settings.model_fields_set:
        wanted = "lexical"  # the default is hybrid, which has no vectors here
    wanted = named_mode(settings.mode if wanted is None else wanted)
    if wanted not in ("hybrid", "dense", "lexical"):
        msg = f"mode must be hybrid, vector (dense) or keyword (lexical), got {wanted!r:.80}"
        raise InvalidParameterError(msg)
    top_k = checked_number("top_k", settings.top_k if top_k is None else top_k, config.limits.max_results)
    if wanted != "lexical" and parts.embedder is None:
        msg = f"mode {wanted!r} needs an embedder and there is none; use mode 'lexical', or set embedder.kind"
        raise InvalidParameterError(msg)
    if wanted == "lexical" and "lexical" not in sides:
        msg = "this store has no keyword search; use mode 'dense'"
        raise InvalidParameterError(msg)
    if wanted == "hybrid" and "lexical" not in sides:
        wanted = "dense"  # the result's metadata says so
    if settings.fusion == "native" and wanted == "hybrid" and not isinstance(parts.store, SearchesBoth):
        msg = "search.fusion = 'native' needs a store with native hybrid search, such as lancedb; use 'zscore'"
        raise InvalidParameterError(msg)
    session_id = options.get("session_id")
    if session_id is not None and not isinstance(session_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"session_id must be text, got {session_id!r:.80}"
        raise InvalidParameterError(msg)
    use_cache = options.get("use_cache")
    if not isinstance(use_cache, bool | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"use_cache must be true or false, got {use_cache!r:.80}"
        raise InvalidParameterError(msg)
    # Diverse passages are chosen before they are reranked: more of them would be those that had been passed over.
    reranked = config.reranker.candidates if parts.rerankers and settings.search_type != "mmr" else 0
    fetch_k = max(settings.fetch_k, top_k) if settings.search_type == "mmr" else None
    return Plan(
        mode=wanted,
        has_words="lexical" in sides,
        top_k=top_k,
        candidates=max(settings.candidates, top_k, reranked, fetch_k or 0),
        condition=condition_of(filters),
        fusion=settings.fusion,
        dense_weight=settings.dense_weight,
        score_threshold=_threshold(settings.score_threshold, options.get("score_threshold")),
        on_unscored=settings.on_unscored,
        fetch_k=fetch_k,
        lambda_mult=settings.lambda_mult,
        reranked=reranked,
        transforms=_transforms(parts, config, options),
        variants=checked_variants(options.get("variants")),
        history=turns(options.get("history")),
        session_id=session_id,
        use_cache=use_cache is not False,
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


def _threshold(configured: float | None, wanted: object) -> float | None:
    if wanted is None:
        return configured
    if type(wanted) not in (int, float) or not 0 <= cast("float", wanted) <= 1:
        msg = f"score_threshold must be a number between 0 and 1, got {wanted!r:.80}"
        raise InvalidParameterError(msg)
    return float(cast("float", wanted))


def _transforms(parts: Parts, config: RetrievalConfig, options: QueryOptions) -> tuple[str, ...]:
    wanted = options.get("transforms")
    if wanted is not None:
        return chosen(wanted, tuple(parts.transformers))
    # A configured one that needs a language model is absent where there is none, as other stages are.
    return tuple([name for name in config.transform.use if name in parts.transformers])


def checked_variants(variants: object) -> tuple[Variant, ...]:
    """Return the further texts that a caller wants searched for.

    Raises:
        InvalidParameterError: They are no list of at most 16 variants, each with a text and a weight above 0.
    """
    if variants is None:
        return ()
    if not isinstance(variants, (list, tuple)):
        msg = f"variants must be a list of Variant, got {type(variants).__name__}"
        raise InvalidParameterError(msg)
    given = cast("Sequence[object]", variants)
    sound = tuple(item for item in given if is_variant(item))
    if len(sound) < len(given) or len(given) > MOST_VARIANTS:
        msg = (
            f"variants must be at most {MOST_VARIANTS} Variant, each with a text, a set of sides and a weight above 0, "
            f"got {given!r:.160}"
        )
        raise InvalidParameterError(msg)
    return sound


def sides_of(store: Store) -> frozenset[Side]:
    """Return the ways in which a store can be searched; one that does not say has both."""
    return getattr(store, "sides", frozenset({"dense", "lexical"}))


def condition_of(filters: Filters) -> Filter | None:
    """Return the filter that a caller means; an empty object, as programs build it, means none."""
    if filters is None or isinstance(filters, Filter):
        return filters
    if isinstance(filters, MetadataFilter):
        return filters.as_filter()
    return None if filters == {} else parse_filter(filters)
