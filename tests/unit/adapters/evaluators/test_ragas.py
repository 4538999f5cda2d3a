from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import socket
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.evaluators import ragas as module
from retrieval_core.adapters.evaluators.local import average_precision
from retrieval_core.adapters.evaluators.ragas import RagasEvaluator
from retrieval_core.errors import (
    ConfigurationError,
    InvalidParameterError,
    MalformedAnswerError,
    MissingExtraError,
    ServiceConnectionError,
)
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Chunk, EvaluationScores
from support.examples import times
from support.plugins import approx

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from retrieval_core.ports import CompletionRequest

needs_extra = pytest.mark.skipif(importlib.util.find_spec("ragas") is None, reason="the extra 'ragas' is not installed")

QUESTION = "when does the train leave"
USEFUL, BESIDE = "the train leaves at nine", "bread is baked slowly"


def asked_for_a_question(request: CompletionRequest) -> bool:
    assert request.schema is not None
    return "question" in str(request.schema["required"])


def judge(request: CompletionRequest) -> Mapping[str, Any]:
    """Answer as a model would that finds trains useful, and guesses the question."""
    if asked_for_a_question(request):
        return {"question": QUESTION, "noncommittal": 0}
    passage = request.messages[-1].content.rsplit('"context": "', 1)[-1]
    return {"reason": "because", "verdict": int(passage.startswith(USEFUL))}


def chunks(*texts: str) -> tuple[Chunk, ...]:
    return tuple(Chunk(f"c{number}", "d", text) for number, text in enumerate(texts))


def evaluate(
    texts: Sequence[str], response: str = "At nine.", llm: Any = None, embedder: Any = None, **options: Any
) -> EvaluationScores:
    evaluator = RagasEvaluator(llm or FakeLLM(judge), embedder or FakeEmbedder(), **options)
    return asyncio.run(evaluator.evaluate(QUESTION, chunks(*texts), response))


def returning(value: Any) -> Callable[..., Any]:
    return lambda *_args, **_options: value


def failing(reason: str) -> Callable[..., Any]:
    def fail(*_args: object, **_options: object) -> None:
        pytest.fail(reason)

    return fail


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised before anything is evaluated."""

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[ragas\]"):
        RagasEvaluator(FakeLLM([]), FakeEmbedder())


@pytest.mark.parametrize(
    ("found", "error", "message"),
    [(None, MissingExtraError, r"\[ragas\]"), (object(), ConfigurationError, "No module named 'vertex'")],
)
def test_a_ragas_that_cannot_be_imported_says_why(
    monkeypatch: pytest.MonkeyPatch, found: Any, error: type[Exception], message: str
) -> None:
    """Versions of its dependencies that do not fit are told apart from its absence."""

    def broken(name: str) -> Any:
        text = "No module named 'vertex'"
        raise ModuleNotFoundError(text, name=name)

    monkeypatch.setenv("RAGAS_DO_NOT_TRACK", "true")
    monkeypatch.setattr(metadata, "version", returning("0.4.3"))
    monkeypatch.setattr(module, "import_module", broken)
    monkeypatch.setattr(module, "find_spec", returning(found))
    with pytest.raises(error, match=message):
        evaluate([USEFUL])


@pytest.mark.parametrize("name", ["questions", "concurrency"])
def test_numbers_below_1_are_refused(name: str) -> None:
    """At least one question, one request at a time."""
    with pytest.raises(InvalidParameterError, match=f"{name} must be a whole number of at least 1, got 0"):
        RagasEvaluator(FakeLLM([]), FakeEmbedder(), **{name: 0})


def test_without_a_response_nothing_is_asked_nor_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both metrics need a response."""
    monkeypatch.setattr(metadata, "version", returning("0.4.3"))
    monkeypatch.setattr(module, "import_module", failing("imported"))
    llm = FakeLLM(judge)
    scores = evaluate([USEFUL], response=" ", llm=llm)
    assert (scores.context_precision, scores.response_relevancy) == (None, None)
    assert llm.requests == []


@pytest.mark.slow
@needs_extra
def test_both_scores_come_from_our_model_and_embedder() -> None:
    """One request a passage and a question, each with a schema, and two calls of the embedder."""
    llm, embedder = FakeLLM(judge), FakeEmbedder()
    scores = evaluate([BESIDE, USEFUL], llm=llm, embedder=embedder, questions=2)
    assert scores.context_precision == approx(0.5)
    assert scores.response_relevancy == approx(1)
    assert len(llm.requests) == 4
    assert embedder.batches == [(QUESTION,), (QUESTION, QUESTION)]
    assert embedder.queries == []
    version = metadata.version("ragas")
    assert scores.methods["context_precision"] == f"ragas {version}: ContextPrecisionWithoutReference, by fake-llm"
    assert scores.methods["response_relevancy"].startswith(f"ragas {version}: AnswerRelevancy")


@pytest.mark.slow
@needs_extra
def test_an_evasive_response_has_no_relevancy() -> None:
    """RAGAS' rule: 0 where all questions found it noncommittal."""
    llm = FakeLLM(
        lambda request: {"question": QUESTION, "noncommittal": 1} if asked_for_a_question(request) else judge(request)
    )
    assert evaluate([USEFUL], llm=llm).response_relevancy == 0


