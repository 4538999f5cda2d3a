"""The contract of the service: what it answers, letter by letter, also when something is wrong."""

from __future__ import annotations

import gzip
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core.compat.service import RetrievalResponse, ValidationResult
from retrieval_core.errors import (
    EmbeddingError,
    IndexFormatError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
    StoreError,
)
from retrieval_core.ports import FetchRequest
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    import httpx2

    from support.http_service import Served, Service

QUESTION = "how far away is the moon?"
JSON = {"content-type": "application/json"}


async def search(service: Service, **body: Any) -> httpx2.Response:
    return await service.ask("POST", "/v1/search", json={"query_text": QUESTION, **body})


def check_error(answer: httpx2.Response, status: int, *messages: str) -> dict[str, Any]:
    """Every error is the envelope, and nothing else."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()
    assert told.keys() - {"query"} == {"status", "results", "execution", "errors"}
    RetrievalResponse.model_validate(told)
    assert told["status"] == "error"
    assert told["execution"].keys() == {"latency_ms", "result_count", "threshold_applied"}
    if messages:
        assert tuple(told["errors"]) == messages
    return told


class TestSearch:
    def test_a_query_may_have_conditions_and_further_queries(self, served: Served) -> None:
        async def check(service: Service) -> None:
            text = 'far "away from the earth" path:moon.md'
            queries = [{"kind": "text", "text": "distance"}]
            answer = await search(service, query_text=text, queries=queries, intent="a quiz")
            assert answer.status_code == 200, answer.text
            told = answer.json()
            RetrievalResponse.model_validate(told)
            assert [each["metadata"]["chunk_id"] for each in told["results"]] == ["moon.md#0"]
            assert told["query_syntax"]["required"] == ["away from the earth"]
            assert told["query_syntax"]["summary"] == 'required: "away from the earth" \u00b7 path: moon.md'
            check_error(await search(service, queries=[{"kind": "regex", "text": "x"}]), 400)

        served(check)

    def test_results_are_those_of_the_file(self, served: Served) -> None:
        async def check(service: Service) -> None:
            answer = await search(service, top_k=2)
            assert answer.status_code == 200
            told = answer.json()
            RetrievalResponse.model_validate(told)
            assert told["query"] == QUESTION
            assert told["errors"] == []
            assert told.keys() == {"query", "status", "results", "execution", "errors"}
            assert [result["rank"] for result in told["results"]] == [1, 2]
            first = told["results"][0]
            assert first["text"] == "The moon is 384,400 km away from the earth. It has no air."
            assert first["metadata"] | {"timestamp": ""} == {
                "chunk_id": "moon.md#0",
                "url": "https://docs.example.com/moon",
                "position": 0,
                "timestamp": "",
                "document_title": "The moon",
                "lines": [1, 1],
            }
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first["metadata"]["timestamp"])
            execution = told["execution"]
            assert execution["result_count"] == 2
            assert execution["threshold_applied"] == 0.0
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", execution["query_embedded_at"])
            assert execution["qdrant_query_time_ms"] <= execution["latency_ms"] + 1

        served(check)

    def test_a_document_without_an_address_has_one_made_of_its_id(self, served: Served) -> None:
        async def check(service: Service) -> None:
            urls = {hit["metadata"]["url"] for hit in (await search(service)).json()["results"]}
            assert urls == {
                "https://docs.example.com/moon",
                "urn:retrieval:docs:sun%20%231.md",
                "urn:retrieval:docs:sea.md",
            }
            titles = [hit["metadata"].get("document_title") for hit in (await search(service)).json()["results"]]
            assert "T" * 500 in titles

        served(check)

    def test_or_of_the_configured_address(self, served: Served) -> None:
        async def check(service: Service) -> None:
            urls = {hit["metadata"]["url"] for hit in (await search(service)).json()["results"]}
            assert "https://docs.example.org/v2/sun%20%231.md" in urls

        served(check, base_url="https://docs.example.org/v2/")

    @pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
    def test_every_result_has_its_cosine_however_it_was_found(self, served: Served, mode: str) -> None:
        embedder = FakeEmbedder()

        async def check(service: Service) -> None:
            told = (await search(service, mode=mode)).json()
            ids = tuple(result["metadata"]["chunk_id"] for result in told["results"])
            store = (await next(iter(service.indexes)).index()).store
            vectors = (await store.fetch(FetchRequest(chunk_ids=ids, with_vectors=True))).vectors
            question = await embedder.embed_query(QUESTION)
            for result, name in zip(told["results"], ids, strict=True):
                assert result["similarity_score"] == pytest.approx(float(question @ vectors[name]), abs=1e-6)
            scores = [result["similarity_score"] for result in told["results"]]
            assert scores == sorted(scores, reverse=True)
            assert min(scores) > 0

        served(check)

    def test_a_threshold_leaves_out_what_is_less_similar(self, served: Served) -> None:
        async def check(service: Service) -> None:
            scores = [result["similarity_score"] for result in (await search(service)).json()["results"]]
            told = (await search(service, similarity_threshold=scores[1])).json()
            assert [result["similarity_score"] for result in told["results"]] == scores[:2]
            assert told["execution"]["threshold_applied"] == scores[1]
            assert (await search(service, similarity_threshold=0.999)).json()["results"] == []

        served(check)

    def test_the_question_comes_back_as_it_was(self, served: Served) -> None:
        async def check(service: Service) -> None:
            for text in ("  the moon \n", "\N{FULLWIDTH LATIN SMALL LETTER M}oon", "x" * 10_000, "\u0000moon"):
                assert (await search(service, query_text=text)).json()["query"] == text
            answer = await service.ask("POST", "/v1/search", content=b'{"query_text": "\\ud800 moon"}', headers=JSON)
            assert answer.status_code == 200
            assert b'"query":"\\ud800 moon"' in answer.content

        served(check)

    def test_numbers_are_those_of_json(self, served: Served) -> None:
        async def check(service: Service) -> None:
            assert len((await search(service, top_k=2.0)).json()["results"]) == 2
            assert (await search(service, top_k=1000, similarity_threshold=0)).status_code == 200

        served(check)

    def test_a_trace_comes_where_it_is_asked_for(self, served: Served) -> None:
        async def check(service: Service) -> None:
            stages = [stage["stage"] for stage in (await search(service, explain=True)).json()["trace"]["stages"]]
            assert {"embed", "dense", "lexical", "fuse"} <= set(stages)

        served(check)

    def test_filters_hold_and_wrong_ones_are_refused(self, served: Served) -> None:
        async def check(service: Service) -> None:
            told = (await search(service, filters={"kind": "rock"})).json()
            assert [result["metadata"]["chunk_id"] for result in told["results"]] == ["moon.md#0"]
            assert (
                "unknown operator"
                in check_error(await search(service, filters={"kind": {"$near": 1}}), 400)["errors"][0]
            )

        served(check)

    def test_an_unknown_index_is_not_found(self, served: Served) -> None:
        async def check(service: Service) -> None:
            check_error(await search(service, index="other"), 404, "Index other not found")
            assert (await search(service, index="docs")).status_code == 200

        served(check)


EMPTY = "query_text cannot be empty"
TOP_K = "top_k must be between 1 and 1000"
THRESHOLD = "similarity_threshold must be at least 0.0 and below 1.0"


class TestWrongRequests:
    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({"query_text": ""}, EMPTY),
            ({"query_text": " \n\t\u3000"}, EMPTY),
            ({"query_text": None}, EMPTY),
            ({"query_text": 5}, "query_text must be text"),
            ({"query_text": "x" * 10_001}, "query_text must have at most 10,000 characters"),
            *(({"top_k": value}, TOP_K) for value in (0, -1, 1001, "5", True, None, 1.5, [5], 10**400)),
            *(({"similarity_threshold": value}, THRESHOLD) for value in (-0.1, 1, 1.0, "0.5", True, None)),
            ({"mode": "fuzzy"}, "mode must be 'hybrid', 'dense' or 'lexical'"),
            ({"querytext": "x"}, "unknown field querytext; did you mean query_text?"),
        ],
    )
    def test_a_wrong_field_is_400_and_named(self, served: Served, body: dict[str, Any], message: str) -> None:
        async def check(service: Service) -> None:
            told = check_error(await search(service, **body), 400, message)
            given = body.get("query_text", QUESTION)
            assert told.get("query") == (given if isinstance(given, str) else None)

        served(check)

    def test_there_is_one_message_for_each_field(self, served: Served) -> None:
        async def check(service: Service) -> None:
            body = {"query_text": " ", "top_k": "5", "similarity_threshold": 2, "history": [{"role": "x"}, {"role": 3}]}
            told = check_error(await search(service, **body), 400)
            assert told["errors"][:3] == [EMPTY, TOP_K, THRESHOLD]
            assert len(told["errors"]) == 4
            assert told["execution"]["threshold_applied"] == 0.0

        served(check)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "the body is not valid JSON (line 1, column 1)"),
            (b'{"query_text": "moon"', "the body is not valid JSON (line 1, column 22)"),
            (b'{"query_text": "moon", "top_k": NaN}', "the body contains NaN, which is not JSON"),
            (b'{"query_text": "moon", "query_text": "sun"}', 'the body has the key "query_text" more than once'),
            (b'["moon"]', "the body must be a JSON object"),
            (b'{"query_text": "\xff"}', "the body is not valid UTF-8"),
            (b'{"filters": ' + b'{"a":' * 50_000, "the body is nested too deeply"),
        ],
    )
    def test_a_body_that_is_no_json_is_400_without_a_question(
        self, served: Served, content: bytes, message: str
    ) -> None:
        async def check(service: Service) -> None:
            answer = await service.ask("POST", "/v1/search", content=content, headers=JSON)
            assert "query" not in check_error(answer, 400, message)

        served(check)

    def test_bodies_of_another_kind_are_415_and_long_ones_413(self, served: Served) -> None:
        body = json.dumps({"query_text": QUESTION}).encode()

        async def chunks() -> Any:
            for _ in range(40):
                yield b" " * 65_536

        async def check(service: Service) -> None:
            for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonl"):
                check_error(await service.ask("POST", "/v1/search", content=body, headers={"content-type": kind}), 415)
            check_error(await service.ask("POST", "/v1/search", content=body), 415)
            packed = {**JSON, "content-encoding": "gzip"}
            check_error(await service.ask("POST", "/v1/search", content=gzip.compress(body), headers=packed), 415)
            long = json.dumps({"query_text": "x" * 2_000_000}).encode()
            check_error(await service.ask("POST", "/v1/search", content=long, headers=JSON), 413)
            check_error(await service.ask("POST", "/v1/search", content=chunks(), headers=JSON), 413)
            charset = {"content-type": "application/json; charset=utf-8"}
            assert (await service.ask("POST", "/v1/search", content=body, headers=charset)).status_code == 200

        served(check)

    def test_paths_and_methods_that_there_are_not(self, served: Served) -> None:
        async def check(service: Service) -> None:
            check_error(await service.ask("GET", "/v1/nothing"), 404)
            check_error(await service.ask("GET", "/v1/search/"), 404)
            answer = await service.ask("GET", "/v1/search")
            check_error(answer, 405, "GET is not possible here; POST is")
            assert answer.headers["allow"] == "POST"
            check_error(await service.ask("POST", "/v1/documents", json={"documents": []}), 403)
            check_error(await service.ask("DELETE", "/v1/documents?id=moon.md"), 403)

        served(check)


class Broken(FakeEmbedder):
    """An embedder whose questions fail."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def embed_query(self, text: str) -> Any:
        raise self._error


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (ServiceError("the key was refused", "cohere", status=401), "the key was refused"),
            (ServiceConnectionError("api.cohere.com cannot be reached", "cohere"), "api.cohere.com cannot be reached"),
            (ServiceTimeoutError("it did not answer in time", "cohere"), "it did not answer in time"),
            (EmbeddingError("the model at /srv/models/secret/x.onnx is broken"), "the model at … is broken"),
        ],
    )
    def test_a_question_that_cannot_be_embedded_is_503(self, served: Served, error: Exception, reason: str) -> None:
        served(_nothing)  # the index is filled with an embedder that works

        async def check(service: Service) -> None:
            for mode in ("hybrid", "dense", "lexical"):
                told = check_error(await search(service, mode=mode), 503)
                assert told["errors"][0].startswith("Failed to embed query: ")
                assert reason in told["errors"][0]
                assert told["query"] == QUESTION

        served(check, index={"parts": {"embedder": Broken(error)}, "retry": {"max_retries": 0}})

    def test_who_allows_it_gets_what_words_find_with_the_score_0(self, served: Served) -> None:
        served(_nothing)

        async def check(service: Service) -> None:
            answer = await search(service, allow_degraded=True)
            assert answer.status_code == 200, answer.text
            told = answer.json()
            RetrievalResponse.model_validate(told)
            assert {result["similarity_score"] for result in told["results"]} == {0.0}
            assert told["results"][0]["metadata"]["chunk_id"] == "moon.md#0"
            assert "embed" in {entry["stage"] for entry in told["degraded"]}
            assert (await search(service, allow_degraded=True, similarity_threshold=0.1)).json()["results"] == []

        broken = Broken(ServiceError("the key was refused", "cohere", status=401))
        served(check, index={"parts": {"embedder": broken}, "retry": {"max_retries": 0}})

    def test_a_store_that_is_down_is_named_without_its_place(self, served: Served) -> None:
        async def check(service: Service) -> None:
            index = await next(iter(service.indexes)).index()

            async def down(_request: Any) -> Any:
                raise StoreError("the disk of /srv/data/secret/index.db is gone")

            for name in ("search", "fetch"):
                object.__setattr__(index.store, name, down)
            told = check_error(await search(service, query_text="another question"), 503)
            assert told["errors"][0] == "SQLite service unavailable at urn:retrieval:docs"
            assert "gone" in told["errors"][1]
            assert "secret" not in json.dumps(told)
            check_error(await service.ask("GET", "/v1/chunks/moon.md%230"), 503)

        served(check)

    def test_what_the_service_was_not_set_up_for_is_501_and_says_what_to_install(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "bpe_openai", None)

        async def check(service: Service) -> None:
            for path in ("/v1/context", "/v1/answer"):
                told = check_error(await service.ask("POST", path, json={"query_text": QUESTION}), 501)
                assert told["errors"][0].startswith("the service is not set up for this: ")
                assert "the extra 'tokens'" in told["errors"][0]
            assert (await search(service)).status_code == 200

        served(check, index={"context": {"token_counter": "o200k_base"}})

    def test_what_nobody_expected_is_500_with_its_kind_and_the_requests_id(
        self, served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def check(service: Service) -> None:
            index = await next(iter(service.indexes)).index()

            async def broken(*_: Any, **__: Any) -> Any:
                raise ZeroDivisionError("a secret of /srv/data")

            object.__setattr__(index, "aretrieve", broken)
            answer = await service.ask(
                "POST", "/v1/search", json={"query_text": QUESTION}, headers={"x-request-id": "abc-1"}
            )
            check_error(answer, 500, "Internal server error: ZeroDivisionError (request abc-1)")
            assert answer.headers["x-request-id"] == "abc-1"

        served(check)
        assert "abc-1" in caplog.text

    def test_an_index_without_vectors_says_so(self, served: Served) -> None:
        async def check(service: Service) -> None:
            told = check_error(await search(service), 400)
            assert told["errors"] == [
                "the index docs contains no vectors, so that nothing in it has a similarity score"
            ]

        served(check, index={"embedder": {"kind": "none"}, "search": {"mode": "lexical"}})


class TestChunks:
    def test_a_chunk_is_read_and_held_against_its_document(self, served: Served) -> None:
        async def check(service: Service) -> None:
            for name in ("moon.md%230", "sun%20%231.md%230"):
                read = (await service.ask("GET", f"/v1/chunks/{name}")).json()
                validated = (await service.ask("POST", f"/v1/chunks/{name}/validate")).json()
                result = ValidationResult.model_validate(validated)
                assert result.validation_passed
                assert result.stored_text == result.original_text == read["text"]
                assert validated["mismatch_details"] is None
                assert read["metadata"]["chunk_id"] == validated["chunk_id"]

        served(check)

    def test_one_that_there_is_not_is_404(self, served: Served) -> None:
        async def check(service: Service) -> None:
            check_error(await service.ask("GET", "/v1/chunks/none%2Fsuch"), 404, "Chunk none/such not found")
            check_error(await service.ask("POST", "/v1/chunks/none/validate"), 404, "Chunk none not found")
            check_error(await service.ask("GET", "/v1/indexes/none"), 404, "Index none not found")

        served(check)


class TestIndexes:
    def test_one_that_cannot_be_read_is_listed_in_red(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        async def check(service: Service) -> None:
            (healthy,) = (await service.ask("GET", "/v1/indexes")).json()["indexes"]
            assert healthy["status"] == "green"
            assert healthy["indexed_vectors_count"] == healthy["points_count"] > 0

            async def broken(*_: Any, **__: Any) -> Any:
                raise IndexFormatError("damaged")

            index = await next(iter(service.indexes)).index()
            with monkeypatch.context() as patched:
                patched.setattr(index.store, "describe", broken)
                (listed,) = (await service.ask("GET", "/v1/indexes")).json()["indexes"]
            assert (listed["name"], listed["status"], listed["points_count"]) == (healthy["name"], "red", 0)

        served(check)


class TestDocuments:
    def test_they_are_written_found_and_removed(self, served: Served) -> None:
        async def check(service: Service) -> None:
            new = {"id": "mars.md", "text": "Mars has two moons, Phobos and Deimos.", "metadata": {"kind": "planet"}}
            answer = await service.ask("POST", "/v1/documents", json={"documents": [new]})
            assert answer.json() == {"written": ["mars.md"]}
            told = (await search(service, query_text="moons of Mars", filters={"kind": "planet"})).json()
            assert [result["metadata"]["chunk_id"] for result in told["results"]] == ["mars.md#0"]
            gone = await service.ask("DELETE", "/v1/documents?id=mars.md&id=none")
            assert gone.json() == {"removed_chunks": {"mars.md": 1, "none": 0}}
            check_error(await service.ask("DELETE", "/v1/documents"), 400)
            check_error(await service.ask("POST", "/v1/documents", json={"documents": [{"id": "x"}]}), 400)

        served(check, allow_writes=True)


async def _nothing(_service: Service) -> None:
    pass
