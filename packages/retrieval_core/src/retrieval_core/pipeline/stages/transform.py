"""The query in other words: normalized, completed from its conversation, with variants, or rewritten."""

from __future__ import annotations

import asyncio
import unicodedata
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.errors import QueryValidationError
from retrieval_core.pipeline.stages.format import context_of
from retrieval_core.pipeline.stages.state import Stage, identify
from retrieval_core.ports import BOTH_SIDES, QueryContext, QueryTransformer, Rewriter, Variant, as_plugin
from retrieval_core.ports.plugin import as_optional
from retrieval_core.run.outcomes import Failed
from retrieval_core.types import Query, RewriteResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from retrieval_core.config import QueryConfig, RetrievalConfig
    from retrieval_core.pipeline.stages.state import Plan, SearchState
    from retrieval_core.ports import Transformed
    from retrieval_core.run.outcomes import Ok
    from retrieval_core.run.runner import Run

MOST_VARIANTS = 16
"""Variants of one question, at most, and as many lists of linked chunks: each of them is a search."""

INTENT_WEIGHT = 0.5
"""The weight of a vector search for the query with its intent."""


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
        if not (plan.transforms or plan.history or plan.variants or plan.intent or state.variants):
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
        if plan.intent:
            text = f"{current.text} {plan.intent}"
            variants.insert(0, Variant("intent", text, frozenset({"dense"}), weight=INTENT_WEIGHT))
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


class Rewrite(Stage):
    """Says what to search for next, if a search did badly: the question in other words.

    The rewriter always gets the question as it was first asked, with the chunks of the best search so far.

    Args:
        rewriter: Rewrites.
        settings: Of the pipeline.
    """

    name = "rewrite"
    deadline_share = 0

    def __init__(self, rewriter: Rewriter, settings: RetrievalConfig) -> None:
        self._rewriter = as_plugin(rewriter, Rewriter)
        self._settings = settings
        self._fingerprint = partial(identify, (settings.rewriter,), rewriter)

    def fingerprint(self) -> str | None:
        """Return a name for the settings and the rewriter."""
        return self._fingerprint()

    def plugins(self) -> Iterable[object]:
        """Return the rewriter."""
        return (self._rewriter,)

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with another query in ``again``; with ``None`` if none is needed, or none is new."""
        state, wanted = state.but(again=None), self._settings.rewriter
        if state.attempts >= wanted.max_attempts or not should_rewrite(state.quality, wanted.relevance_threshold):
            return state
        if run.is_over or (state.rewrites and state.rewrites[-1].relevance is None):
            return state
        state = state.but(attempts=state.attempts + 1)
        question = state.question
        context = context_of(state.hits, self._settings.format).text
        outcome = await run.call("rewrite", self._rewriter.rewrite, question.text, context)
        if isinstance(outcome, Failed):
            return state.failing(outcome)
        rewritten = outcome.value
        query = replace(normalize(rewritten.query, self._settings.query), original=question.original)
        tried = {question.text.casefold(), *(each.rewritten_query.casefold() for each in state.rewrites)}
        if query.text.casefold() in tried:
            run.note("rewrite", run.elapsed_ms, None, None, f"{query.text!r:.200} was searched for already")
            return state
        # Not as it was typed: a query that differs in white space only may get this result from the cache.
        rewrite = RewriteResult(question.text, query.text, state.attempts, rewritten.reason, None)
        return state.but(again=query, rewrites=(*state.rewrites, rewrite))


def searching_again(first: SearchState, best: SearchState) -> SearchState:
    """Return the state before a search for another query, which needs no transformers."""
    assert best.again is not None  # noqa: S101 - of the stage above
    return first.but(query=best.again, variants=(), linked=(), attempts=best.attempts)


def better_of(best: SearchState, tried: SearchState) -> SearchState:
    """Return the better one of the best search so far and the next one, with what became of both."""
    rewrites = (*best.rewrites[:-1], replace(best.rewrites[-1], relevance=tried.quality))
    is_better = tried.quality is not None and (best.quality is None or tried.quality > best.quality)
    return (tried if is_better else best).but(
        rewrites=rewrites, attempts=best.attempts, later_failures=best.later_failures + tried.failures
    )


def should_rewrite(relevance: float | None, threshold: float) -> bool:
    """Return whether a search did badly enough to rewrite the query: its relevance is below the threshold."""
    return relevance is not None and relevance < threshold


def normalize(query: str, settings: QueryConfig) -> Query:
    """Bring a question into its one normal form.

    Unicode is composed (NFC), every run of white space becomes one space, and the ends are stripped. What is longer
    than the configured ``max_length`` is then cut to exactly that many code points.

    Args:
        query: As it was asked.
        settings: The longest question in code points, and whether to compose Unicode.

    Raises:
        QueryValidationError: The query is no string, or nothing but white space.
    """
    if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"the query must be text, got {type(query).__name__}"
        raise QueryValidationError(msg)
    text = " ".join((unicodedata.normalize("NFC", query) if settings.normalize_unicode else query).split())
    if not text:
        msg = "the query is empty; ask for something"
        raise QueryValidationError(msg, query)
    return Query(original=query, text=text[: settings.max_length], truncated=len(text) > settings.max_length)
