"""The tool ``explain``: the scores and stages of a search, and why an expected chunk is not among the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field

from retrieval_core.service.explaining import ExplainRequest
from retrieval_core.types.escapes import escape_name
from retrieval_core_mcp.fitting import in_one_line
from retrieval_core_mcp.tools.fit import Shrink
from retrieval_core_mcp.tools.names import can_be_named
from retrieval_core_mcp.tools.search import Mode, TopK  # noqa: TC001 - pydantic reads annotations
from retrieval_core_mcp.tools.tool import AnswerPart, Id, QueryArguments, Sized, ToolAnswer
from retrieval_core_mcp.tools.wording import degraded_lines

if TYPE_CHECKING:
    from retrieval_core.service.explaining import Explanation
    from retrieval_core.types import Hit, StageRecord
    from retrieval_core_mcp.tools.tool import ToolCall

_LONGEST_NOTE = 160
_MOST_STAGES = 30


class ExplainArguments(QueryArguments, Sized, ExplainRequest):
    """Arguments of the tool explain."""

    id: Annotated[Id | None, Field(description="path:lines or id of a chunk that you expected")] = None
    top_k: Annotated[TopK | None, Field(description="Most results")] = None
    mode: Annotated[Mode | None, Field(description="Kind of search. Default: as configured")] = None


class ExplainedStage(AnswerPart):
    """The work of one stage."""

    stage: str
    ms: float
    passages_in: int | None = None
    passages_out: int | None = None
    note: str | None = None


class ScoredPassage(AnswerPart):
    """A chunk with its scores."""

    id: str
    rank: int | None = None
    scores: dict[str, int | float] = Field(description="Scores of each stage; ranks count from 1")
    found_by: list[str] | None = Field(default=None, description="Searches beside the query's own")


class ExplainedSearch(ToolAnswer):
    """The results and stages of a search."""

    results: Annotated[list[ScoredPassage], Shrink()]
    stages: Annotated[list[ExplainedStage], Shrink(least=5)]
    expected: ScoredPassage | None = None
    why: str | None = None
    degraded: list[str]

    @classmethod
    def of(cls, response: Explanation, call: ToolCall) -> Self:
        """Return the scores of the results, and the stages."""
        result, expected = response.result, response.expected
        return cls(
            results=[_scored(hit, at) for at, hit in enumerate(result.hits, 1) if can_be_named(hit.id, call.limit)],
            stages=[_stage(record) for record in result.trace[:_MOST_STAGES]],
            expected=None if expected is None or expected.hit is None else _scored(expected.hit, expected.rank),
            why=None if expected is None else expected.why,
            degraded=degraded_lines(result.degraded, call.limit),
        )

    def render(self) -> str:
        """Return what became of the expected chunk, the results and the stages."""
        lines: list[str] = []
        if self.why is not None:
            lines.append(self.why if self.expected is None else f"{self.why}\n{_line(self.expected)}")
        lines += [f"Note: {line}" for line in self.degraded]
        nothing = "The search was incomplete and has no results." if self.degraded else "Nothing was found."
        lines.append("\n".join(_line(passage) for passage in self.results) or nothing)
        if self.stages:
            lines.append("\n".join(_stage_line(stage) for stage in self.stages))
        return "\n\n".join(lines)


def _stage(record: StageRecord) -> ExplainedStage:
    failed = f"failed: {record.error}" if record.error is not None else ""
    return ExplainedStage(
        stage=record.stage if record.round in (None, 1) else f"{record.stage} (search {record.round})",
        ms=round(record.milliseconds, 1),
        passages_in=record.count_in,
        passages_out=record.count_out,
        note=in_one_line("; ".join(filter(None, (record.decision, failed))), _LONGEST_NOTE) or None,
    )


def _scored(hit: Hit, rank: int | None) -> ScoredPassage:
    scores = hit.scores
    given: dict[str, Any] = {
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


def _line(passage: ScoredPassage) -> str:
    told = [f"{name} {score:g}" for name, score in passage.scores.items()]
    return f"{passage.rank or '-'}. {escape_name(passage.id)}: {', '.join((*told, *(passage.found_by or ())))}"


def _stage_line(stage: ExplainedStage) -> str:
    counts = (stage.passages_in, stage.passages_out)
    between = f", {' → '.join('?' if count is None else str(count) for count in counts)}" if any(counts) else ""
    return f"{stage.stage}: {stage.ms} ms{between}{f'; {stage.note}' if stage.note else ''}"
