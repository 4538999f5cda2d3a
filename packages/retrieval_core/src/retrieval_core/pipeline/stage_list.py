"""The stages of a query, in order: those of one index and those of several, from the same components."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError, MalformedAnswerError
from retrieval_core.pipeline.lifecycle import kept_reranks
from retrieval_core.pipeline.results import Evaluate
from retrieval_core.pipeline.several import Merge, SearchIndexes
from retrieval_core.pipeline.stages.format import Format, Prune
from retrieval_core.pipeline.stages.judge import CheckFilter, Judge
from retrieval_core.pipeline.stages.rerank import DropIrrelevant, Rerank, TopK
from retrieval_core.pipeline.stages.search import Fuse, Search, Sources
from retrieval_core.pipeline.stages.select import Select
from retrieval_core.pipeline.stages.state import SearchState, Stage, digest
from retrieval_core.pipeline.stages.syntax import CheckPhrases, ReadSyntax
from retrieval_core.pipeline.stages.transform import Rewrite, Transform
from retrieval_core.run.outcomes import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.several import SearchedIndex
    from retrieval_core.pipeline.stages.state import Plan
    from retrieval_core.ports import Evaluator, Pruner, QueryTransformer, RelevanceFilter, Reranker, Rewriter
    from retrieval_core.run.runner import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """The components that a query passes through.

    Attributes:
        transformers: Query transformers by name.
        condenser: Rewrites a follow-up question as a complete question.
        rerankers: Each is the fallback of the ones before.
        relevance_filter: Drops irrelevant chunks.
        pruner: Shortens chunks to their relevant sentences.
        rewriter: Rewrites a query that found too little.
        evaluator: Scores each result.
        extra_stages: Stages of a program, each after the one that it names.
    """

    transformers: Mapping[str, QueryTransformer] = field(default_factory=dict[str, "QueryTransformer"])
    condenser: QueryTransformer | None = None
    rerankers: tuple[Reranker, ...] = ()
    relevance_filter: RelevanceFilter | None = None
    pruner: Pruner | None = None
    rewriter: Rewriter | None = None
    evaluator: Evaluator | None = None
    extra_stages: Sequence[Stage] = ()


def list_stages(
    searched: Sources | Mapping[str, SearchedIndex],
    given: Components,
    config: RetrievalConfig,
    now: Callable[[], float],
) -> Stages:
    """Return the stages of a query, in order.

    Args:
        searched: One store, or several indexes by name.
        given: The components.
        config: The settings.
        now: Tells the time in seconds; it never goes back.

    Raises:
        InvalidParameterError: One of the extra stages is no stage, or names none of these.
    """
    shares = DeadlineShares.of(
        reranks=bool(given.rerankers),
        filters=given.relevance_filter is not None,
        rewrites=given.rewriter is not None,
        is_several=not isinstance(searched, Sources),
    )
    searching = shares.search - shares.transform
    finding: tuple[Stage, ...]
    checking: tuple[Stage, ...]
    if isinstance(searched, Sources):
        store, questions = searched.store, searched.questions
        search, select = Search(searched, config, searching), Select(store, shares.select - shares.search)
        finding = (search, Fuse(config), CheckPhrases(store), select)
        stores = {"": store}
        checking = (CheckFilter(store), Judge(store, None if questions is None else questions.embedder, config))
    else:
        finding = (SearchIndexes(searched, searching), Merge(searched, config, reranks=bool(given.rerankers)))
        checking = ()  # done for each index
        stores = {name: index.store for name, index in searched.items()}
    improving: list[Stage] = [TopK()]
    if given.rerankers:
        kept_scores = kept_reranks(config.cache, now)
        improving.insert(0, Rerank(given.rerankers, config, kept_scores, shares.rerank - shares.select))
    if given.relevance_filter is not None:
        before = shares.rerank if given.rerankers else shares.select
        improving.append(DropIrrelevant(given.relevance_filter, config, shares.relevance - before))
    return Stages(
        once=(
            ReadSyntax(stores),
            Transform(given.condenser, given.transformers, config, shares.transform),
        ),
        each_round=(*finding, *improving),
        rewrite=() if given.rewriter is None else (Rewrite(given.rewriter, config),),
        at_last=(
            *(() if given.pruner is None else (Prune(given.pruner, config),)),
            *checking,
            Format(config),
            *(() if given.evaluator is None else (Evaluate(given.evaluator, config),)),
        ),
    ).plus(given.extra_stages)


@dataclass(frozen=True)
class Stages:
    """The stages of a query, in order.

    Attributes:
        once: Before the first search.
        each_round: In the search, and in that for each rewritten query.
        rewrite: After each round; at most one stage.
        at_last: On the best round.
    """

    once: tuple[Stage, ...] = ()
    each_round: tuple[Stage, ...] = ()
    rewrite: tuple[Stage, ...] = ()
    at_last: tuple[Stage, ...] = ()

    @cached_property
    def all(self) -> tuple[Stage, ...]:
        """All stages."""
        return (*self.once, *self.each_round, *self.rewrite, *self.at_last)

    @cached_property
    def plugins(self) -> tuple[object, ...]:
        """The plug-ins that the stages call."""
        return tuple([each for stage in self.all for each in stage.plugins() if each is not None])

    @property
    def fingerprint(self) -> str | None:
        """A name for the settings of all stages; ``None`` if results of one of them must not be cached."""
        prints = [stage.fingerprint() for stage in self.all]
        return None if None in prints else digest([stage.name for stage in self.all], prints)

    def knowledge(self, plan: Plan) -> dict[str, object]:
        """Return the plug-ins of a query whose answers change with what they know, by name."""
        return {name: plugin for stage in self._knowing for name, plugin in stage.knowledge(plan).items()}

    @cached_property
    def _knowing(self) -> tuple[Stage, ...]:
        """The stages that have such plug-ins."""
        return tuple([stage for stage in self.all if type(stage).knowledge is not Stage.knowledge])

    def plus(self, own: Iterable[Stage]) -> Stages:
        """Return these stages with your own, each after the one that it names.

        Raises:
            InvalidParameterError: It is no stage, or names none of these.
        """
        groups = [self.once, self.each_round, self.rewrite, self.at_last]
        for stage in own:
            names = [each.name for each in chain(*groups)]
            if not isinstance(stage, Stage):  # pyright: ignore[reportUnnecessaryIsInstance]
                msg = f"a stage is a subclass of retrieval_core.pipeline.Stage, got {stage!r:.80}"
                raise InvalidParameterError(msg)
            if stage.after not in names:
                msg = (
                    f"the stage {stage.name!r} runs after {stage.after!r}, but the stages of this pipeline are "
                    f"{', '.join(names)}; a part that isn't configured, such as a reranker, has no stage"
                )
                raise InvalidParameterError(msg)
            groups = [tuple(_inserted(group, OwnStage(stage))) for group in groups]
        return Stages(*groups)


def _inserted(group: Sequence[Stage], own: OwnStage) -> Iterable[Stage]:
    for stage in group:
        yield stage
        if stage.name == own.after:
            yield own


class OwnStage(Stage):
    """Calls a stage of a program as a plug-in: within its time, and if it fails, the query goes on without it."""

    def __init__(self, stage: Stage) -> None:
        self.name = stage.name  # pyright: ignore[reportAttributeAccessIssue]
        self.deadline_share = stage.deadline_share
        self.on_merged = stage.on_merged
        self.after = stage.after
        self.fingerprint = stage.fingerprint
        self.is_fault = stage.is_fault
        self._stage = stage

    def knowledge(self, plan: Plan) -> Mapping[str, object]:
        """Return the plug-ins of the stage whose answers change with what they know."""
        return self._stage.knowledge(plan)

    def plugins(self) -> Iterable[object]:
        """Return the stage itself, which may have something to load or to close, and its plug-ins."""
        return (self._stage, *self._stage.plugins())

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state after the stage, or as it was if the stage failed."""
        outcome = await run.call(self.name, self._stage.__call__, run, state)
        if isinstance(outcome, Failed):
            return state.failing(outcome)
        if not isinstance(outcome.value, SearchState):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"the stage returned {outcome.value!r:.80}, which is no SearchState"
            return state.failing(Failed(self.name, MalformedAnswerError(msg)))
        return outcome.value


