"""Each part of a pipeline dead in turn: every row of the documented table, for each way to be dead."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import InvalidParameterError, RetrievalError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Candidate, Linked, Transformed, Variant
from retrieval_core.testing.fakes import FakeEmbedder, FakeTransformer
from retrieval_core.types import RetrievalResult
from support.degradation_parts import (
    BLOCKS,
    CHUNKS,
    DEADLINE,
    FAULTS,
    HANGS,
    MAX_RETRIES,
    NONSENSE,
    OWN_ERROR,
    QUESTION,
    UNREACHABLE,
    Notes,
    Store,
    World,
)
from support.degradation_table import PARTS, all_cells, misbehaving, rendered, run_cell

EXPECTED = {
    "embedder": ("passages", {"embed"}),
    "embedder, mode dense": ("passages", {"embed"}),
    "search by meaning": ("passages", {"dense"}),
    "search by words": ("passages", {"lexical"}),
    "reading the passages": ("retriever", {"fetch"}),
    "store": ("retriever", {"dense", "lexical", "fetch"}),
    "condenser": ("passages", {"condense"}),
    "one transformer": ("passages", {"transform"}),
    "all transformers": ("passages", {"transform"}),
    "further retriever": ("passages", {"retrieve"}),
    "first reranker": ("passages", {"rerank"}),
    "all rerankers": ("passages", {"rerank"}),
    "relevance filter": ("passages", {"relevance"}),
    "pruner": ("passages", {"prune"}),
    "rewriter": ("passages", {"rewrite"}),
    "cache": ("passages", {"cache"}),
    "language model": ("passages", {"condense", "transform", "rerank", "relevance"}),
    "everything": ("nothing", {"condense", "transform", "embed", "lexical", "retrieve"}),
    "one index of three": ("passages", {"index b"}),
    "embedder of one index of three": ("passages", {"index b: embed"}),
    "language model, three indexes": ("passages", {"rerank", "relevance"}),
    "all three indexes": ("nothing", {"index a", "index b", "index c"}),
}
"""For each row of the table where the hits are from, and the stages that are listed."""
FOUND = {
    "embedder": {"c0", "c1", "note"},
    "search by meaning": {"c0", "c1", "note"},
    "search by words": {"c0", "c1", "c2", "note"},
    "further retriever": {"c0", "c1", "c2"},
    "language model": {"c0", "c1", "c2", "note"},
    "one index of three": {"c0", "c2"},
    "embedder of one index of three": {"c0", "c1", "c2"},
}
"""What exactly is found, where that tells something."""
CALLS = {
    "reading the passages": (1, False),
    "search by words": (4, False),
    "condenser": (1, True),
    "one transformer": (1, True),
    "all transformers": (3, True),
    "further retriever": (1, False),
    "first reranker": (1, True),
    "relevance filter": (4, True),
    "pruner": (1, False),
    "rewriter": (1, True),
}
"""Calls without any fault, and whether nonsense is told by the part itself, which is then asked again."""


@pytest.mark.parametrize(("part", "fault"), [*all_cells()])
def test_what_is_done_without_a_part(part: str, fault: str) -> None:
    """The result has what the page says, lists what the page says, and nothing is raised."""
    cell = run_cell(part, fault, rewriter=False)
    assert isinstance(cell.result, RetrievalResult), cell.said
    outcome, listed = EXPECTED[part]
    if part == "everything" and fault == NONSENSE:
        listed = listed | {"cache"}
    assert (cell.outcome, set(cell.stages)) == (outcome, listed), cell.said
    assert all(item.reason for item in cell.result.degraded)
    assert ("error" in cell.result.metadata) == (outcome == "nothing")
    if part in FOUND:
        assert {hit.id for hit in cell.result.hits} == FOUND[part]
    assert "nobody ended it" not in cell.said
    if fault == HANGS:
        assert "timed out after" in cell.said
        assert cell.seconds <= DEADLINE + 0.01
    assert not cell.result.from_cache
    assert cell.asked["cache"] <= 1, "a result that lists something was kept"


@pytest.mark.slow
@pytest.mark.parametrize(("part", "fault"), [*all_cells()])
def test_with_a_rewriter(part: str, fault: str) -> None:
    """A second search for other words loses nothing that the first one found; hanging twice may cost further stages."""
    cell = run_cell(part, fault, rewriter=True)
    assert isinstance(cell.result, RetrievalResult), cell.said
    outcome, listed = EXPECTED[part]
    asks = part in {"language model", "language model, three indexes"}
    if asks:
        listed = listed | {"rewrite"}
    if (part, fault) == ("everything", NONSENSE):
        listed = listed | {"cache"}
    assert cell.outcome == outcome, cell.said
    assert listed <= set(cell.stages), cell.said
    if fault != HANGS:
        assert set(cell.stages) == listed, cell.said
    if part in FOUND:
        assert {hit.id for hit in cell.result.hits} == FOUND[part]


OTHERS = {
    "language model of answers": ("extracted", {"answer"}),
    "verifier": ("written", {"verify_answer"}),
    "evaluator": ("passages", {"evaluate"}),
    "token counter": ("without_documents", {"search"}),
    "observer": ("written", set[str]()),
}
"""The same for what a search has not: what kind of answer there is, and what is listed."""
STARVING = frozenset({"search by meaning", "search by words", "everything"})
"""Where a part that blocks takes all threads, so that others find none."""


@pytest.mark.slow
@pytest.mark.parametrize(("part", "fault"), [*misbehaving()])
def test_plug_ins_that_misbehave(part: str, fault: str) -> None:
    """Whatever one raises is a failure like an error of its own, and one that blocks hangs: all ends in time."""
    cell = run_cell(part, fault, rewriter=False)
    assert cell.attempts
    assert cell.seconds <= DEADLINE * 1.1
    if (part, fault) == ("token counter", NONSENSE):
        assert isinstance(cell.error, InvalidParameterError), cell.said
        return
    outcome, listed = (EXPECTED | OTHERS)[part]
    assert cell.result is not None, cell.said
    if fault == BLOCKS and part in STARVING:
        assert cell.stages
        return
    assert (cell.outcome, set(cell.stages)) == (outcome, listed), cell.said
    assert all(item.reason for item in cell.result.degraded)


@pytest.mark.parametrize("part", CALLS)
def test_how_often_a_dead_part_is_called(part: str) -> None:
    """Again where that can help: when it is not reached, or a model's answer is nonsense, and never otherwise."""
    calls, tells = CALLS[part]
    attempts = {fault: run_cell(part, fault, rewriter=False).attempts for fault in FAULTS}
    again = calls * (MAX_RETRIES + 1)
    assert attempts == {
        UNREACHABLE: again,
        OWN_ERROR: calls,
        HANGS: calls,
        NONSENSE: again if tells else calls,
    }


