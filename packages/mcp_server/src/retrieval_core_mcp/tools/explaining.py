"""The tool ``explain``: why these passages came, stage by stage, and why another one did not."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from retrieval_core_mcp.expected import among, why_not
from retrieval_core_mcp.fitting import in_one_line, largest
from retrieval_core_mcp.settings import MOST_RESULTS
from retrieval_core_mcp.tools.fetch import nothing_with
from retrieval_core_mcp.tools.names import can_be_named
from retrieval_core_mcp.tools.tool import (
    LONGEST_ID,
    WHOLE,
    DeclaredTool,
    Mode,
    QuestionArguments,
    Sized,
    StructuredContent,
    ToolAnswer,
)
from retrieval_core_mcp.tools.wording import degraded_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.types import Hit, RetrievalResult, StageRecord
    from retrieval_core_mcp.tools.tool import ToolCall

_LONGEST_NOTE = 160


class ExplainArguments(Sized, QuestionArguments):
    """Arguments of the tool explain."""

    id: Annotated[
        str | None,
        Field(min_length=1, max_length=LONGEST_ID, description="A passage that was expected"),
    ] = None
    top_k: Annotated[int, Field(ge=1, le=MOST_RESULTS), WHOLE] | None = None
    mode: Mode | None = None


class Stage(StructuredContent):
    """The work of one stage."""

    stage: str
    ms: float
    passages_in: int | None = None
    passages_out: int | None = None
    note: str | None = None


class ScoredPassage(StructuredContent):
    """A passage with what each stage gave it."""

    id: str
    rank: int | None = None
    scores: dict[str, int | float] = Field(description="Of each stage; ranks count from 1")
    found_by: list[str] | None = Field(default=None, description="Searches beside the question's own")


class Explanation(StructuredContent):
    """What was done for a question, and what came of it."""

    results: list[ScoredPassage]
    stages: list[Stage]
    expected: ScoredPassage | None = None
    why: str | None = None
    degraded: list[str]


async def run(call: ToolCall) -> ToolAnswer:
    """Search, and tell what each stage did."""
    given: ExplainArguments = call.given
    asked = given.top_k or call.settings.top_k
    found = await _search(call, given.filters, asked)
    expected, why = (None, None) if given.id is None else await _expected(call, given.id, found, asked)
    return explained(found, expected, why, degraded_lines(found.degraded, call.scrub, call.limit), call)


def explained(
    found: RetrievalResult, expected: ScoredPassage | None, why: str | None, degraded: list[str], call: ToolCall
) -> ToolAnswer:
    """Return the answer, with as many results as fit.

    Args:
        expected: The passage that was asked about.
        why: What became of it.
        degraded: A line for each stage that did not work as configured.
    """
    stages = [_stage(record, call) for record in found.trace[:30]]
    passages = [_scored(hit, rank) for rank, hit in enumerate(found.hits, 1) if can_be_named(hit.id, call.limit)]

    def attempt(count: int, told: int) -> ToolAnswer:
        answer = Explanation(
            results=passages[:count],
            stages=stages[:told],
            expected=expected,
            why=why,
            degraded=degraded,
        )
        return ToolAnswer(answer.model_dump(exclude_none=True), _as_text(answer))

    for told in (len(stages), 5, 0):
        count = largest(
            lambda count, of=told: attempt(count, of).fits(call.limit), min(1, len(passages)), len(passages)
        )
        if count is not None:
            return attempt(count, told)
    return attempt(0, 0)


async def _search(call: ToolCall, filters: Mapping[str, Any] | None, top_k: int) -> RetrievalResult:
    given: ExplainArguments = call.given
    mode = given.mode or ("lexical" if call.settings.words_only else None)
    return await call.library.search(
        given.query, filters, top_k=top_k, mode=mode, condition=call.condition, use_cache=False
    )


async def _expected(
    call: ToolCall, expected: str, found: RetrievalResult, asked: int
) -> tuple[ScoredPassage | None, str]:
    """Return what became of a passage, and why.

    Raises:
        ToolFailure: There is no such passage.
    """
    given: ExplainArguments = call.given
    told = among(found, expected)
    if told is None:
        entry = await call.library.fetch(expected, call.condition)
        if entry is None or entry.chunk is None:
            raise nothing_with(expected)
        candidates = call.settings.retrieval.search.candidates
        told = await why_not(expected, found, partial(_search, call), given.filters, asked=asked, candidates=candidates)
    return None if told.hit is None else _scored(told.hit, told.rank), told.why


def _stage(record: StageRecord, call: ToolCall) -> Stage:
    failed = f"failed: {record.error}" if record.error is not None else ""
    note = in_one_line(call.scrub("; ".join(filter(None, (record.decision, failed)))), _LONGEST_NOTE)
    return Stage(
        stage=record.stage if record.round in (None, 1) else f"{record.stage} (search {record.round})",
        ms=round(record.milliseconds, 1),
        passages_in=record.count_in,
        passages_out=record.count_out,
        note=note or None,
    )


def _scored(hit: Hit, rank: int | None) -> ScoredPassage:
    scores = hit.scores
    given = {
        "score": scores.final,
        "cosine": scores.dense,
        "cosine_rank": scores.dense_rank,
        "bm25": scores.lexical,
        "bm25_rank": scores.lexical_rank,
        "fused": scores.fused,
        "rerank": scores.rerank,
        "relevance": scores.relevance,
    }
    return ScoredPassage(
        id=hit.id,
        rank=rank,
        scores={name: round(score, 4) for name, score in given.items() if score is not None},
        found_by=[f"{origin.kind}: {in_one_line(origin.text, 80)}".rstrip(": ") for origin in hit.found_by[:3]] or None,
    )


def _as_text(answer: Explanation) -> str:
    lines: list[str] = []
    if answer.why is not None:
        lines.append(answer.why if answer.expected is None else f"{answer.why}\n{_line(answer.expected)}")
    lines += [f"Note: {line}" for line in answer.degraded]
    nothing = "The search was incomplete and has no results." if answer.degraded else "Nothing was found."
    lines.append("\n".join(_line(passage) for passage in answer.results) or nothing)
    if answer.stages:
        lines.append("\n".join(_stage_line(stage) for stage in answer.stages))
    return "\n\n".join(lines)


def _line(passage: ScoredPassage) -> str:
    from retrieval_core.types.escapes import escape_name  # noqa: PLC0415 - the handshake does not wait for it

    told = [f"{name} {score:g}" for name, score in passage.scores.items()]
    return f"{passage.rank or '-'}. {escape_name(passage.id)}: {', '.join((*told, *(passage.found_by or ())))}"


def _stage_line(stage: Stage) -> str:
    counts: Sequence[int | None] = (stage.passages_in, stage.passages_out)
    between = f", {' → '.join('?' if count is None else str(count) for count in counts)}" if any(counts) else ""
    return f"{stage.stage}: {stage.ms} ms{between}{f'; {stage.note}' if stage.note else ''}"


TOOL = DeclaredTool(
    "explain",
    "Explain a search",
    "Explain a search: the scores of each stage and, given an id, why that passage was found or not. For debugging.",
    ExplainArguments,
    Explanation,
    run,
)
