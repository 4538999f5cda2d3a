"""The stages that find candidates: search, fuse, and read the best ones."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.errors import as_embedding_error
from retrieval_core.pipeline.stages.fingerprints import identify
from retrieval_core.pipeline.stages.fuse import Ranked, fuse, merge
from retrieval_core.pipeline.stages.query_expansion import search_expansions
from retrieval_core.pipeline.stages.search import search
from retrieval_core.pipeline.stages.select import depth_of
from retrieval_core.pipeline.stages.state import Stage
from retrieval_core.ports import Retriever, as_plugin
from retrieval_core.run.outcomes import is_callers_fault, is_damage, raise_nothing_searched
from retrieval_core.run.sync import to_a_loop
from retrieval_core.types import Scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.stages.search import Sources
    from retrieval_core.pipeline.stages.state import Plan, SearchState
    from retrieval_core.ports import Candidate
    from retrieval_core.run.outcomes import Failed
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON


class Search(Stage):
    """Searches the index by vectors and keywords, and beside it everything else that finds chunks.

    Args:
        sources: What is searched.
        settings: Of the pipeline.
        deadline_share: The part of the deadline that it has.
    """

    name = "search"

    def __init__(self, sources: Sources, settings: RetrievalConfig, deadline_share: float) -> None:
        retrievers = {name: as_plugin(each, Retriever) for name, each in sources.retrievers.items()}
        self.sources = replace(sources, retrievers=retrievers)
        embedder = None if sources.questions is None else sources.questions.embedder
        self._fingerprint = partial(identify, (settings.search, tuple(sources.retrievers)), embedder)
        self.deadline_share = deadline_share

    def fingerprint(self) -> str | None:
        """Return a name for the settings and the embedder; the index is in the key by its version."""
        return self._fingerprint()

    def plugins(self) -> Iterable[object]:
        """Return the retrievers and the embedder."""
        questions = self.sources.questions
        return (*self.sources.retrievers.values(), None if questions is None else questions.embedder)

    def knowledge(self, _plan: Plan) -> Mapping[str, object]:
        """Return the further retrievers."""
        return {f"retriever {name}": retriever for name, retriever in self.sources.retrievers.items()}

    def is_fault(self, error: Exception, state: SearchState) -> bool:
        """Return whether to raise an error: damage of one side is hidden if the other side was searched."""
        return is_callers_fault(error) and not (state.found is not None and state.found.sides and is_damage(error))

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the candidates of each side, and of each expansion."""
        prepare = None if state.held is None else state.held.preparation(state.plan.condition)
        if prepare is not None:
            await to_a_loop()
            await asyncio.to_thread(prepare)
        sources = self.sources if state.held is None else replace(self.sources, held=state.held)
        if state.shared_vectors is not None and sources.questions is not None:
            sources = replace(sources, questions=replace(sources.questions, shared=state.shared_vectors))
        searching = search(run, sources, state.query, state.plan)
        if not (state.variants or state.linked or self.sources.retrievers):
            found = await searching
            return state.failing(*found.failures).but(found=found, query=found.query)
        found, (expansions, failures) = await asyncio.gather(searching, search_expansions(run, sources, state))
        known = {(item.stage, item.reason) for item in found.failures}
        further = [item for item in failures if (item.stage, item.reason) not in known]
        return state.failing(*found.failures, *further).but(found=found, query=found.query, expansions=expansions)


class Fuse(Stage):
    """Puts all candidates into one order, each chunk once.

    Args:
        settings: Of the pipeline.
    """

    name = "fuse"
    deadline_share = 0

    def __init__(self, settings: RetrievalConfig) -> None:
        self._raise_on_error = settings.raise_on_error

    def fingerprint(self) -> str:
        """Return nothing: how to fuse is in the plan."""
        return ""

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the candidates in order, or with the reason why nothing could be searched."""
        found, expansions, plan = state.found, state.expansions, state.plan
        assert found is not None  # noqa: S101 - the search is the stage before
        lists: list[Sequence[Candidate | Ranked]] = [*found.sides, *[each.ranked for each in expansions]]
        distinct = len({item.chunk_id for items in lists for item in items})
        metadata: dict[str, JSON] = {"mode": plan.mode, "documents_fetched": distinct}
        if expansions:
            metadata["query_expansion"] = [{"kind": each.origin.kind, "text": each.origin.text} for each in expansions]
        if not lists:
            failures = sorted(found.failures, key=_is_of_keywords)
            if not state.attempts:
                self._raise_where_nothing_is_left(state, failures)
            error = "; ".join(dict.fromkeys(f"{item.stage}: {item.reason}" for item in failures))
            return state.but(metadata=metadata, error=error)
        started = run.elapsed_ms
        depth = depth_of(plan)
        method = "rrf" if plan.fusion == "native" else plan.fusion
        if found.both is not None:
            best = tuple([Ranked(each.chunk_id, Scores(fused=each.score, final=each.score)) for each in found.both])
        else:
            best = fuse(
                found.dense,
                found.lexical,
                method=method,
                dense_weight=plan.dense_weight,
                limit=None if expansions else depth,
                unembedded=found.unembedded,
            )
        if expansions:
            # The distribution of short lists, and of scores of unknown scale, says nothing; their ranks do.
            method = method if all(each.is_search for each in expansions) else "rrf"
            best = merge(best, [(each.ranked, each.weight) for each in expansions], method=method, limit=depth)
        run.note("fuse", started, sum(map(len, lists)), len(best))
        return state.but(metadata=metadata, ranked=best)

    def _raise_where_nothing_is_left(self, state: SearchState, failures: Sequence[Failed]) -> None:
        """Raise that a query could not be embedded, if there is no keyword search, and what settings want raised."""
        last = state.found.failures[-1]  # pyright: ignore[reportOptionalMemberAccess]
        if last.stage == "embed" and not state.plan.has_words:
            raise as_embedding_error(last.error, "the query", state.query.original)
        if self._raise_on_error:
            raise_nothing_searched(failures[0])


def _is_of_keywords(failed: Failed) -> bool:
    return failed.stage == "lexical"
