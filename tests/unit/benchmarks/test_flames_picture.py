"""Both graphs of flames have one scale, and no frame is longer than what it is in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from benchmarks.flames_picture import COLOURS, OTHERS, ROOMS, SIDE, WIDTH, draw, own_times, room, trimmed

if TYPE_CHECKING:
    from benchmarks.flames_picture import Stacks

SVG = "{http://www.w3.org/2000/svg}"
SOURCE = Path(__file__).parents[3] / "packages/retrieval_core/src"
ASK = "QueryEngine.aretrieve (retrieval_core/pipeline/query_engine.py)"
SEARCH = "search (retrieval_core/adapters/stores/sqlite/lexical.py)"
ADD = "add<T> & more (numpy/core.py)"


def _graphs() -> dict[str, Stacks]:
    before: Stacks = {("event loop", ASK): 2.0, ("event loop", ASK, SEARCH): 6.0, ("worker threads", ADD): 2.0}
    after: Stacks = {("event loop", ASK): 2.0, ("event loop", ASK, SEARCH): 0.496, ("event loop", ADD): 0.004}
    return {"before": before, "after": after}


def _bars(picture: str) -> list[tuple[str, float, float, float]]:
    """Return what is told of each frame, and where it begins, at what height, and how wide it is."""
    told: list[tuple[str, float, float, float]] = []
    for bar in ET.fromstring(picture).iter(f"{SVG}rect"):
        if (title := bar.findtext(f"{SVG}title")) is not None:
            x, y, width = (float(bar.get(key, "nan")) for key in ("x", "y", "width"))
            told.append((title, x, y, width))
    return told


def test_both_graphs_have_one_scale() -> None:
    """The longer one is as wide as the picture; ten milliseconds here are ten there."""
    bars = _bars(draw("A question", [], _graphs()))
    asked = [width for told, _, _, width in bars if told.startswith("QueryEngine")]
    assert asked == pytest.approx([(WIDTH - 2 * SIDE) * 0.8, (WIDTH - 2 * SIDE) * 0.2496], abs=0.1)


def test_frames_lie_below_what_called_them_side_by_side() -> None:
    """What a frame takes by itself stays free; of one below 1 % nothing is drawn."""
    loop, ask, search, threads, add, *after = _bars(draw("A question", [], _graphs()))
    assert [bar[0].partition(":")[0] for bar in (loop, ask, search, threads, add)] == [
        "event loop", ASK.replace("retrieval_core/", ""), SEARCH.replace("retrieval_core/", ""), "worker threads", ADD,
    ]  # fmt: skip
    assert loop[1] == ask[1] == search[1]
    assert loop[2] < ask[2] < search[2]
    assert threads[1] == pytest.approx(loop[1] + loop[3], abs=0.1)
    assert loop[3] + threads[3] == pytest.approx(WIDTH - 2 * SIDE, abs=0.1)
    assert search[3] == pytest.approx(ask[3] * 0.75, abs=0.1)
    assert "2 ms, 20%" in add[0]
    assert not any(told.startswith(ADD) for told, *_ in after)


def test_the_picture_can_be_read_in_the_dark_and_runs_nothing() -> None:
    picture = draw("A question & <more>", ["small print"], _graphs())
    root = ET.fromstring(picture)
    assert root.get("aria-label") == "A question & <more>"
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")
    assert root.find(f".//{SVG}script") is None
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"before: 10 ms", "after: 2.5 ms", "store 6 → 0.5 ms", "pipeline 2 → 2 ms", "add<T> & more"} <= set(texts)


def test_every_room_has_a_colour_and_a_folder() -> None:
    """A folder that is moved would fall to the rest of the library without a word."""
    assert {*ROOMS.values()} < {*COLOURS}
    assert all((SOURCE / start).is_dir() for start in ROOMS if start.startswith("retrieval_core/"))
    assert (room(SEARCH), room(ADD), room("f (json/encoder.py)")) == ("store", "numpy", OTHERS)


POOL = ["Thread._bootstrap (threading.py:9)", "Thread.run (threading.py:8)", "_worker (concurrent/futures/thread.py:7)"]
LOOP = ["<module> (<string>:1)", "run (asyncio/runners.py:1)", "Handle._run (asyncio/events.py:80)"]
COMMAND = ["<module> (retrieval_core/cli/__init__.py:1)", "_find_and_load (<frozen importlib._bootstrap>:3)"]


@pytest.mark.parametrize(
    ("stack", "kept"),
    [
        (POOL, []),
        (
            [
                *POOL,
                "_WorkItem.run (concurrent/futures/thread.py:6)",
                "search.<locals>.<genexpr> (retrieval_core/a.py:3)",
                "mean (numpy/a.py:1)",
                "_mean (numpy/b.py:2)",
            ],
            ["worker threads", "_mean (numpy/b.py)"],
        ),
        (
            [
                *LOOP,
                "ask (benchmarks/flames.py:3)",
                "Run.call (retrieval_core/run/runner.py:5)",
                "ThreadPool.call (retrieval_core/run/threads.py:7)",
                "read (retrieval_core/index/a.py:7)",
                "read_all (retrieval_core/index/a.py:9)",
            ],
            [
                "event loop",
                "Handle._run (asyncio/events.py)",
                "ThreadPool.call (retrieval_core/run/threads.py)",
                "read (retrieval_core/index/a.py)",
                "read_all (retrieval_core/index/a.py)",
            ],
        ),
        (
            [
                *COMMAND,
                "<module> (retrieval_core/index/open.py:4)",
                "<module> (numpy/a.py:2)",
                "<module> (numpy/b.py:1)",
            ],
            ["main thread", "<module> (retrieval_core/cli/__init__.py)", "<module> (numpy/a.py)"],
        ),
    ],
    ids=["waits", "threads", "event loop", "imports"],
)
def test_what_is_left_of_a_stack(stack: list[str], kept: list[str]) -> None:
    """No machinery, no lines, one frame of a foreign package and of ``run``, and nothing of a thread that waits."""
    assert trimmed(";".join(stack)) == tuple(kept)


def test_own_times_are_those_of_the_innermost() -> None:
    assert own_times(_graphs()["before"]) == {ASK: 2.0, SEARCH: 6.0, ADD: 2.0}
