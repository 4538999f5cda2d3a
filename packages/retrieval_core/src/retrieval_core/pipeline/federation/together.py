"""Looking at a question once, before several indexes search for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.pipeline.search_loop import raise_what_must_not_be_hidden
from retrieval_core.pipeline.stages.plan import Plan
from retrieval_core.pipeline.stages.transform import transform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.federation.options import FederatedQuery
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.stages.embed import Questions
    from retrieval_core.ports import QueryTransformer
    from retrieval_core.run.outcomes import Failed
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Query


@dataclass(frozen=True, slots=True)
class Together:
    """What some of the indexes use together. Each of them has it too, and finds there what came of the first call.

    Attributes:
        names: Of these indexes.
        condenser: Makes a question stand alone that belongs to a conversation.
        transformers: By name.
        of_each: Names of the further transformers of each index.
        questions: Embeds many questions at once, so that each index finds their vectors.
    """

    names: frozenset[str] = frozenset()
    condenser: QueryTransformer | None = None
    transformers: Mapping[str, QueryTransformer] = field(default_factory=dict[str, "QueryTransformer"])
    of_each: tuple[str, ...] = ()
    questions: Questions | None = None


@dataclass(frozen=True, slots=True)
class TransformedQuery:
    """A question that was looked at.

    Attributes:
        query: Stands alone, as far as could be told.
        asked: What is asked of each index: without what failed, so that none of them tries it again.
        failures: Of transformers, which were done without.
    """

    query: Query
    asked: FederatedQuery
    failures: tuple[Failed, ...] = ()


def plan_of(asked: FederatedQuery, config: RetrievalConfig, transforms: tuple[str, ...] = ()) -> Plan:
    """Return what a query asks of the stages that come before the indexes; the indexes make plans of their own."""
    settings = config.search
    return Plan(
        mode=asked.of_each.get("mode") or settings.mode,
        has_words=True,
        top_k=asked.top_k,
        candidates=asked.top_k,
        condition=None,
        fusion=settings.fusion,
        dense_weight=settings.dense_weight,
        score_threshold=settings.score_threshold,
        on_unscored=settings.on_unscored,
        fetch_k=None,
        lambda_mult=settings.lambda_mult,
        transforms=transforms,
        history=asked.history,
    )


async def transform_query(
    run: Run, query: Query, asked: FederatedQuery, together: Together, config: RetrievalConfig
) -> TransformedQuery:
    """Have a question transformed that indexes search for which do that together.

    Args:
        run: Makes the calls.
        query: The normalised question.
        asked: What is asked of each index.
        together: What the indexes share.
        config: Which transformers are used where the query does not say.

    Raises:
        RetrievalError: Something is set up wrongly; or, with ``strict``, a transformer failed.
    """
    wanted = asked.of_each.get("transforms")
    names = tuple(dict.fromkeys(config.transform.use if wanted is None else wanted))
    plan = plan_of(asked, config, tuple(name for name in names if name in together.transformers))
    condenser = together.condenser if plan.history else None
    if together.names.isdisjoint(asked.names) or not (plan.transforms or condenser):
        return TransformedQuery(query, asked)
    look = partial(transform, run, transformers=together.transformers, settings=config.query)
    made = await look(query, replace(plan, transforms=()), condenser=condenser)
    raise_what_must_not_be_hidden(made.failures, strict=config.strict)
    failures = made.failures
    instead: QueryOptions = {**asked.of_each}
    if failures:  # the question is searched for as it was asked
        plan, instead["history"] = replace(plan, history=()), None
    made = await look(made.query, plan, condenser=None)
    raise_what_must_not_be_hidden(made.failures, strict=config.strict)
    if made.failures:
        failed = {failure.of for failure in made.failures}
        # An index may lack some of the configured ones; of those that a query names, it says so.
        known = names if wanted is not None else {*together.transformers, *together.of_each}
        instead["transforms"] = tuple(name for name in names if name in known and name not in failed)
    if failures := failures + made.failures:
        asked = replace(asked, instead=dict.fromkeys(together.names, instead))
    return TransformedQuery(made.query, asked, failures)
