"""Query transformation for several indexes: once, before they search."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.pipeline.stages.transform import transform
from retrieval_core.run.outcomes import raise_faults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.federation.options import FederatedPlan
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.stages.embed import Questions
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.ports import QueryTransformer
    from retrieval_core.run.outcomes import Failed
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Query


@dataclass(frozen=True, slots=True)
class Together:
    """The models that some of the indexes share. Each of them has these too, and finds what came of the first call.

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
    """A question as the shared transformers left it.

    Attributes:
        query: Stands alone, as far as could be told.
        plan: What each index is asked: without what failed, so that none of them tries it again.
        failures: Of transformers, which were done without.
    """

    query: Query
    plan: FederatedPlan
    failures: tuple[Failed, ...] = ()


async def transform_query(
    run: Run, query: Query, plan: FederatedPlan, together: Together, config: RetrievalConfig
) -> TransformedQuery:
    """Let the shared transformers look at a question once, for all indexes that share them.

    Args:
        run: Makes the calls.
        query: The normalised question.
        plan: What is asked of each index.
        together: What the indexes share.
        config: How questions are normalised.

    Raises:
        RetrievalError: Something is set up wrongly; or, with ``strict``, a transformer failed.
    """
    names = plan.transforms
    own: Plan = replace(plan, transforms=tuple(name for name in names if name in together.transformers))
    condenser = together.condenser if plan.history else None
    if together.names.isdisjoint(plan.names) or not (own.transforms or condenser):
        return TransformedQuery(query, plan)
    look = partial(transform, run, transformers=together.transformers, settings=config.query)
    made = await look(query, replace(own, transforms=()), condenser=condenser)
    raise_faults(made.failures, strict=config.strict)
    failures = made.failures
    instead: QueryOptions = {**plan.of_each}
    if failures:  # the question is searched for as it was asked
        own, instead["history"] = replace(own, history=()), None
    made = await look(made.query, own, condenser=None)
    raise_faults(made.failures, strict=config.strict)
    if made.failures:
        failed = {failure.of for failure in made.failures}
        # An index may lack some of the configured ones; of those that a query names, it says so.
        is_named = plan.of_each.get("transforms") is not None
        known = names if is_named else {*together.transformers, *together.of_each}
        instead["transforms"] = tuple(name for name in names if name in known and name not in failed)
    if failures := failures + made.failures:
        plan = replace(plan, instead=dict.fromkeys(together.names, instead))
    return TransformedQuery(made.query, plan, failures)