@pytest.mark.slow
@needs_extra
def test_a_response_that_is_the_passages_is_named() -> None:
    """Passages are of use in arriving at themselves, so the score says little."""
    scores = evaluate([USEFUL], response=f"[1] {USEFUL}")
    assert "quotes the passages" in scores.methods["context_precision"]


@pytest.mark.slow
@needs_extra
def test_without_passages_there_is_a_relevancy_alone() -> None:
    """A response can be judged without them."""
    scores = evaluate([])
    assert scores.context_precision is None
    assert scores.response_relevancy == approx(1)
    assert scores.methods["context_precision"] == "not computed: there are no passages"


@pytest.mark.slow
@needs_extra
def test_vectors_without_a_direction_give_no_score() -> None:
    """Their cosine is no number."""

    class Zeros(FakeEmbedder):
        async def embed_texts(self, texts: Sequence[str]) -> Any:
            return np.zeros((len(texts), 8), dtype=np.float32)

    with np.errstate(invalid="ignore"):
        assert evaluate([], embedder=Zeros()).response_relevancy is None


@pytest.mark.slow
@needs_extra
def test_failures_come_through_as_they_are_and_are_not_repeated() -> None:
    """RAGAS makes one attempt at each question."""
    llm = FakeLLM(judge)
    llm.failure = ServiceConnectionError("down", "fake")
    with pytest.raises(ServiceConnectionError, match="down"):
        evaluate([], llm=llm, questions=1)
    assert len(llm.requests) == 1


@pytest.mark.slow
@needs_extra
def test_an_answer_of_another_form_is_malformed() -> None:
    """It may be better the next time, and that is for the caller to try."""
    with pytest.raises(MalformedAnswerError, match="verdict"):
        evaluate([USEFUL], llm=FakeLLM(lambda _: {"reason": "because", "question": "?", "noncommittal": 0}))


@pytest.mark.slow
@needs_extra
def test_long_texts_are_cut() -> None:
    """A request is bounded whatever was found: RAGAS' examples, a passage and a response."""
    llm = FakeLLM(judge)
    evaluate(["word " * 20_000], response="word " * 20_000, llm=llm)
    assert max(len(request.messages[0].content) for request in llm.requests) < 25_000


@pytest.mark.slow
@needs_extra
def test_so_many_requests_at_a_time_and_no_more() -> None:
    """The bound is for both scores together."""
    running = most = 0

    class Counting(FakeLLM):
        async def complete(self, request: CompletionRequest) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return await super().complete(request)

    evaluate([USEFUL] * 8, llm=Counting(judge), concurrency=2)
    assert most == 2


@pytest.mark.slow
@needs_extra
def test_cancelling_reaches_the_requests() -> None:
    """No request goes on for a caller who has left."""
    cancelled = 0
    all_there = asyncio.Event()

    class Hanging(FakeLLM):
        async def complete(self, request: CompletionRequest) -> Any:
            nonlocal cancelled
            self.requests.append(request)
            if len(self.requests) == 3:
                all_there.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1
                raise

    evaluator = RagasEvaluator(Hanging(judge), FakeEmbedder(), concurrency=3)

    async def run() -> None:
        task = asyncio.create_task(evaluator.evaluate(QUESTION, chunks(USEFUL, USEFUL), "At nine."))
        async with asyncio.timeout(60):
            await all_there.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())
    assert cancelled == 3


@pytest.mark.slow
@needs_extra
def test_nothing_is_reported_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scoring opens no connection, and the variable that stops reports of usage is set before the import."""
    monkeypatch.setattr(socket.socket, "connect", failing("a connection was opened"))
    monkeypatch.setattr("requests.post", failing("something was reported"))
    evaluate([USEFUL])
    assert os.environ["RAGAS_DO_NOT_TRACK"] == "true"
    assert importlib.import_module("ragas._analytics").do_not_track()


@pytest.mark.slow
@needs_extra
@settings(max_examples=times(100))
@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_ragas_own_loop_comes_to_the_same_average(verdicts: list[bool]) -> None:
    """Judging passages by themselves and averaging here is what RAGAS does, one after the other."""
    evaluate([USEFUL])  # lets our model pass for one of RAGAS'
    metrics: Any = importlib.import_module("ragas.metrics.collections")
    port: Any = getattr(module, "_PortLLM")  # noqa: B009 - the type is private
    metric = metrics.ContextPrecisionWithoutReference(llm=port(FakeLLM(judge), asyncio.Semaphore(), 0.0))
    texts = [USEFUL if verdict else BESIDE for verdict in verdicts]
    theirs = asyncio.run(metric.ascore(user_input=QUESTION, response="At nine.", retrieved_contexts=texts)).value
    assert theirs == approx(average_precision(verdicts), abs=1e-6)
    assert evaluate(texts).context_precision == approx(theirs, abs=1e-6)


def test_importing_the_adapter_loads_no_ragas() -> None:
    """It takes seconds, and most programs never score a result."""
    import subprocess

    code = "import sys, retrieval_core.adapters.evaluators.ragas; print('ragas' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert printed.stdout.strip() == "False"
