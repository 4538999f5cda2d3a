"""An index some of whose passages have no vector yet: what it finds, says, keeps and refuses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from retrieval_core import Chunk, Index, load_config, open_index
from retrieval_core.compat.retrieval_tests import CollectionInfo, RetrievalTester
from retrieval_core.errors import NotYetEmbeddedError, SearchError
from retrieval_core.ports import Change
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Degradation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNKS = tuple(
    Chunk(f"{name}#0", name, text, metadata={"kind": kind})
    for name, text, kind in (
        ("a", "saturn has rings", "star"),
        ("b", "bread has a crust", "food"),
        ("c", "saturn is a planet", "star"),
    )
)
NOTE = "indexing in progress, 33% embedded; the rest is matched by keyword only"


@pytest.fixture(params=["sqlite", "memory"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    """An index with a vector for the second of three passages."""
    config = load_config(overrides={"store.kind": request.param})
    with open_index(tmp_path / "index.db", config=config, embedder=FakeEmbedder()) as opened:
        waiting = (CHUNKS[0], CHUNKS[2])
        change = Change(waiting, unembedded=frozenset(each.id for each in waiting))
        opened.add([CHUNKS[1]])
        opened.sync.run(opened.store.upsert(change))
        yield opened


def finish(index: Index) -> None:
    """Embed the rest, as the next run of indexing does."""
    vectors = asyncio.run(FakeEmbedder().embed_texts([each.indexed_text for each in CHUNKS]))
    assert "add_vectors" in index.store.capabilities
    index.sync.run(index.store.add_vectors(Change(CHUNKS, vectors)))


def test_every_passage_is_found_by_its_words_and_results_say_what_is_missing(index: Index) -> None:
    """The note is gone with the last vector, also where the same was asked before."""
    result = index.retrieve("saturn crust")
    assert {hit.chunk.document_id for hit in result.hits} == set("abc")
    assert {hit.chunk.document_id for hit in result.hits if hit.scores.dense is not None} == {"b"}
    assert result.degraded == (Degradation("dense", NOTE),)
    assert not index.retrieve("saturn crust").from_cache
    finish(index)
    result = index.retrieve("saturn crust")
    assert (result.degraded, result.from_cache) == ((), False)
    assert all(hit.scores.dense is not None for hit in result.hits)
    assert index.retrieve("saturn crust").from_cache


def test_a_search_by_words_lacks_nothing(index: Index) -> None:
    """It says nothing either."""
    result = index.retrieve("saturn", mode="lexical")
    assert [hit.chunk.document_id for hit in result.hits] == ["a", "c"]
    assert result.degraded == ()


def test_a_search_by_meaning_finds_what_is_embedded(index: Index) -> None:
    """The others are not found, and the result says so."""
    result = index.retrieve("saturn", mode="dense")
    assert [hit.chunk.document_id for hit in result.hits] == ["b"]
    assert result.degraded == (Degradation("dense", NOTE),)


def test_the_note_is_about_the_passages_that_may_be_found(index: Index) -> None:
    """A tenant whose passages are all embedded reads nothing of the others."""
    assert index.retrieve("crust", {"kind": "food"}).degraded == ()
    (note,) = index.retrieve("saturn", {"kind": "star"}).degraded
    assert note.reason.startswith("indexing in progress, 0% embedded")


def test_a_result_that_must_be_complete_is_refused(index: Index) -> None:
    """With ``strict`` the note is raised."""
    strict = index.config.model_copy(update={"strict": True})
    again = Index(index.store, index.embedder, ingester=index._ingester, config=strict)
    with pytest.raises(NotYetEmbeddedError, match="33%"):
        again.retrieve("saturn")
    with pytest.raises(SearchError):
        again.retrieve("saturn", mode="dense")


def test_diversity_and_a_threshold_do_with_what_there_is(index: Index) -> None:
    """What cannot be compared keeps its relevance, and what has no similarity does not reach a threshold."""
    config = index.config.model_copy(
        update={"search": index.config.search.model_copy(update={"search_type": "mmr", "fetch_k": 3})}
    )
    again = Index(index.store, index.embedder, ingester=index._ingester, config=config)
    assert {hit.chunk.document_id for hit in again.retrieve("saturn crust").hits} == set("abc")
    result = index.retrieve("saturn crust", score_threshold=0.1)
    assert [hit.chunk.document_id for hit in result.hits] == ["b"]
    assert [each.stage for each in result.degraded] == ["dense", "threshold"]


def test_what_describes_the_index_tells(index: Index) -> None:
    """The number of passages without a vector; a collection is yellow; nothing differs from its original."""
    assert index.describe().unembedded == 2
    tester = RetrievalTester({"pages": index})
    assert tester.info("pages") == CollectionInfo("pages", 256, "Cosine", 3, 1, "yellow")
    assert index.check_integrity().verdict == "unverifiable"  # they came from no file
    finish(index)
    assert index.describe().unembedded == 0
    assert tester.info("pages") == CollectionInfo("pages", 256, "Cosine", 3, 3, "green")


def test_the_next_run_embeds_the_rest(index: Index, tmp_path: Path) -> None:
    """Also where it finds no file that has changed."""
    (tmp_path / "files").mkdir()
    index.ingest(tmp_path / "files")
    assert index.describe().unembedded == 0
    assert {hit.chunk.document_id for hit in index.retrieve("saturn", mode="dense").hits} == set("abc")


@pytest.mark.parametrize("fusion", ["zscore", "rrf", "minmax", "dbsf"])
def test_what_waits_for_its_vector_keeps_its_place_by_words(tmp_path: Path, fusion: str) -> None:
    """The best by words is not put behind passages that merely have vectors."""
    words = [Chunk(f"late{n}", f"late{n}", "telescope " * (9 - n) + "moon " * n) for n in range(6)]
    others = [Chunk(f"other{n}", f"other{n}", f"telescope and {'bread ' * (n + 5)}") for n in range(6)]
    config = load_config(overrides={"search.fusion": fusion})
    with open_index(tmp_path / "index.db", config=config, embedder=FakeEmbedder()) as index:
        index.add(others)
        change = Change(tuple(words), unembedded=frozenset(each.id for each in words))
        index.sync.run(index.store.upsert(change))
        by_words = [hit.id for hit in index.retrieve("telescope", mode="lexical").hits if hit.id.startswith("late")]
        found = [hit.id for hit in index.retrieve("telescope").hits]
        assert [name for name in found if name.startswith("late")] == by_words
        assert found[0] == by_words[0]
