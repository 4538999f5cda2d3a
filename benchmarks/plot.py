"""A bar chart as SVG, written by hand: no dependency, and readable in light and dark."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from benchmarks.peers import OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, MARGIN = 760, 24
NAMES = 210
"""Width of the column with the names."""
FIGURES = 70
"""Width that is kept free for the figure behind a bar."""
BAR, ROW, HEAD = 16, 24, 40
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 } .group { font-weight: 600 } .fine { font-size: 11px; fill: #59636e }
.back { fill: #ffffff } .bar { fill: #8c959f } .own { fill: #0969da } .own-name { font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .fine { fill: #9198a1 } .back { fill: #0d1117 } .bar { fill: #6e7681 } .own { fill: #4493f8 }
}
"""


def draw(title: str, beneath: Sequence[str], groups: Mapping[str, Mapping[str, float]]) -> str:
    """Return the picture.

    Args:
        title: What the bars are, with the unit.
        beneath: Lines in small print: how, where and when it was measured.
        groups: The bars of each group by name, zero or more, each group with a scale of its own.
    """
    parts: list[str] = []
    y = MARGIN + 14
    parts.append(f'<text class="title" x="{MARGIN}" y="{y}">{escape(title)}</text>')
    for line in beneath:
        y += 18
        parts.append(f'<text class="fine" x="{MARGIN}" y="{y}">{escape(line)}</text>')
    room = WIDTH - 2 * MARGIN - NAMES - FIGURES
    for group, bars in groups.items():
        y += HEAD
        parts.append(f'<text class="group" x="{MARGIN}" y="{y}">{escape(group)}</text>')
        y += 10
        longest = max(bars.values()) or 1
        for name, value in bars.items():
            own = name.startswith(OURS)
            left, base = MARGIN + NAMES, y + BAR - 3
            length = room * value / longest
            figure = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
            kind = "own" if own else "bar"
            parts.append(f'<text class="{kind}-name" x="{left - 8}" y="{base}" text-anchor="end">{escape(name)}</text>')
            parts.append(f'<rect class="{kind}" x="{left}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>')
            parts.append(f'<text x="{left + length + 6:.1f}" y="{base}">{figure}</text>')
            y += ROW
    return picture(title, WIDTH, y + MARGIN, STYLE, parts)


def picture(title: str, width: int, height: int, style: str, parts: Sequence[str]) -> str:
    """Return what was drawn as a file.

    Args:
        title: For those who cannot see it.
        style: Rules for the parts; ``.back`` is the ground.
    """
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title, quote=True)}">'
    )
    ground = f'<rect class="back" width="{width}" height="{height}"/>'
    return "\n".join([head, f"<style>{style}</style>", ground, *parts, "</svg>", ""])
