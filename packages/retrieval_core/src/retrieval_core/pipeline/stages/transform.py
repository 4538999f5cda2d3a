"""Query transformation: a question of a conversation is made to stand alone, and variants of it are found."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.pipeline.stages.fingerprints import identify
from retrieval_core.pipeline.stages.normalize import normalize
from retrieval_core.pipeline.stages.state import Stage
from retrieval_core.ports import BOTH_SIDES, QueryContext, QueryTransformer, Variant, as_plugin
from retrieval_core.ports.plugin import as_optional
from retrieval_core.run.outcomes import Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from retrieval_core.config import QueryConfig, RetrievalConfig
    from retrieval_core.pipeline.stages.state import Plan, SearchState
    from retrieval_core.ports import Transformed
    from retrieval_core.run.outcomes import Ok
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Query

MOST_VARIANTS = 16
"""Variants of one question, at most, and as many lists of linked chunks: each of them is a search."""


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
        self.condenser = as_optional(condenser, QueryTransformer)
        self.transformers = {name: as_plugin(each, QueryTransformer) for name, each in transformers.items()}
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
            outcome = await condensing.on("condense").call("condense", self.condenser.transform, current.text, context)
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
    return await run.on(f"transform {name}").call("transform", transformer.transform, question, context)


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
