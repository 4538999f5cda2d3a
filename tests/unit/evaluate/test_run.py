"""Measuring a configuration on a collection, from the corpus to the report."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from math import cos, radians, sin
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import RetrievalConfig, load_config
from retrieval_core.errors import EmbeddingError, InvalidParameterError, MissingExtraError, SearchError
from retrieval_core.evaluate import Collection, EvaluationReport, evaluate, load_collection
from retrieval_core.evaluate.run import PASSAGES, rank_deeply
from retrieval_core.index.open import open_index
from retrieval_core.ports import Embedder
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from retrieval_core.index.index import Index
    from retrieval_core.types import Matrix, Vector

pytest.importorskip("ir_measures")

QUERIES = {"q1": "tapirs", "q2": "wings", "q 3": "nothing of the kind"}


class Compass(Embedder):
    """An embedder for which the first number of a text is an angle in degrees."""

    id = "compass"
    dimension = 2

    async def _embed_query(self, text: str) -> Vector:
        angle = radians(float(re.findall(r"\d+", text)[0]))
        return np.array([cos(angle), sin(angle)], dtype=np.float32)

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        return np.stack([await self.embed_query(text) for text in texts])


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    """Five documents; q1 finds its best one first, q2 its only one second, and q 3 nothing in lexical mode."""
    documents = [
        {"_id": "d1", "title": "Tapirs", "text": "tapirs and tapirs"},
        {"_id": "d 2", "text": "tapirs, once"},
        {"_id": "d3", "title": "Wings", "text": "wings and wings and wings"},
        {"_id": "d4", "text": "wings, once"},
        {"_id": "d5", "text": ""},
    ]
    judgements = [("q1", "d1", 2), ("q1", "d 2", 1), ("q2", "d4", 1), ("q 3", "d5", 1)]
    queries = [{"_id": query_id, "text": text} for query_id, text in QUERIES.items()]
    folder = tmp_path / "collection"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    lines = (f"{query_id}\t{document_id}\t{grade}\n" for query_id, document_id, grade in judgements)
    (folder / "qrels" / "test.tsv").write_text("".join(lines))
    return load_collection(folder)


def settings(**overrides: Any) -> RetrievalConfig:
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_config(overrides={"store.kind": "memory", "search.mode": "lexical", **given})


def run(collection: Collection, config: RetrievalConfig | None = None, **options: Any) -> EvaluationReport:
    options.setdefault("embedder", FakeEmbedder())
    return asyncio.run(evaluate(collection, config or settings(), **options))


def test_the_report_holds_the_means_over_all_queries(collection: Collection) -> None:
    """q1 is right, q2 is right at the second place, and the answer to q 3 has no text to be found by."""
    report = run(collection)
    assert report.queries == 3
    assert report.ndcg_at_10 == pytest.approx((1 + 1 / np.log2(3) + 0) / 3)
    assert report.recall_at_100 == pytest.approx(2 / 3)
    assert report.mrr_at_10 == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert 0 < report.latency_p50_ms <= report.latency_p95_ms
    assert report.index_seconds > 0
    assert report.ndcg_by_query == {"q1": pytest.approx(1), "q2": pytest.approx(1 / np.log2(3)), "q 3": 0}


def test_the_report_as_json_has_exactly_these_keys() -> None:
    """Other programs read it."""
    report = EvaluationReport(3, 0.5, 0.6, 0.75, 0.25, 1.5, 2.5, 10.0, 4096, {"q": 0.5})
    assert report.to_json() == {
        "queries": 3,
        "ndcg@10": 0.5,
        "recall@10": 0.6,
        "recall@100": 0.75,
        "mrr@10": 0.25,
        "latency_ms": {"p50": 1.5, "p95": 2.5},
        "index_seconds": 10.0,
        "index_bytes": 4096,
    }


@pytest.mark.parametrize("mode", ["hybrid", "dense"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_configured_mode_and_store_are_measured(collection: Collection, mode: str, kind: str) -> None:
    """The index lies in a temporary folder, whatever the configuration says about its place."""
    report = run(collection, settings(search__mode=mode, store__kind=kind, index="/nowhere/index.db"))
    assert report.mrr_at_10 == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert (report.index_bytes is None) == (kind == "memory")


def test_nothing_is_left_behind(collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary index goes, also when the evaluation fails."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    run(collection, settings(store__kind="sqlite"))
    assert not list(folder.iterdir())
    embedder = FakeEmbedder()
    embedder.failure = EmbeddingError("no")
    with pytest.raises(EmbeddingError):
        run(collection, settings(store__kind="sqlite"), embedder=embedder)
    assert not list(folder.iterdir())


def test_limit_asks_the_first_queries_of_the_whole_corpus(collection: Collection) -> None:
    """Queries that were not asked do not count as 0."""
    assert run(collection, limit=1).ndcg_at_10 == pytest.approx(1)
    assert run(collection, limit=2).queries == 2
    assert run(collection, limit=99).queries == 3
    with pytest.raises(InvalidParameterError, match="limit"):
        run(collection, limit=0)


def test_progress_counts_documents_and_then_queries(collection: Collection) -> None:
    """Both reach their totals."""
    seen: list[tuple[str, int, int]] = []

    def note(phase: str, done: int, total: int) -> None:
        seen.append((phase, done, total))

    run(collection, on_progress=note)
    assert seen == [("index", 5, 5), ("query", 1, 3), ("query", 2, 3), ("query", 3, 3)]


def test_a_missing_extra_is_reported_before_the_work(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the same reason."""
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    embedder = FakeEmbedder()
    with pytest.raises(MissingExtraError, match="evaluate"):
        run(collection, embedder=embedder)
    assert not embedder.batches