@pytest.mark.parametrize("part", PARTS)
def test_nothing_is_listed_where_nothing_fails(part: str) -> None:
    """The same pipelines, alive: all is found, nothing is listed, and the parts that are to die are all asked."""
    cell = run_cell(part, "", rewriter=True)
    assert isinstance(cell.result, RetrievalResult), cell.said
    assert cell.result.degraded == ()
    assert {hit.id for hit in cell.result.hits} >= {chunk.id for chunk in CHUNKS}
    spare = {"second reranker"}  # asked where the first one fails
    assert all(cell.asked[name] for name in PARTS[part] if name not in spare)


@pytest.mark.parametrize(("part", "fault"), [*all_cells()])
def test_strict_raises(part: str, fault: str) -> None:
    """With ``strict`` whatever would be listed is raised, as an error of the library."""
    cell = run_cell(part, fault, rewriter=False, strict=True)
    assert isinstance(cell.error, RetrievalError), cell.said


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("part", "raises"), [("everything", True), ("all three indexes", True), ("embedder", False)])
def test_raise_on_error(part: str, fault: str, *, raises: bool) -> None:
    """With ``raise_on_error`` it is an error that nothing could be searched, and nothing else is."""
    cell = run_cell(part, fault, rewriter=False, raise_on_error=True)
    assert isinstance(cell.error, RetrievalError) == raises, cell.said


def test_the_page_has_this_table() -> None:
    """What is documented is what is tested."""
    page = (Path(__file__).parents[2] / "docs/dev/fallbacks.md").read_text(encoding="utf-8")
    table = page.partition("## Each part dead\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| (\w+) \| (.+) \|$", table, flags=re.MULTILINE)
    documented = {name: (source, set(re.findall(r"`([^`]+)`", listed))) for name, source, listed in rows[1:]}
    assert documented == EXPECTED


