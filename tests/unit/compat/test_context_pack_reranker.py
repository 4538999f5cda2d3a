"""The specification's reranker."""

from __future__ import annotations

import asyncio
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest
from pydantic import SecretStr

from retrieval_core.adapters.llms.openai import OpenAILLMSettings
from retrieval_core.compat.context_pack import (
    OpenAIReranker,
    RerankConfig,
    RerankResult,
    RetrievalConfig,
)
from retrieval_core.compat.pipeline import RetryConfig
from retrieval_core.errors import (
    ConfigurationError,
    DeadlineExceededError,
    InvalidParameterError,
    MalformedAnswerError,
    ServiceError,
    ServiceTimeoutError,
)
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Chunk, Hit, Scores
from support.context_packs import document, judge, passages, reranker

if TYPE_CHECKING:
    from retrieval_core.ports import CompletionRequest

NO_REPEATS = RetryConfig(max_retries=0)


def test_rerank_sorts_by_the_models_scores() -> None:
    """Descending, equal scores in the candidates' order, with answerability and evidence on the scale of the rubric."""
    chunks = document(parents=False)
    asked, _ = reranker(judge({"dragon": 57, "copper": 57, "harbour": 100}))
    with asked:
        results = asked.rerank("which one", chunks)
    assert [result.chunk_id for result in results[:3]] == ["doc_1#7", "doc_1#2", "doc_1#3"]
    assert results[0] == RerankResult(
        "doc_1#7", 100, answerability=True, key_evidence="harbour", key_evidence_is_quoted=True
    )
    assert results[1].relevance_score == 57
    assert not results[1].answerability
    assert [result.chunk_id for result in results[3:]] == [f"doc_1#{number}" for number in (0, 1, 4, 5, 6)]
    assert {result.relevance_score for result in results[3:]} == {0}


def test_rerank_takes_hits_too() -> None:
    """Their order counts and not their scores, and one that comes again is scored once."""
    first, second = document(parents=False)[:2]
    hits = [Hit(second, 0.1, Scores(final=0.1)), Hit(first, 0.9, Scores(final=0.9)), Hit(second, 0.5, Scores())]
    asked, llm = reranker(judge({"The": 40}))
    results = asyncio.run(asked.arerank("which one", hits))
    assert [(result.chunk_id, result.relevance_score) for result in results] == [("doc_1#1", 40), ("doc_1#0", 40)]
    assert len(passages(llm.requests[0])) == 2


def test_rerank_trims_candidates_and_their_texts() -> None:
    """No more candidates than ``max_candidates_to_rerank`` are scored, each by so many characters of its text."""
    config = RerankConfig(max_candidates_to_rerank=3, max_text_chars_per_candidate=12, strict_json_output=False)
    asked, llm = reranker(judge({"The": 40}), config)
    results = asyncio.run(asked.arerank("which one", document(parents=False)))
    assert [result.chunk_id for result in results] == ["doc_1#0", "doc_1#1", "doc_1#2"]
    assert all(len(passage) <= 12 for passage in passages(llm.requests[0]))
    assert llm.requests[0].schema is None


def test_strict_json_is_asked_for() -> None:
    """By default the provider is held to a schema."""
    asked, llm = reranker(judge({}))
    asyncio.run(asked.arerank("which one", document()))
    assert llm.requests[0].schema is not None


def test_scores_are_kept() -> None:
    """The same question on the same candidates costs no request; a changed text, question or order does."""
    chunks = document(parents=False)[:3]
    asked, llm = reranker(judge({"copper": 70}))

    async def ask() -> list[int]:
        requests: list[int] = []
        changed = [*chunks[:2], Chunk(chunks[2].id, "doc_1", "Something else.")]
        for query, candidates in (
            ("which one", chunks),
            ("  which   one ", chunks),
            ("which other", chunks),
            ("which one", changed),
        ):
            await asked.arerank(query, candidates)
            requests.append(len(llm.requests))
        return requests

    assert asyncio.run(ask()) == [1, 1, 2, 3]


def test_no_candidates_cost_no_request() -> None:
    """Nothing in, nothing out."""
    asked, llm = reranker([])
    assert asyncio.run(asked.arerank("which one", [])) == []
    assert llm.requests == []


def test_requests_are_made_again_with_growing_waits() -> None:
    """A fault that may pass is waited for, longer each time."""
    clock = FakeClock()
    llm = FakeLLM([ServiceTimeoutError("slow"), ServiceError("busy", status=503), judge({"copper": 70})])
    asked = OpenAIReranker(llm=llm, retry=RetryConfig(base_delay=1, exponential_base=4, max_delay=60), clock=clock)
    results = asyncio.run(asked.arerank("which one", document(parents=False)))
    assert results[0].chunk_id == "doc_1#2"
    assert len(clock.slept) == 2
    assert clock.slept[1] > clock.slept[0] >= 1


