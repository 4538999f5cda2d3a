"""Draws what functions take before and after a change, as two icicles on one scale, as SVG."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from benchmarks.plot import picture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Stacks: TypeAlias = "dict[tuple[str, ...], float]"
"""Time by stack, outermost frame first; a frame is ``function (file)``, but the first, a kind of thread."""

WIDTH, SIDE, ROW, LETTER = 760, 16, 15, 6.1
LEAST = 0.01
"""Share of its graph under which a frame is left out."""
LEAST_LETTERS = 4
THREADS = ("event loop", "worker threads", "main thread")
OWN, LOCALS = "retrieval_core/", "<locals>."
ROOMS = {
    f"{OWN}adapters/stores/": "store", f"{OWN}adapters/": "other adapters", f"{OWN}pipeline/": "pipeline",
    f"{OWN}index/": "index", f"{OWN}ingest/": "ingest", f"{OWN}run/": "run", OWN: "rest of the library",
    **dict.fromkeys(("asyncio/", "concurrent/", "threading.py", "selectors.py", "socket.py"), "asyncio, threads"),
    "numpy/": "numpy", **dict.fromkeys(("onnxruntime/", "tokenizers/"), "model"),
}  # fmt: skip
"""Rooms of the library, and what is beside it, by the beginning of a file's name; the first that fits counts."""
OTHERS = "Python, other libraries"
COLOURS = {
    "store": ("#79b8ff", "#1158a6"), "other adapters": ("#b3d7ff", "#2c4f78"), "pipeline": ("#7ee0a1", "#1a6334"),
    "index": ("#c4edb0", "#3f6212"), "ingest": ("#9de0e0", "#155e63"), "run": ("#ffb77c", "#8a4414"),
    "rest of the library": ("#d9cfff", "#4d3f8f"), "asyncio, threads": ("#ffadad", "#86302f"),
    "numpy": ("#f2dd6b", "#6b5900"), "model": ("#e7b1f0", "#6e2f80"), OTHERS: ("#d5dae0", "#484f58"),
}  # fmt: skip
"""Of each room, on a light and a dark ground."""
CLASSES = {room: f"r{number}" for number, room in enumerate(COLOURS)}
STYLE = """
text { font: 10px ui-monospace, monospace; fill: #1f2328 } .t, .f { font-family: system-ui, sans-serif }
.t { font-size: 13px; font-weight: 600 } .f { font-size: 11px; fill: #59636e } .back { fill: #ffffff }
.k { fill: #eaeef2 } rect { stroke: #ffffff; stroke-width: .5 }
LIGHT
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .f { fill: #9198a1 } .back { fill: #0d1117 } .k { fill: #30363d } rect { stroke: #0d1117 }
DARK
}
"""
WAITS = re.compile(
    r"\b_worker \(concurrent/|\b_serve \(retrieval_core/run/|\bselect \(selectors|\b(wait|_wait_for_tstate_lock) \(thr"
)
"""Where a thread waits; py-spy takes some of these for work."""
MACHINERY = re.compile(
    r"^$|\(<|^<(?!module>)|\.<\w+> \(|\((importlib|benchmarks|contextlib|runpy)\b|^\S*\b(_bootstrap\w*|run) \(threading"
    r"|\b(_worker|_WorkItem\.run) \("
)
"""What is between functions, and tells nothing."""


@dataclass(slots=True)
class _Frame:
    time: float = 0.0
    inner: dict[str, _Frame] = field(default_factory=dict[str, "_Frame"])


def room(frame: str) -> str:
    """Return the room that a frame's file belongs to."""
    file = frame.rpartition(" (")[2]
    return next((name for start, name in ROOMS.items() if file.startswith(start)), OTHERS)


def trimmed(stack: str) -> tuple[str, ...]:
    """Return the frames of a line of ``py-spy record --format raw``, without its count; none of a thread that waits.

    The threads of one kind become one. Of frames of ``run`` or one foreign package that follow each other the last is
    left, and of imports the first.
    """
    frames = [re.sub(r"(:\d+)?\)$", ")", frame) for frame in stack.split(";")]
    if WAITS.search(frames[-1]):
        return ()
    inside = any("(asyncio/" in frame for frame in frames)
    kept = [THREADS[0] if inside else THREADS[1] if "_bootstrap (threading" in frames[0] else THREADS[2]]
    for frame in frames:
        if MACHINERY.search(frame):
            continue
        own = OWN in frame and room(frame) != "run"
        if _package(frame) == _package(kept[-1]) and (frame.startswith("<module>") or not own):
            if kept[-1].startswith("<module>"):
                continue
            if not own:
                kept.pop()
        kept.append(frame)
    return tuple(kept)


