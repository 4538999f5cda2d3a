"""The preset ``documentation``: the service's defaults, and pages that are found with Cohere's protocol on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("cohere", reason="the extra 'cohere' is not installed")

from retrieval_core import open_index
from retrieval_core.adapters.embedders.cohere import CohereEmbedder
from retrieval_core.config import load_config, missing_settings
from support.building import build_embedder
from support.cohere_service import KEY, CohereService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from pathlib import Path

MODULES = {"qdrant": "qdrant_client", "sqlite": "sqlite3"}
LEAST = 0.3
PAGES = {
    "setup": "Install the vector database with its Docker image, then create a collection.",
    "backup": "A snapshot of a collection is a backup; restore it with one request.",
    "limits": "A collection holds as many vectors as the machine has memory for.",
    "cluster": "Several machines share the vectors of one collection as shards.",
    "filters": "A filter leaves out points whose payload does not match.",
    "keys": "Requests are authorised by an API key.",
}


def test_the_services_defaults() -> None:
    """Five passages from any similarity on, of questions of at most 10,000 characters, by vectors of 1,024 numbers."""
    config = load_config("documentation", environment={"CO_API_KEY": "k"})
    assert config.store.kind == "qdrant"
    assert (config.search.mode, config.search.search_type) == ("dense", "similarity")
    assert (config.search.top_k, config.search.score_threshold) == (5, 0.0)
    assert (config.query.max_length, config.limits.max_results) == (10_000, 1000)
    assert config.chunking.max_tokens == 256
    embedder = build_embedder(config.embedder)
    assert isinstance(embedder, CohereEmbedder)
    assert embedder.id == "cohere/embed-multilingual-v3.0/1024"


def test_the_key_it_needs_is_named() -> None:
    """Without the key of the embedder it is told which to set."""
    assert missing_settings(load_config("documentation"))["CO_API_KEY"] == "embedder.cohere.api_key"


@pytest.mark.parametrize("kind", ["qdrant", "sqlite"])
def test_pages_are_found_in_the_order_of_their_similarity(tmp_path: Path, kind: str) -> None:
    """In Qdrant's local mode, and in another store; the text comes back as it was written, and is what was read."""
    pytest.importorskip(MODULES[kind])
    folder = tmp_path / "pages"
    folder.mkdir()
    for name, text in PAGES.items():
        (folder / f"{name}.md").write_text(f"# {name}\n\n{text}\n")
    with WireServer(CohereService()) as server:
        overrides = {
            "store.kind": kind,
            "store.qdrant.path": str(tmp_path / "qdrant"),
            "index": str(tmp_path / "index.db"),
            "embedder.cohere.base_url": server.url,
            "embedder.cohere.api_key": KEY,
        }
        with open_index(config=load_config("documentation", overrides)) as index:
            assert index.ingest(folder).added == len(PAGES)
            result = index.retrieve("How do I install a vector database with Docker?")
            alike = index.retrieve("How do I install a vector database with Docker?", score_threshold=LEAST)
            assert index.check_integrity().verdict == "clean"
        asked = [request.json()["input_type"] for request in server.requests]
    assert set(asked[:-1]) == {"search_document"}
    assert asked[-1] == "search_query"
    scores = [hit.scores.dense for hit in result.hits]
    assert len(scores) == 5
    assert scores == sorted(scores, key=lambda score: -(score or 0))
    assert all(score is not None and 0 <= score <= 1 for score in scores)
    assert result.hits[0].chunk.text.endswith(PAGES["setup"])
    assert result.degraded == ()
    assert [hit.id for hit in alike.hits] == [hit.id for hit in result.hits if (hit.scores.dense or 0) >= LEAST]
    assert 0 < len(alike.hits) < len(result.hits)