@pytest.mark.parametrize(
    ("failure", "attempts"), [(ServiceError("no such key", status=401), 1), (ServiceTimeoutError("slow"), 3)]
)
def test_what_does_not_help_is_raised(failure: ServiceError, attempts: int) -> None:
    """A reranker that cannot score says why, in the library's own errors."""
    asked, llm = reranker([failure] * attempts, retry=RetryConfig(max_retries=attempts - 1))
    with pytest.raises(type(failure), match=str(failure)):
        asyncio.run(asked.arerank("which one", document()))
    assert len(llm.requests) == attempts


def test_an_answer_that_cannot_be_used_is_raised() -> None:
    """Prose is no list of scores."""
    asked, _ = reranker(["I like the second one best."], retry=NO_REPEATS)
    with pytest.raises(MalformedAnswerError):
        asyncio.run(asked.arerank("which one", document()))


def test_a_call_ends_with_its_time() -> None:
    """A model that hangs does not hang its caller."""

    async def ask() -> None:
        clock = FakeClock()
        called = asyncio.Event()

        class Hanging(FakeLLM):
            async def complete(self, request: CompletionRequest) -> NoReturn:
                called.set()
                await asyncio.Event().wait()
                raise AssertionError(request)

        asked = OpenAIReranker(llm=Hanging([]), clock=clock, deadline_seconds=5, retry=NO_REPEATS)
        task = asyncio.create_task(asked.arerank("which one", document()))
        await called.wait()
        clock.advance(6)
        await task

    with pytest.raises(ServiceTimeoutError, match="deadline_seconds"):
        asyncio.run(ask())


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a model, OpenAI's is made with it, and closed with the reranker."""
    made: list[tuple[str, str]] = []

    class Recorder(FakeLLM):
        Settings = OpenAILLMSettings

        def __init__(self, model: str, *, api_key: SecretStr, base_url: str | None) -> None:
            super().__init__([])
            assert base_url is None
            made.append((model, api_key.get_secret_value()))

        async def aclose(self) -> None:
            made.append(("closed", ""))

    monkeypatch.setattr("retrieval_core.adapters.llms.openai.OpenAILLM", Recorder)
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    with OpenAIReranker():
        pass
    OpenAIReranker(RerankConfig(model="another"))
    assert made == [("gpt-4o", "key-of-openai"), ("closed", ""), ("another", "key-of-openai")]


def test_a_model_that_blocks_the_event_loop_is_not_waited_for() -> None:
    """A synchronous call ends within the time that was set, and closing ends too."""
    over: SimpleQueue[None] = SimpleQueue()

    class Blocking:
        id = "blocking"
        stream = None

        async def complete(self, _request: CompletionRequest) -> NoReturn:
            over.get()
            raise AssertionError("it is over")

    try:
        with (
            OpenAIReranker(llm=cast("Any", Blocking()), deadline_seconds=0.1, clock=FakeClock()) as asked,
            pytest.raises(DeadlineExceededError, match="blocks the event loop"),
        ):
            asked.rerank("which one", document(parents=False))
    finally:
        over.put(None)


def test_without_a_key_there_is_no_reranker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told when it is made, not with the first question."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError):
        OpenAIReranker()


def test_wrong_arguments_of_the_reranker() -> None:
    """Settings of another kind, what is no model, and what is no candidate are refused."""
    with pytest.raises(InvalidParameterError, match="RerankConfig"):
        OpenAIReranker(cast("Any", RetrievalConfig()), FakeLLM([]))
    with pytest.raises(InvalidParameterError, match="complete"):
        OpenAIReranker(llm=cast("Any", "gpt-4o"))
    asked, _ = reranker([])
    for candidates in (None, "text", ["text"], {"a": 1}):
        with pytest.raises(InvalidParameterError, match=r"rerank\(\) takes"):
            asyncio.run(asked.arerank("which one", cast("Any", candidates)))
    with pytest.raises(InvalidParameterError, match="chunk_id"):
        RerankResult(cast("Any", ["a"]), 50)


@pytest.mark.parametrize("score", [-1, 101, float("nan"), True, "70", None])
def test_a_score_is_from_0_to_100(score: Any) -> None:
    """Everything else is refused where it is made."""
    with pytest.raises(InvalidParameterError, match="from 0 to 100"):
        RerankResult("c", score)
