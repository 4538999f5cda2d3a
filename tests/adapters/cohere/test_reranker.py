"""The Cohere reranker over the real SDK: what it sends, how it fails, cancels, keeps its key, shares connections."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

pytest.importorskip("cohere", reason="the extra 'cohere' is not installed")

from retrieval_core.adapters.rerankers.cohere import CohereReranker
from retrieval_core.errors import (
    MalformedAnswerError,
    RetrievalError,
    ServiceError,
)
from retrieval_core.testing.fakes import word_overlap
from retrieval_core.testing.reranker_kit import RerankerConformance
from support.cohere_service import KEY, CohereService, error
from support.wire_server import (
    Changed,
    Hang,
    Response,
    Status,
    WireServer,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from retrieval_core.ports import Reranker, RerankScores
    from support.wire_server import Fault

PASSAGES = ["bread and butter", "people of Berlin", "people live in Berlin"]
QUESTION = "how many people live in Berlin"


@pytest.fixture
def service() -> CohereService:
    return CohereService()


def reranker_of(server: WireServer, **settings: Any) -> CohereReranker:
    defaults: dict[str, Any] = {"api_key": SecretStr(KEY), "base_url": server.url}
    return CohereReranker(**(defaults | settings))


def run(reranker: CohereReranker, *work: Coroutine[Any, Any, RerankScores]) -> list[tuple[float, ...]]:
    """Run calls at the same time, then close what their loop holds."""

    async def main() -> list[RerankScores]:
        try:
            return await asyncio.gather(*work)
        finally:
            await reranker.aclose()

    return [scores.scores for scores in asyncio.run(main())]


class ClosingReranker(CohereReranker):
    """Closes its connections after the last call of each event loop, since the kit runs many loops."""

    def __init__(self, server: WireServer) -> None:
        super().__init__(api_key=KEY, base_url=server.url)
        self._running = 0

    async def score(self, query: str, passages: Sequence[str]) -> RerankScores:
        self._running += 1
        try:
            return await super().score(query, passages)
        finally:
            self._running -= 1
            if not self._running:
                await self.aclose()


class TestConformance(RerankerConformance):
    @pytest.fixture
    def reranker(self, server: WireServer) -> Reranker:
        return ClosingReranker(server)


def test_one_request_has_what_is_needed(server: WireServer) -> None:
    """The request names model, question and passages and nothing else; scores come back in the passages' order."""
    reranker = reranker_of(server)
    assert run(reranker, reranker.score(QUESTION, PASSAGES)) == [
        tuple(word_overlap(QUESTION, passage) for passage in PASSAGES)
    ]
    assert server.count() == server.count("/v2/rerank") == 1
    assert server.requests[0].json() == {"model": "rerank-v3.5", "query": QUESTION, "documents": PASSAGES}
    assert reranker.id == f"cohere/rerank-v3.5@{server.url.removeprefix('http://')}"
    assert CohereReranker(api_key=KEY, model="rerank-v4.0-pro").id == "cohere/rerank-v4.0-pro"


def test_a_full_batch_is_one_request(server: WireServer) -> None:
    """As many passages as the documentation recommends at most go out together."""
    reranker = reranker_of(server)
    (scores,) = run(reranker, reranker.score(QUESTION, ["people"] * reranker.batch_size))
    assert len(scores) == reranker.batch_size == 1000
    assert server.count() == 1


def test_what_is_blank_is_not_sent(server: WireServer) -> None:
    """Blank passages score 0 without being asked about, and the others keep their places."""
    reranker = reranker_of(server)
    (scores,) = run(reranker, reranker.score("people", ["", "people", " \n\u2003", "bread"]))
    assert scores == (0, 1, 0, 0)
    assert server.requests[0].json()["documents"] == ["people", "bread"]
    assert run(reranker, reranker.score(" ", PASSAGES), reranker.score(QUESTION, ["", " "])) == [(0, 0, 0), (0, 0)]
    assert server.count() == 1


def results(*items: Any) -> Fault:
    """Return a fault that answers with these results."""
    return Changed(lambda response: replace(response, body={**response.body, "results": list(items)}))