def test_a_degraded_query_is_an_error_and_never_part_of_a_mean(collection: Collection) -> None:
    """Half a search would be measured under the name of the whole one."""

    class FailsOnTheSecond(FakeEmbedder):
        async def _embed_query(self, text: str) -> Vector:
            if self.queries:
                self.failure = EmbeddingError("out of order")
            return await super()._embed_query(text)

    with pytest.raises(SearchError, match=r"'wings' is degraded \(embed: out of order\)") as caught:
        run(collection, settings(search__mode="hybrid"), embedder=FailsOnTheSecond())
    assert caught.value.details == {"query": "wings", "stage": "embed", "reason": "out of order"}


def test_a_store_that_holds_something_is_refused(collection: Collection) -> None:
    """Its documents would be among the answers."""
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    asyncio.run(open_index(config=settings(), embedder=embedder, store=store).aadd([Chunk("x#0", "x", "text")]))
    with pytest.raises(InvalidParameterError, match="needs an empty store"):
        run(collection, embedder=embedder, store=store)


def ranking_of(chunks: Iterable[tuple[str, int]], **overrides: Any) -> tuple[list[str], int]:
    """Rank documents by the angles of their chunks to 0 degrees; return the order and how many searches it took."""
    searches = 0

    async def scenario(index: Index) -> list[str]:
        nonlocal searches
        counted = [
            Chunk(f"{document_id}#{n}", document_id, f"{angle}") for n, (document_id, angle) in enumerate(chunks)
        ]
        await index.aadd(counted)
        search = index.store.search

        async def counting(request: Any) -> Any:
            nonlocal searches
            searches += 1
            return await search(request)

        index.store.search = counting
        async with index:
            return [item.document_id for item in await rank_deeply(index, "0", await index.aretrieve("0"))]

    config = settings(search__mode="dense", **overrides)
    order = asyncio.run(scenario(open_index(config=config, embedder=Compass())))
    return order, searches


def test_a_hundred_documents_are_found_with_one_more_search() -> None:
    """The first search is the users' own, and the second one takes more of the same candidates."""
    order, searches = ranking_of((f"d{angle:03}", angle) for angle in range(150))
    assert order == [f"d{angle:03}" for angle in range(100)]
    assert searches == 2


def test_a_result_that_is_deep_enough_is_not_asked_for_again() -> None:
    """Users who ask for many passages get their documents from the one search."""
    assert ranking_of(((f"d{angle:03}", angle) for angle in range(150)), search__top_k=100)[1] == 1


def test_an_index_that_has_no_more_is_not_asked_for_more() -> None:
    """Fewer passages than were asked for are all there are."""
    assert ranking_of((f"d{angle}", angle) for angle in range(9)) == ([f"d{angle}" for angle in range(9)], 1)
    assert ranking_of((f"d{angle:02}", angle) for angle in range(10))[1] == 2


@pytest.mark.parametrize("overrides", [{}, {"search__candidates": 10}, {"search__top_k": 1}])
def test_documents_of_many_passages_are_asked_past(overrides: dict[str, Any]) -> None:
    """One document with more passages than a search returns does not hide the others, and each keeps its place."""
    long = [("long", 5)] * (3 * PASSAGES)
    others = [(f"d{angle:03}", angle) for angle in range(1, 150) if angle != 5]
    order, _ = ranking_of([*long, *others], **overrides)
    assert order == [*(f"d{angle:03}" for angle in (1, 2, 3, 4)), "long", *(f"d{angle:03}" for angle in range(6, 101))]


def test_the_documents_that_users_see_lead_whatever_comes_after() -> None:
    """Diversity chooses among few candidates; a deeper search chooses otherwise and only adds to the choice."""
    chunks = [(f"d{angle:03}", angle) for angle in range(60)]
    options = {"search__search_type": "mmr", "search__top_k": 5, "search__fetch_k": 20, "search__lambda_mult": 0.3}

    async def users(index: Index) -> list[str]:
        async with index:
            await index.aadd([Chunk(f"{name}#0", name, f"{angle}") for name, angle in chunks])
            return [hit.chunk.document_id for hit in (await index.aretrieve("0")).hits]

    seen = asyncio.run(users(open_index(config=settings(search__mode="dense", **options), embedder=Compass())))
    order, _ = ranking_of(chunks, **options)
    assert order[:5] == seen
    assert sorted(order) == [name for name, _ in chunks]


def test_metadata_that_hide_the_document_id_end_the_search() -> None:
    """Then documents cannot be asked past; the ranking is short and the evaluation ends all the same."""

    async def scenario(index: Index) -> int:
        async with index:
            numbers = range(PASSAGES + 50)
            await index.aadd([Chunk(f"d#{n}", "d", "1", metadata={"document_id": "mine"}) for n in numbers])
            return len(await rank_deeply(index, "0", await index.aretrieve("0")))

    assert asyncio.run(scenario(open_index(config=settings(search__mode="dense"), embedder=Compass()))) == 1