def deadlines_of(stages: Sequence[Stage]) -> Mapping[Stage, float]:
    """Return the part of the deadline by which each stage must be done: the shares so far of all shares there are.

    A stage without a share has all that is left.
    """
    shares = [stage.deadline_share for stage in stages]
    total = max(1.0, sum(shares))
    so_far = [round(share / total, 6) for share in accumulate(shares)]
    return {stage: at if stage.deadline_share else 1.0 for stage, at in zip(stages, so_far, strict=True)}


@dataclass(frozen=True, slots=True)
class DeadlineShares:
    """By which part of the deadline the stages of a pipeline must be done, so that the next ones have time left.

    Attributes:
        search: Searching.
        select: Reading the chunks.
        rerank: Reranking.
        relevance: The relevance filter.
        transform: Transforming the query.
    """

    search: float
    select: float
    rerank: float
    relevance: float
    transform: float = 0.25

    @classmethod
    def of(cls, *, reranks: bool, filters: bool, rewrites: bool, is_several: bool) -> DeadlineShares:
        """Return the shares for the stages that there are."""
        if rewrites:
            shares = cls(0.4, 0.5, 0.6, 0.7)
        elif filters:
            shares = cls(0.5, 0.6, 0.75, 0.9)
        else:
            shares = cls(0.5, 0.6, 0.95, 1.0) if reranks else cls(0.8, 1.0, 1.0, 1.0)
        if not is_several:
            return shares
        answered = min(0.95, shares.select)  # several may take as long as one may search and read
        return replace(shares, search=answered, select=answered, transform=shares.transform * answered)