def result(index: Any, score: Any = 0.5) -> dict[str, Any]:
    return {"index": index, "relevance_score": score}


def without_results(response: Response) -> Response:
    return replace(response, body={"id": "1"})


@pytest.mark.parametrize(
    ("fault", "kind", "words", "retried"),
    [
        (Status(500, body=error(500, "internal server error").body), ServiceError, "500: internal server", True),
        (Status(429, body=error(429, "You are using a Trial key").body), ServiceError, "429: You are using", True),
        (Status(400, body=error(400, "invalid request: x").body), ServiceError, "400: invalid request: x", False),
        (Changed(lambda _: Response(body=b"\xff\xfe\xff")), MalformedAnswerError, "not JSON", True),
        (Changed(lambda _: Response(body=[1])), MalformedAnswerError, "not what the protocol says", True),
        (Changed(without_results), MalformedAnswerError, "no list of scores", True),
        (results(), MalformedAnswerError, "0 scores to 2 passages", True),
        (results(result(0)), MalformedAnswerError, "1 scores to 2 passages", True),
        (results(result(0), result(0)), MalformedAnswerError, "2 scores to 2 passages, 1 of which", True),
        (results(result(0), result(1), result(1)), MalformedAnswerError, "3 scores to 2", True),
        (results(result(0), result(2)), MalformedAnswerError, "2 scores to 2 passages, 1 of which", True),
        (results(result(-1), result(0)), MalformedAnswerError, "2 scores to 2 passages, 1 of which", True),
        (results(result("0"), result("x")), MalformedAnswerError, "no list of scores", True),
        (results(result(0), {"index": 1}), MalformedAnswerError, "no list of scores", True),
        (results(result(0), result(1, "high")), MalformedAnswerError, "no list of scores", True),
        (results(result(0), result(1, 1.5)), MalformedAnswerError, "no list of scores", True),
        (results(result(0), result(1, -0.1)), MalformedAnswerError, "no list of scores", True),
        (results(result(0), result(1, float("nan"))), MalformedAnswerError, "no list of scores", True),
        (results(result(0), result(1, None)), MalformedAnswerError, "no list of scores", True),
        (results(result(0), result(1, True)), MalformedAnswerError, "no list of scores", True),
        (results(result(0), None), MalformedAnswerError, "no list of scores", True),
    ],
)
def test_each_fault_is_one_attempt_and_one_error(
    server: WireServer, fault: Fault, kind: type[RetrievalError], words: str, *, retried: bool
) -> None:
    """Every way to fail has its error, and is met once: trying again is for the pipeline to decide."""
    server.fail(fault)
    reranker = reranker_of(server)
    with pytest.raises(kind, match=words) as raised:
        run(reranker, reranker.score("a question", ["one", "two"]))
    assert type(raised.value) is kind
    assert server.count() == 1
    assert isinstance(raised.value, ServiceError)
    assert raised.value.service == "cohere"
    assert raised.value.can_be_retried is retried
    assert raised.value.status == (fault.code if isinstance(fault, Status) else None)


def test_scores_a_rounding_error_outside_are_the_bound(server: WireServer) -> None:
    """What arithmetic in single precision does at the ends of the range is no reason to fail."""
    server.fail(results(result(0, 1.0000001), result(1, -1e-8)))
    reranker = reranker_of(server)
    assert run(reranker, reranker.score("a", ["b", "c"])) == [(1, 0)]


def test_fifty_calls_are_under_way_at_once(server: WireServer) -> None:
    """Calls do not wait for each other, and none gets another's answer."""
    reranker = reranker_of(server)

    async def main() -> list[RerankScores]:
        server.fail_always(Hang())
        calls = [
            asyncio.create_task(reranker.score(f"number {n}", [f"number {n}", "bread", f"number {n + 1}"]))
            for n in range(50)
        ]
        await server.until(lambda: server.count() == 50)
        server.release()
        scores = await asyncio.gather(*calls)
        await reranker.aclose()
        return scores

    assert [scores.scores for scores in asyncio.run(main())] == [(1, 0, 0.5)] * 50
    assert server.count() == 50
