"""Why a search returns what it does, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core.config import EmbedderConfig
from retrieval_core.errors import ServiceError
from retrieval_core.testing.fakes import FakeEmbedder
from support.http_service import DOCUMENTS

if TYPE_CHECKING:
    import httpx2

    from support.http_service import Served, Service

QUESTION = "how far away is the moon?"


async def explain(service: Service, **body: Any) -> httpx2.Response:
    return await service.ask("POST", "/v1/explain", json={"query_text": QUESTION, **body})


def test_results_and_stages_are_those_of_the_search(served: Served) -> None:
    async def check(service: Service) -> None:
        told = (await explain(service, top_k=2)).json()
        asked = {"query_text": QUESTION, "top_k": 2, "explain": True}
        trace = (await service.ask("POST", "/v1/search", json=asked)).json()["trace"]
        assert [(hit["id"], hit["score"], hit["scores"]) for hit in told["results"]] == [
            (hit["id"], hit["score"], hit["scores"]) for hit in trace["hits"]
        ]
        assert [hit["rank"] for hit in told["results"]] == [1, 2]
        assert {"embed", "dense", "lexical", "fuse"} <= {stage["stage"] for stage in told["stages"]}
        assert told["query"] == QUESTION
        assert told["status"] == "success"
        assert (told["degraded"], told["errors"]) == ([], [])
        assert told["execution"]["result_count"] == 2
        assert not told.keys() & {"why", "expected"}

    served(check)


def test_why_a_passage_came_or_did_not(served: Served) -> None:
    async def check(service: Service) -> None:
        first, last = (hit["id"] for hit in (await explain(service)).json()["results"][::2])
        told = (await explain(service, chunk_id=first)).json()
        assert told["why"] == "Its rank is 1."
        assert told["expected"].items() <= told["results"][0].items()
        told = (await explain(service, chunk_id=last, top_k=1)).json()
        assert told["why"] == "Its rank is 3, and top_k is 1."
        assert (told["expected"]["id"], told["expected"]["rank"]) == (last, 3)
        assert len(told["results"]) == 1
        told = (await explain(service, chunk_id="sea.md#0", filters={"kind": "rock"})).json()
        assert told["why"] == "The filter excludes it."
        assert "expected" not in told
        told = (await explain(service, chunk_id="sea.md#0", query_text="384,400", mode="lexical")).json()
        assert told["why"].startswith("Neither search finds it")
        missing = await explain(service, chunk_id="nothing#0")
        assert missing.status_code == 404
        assert missing.json()["errors"] == ["Chunk nothing#0 not found"]

    served(check)


def test_results_are_whole_passages_with_the_words_of_the_question_marked(served: Served) -> None:
    async def check(service: Service) -> None:
        told = (await explain(service, top_k=1)).json()
        (found,) = told["results"]
        stored = (await service.ask("GET", f"/v1/chunks/{quote(found['id'])}")).json()
        assert found["chunk"] == {"text": stored["text"], **stored["fields"]}
        words = {found["chunk"]["text"][start:end] for start, end in found["highlights"]}
        assert "moon" in words
        assert found["heading_words"] == ["moon"]
        assert 0 <= told["relevance"]["value"] <= 1
        assert told["relevance"]["explanation"]

    served(check)


def test_an_index_without_vectors_is_explained_too(served: Served) -> None:
    async def check(service: Service) -> None:
        await (await service.indexes.named(None).index()).aadd_documents(DOCUMENTS)
        told = (await explain(service)).json()
        assert told["results"][0]["id"] == "moon.md#0"
        assert "dense" not in told["results"][0]["scores"]
        refused = await explain(service, similarity_threshold=0.5)
        assert refused.status_code == 400
        assert "contains no vectors" in refused.json()["errors"][0]

    served(check, index={"embedder": EmbedderConfig(kind="none")})


class Dead(FakeEmbedder):
    """An embedder whose service refuses every question."""

    async def embed_query(self, text: str) -> Any:
        msg = "the key was refused"
        raise ServiceError(msg, "cohere", status=401)


def test_without_the_embedder_words_are_explained_where_that_is_allowed(served: Served) -> None:
    async def nothing(_service: Service) -> None:
        """The index is filled with an embedder that works."""

    served(nothing)

    async def check(service: Service) -> None:
        assert (await explain(service)).status_code == 503
        told = (await explain(service, allow_degraded=True)).json()
        assert told["results"][0]["id"] == "moon.md#0"
        assert told["degraded"][0]["stage"] == "embed"

    served(check, index={"parts": {"embedder": Dead()}})


def test_what_is_explained_is_searched_for_anew(served: Served) -> None:
    """Of an answer that had been kept there would be no stages to tell of."""

    async def check(service: Service) -> None:
        await service.ask("POST", "/v1/search", json={"query_text": QUESTION})
        for _ in range(2):
            stages = [stage["stage"] for stage in (await explain(service)).json()["stages"]]
            assert "dense" in stages
            assert "cache" not in stages

    served(check)
