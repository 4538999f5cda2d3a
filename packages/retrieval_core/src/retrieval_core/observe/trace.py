"""What happened to a query, as a table for people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrieval_core.types import RetrievalResult, StageRecord

_HEADINGS = ("stage", "ms", "attempts", "in → out", "tokens", "what happened")
_RIGHT = frozenset({"ms", "attempts", "tokens"})
_LONGEST = 160
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def explain(result: RetrievalResult) -> str:
    """Return a table of what each stage did, in the order they ended, and below it what was done without.

    Its columns are the wall time in milliseconds, how often a backend was asked, how many candidates went in and came
    out, the tokens that a model read and wrote, and the decision or the error. Stages run side by side, so that their
    times add up to more than the whole. Reasons are cut after 160 code points and hold no control characters, nothing
    that could steer a terminal.
    """
    rows = [_HEADINGS, *(_row(record) for record in result.trace)]
    lines: list[str] = []
    if len(rows) > 1:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_line(row, widths) for row in rows]
    source = " from the cache" if result.from_cache else ""
    count = len(result.hits)
    lines.append(f"{count} passage{'s' * (count != 1)}{source} in {result.latency_ms:.1f} ms")
    lines += [f"done without: {_one_line(f'{entry.stage}: {entry.reason}')}" for entry in result.degraded]
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
        f"{record.milliseconds:.1f}",
        str(record.attempts or ""),
        counts,
        tokens,
        _one_line("; ".join(filter(None, said))),
    )


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = zip(row, widths, _HEADINGS, strict=True)
    return "  ".join(
        f"{cell:>{width}}" if name in _RIGHT else f"{cell:<{width}}" for cell, width, name in cells
    ).rstrip()


def _one_line(text: str) -> str:
    line = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
