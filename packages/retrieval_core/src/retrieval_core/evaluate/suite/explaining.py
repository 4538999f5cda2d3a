"""Why a case failed: what was found instead, what became of the expected, and what each stage did."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.errors import MissingDocumentError
from retrieval_core.evaluate.suite.judging import Texts
from retrieval_core.evaluate.suite.targets import question_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.errors import RetrievalError
    from retrieval_core.evaluate.suite.cases import Case
    from retrieval_core.evaluate.suite.targets import Target
    from retrieval_core.types import Hit, RetrievalResult, StageRecord

DEEP = 100
"""How far down the expected is looked for."""
SHOWN = 3
"""Passages that are shown of what was found instead."""


async def explained(
    target: Target, case: Case, problems: Sequence[tuple[str, RetrievalError]], found: Mapping[str, RetrievalResult]
) -> tuple[str, ...]:
    """Return lines for people, none of them with a time; empty for a case that passed.

    Args:
        problems: Each with the wording of the question that it came from.
        found: By wording.
    """
    if not problems:
        return ()
    wording = next((text for text, error in problems if isinstance(error, MissingDocumentError)), problems[0][0])
    result = found[wording]
    lines = [_instead(result)]
    if any(isinstance(error, MissingDocumentError) for _, error in problems):
        lines += await _expected(target, case, wording, result)
    return (*lines, *_stages(result.trace))


def _instead(result: RetrievalResult) -> str:
    if not result.hits:
        return f"found nothing: {result.metadata.get('note') or 'no passage fits'}"
    firsts = "; ".join(f"{rank}. {_scored(hit)}" for rank, hit in enumerate(result.hits[:SHOWN], 1))
    return f"found: {firsts}" + ("; …" if len(result.hits) > SHOWN else "")


async def _expected(target: Target, case: Case, wording: str, result: RetrievalResult) -> list[str]:
    """Return where the things that are missing are, further down."""
    shallow = Texts(result.hits)
    question = question_of(case, wording)
    deep = Texts((await target.retrieve(replace(question, top_k=DEEP))).hits)
    lines: list[str] = []
    for kind, text, _ in case.expect.items():
        if shallow.rank_of(kind, text) is not None:
            continue
        rank = deep.rank_of(kind, text)
        if rank is None:
            lines.append(f"{kind} {text!r}: not among the first {len(deep.hits)} either")
        else:
            lines.append(f"{kind} {text!r}: number {rank} of {len(deep.hits)}, {_scored(deep.hits[rank - 1])}")
    return lines


def _scored(hit: Hit) -> str:
    scores = hit.scores
    told = {
        "vector rank": scores.dense_rank,
        "keyword rank": scores.lexical_rank,
        "similarity": scores.dense,
        "rerank": scores.rerank,
        "relevance": scores.relevance,
    }
    given = [f"{name} {value:.3g}" for name, value in told.items() if value is not None]
    return f"{hit.id} ({', '.join(given)})" if given else hit.id


def _stages(trace: Sequence[StageRecord]) -> list[str]:
    """Return a line for each stage; those that ran side by side in alphabetical order, whichever ended first."""
    names = [record.stage for record in trace]
    joined = names.index("fuse") if "fuse" in names else 0
    records = [*sorted(trace[:joined], key=lambda record: record.stage), *trace[joined:]]
    lines: list[str] = []
    for record in records:
        counts = (record.count_in, record.count_out)
        between = " → ".join("?" if count is None else str(count) for count in counts) if any(counts) else ""
        told = "; ".join(filter(None, (between, record.decision, record.error)))
        if told and record.stage != "embed":  # which says whether the question was embedded before
            lines.append(f"{record.stage}: {told}")
    return lines
