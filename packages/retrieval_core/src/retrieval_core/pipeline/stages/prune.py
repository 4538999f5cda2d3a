"""Sentence pruning: of each passage, only the sentences that bear on the question are shown."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.pipeline.stages.state import Stage, identify
from retrieval_core.ports import Pruner, as_plugin
from retrieval_core.run.outcomes import Failed, is_fault_of_an_improvement
from retrieval_core.text.sentences import sentences_of
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.stages.state import SearchState
    from retrieval_core.ports import Kept
    from retrieval_core.run.outcomes import Ok
    from retrieval_core.run.runner import Run
    from retrieval_core.text.sentences import Sentence
    from retrieval_core.types import Hit


@dataclass(frozen=True, slots=True)
class Pruned:
    """All hits, in their order, with what is shown of each.

    Attributes:
        hits: As many as there were: a chunk never changes, only its hit's ``excerpts``. None is left without a
            sentence.
        failures: Calls that failed; their hits are as they were.
    """

    hits: tuple[Hit, ...]
    failures: tuple[Failed, ...] = ()


@dataclass(frozen=True, slots=True)
class _Divided:
    """A hit that has more than one sentence, and its place among all hits."""

    position: int
    hit: Hit
    sentences: tuple[Sentence, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        text = self.hit.chunk.text
        return tuple(text[sentence.span.start : sentence.span.end] for sentence in self.sentences)


CONCURRENCY = 4
"""Calls at a time, as of rerankers."""


class Prune(Stage):
    """Shows only those sentences of each hit that bear on the question.

    Args:
        pruner: Judges each sentence.
        settings: Of the pipeline.
    """

    name = "prune"
    deadline_share = 0

    def __init__(self, pruner: Pruner, settings: RetrievalConfig) -> None:
        self._pruner = as_plugin(pruner, Pruner)
        self._fingerprint = partial(identify, (settings.pruner,), pruner)

    def fingerprint(self) -> str | None:
        """Return a name for the settings and the pruner."""
        return self._fingerprint()

    def plugins(self) -> Iterable[object]:
        """Return the pruner."""
        return (self._pruner,)

    def is_fault(self, error: Exception, _state: SearchState) -> bool:
        """Return whether to raise an error: a pruner that is not installed is done without."""
        return is_fault_of_an_improvement(error)

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with excerpts of its hits."""
        if not state.hits:
            return state
        pruned = await prune(run, self._pruner, state.question.text, state.hits)
        return state.failing(*pruned.failures).but(hits=pruned.hits)


async def prune(run: Run, pruner: Pruner, query: str, hits: Sequence[Hit]) -> Pruned:
    """Have the sentences of every hit judged, several calls at a time, and mark those that are to be shown.

    A hit of one sentence is not sent. Of a hit of which nothing is kept, the best sentence stays: which hits bear on
    the question is for the relevance filter to say.

    Args:
        run: Makes the calls.
        pruner: Judges.
        query: The question that counts: as the user asked it, whatever was searched for.
        hits: In their order.
    """
    started = run.elapsed_ms
    divided = (
        _Divided(position, hit, sentences_of(hit.chunk.text)) for position, hit in enumerate(hits) if hit.chunk.text
    )
    batches = _batches((item for item in divided if len(item.sentences) > 1), max(1, pruner.batch_size))
    free = asyncio.Semaphore(CONCURRENCY)

    async def keep(batch: Sequence[_Divided]) -> Ok[Kept] | Failed:
        async with free:
            return await run.call("prune", pruner.keep, query, [item.texts for item in batch])

    outcomes = await asyncio.gather(*map(keep, batches))
    pruned = list(hits)
    judged = shown = 0
    for batch, outcome in zip(batches, outcomes, strict=True):
        if isinstance(outcome, Failed):
            continue
        for number, item in enumerate(batch):
            kept = _at_least_one(outcome.value, number)
            judged += len(kept)
            shown += sum(kept)
            pruned[item.position] = replace(item.hit, excerpts=excerpts_of(item.hit.chunk.text, item.sentences, kept))
    decision = f"{shown} of {judged} sentences are relevant to the query" if judged else None
    run.note("prune", started, len(hits), len(hits), decision)
    return Pruned(tuple(pruned), tuple(outcome for outcome in outcomes if isinstance(outcome, Failed)))


def excerpts_of(text: str, sentences: Sequence[Sentence], kept: Sequence[bool]) -> tuple[Span, ...]:
    """Return the parts of a text that are shown, in order: the sentences that are kept, with what they need.

    Parts with nothing but white space between them are one. There are none where the whole text is shown.

    Args:
        text: What was divided.
        sentences: All of its sentences, in order.
        kept: Whether each is kept.
    """
    if all(kept):
        return ()
    wanted: set[tuple[int, int]] = set()
    introduced = False
    for sentence, is_kept in zip(sentences, kept, strict=True):
        is_shown = is_kept or introduced
        if is_shown:
            wanted.update((span.start, span.end) for span in (*sentence.heads, sentence.span))
        introduced = is_shown and sentence.introduces_next
    joined: list[Span] = []
    for start, end in sorted(wanted):
        if joined and (start <= joined[-1].end or text[joined[-1].end : start].isspace()):
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, end))
        else:
            joined.append(Span(start, end))
    whole = len(joined) == 1 and text.strip() == text[joined[0].start : joined[0].end]
    return () if whole else tuple(joined)


def _batches(items: Iterable[_Divided], size: int) -> list[list[_Divided]]:
    """Return neighbours together, as many as have no more sentences than one call takes; a longer one alone."""
    batches: list[list[_Divided]] = []
    room = 0
    for item in items:
        if not batches or len(item.sentences) > room:
            batches.append([])
            room = size
        batches[-1].append(item)
        room -= len(item.sentences)
    return batches


def _at_least_one(answer: Kept, number: int) -> tuple[bool, ...]:
    """Return which sentences of a passage are shown: those kept or, where these are none, the best one."""
    kept = answer.kept[number]
    if any(kept):
        return kept
    scores = answer.scores[number] if answer.scores else (0.0,) * len(kept)
    best = max(range(len(kept)), key=scores.__getitem__)
    return tuple(position == best for position in range(len(kept)))
