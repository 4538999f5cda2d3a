"""Query transformation for several indexes: once, before they search."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from retrieval_core.pipeline.stages.state import Stage
from retrieval_core.pipeline.stages.transform import Transform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.federation.options import FederatedPlan
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.stages.embed import Questions
    from retrieval_core.pipeline.stages.state import SearchState
    from retrieval_core.ports import QueryTransformer
    from retrieval_core.run.runner import Run


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


class TransformTogether(Stage):
    """Lets the transformers that indexes share look at a query once, for all of them.

    Args:
        together: What the indexes share.
        config: How queries are normalized.
        deadline_share: The part of the deadline that it has.
    """

    name = "transform"

    def __init__(self, together: Together, config: RetrievalConfig, deadline_share: float) -> None:
        self._together = together
        self._condense = Transform(together.condenser, {}, config, deadline_share)
        self._transform = Transform(None, together.transformers, config, deadline_share)
        self._strict = config.strict
        self.deadline_share = deadline_share

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the question, and with a plan without what failed, so that no index tries it again."""
        plan, together = cast("FederatedPlan", state.plan), self._together
        names = plan.transforms
        own = replace(plan, transforms=tuple(name for name in names if name in together.transformers))
        condenses = together.condenser is not None and bool(plan.history)
        if together.names.isdisjoint(plan.names) or not (own.transforms or condenses):
            return state
        made = state.but(plan=replace(own, transforms=()))
        if condenses:
            made = await self._condense(run, made)
            if self._strict and made.failures:
                return made
        instead: QueryOptions = {**plan.of_each}
        if made.failures:  # the query is searched for as it was asked
            own, instead["history"] = replace(own, history=()), None
        condensing = made.failures
        made = await self._transform(run, made.but(plan=own))
        if len(made.failures) > len(condensing):
            failed = {failure.of for failure in made.failures}
            # An index may lack some of the configured ones; of those that a query names, it says so.
            is_named = plan.of_each.get("transforms") is not None
            known = names if is_named else {*together.transformers, *together.of_each}
            instead["transforms"] = tuple(name for name in names if name in known and name not in failed)
        if made.failures:
            plan = replace(plan, instead=dict.fromkeys(together.names, instead))
        return made.but(plan=plan)
