"""Query transformation: a question of a conversation is made to stand alone, and variants of it are found."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from retrieval_core.pipeline.stages.fingerprints import identify
from retrieval_core.pipeline.stages.normalize import normalize
from retrieval_core.pipeline.stages.search import are_candidates, is_finite
from retrieval_core.pipeline.stages.sound import sound
from retrieval_core.pipeline.stages.state import Stage
from retrieval_core.ports import BOTH_SIDES, Linked, QueryContext, Transformed, Variant
from retrieval_core.run.outcomes import Failed, Ok

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from retrieval_core.config import QueryConfig, RetrievalConfig
    from retrieval_core.pipeline.stages.state import Plan, SearchState
    from retrieval_core.ports import QueryTransformer
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Query

MOST_VARIANTS = 16
"""Variants of one question, at most, and as many lists of linked chunks: each of them is a search."""
HEAVIEST = 1000.0
"""The most that a weight may be: far beyond it, sums of scores would not be numbers."""


class Transform(Stage):
    """Makes a follow-up question complete, then asks all transformers of the query about it at once.

    Of several that replace the question, the first does, in the order of the plan; what the others put in its place
    becomes a variant.

    Args:
        condenser: Puts what a question takes from the conversation into it; ``None`` leaves it as it is.
        transformers: By name.
        settings: How questions are normalized.
        deadline_share: The part of the deadline that it has.
    """

    name = "transform"

    def __init__(
        self,
        condenser: QueryTransformer | None,
        transformers: Mapping[str, QueryTransformer],
        settings: RetrievalConfig,
        deadline_share: float,
    ) -> None:
        self.condenser = condenser
        self.transformers = transformers
        self._settings = settings.query
        self._fingerprint = partial(identify, (settings.query, settings.transform), condenser)
        self.deadline_share = deadline_share

    def fingerprint(self) -> str | None:
        """Return a name for the settings and the condenser; the transformers of a query are in ``knowledge``."""
        return self._fingerprint()

    def plugins(self) -> Iterable[object]:
        """Return the condenser and all transformers."""
        return (*self.transformers.values(), self.condenser)

    def knowledge(self, plan: Plan) -> Mapping[str, object]:
        """Return the transformers of a query."""
        return {f"transform {name}": self.transformers[name] for name in plan.transforms}

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the question to search for, and its variants."""
        plan = state.plan
        if not (plan.transforms or plan.history or plan.variants or state.variants):
            return state
        context = QueryContext(plan.history)
        failures: list[Failed] = []
        variants, linked = [*state.variants, *plan.variants], [*state.linked]
        current = state.question
        if plan.history and self.condenser is not None:
            condensing = run.for_part_of_the_rest(0.5) if plan.transforms else run
            asking = condensing.on("condense").call("condense", self.condenser.transform, current.text, context)
            outcome = _sound("condense", "the condenser", await asking)
            if isinstance(outcome, Failed):
                failures.append(outcome)
            else:
                current = _replaced(current, outcome.value, self._settings)
                variants += outcome.value.variants
                reason = outcome.value.reason or f"searched for: {current.text}"
                run.note("condense", run.elapsed_ms, None, None, reason)
        question = current.text
        asking_all = [_ask(run, name, self.transformers[name], question, context) for name in plan.transforms]
        for name, outcome in zip(plan.transforms, await asyncio.gather(*asking_all), strict=True):
            if isinstance(outcome, Failed):
                failures.append(replace(outcome, of=name))
                continue
            made = outcome.value
            if made.query is not None and current.text == question:
                current = _replaced(current, made, self._settings)
            elif made.query is not None:
                variants.append(Variant(name, made.query))
            variants += made.variants
            linked += made.linked
            count = len(made.variants) + len(made.linked)
            run.note(f"transform: {name}", run.elapsed_ms, None, count, made.reason or None)
        return state.failing(*failures).but(
            question=current,
            query=current,
            variants=_distinct(current, variants, plan, self._settings),
            linked=tuple(linked[:MOST_VARIANTS]),
        )


async def _ask(
    run: Run, name: str, transformer: QueryTransformer, question: str, context: QueryContext
) -> Ok[Transformed] | Failed:
    outcome = await run.on(f"transform {name}").call("transform", transformer.transform, question, context)
    return _sound("transform", f"the transformer {name!r}", outcome)


def _replaced(query: Query, made: Transformed, settings: QueryConfig) -> Query:
    if made.query is None:
        return query
    made_of = normalize(made.query, settings)
    return replace(made_of, original=query.original, truncated=query.truncated or made_of.truncated)


def _distinct(query: Query, variants: list[Variant], plan: Plan, settings: QueryConfig) -> tuple[Variant, ...]:
    """Return what is worth a search of its own, normalised, on the sides that the query's mode has."""
    has = BOTH_SIDES if plan.mode == "hybrid" else frozenset({plan.mode})
    kept: dict[object, Variant] = {(query.text.casefold(), has, False): Variant("question", query.text)}
    for variant in variants[:MOST_VARIANTS]:
        text, sides = normalize(variant.text, settings).text, frozenset(variant.sides) & has
        if sides:
            key = (text.casefold(), sides, variant.is_passage)
            kept.setdefault(key, replace(variant, text=text, sides=sides))
    return tuple(kept.values())[1:]


def _sound(stage: str, name: str, outcome: Ok[Transformed | str] | Failed) -> Ok[Transformed] | Failed:
    if isinstance(outcome, Ok) and isinstance(outcome.value, str):
        outcome = Ok(Transformed(query=outcome.value))
    return cast("Ok[Transformed] | Failed", sound(outcome, stage, name, problem=_problem))


def _problem(made: object) -> str | None:
    if not isinstance(made, Transformed):
        return f"it gave {made!r:.80}, which is neither text nor a Transformed"
    if made.query is not None and not _is_text(made.query):
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


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_weight(value: Any) -> bool:
    return is_finite(value) and 0 < value <= HEAVIEST


def is_variant(value: Any) -> TypeGuard[Variant]:
    """Whether a value is a variant that can be searched for."""
    return (
        isinstance(value, Variant)
        and _is_text(value.text)
        and isinstance(value.sides, (frozenset, set))  # pyright: ignore[reportUnnecessaryIsInstance]
        and value.sides <= BOTH_SIDES
        and type(value.is_passage) is bool
        and isinstance(value.kind, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        and _is_weight(value.weight)
    )


def _is_linked(value: Any) -> bool:
    return (
        isinstance(value, Linked)
        and isinstance(value.kind, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        and isinstance(value.text, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        and are_candidates(value.candidates)
        and _is_weight(value.weight)
    )
