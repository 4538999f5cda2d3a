from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from retrieval_core.run.observe import explain
from retrieval_core.types import Degradation, DroppedPassage, RetrievalResult, StageRecord, Usage
from support.examples import times
from support.pipelines import a_pipeline
from support.results import results

RESULT = RetrievalResult(
    "q",
    (),
    "",
    {},
    12.34,
    degraded=(Degradation("relevance", "the model is down"),),
    trace=(
        StageRecord("embed", 3.0, attempts=1),
        StageRecord("fuse", 0.04, 45, 30),
        StageRecord("relevance", 120.5, count_in=10, error="the model\nis down", attempts=4, usage=Usage(310, 12)),
        StageRecord("rewrite", 1.0, decision="was searched for already"),
    ),
)


def test_a_trace_is_a_table() -> None:
    """One line a stage, columns aligned, and what was done without below."""
    assert explain(RESULT).split("\n") == [
        "stage         ms  attempts  in → out  tokens  what happened",
        "embed        3.0         1",
        "fuse         0.0            45 → 30",
        "relevance  120.5         4  10 →      310+12  failed: the model is down",
        "rewrite      1.0                              was searched for already",
        "0 results in 12.3 ms",
        "degraded: relevance: the model is down",
    ]


def test_what_the_relevance_filter_left_out() -> None:
    """A line for each passage, with score and reason where there is one; long reasons are cut, and the score is not."""
    dropped = (DroppedPassage("a.md#0", 0.000123456, "It is about\nbread."), DroppedPassage("b" * 300, 0.25, "c" * 300))
    trace = (StageRecord("relevance", 1.0, 3, 1, dropped=(*dropped, DroppedPassage("c.md#2", 0.0))),)
    assert explain(replace(RESULT, trace=trace, degraded=())).split("\n")[2:] == [
        "left out: a.md#0 (0.000123): It is about bread.",
        f"left out: {'b' * 159}… (0.25): {'c' * 159}…",
        "left out: c.md#2 (0)",
        "0 results in 12.3 ms",
    ]


def test_several_searches_are_told_apart() -> None:
    """Where a question was rewritten, each line says which search it belongs to; otherwise there is nothing to say."""
    first = StageRecord("relevance", 1.0, 2, 1, round=1, dropped=(DroppedPassage("a", 0.5),))
    again = replace(first, round=2, dropped=(DroppedPassage("b", 0.25, "no"),))
    several = replace(RESULT, trace=(first, StageRecord("rewrite", 10.0, attempts=1), again), degraded=())
    assert explain(several).split("\n") == [
        "stage      round    ms  attempts  in → out  tokens  what happened",
        "relevance      1   1.0            2 → 1",
        "rewrite           10.0         1",
        "relevance      2   1.0            2 → 1",
        "left out in round 1: a (0.5)",
        "left out in round 2: b (0.25): no",
        "0 results in 12.3 ms",
    ]
    assert explain(replace(several, trace=(first,))).split("\n") == [
        "stage       ms  attempts  in → out  tokens  what happened",
        "relevance  1.0            2 → 1",
        "left out: a (0.5)",
        "0 results in 12.3 ms",
    ]


def test_a_result_without_a_trace_says_where_it_came_from() -> None:
    """As one from the cache, whose stages did not run."""
    assert explain(replace(RESULT, trace=(), degraded=(), from_cache=True)) == "0 results from the cache in 12.3 ms"


def test_a_real_result_has_all_its_stages() -> None:
    """In the order they ended."""
    result = a_pipeline().retrieve("history of an application")
    lines = explain(result).split("\n")
    assert [line.split()[0] for line in lines[1:-1]] == [record.stage for record in result.trace]
    assert lines[-1].startswith(f"{len(result.hits)} result")


def test_nothing_can_steer_a_terminal() -> None:
    """Errors may quote texts of other people."""
    evil = "\x1b[2J\u202egone"
    trace = (StageRecord("relevance", 1.0, dropped=(DroppedPassage(evil, 0.5, evil),)),)
    text = explain(replace(RESULT, trace=trace, degraded=(Degradation("relevance", evil),)))
    assert "\x1b" not in text
    assert "\u202e" not in text


@settings(max_examples=times(150))
@given(results)
def test_every_result_can_be_explained(result: RetrievalResult) -> None:
    """One line for each stage, passage left out and thing done without, all of bounded length and printable."""
    lines = explain(result).split("\n")
    dropped = sum(len(record.dropped) for record in result.trace)
    assert len(lines) == len(result.trace) + bool(result.trace) + dropped + 1 + len(result.degraded)
    "\n".join(lines).encode()
    assert not any(ord(character) < 32 for line in lines for character in line)