def test_the_printed_table() -> None:
    """It has a line for each cell, with the reasons."""
    text = rendered([run_cell("embedder", UNREACHABLE, rewriter=False)])
    assert "embedder  unreachable  passages" in text
    assert "embed: the query could not be embedded: nobody answers" in text


WRONG: Any = None
ODD_TRANSFORMS: list[Any] = [
    Transformed(variants=WRONG),
    Transformed(linked=WRONG),
    Transformed(variants=(Variant("x", "saturn", sides=WRONG),)),
    Transformed(variants=(Variant("x", "saturn", sides=frozenset({"sideways"})),)),  # type: ignore[arg-type]
    Transformed(variants=(Variant("x", "saturn", weight=float("nan")),)),
    Transformed(variants=(Variant("x", "saturn", weight=10**400),)),
    Transformed(variants=(Variant("x", "saturn", weight=1e308),)),
    Transformed(variants=(Variant("x", "saturn", is_passage=[]),)),  # type: ignore[arg-type]
    Transformed(variants=(Variant(object(), "saturn"),)),  # type: ignore[arg-type]
    Transformed(linked=(Linked("x", "y", (Candidate("c0", WRONG),)),)),
    Transformed(linked=(Linked("x", "y", (Candidate([], 1.0),)),)),  # type: ignore[arg-type]
    Transformed(query=7),  # type: ignore[arg-type]
    ["saturn"],
]


@pytest.mark.parametrize("made", ODD_TRANSFORMS, ids=range(len(ODD_TRANSFORMS)))
def test_odd_things_of_a_transformer(made: Any) -> None:
    """Nonsense deep inside an answer is a failure of the transformer, and no more."""
    odd = FakeTransformer(made)
    result = asyncio.run(ask(transformers={"odd": odd}))
    assert [item.stage for item in result.degraded] == ["transform"]
    assert {hit.id for hit in result.hits} >= {"c0", "c1"}


ODD_CANDIDATES: list[Any] = [
    [Candidate("x", WRONG, CHUNKS[0])],
    [Candidate("x", float("nan"), CHUNKS[0])],
    [Candidate("x", 10**400, CHUNKS[0])],
    [Candidate(7, 1.0, CHUNKS[0])],  # type: ignore[arg-type]
    [Candidate("x", 1.0, {})],  # type: ignore[arg-type]
    [Candidate("x", 1.0, CHUNKS[0])],
    {"x": 1.0},
    7,
]


@pytest.mark.parametrize("found", ODD_CANDIDATES, ids=range(len(ODD_CANDIDATES)))
def test_odd_things_of_a_retriever(found: Any) -> None:
    """A score that is no number, or nothing that could be searched, is a failure of the retriever."""

    class Odd(Notes):
        async def search(self, query: str, k: int = 10) -> Any:
            return found

    result = asyncio.run(ask(retrievers={"odd": Odd(World())}))
    assert [item.stage for item in result.degraded] == ["retrieve"]
    assert {hit.id for hit in result.hits} >= {"c0", "c1"}


@pytest.mark.parametrize("side", ["dense", "lexical"])
def test_odd_scores_of_a_store(side: str) -> None:
    """A side whose scores are no numbers is done without."""

    class Odd(Store):
        async def search(self, request: Any) -> Any:
            found = await super().search(request)
            is_odd = (request.vector is not None) == (side == "dense")
            return tuple(Candidate(item.chunk_id, WRONG) for item in found) if is_odd else found

    result = asyncio.run(ask(Odd(World())))
    assert {item.stage for item in result.degraded} == {side}
    assert {hit.id for hit in result.hits} >= {"c0", "c1"}


async def ask(store: Store | None = None, **parts: Any) -> Any:
    store = store or Store(World())
    await store.fill()
    use = [*parts.get("transformers", {})]
    config = load_config(overrides={"transform.use": use, "retry.max_retries": 0})
    async with RetrievalPipeline(store, FakeEmbedder(), config=config, **parts) as pipeline:
        return await pipeline.aretrieve(QUESTION)
