"""Evaluating several configurations side by side."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import InvalidParameterError, RetrievalError
from retrieval_core.evaluate import Collection, SettingsComparison, compare_settings, load_collection

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.config import RetrievalConfig

pytest.importorskip("ir_measures")

ANIMALS = ("tapir", "heron", "otter", "lynx", "ibis", "stoat", "newt", "vole")


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    """Each question names an animal, and the document about it has its name; the others have none."""
    (tmp_path / "qrels").mkdir()
    corpus = [{"_id": f"d{n}", "text": f"The {animal} lives here."} for n, animal in enumerate(ANIMALS)]
    queries = [{"_id": f"q{n}", "text": f"Where is the {animal}?"} for n, animal in enumerate(ANIMALS)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)))
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (tmp_path / "qrels" / "test.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(len(ANIMALS))))
    return load_collection(tmp_path)


def settings(dimension: int, mode: str = "dense") -> RetrievalConfig:
    embedder = {"kind": "retrieval_core.testing.fakes:FakeEmbedder", "custom": {"dimension": dimension}}
    return load_config(overrides={"embedder": embedder, "search.mode": mode})


def compared(collection: Collection, **configs: RetrievalConfig) -> SettingsComparison:
    return asyncio.run(compare_settings(collection, configs))


def test_a_difference_has_an_interval(collection: Collection) -> None:
    """With one component no text is nearer than another, which is worse by more than chance; words find as much."""
    first, coarse, words = compared(
        collection, first=settings(256), coarse=settings(1), words=settings(256, "lexical")
    ).compared
    assert first.report.ndcg_at_10 == pytest.approx(1)
    assert (first.difference, first.low, first.high) == (None, None, None)
    assert coarse.difference == pytest.approx(coarse.report.ndcg_at_10 - 1)
    assert coarse.difference is not None
    assert coarse.low is not None
    assert coarse.high is not None
    assert coarse.low < coarse.difference < coarse.high < 0
    assert (words.difference, words.low, words.high) == pytest.approx((0, 0, 0))
    assert first.report.index_bytes is not None


def test_progress_names_what_is_evaluated(collection: Collection) -> None:
    """And each of them is indexed and asked."""
    seen: list[str] = []
    configs = {"one": settings(8), "two": settings(16)}

    def note(phase: str, _done: int, _total: int) -> None:
        seen.append(phase)

    asyncio.run(compare_settings(collection, configs, limit=1, on_progress=note))
    assert list(dict.fromkeys(seen)) == ["one: index", "one: query", "two: index", "two: query"]


def test_what_was_measured_is_not_lost_where_a_later_one_fails(collection: Collection) -> None:
    """The others are measured too, and the failure is told; without a first one there is nothing to compare with."""
    broken = load_config(overrides={"embedder.kind": "retrieval_core.testing.nowhere:Embedder"})
    measured = compared(collection, first=settings(8), broken=broken, last=settings(16))
    assert [each.name for each in measured.compared] == ["first", "last"]
    assert list(measured.failed) == ["broken"]
    assert "nowhere" in measured.failed["broken"]
    assert measured.to_json()["failed"] == dict(measured.failed)
    with pytest.raises(RetrievalError, match="nowhere"):
        compared(collection, broken=broken, last=settings(16))


def test_nothing_to_compare(collection: Collection) -> None:
    """It is refused."""
    with pytest.raises(InvalidParameterError, match="no configuration"):
        compared(collection)
