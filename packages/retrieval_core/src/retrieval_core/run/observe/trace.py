"""The trace of a query as a table for people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retrieval_core.types.escapes import CONTROLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import DroppedPassage, RetrievalResult, StageRecord

_HEADINGS = ("stage", "round", "ms", "attempts", "in → out", "tokens", "what happened")
_RIGHT = frozenset({"round", "ms", "attempts", "tokens"})
_LONGEST = 160
_CONTROL = re.compile(f"[{CONTROLS}]")


def explain(result: RetrievalResult) -> str:
    """Return a table of the stages of a query, in the order they ended.

    Its columns are wall time in milliseconds, attempts, candidates before and after, tokens read and written, and the
    decision or error. If a query was rewritten, the column ``round``
    has the number of the search: 1 is the original query. Stages run in parallel, so that their times add up to more
    than the whole.

    Below the table are a line for each chunk that the relevance filter dropped, with its score, and one for each
    degradation. Reasons are cut after 160 code points and contain no control characters.
    """
    with_rounds = any((record.round or 1) > 1 for record in result.trace)
    lines: list[str] = []
    if result.trace:
        lines = _table([_HEADINGS, *(_row(record) for record in result.trace)], with_rounds=with_rounds)
        lines += [_dropped(record, item, with_rounds) for record in result.trace for item in record.dropped]
    source = " from the cache" if result.from_cache else ""
    count = len(result.hits)
    lines.append(f"{count} result{'s' * (count != 1)}{source} in {result.latency_ms:.1f} ms")
    lines += [f"degraded: {_one_line(f'{entry.stage}: {entry.reason}')}" for entry in result.degraded]
    return "\n".join(lines)


def _row(record: StageRecord) -> tuple[str, ...]:
    counts = ""
    if record.count_in is not None or record.count_out is not None:
        before, after = ("" if count is None else str(count) for count in (record.count_in, record.count_out))
        counts = f"{before} → {after}".strip()
    tokens = f"{record.usage.input_tokens}+{record.usage.output_tokens}" if record.usage is not None else ""
    said = [record.decision or "", f"failed: {record.error}" if record.error is not None else ""]
    return (
        _one_line(record.stage),
        str(record.round or ""),
        f"{record.milliseconds:.1f}",
        str(record.attempts or ""),
        counts,
        tokens,
        _one_line("; ".join(filter(None, said))),
    )


def _table(rows: Sequence[tuple[str, ...]], *, with_rounds: bool) -> list[str]:
    columns = [column for column in zip(*rows, strict=True) if with_rounds or column[0] != "round"]
    return ["  ".join(cells).rstrip() for cells in zip(*map(_aligned, columns), strict=True)]


def _aligned(column: tuple[str, ...]) -> list[str]:
    width = max(map(len, column))
    return [f"{cell:>{width}}" if column[0] in _RIGHT else f"{cell:<{width}}" for cell in column]


def _dropped(record: StageRecord, item: DroppedPassage, with_rounds: bool) -> str:
    where = f" in round {record.round}" if with_rounds and record.round is not None else ""
    reason = f": {_one_line(item.reason)}" if item.reason else ""
    return f"left out{where}: {_one_line(item.id)} ({item.score:.3g}){reason}"


def _one_line(text: str) -> str:
    line = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