def own_times(stacks: Stacks) -> dict[str, float]:
    """Return the time that each frame takes by itself, the longest first."""
    times: defaultdict[str, float] = defaultdict(float)
    for stack, time in stacks.items():
        times[stack[-1]] += time
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def draw(title: str, beneath: Sequence[str], graphs: Mapping[str, Stacks]) -> str:
    """Return the picture.

    Args:
        title: What one operation is.
        beneath: Lines in small print: how, where and when it was measured.
        graphs: Milliseconds an operation of each state, by its name; all on one scale.
    """
    scale = (WIDTH - 2 * SIDE) / max(sum(stacks.values()) for stacks in graphs.values())
    parts = [f'<text class="t" x="{SIDE}" y="24">{escape(title)}</text>']
    y = 24
    for line in beneath:
        y += 16
        parts.append(f'<text class="f" x="{SIDE}" y="{y}">{escape(line)}</text>')
    rooms: list[defaultdict[str, float]] = []
    for name, stacks in graphs.items():
        whole = _Frame(sum(stacks.values()))
        for stack, time in stacks.items():
            frame = whole
            for part in stack:
                frame = frame.inner.setdefault(part, _Frame())
                frame.time += time
        y += 26
        parts.append(f'<text class="t" x="{SIDE}" y="{y}">{escape(name)}: {_figure(whole.time)} ms</text>')
        rooms.append(defaultdict(float))
        for frame_name, time in own_times(stacks).items():
            rooms[-1][room(frame_name)] += time
        y = _icicle(whole, SIDE, y + 6, parts, scale=scale, total=whole.time)
    x, y = SIDE, y + 20
    for place, kind in CLASSES.items():
        times = [state[place] for state in rooms]
        if all(time < LEAST * sum(state.values()) for time, state in zip(times, rooms, strict=True)):
            continue
        text = f"{place} {' → '.join(map(_figure, times))} ms"
        if x + 22 + 6.6 * len(text) > WIDTH - SIDE:
            x, y = SIDE, y + 18
        parts.append(f'<rect class="{kind}" x="{x:.0f}" y="{y - 9}" width="11" height="11"/>')
        parts.append(f'<text class="f" x="{x + 15:.0f}" y="{y}">{text}</text>')
        x += 24 + 6.6 * len(text)
    style = STYLE
    for number, ground in enumerate(("LIGHT", "DARK")):
        rules = (f".{kind} {{ fill: {COLOURS[place][number]} }}" for place, kind in CLASSES.items())
        style = style.replace(ground, " ".join(rules))
    return picture(title, WIDTH, y + 14, style, parts)


def _icicle(frame: _Frame, left: float, top: int, parts: list[str], *, scale: float, total: float) -> int:
    """Draw what is in a frame, longest first, and return where it ends."""
    bottom = top
    for name, inner in sorted(frame.inner.items(), key=lambda item: -item[1].time):
        if inner.time < LEAST * total:
            break
        width = inner.time * scale
        told = f"{name.replace(OWN, '').replace(LOCALS, '')}: {_figure(inner.time)} ms, {inner.time / total:.0%}"
        kind = "k" if name in THREADS else CLASSES[room(name)]
        parts.append(
            f'<rect class="{kind}" x="{left:.4g}" y="{top}" width="{width:.4g}" height="{ROW}">'
            f"<title>{escape(told)}</title></rect>"
        )
        if label := _label(name, int((width - 4) / LETTER)):
            parts.append(f'<text x="{left + 2:.4g}" y="{top + 11}">{escape(label)}</text>')
        bottom = max(bottom, _icicle(inner, left, top + ROW, parts, scale=scale, total=total), top + ROW)
        left += width
    return bottom


def _package(frame: str) -> str:
    """Return the package of a frame, in which ``run`` is one of its own; nothing for a kind of thread."""
    file = frame.partition(" (")[2]
    return "run" if room(frame) == "run" else file.partition("/")[0]


def _label(frame: str, letters: int) -> str:
    """Return what fits: the function with its class, without it, or the beginning of its name."""
    function, _, file = frame.rstrip(")").rpartition(" (")
    begin = ""
    if function == "<module>":
        begin, function = "import ", file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    name = (function or frame).replace(LOCALS, "")
    long, short = begin + name, begin + name.rpartition(".")[2]
    for label in (long, short):
        if len(label) <= letters:
            return label
    return f"{short[: letters - 1]}…" if letters >= LEAST_LETTERS else ""


def _figure(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 99.5 else f"{milliseconds:.2g}"
