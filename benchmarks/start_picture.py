"""Draws what processes spent their time on until they answered, thread by thread, as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from benchmarks.plot import picture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, LEFT, RIGHT, LANE = 760, 16, 16, 18
NARROWEST = 2
COLOURS = {
    "MCP": "#8c959f", "pydantic": "#bf8700", "click": "#d4a72c", "rich": "#e0b84e", "numpy": "#1f883d",
    "onnxruntime": "#8250df", "tokenizers": "#bc4c00", "own": "#0969da", "checksum": "#57606a", "model": "#a475f9",
    "tokenizer": "#e16f24",
}  # fmt: skip
NAMES = {
    "MCP": "import mcp", "own": "import of this library", "checksum": "checksums", "model": "model loads",
    "tokenizer": "tokenizer loads", **{name: f"import {name}" for name in ("pydantic", "click", "rich", "numpy")},
    "onnxruntime": "import onnxruntime", "tokenizers": "import tokenizers",
}  # fmt: skip
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 } .fine { font-size: 11px; fill: #59636e } .back { fill: #ffffff }
.lane { fill: #f0f2f4 } .moment { stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .fine { fill: #9198a1 } .back { fill: #0d1117 } .lane { fill: #21262d }
.moment { stroke: #e6edf3 }
}
"""


def draw(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the picture.

    Args:
        runs: Each with its name, ``moments`` (by name, in seconds) and ``spans`` (thread, what, begin, end).
    """
    longest = max(run["moments"]["answer"] for run in runs)
    scale = (WIDTH - LEFT - RIGHT) / longest
    parts: list[str] = []
    y = 8
    used: set[str] = set()
    for run in runs:
        y += 18
        parts.append(f'<text class="title" x="{LEFT}" y="{y}">{escape(run["name"])}</text>')
        y += 8
        top, end = y, run["moments"]["answer"]
        shown = (span for span in run["spans"] if span["begin"] < end)
        spans = [span for span in shown if (span["end"] - span["begin"]) * scale >= NARROWEST]
        threads = dict.fromkeys(span["thread"] for span in sorted(spans, key=lambda span: span["begin"]))
        for thread in threads:
            parts.append(_bar(LEFT, y, end * scale, LANE, 'class="lane"'))
            # What was begun within another span is shorter, and is drawn over it.
            own = [span for span in spans if span["thread"] == thread]
            for span in sorted(own, key=lambda span: span["begin"] - span["end"]):
                used.add(span["what"])
                width = (min(span["end"], end) - span["begin"]) * scale
                colour = f'fill="{COLOURS[span["what"]]}"'
                parts.append(_bar(LEFT + span["begin"] * scale, y, width, LANE, colour))
            y += LANE + 2
        for moment in run["moments"].values():
            x = LEFT + moment * scale
            parts.append(f'<line class="moment" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{y + 2}"/>')
        told = ", ".join(f"{name} {moment * 1000:.0f} ms" for name, moment in run["moments"].items())
        parts.append(f'<text class="fine" x="{LEFT + end * scale:.1f}" y="{y + 13}" text-anchor="end">{told}</text>')
        y += 20
    x, y = LEFT, y + 14
    for what in (what for what in COLOURS if what in used):
        width = 26 + 6.4 * len(NAMES[what])
        if x + width > WIDTH - RIGHT:
            x, y = LEFT, y + 18
        parts.append(_bar(x, y - 9, 11, 11, f'fill="{COLOURS[what]}"'))
        parts.append(f'<text class="fine" x="{x + 16:.0f}" y="{y}">{NAMES[what]}</text>')
        x += width
    title = "What each thread does from the start of a process to its first complete answer"
    return picture(title, WIDTH, y + 14, STYLE, parts)


def _bar(x: float, y: float, width: float, height: float, rest: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="{height}" {rest}/>'
