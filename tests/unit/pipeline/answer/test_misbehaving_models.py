"""Models that stream what they should not, or never stop, and pipelines that are closed under their answers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import ConfigurationError, ServiceError
from retrieval_core.index.serialization import answer_to_json
from retrieval_core.pipeline.answer.writing import Thinking
from retrieval_core.ports import CompletionRequest, Verdicts, Verified, Verifier
from retrieval_core.run.threads import PoolClosedError
from retrieval_core.testing.fakes_llm import FakeLLM
from support.answers import QUESTION, ROLLED_BACK, an_answering_pipeline, check_stream, events_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence


def test_what_a_model_thinks_aloud_is_left_out() -> None:
    """Before the first word, however it is cut into pieces; what is elsewhere is part of the answer."""
    for text, said in (
        (f"<think>The user wants [3].\n</think>\n\n{ROLLED_BACK}", ROLLED_BACK),
        (f"\n <think></think>{ROLLED_BACK}", ROLLED_BACK),
        ("<thin> is no mark [1].", "<thin> is no mark [1]."),
        ("It is <think>here</think> [1].", "It is <think>here</think> [1]."),
        ("<", "<"),
    ):
        for size in (1, 3, 7, 1000):
            thinking = Thinking()
            parts = [text[start : start + size] for start in range(0, len(text), size)]
            shown = [part for piece in parts for part in thinking.rest_of(piece)] + list(thinking.end())
            assert "".join(shown).strip() == said
        answer = check_stream(events_of(an_answering_pipeline(FakeLLM([text]), retry__max_retries=0)))
        assert answer.text == said
    never = FakeLLM(["<think>Let me see. " * 3])
    assert check_stream(events_of(an_answering_pipeline(never, retry__max_retries=0))).kind == "extracted"


def test_halves_of_a_character_in_two_pieces_are_one() -> None:
    """A server may cut a character of two halves in the middle."""

    class Halves(FakeLLM):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
            self.requests.append(request)
            for piece in ("moon \ud83c", "\udf15 and ", "half \ud83c", " [1]."):
                yield piece

    answer = check_stream(events_of(an_answering_pipeline(Halves([]))))
    assert answer.text == "moon \U0001f315 and half \ufffd [1]."


@pytest.mark.parametrize("piece", ["", "  "])
def test_a_model_that_streams_nothing_for_ever_is_stopped(piece: str) -> None:
    """Even where it never waits for anything."""

    class Empty(FakeLLM):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
            self.requests.append(request)
            yield "word"
            while True:
                yield piece

    answer = check_stream(events_of(an_answering_pipeline(Empty([]))))
    assert answer.error is not None
    assert "did not stop" in answer.error


@pytest.mark.parametrize(("length", "is_too_long"), [(20_000, False), (20_001, True)])
def test_an_answer_that_is_too_long_is_cut_off(length: int, *, is_too_long: bool) -> None:
    """And says so, however few pieces it comes in."""

    class Long(FakeLLM):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
            self.requests.append(request)
            yield "word " * 3_000
            yield "w" * (length - 15_000)

    answer = check_stream(events_of(an_answering_pipeline(Long([]))))
    assert ("did not stop: its answer was cut off after 20000 characters" in (answer.error or "")) is is_too_long


def test_a_stream_that_cannot_be_closed_is_an_answer_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """How a plug-in ends is its own business; a warning says so."""

    class Stubborn:
        def __init__(self) -> None:
            self._pieces = iter([ROLLED_BACK])

        def __aiter__(self) -> Stubborn:
            return self

        async def __anext__(self) -> str:
            for piece in self._pieces:
                return piece
            raise StopAsyncIteration

        def aclose(self) -> None:
            msg = "not now"
            raise ValueError(msg)

    class Writes(FakeLLM):
        def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
            self.requests.append(request)
            return cast("AsyncGenerator[str]", Stubborn())

    answer = check_stream(events_of(an_answering_pipeline(Writes([]))))
    assert (answer.text, answer.error) == (ROLLED_BACK, None)
    assert "could not be closed" in caplog.text


def test_a_closed_pipeline_answers_nothing() -> None:
    """It is no reason for an answer without documents."""
    llm = FakeLLM([])
    pipeline = an_answering_pipeline(llm)
    pipeline.close()
    with pytest.raises(PoolClosedError):
        pipeline.answer(QUESTION)
    pipeline.close()
    assert llm.requests == []


def test_a_stream_whose_pipeline_is_closed_says_so() -> None:
    """Whoever reads on can tell it from one that is complete."""
    pipeline = an_answering_pipeline(FakeLLM([ROLLED_BACK]))
    stream = pipeline.answer_stream(QUESTION)
    assert next(stream).type == "retrieval_done"
    pipeline.close()
    with pytest.raises(ServiceError, match="ended before its time"):
        next(stream)


def test_a_stream_is_read_on_one_loop() -> None:
    """Another loop gets an error at once, and does not hang."""
    llm = FakeLLM([])
    llm.gate = asyncio.Event()
    pipeline = an_answering_pipeline(llm)
    stream = pipeline.aanswer_stream(QUESTION)

    async def read() -> None:
        async for event in stream:
            if event.type == "retrieval_done":
                return

    with asyncio.Runner() as first:
        first.run(read())
        with asyncio.Runner() as second, pytest.raises(RuntimeError, match="different event loop"):
            second.run(read())
        first.run(pipeline.aclose())


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        "supported",
        Verdicts(cast("tuple[Verified, ...]", None)),
        Verdicts(cast("tuple[Verified, ...]", iter([]))),
        Verdicts(()),
        Verdicts((cast("Verified", "supported"),)),
        Verdicts((Verified(cast("Any", [])),)),
        Verdicts((Verified("supported", 0, cast("Any", 5)),)),
        Verdicts((Verified("supported", 0, cast("Any", b"x")),)),
        Verdicts((Verified("not_found", reason=cast("Any", float("nan"))),)),
        Verdicts((Verified("not_found"),), usage=cast("Any", "much")),
    ],
    ids=["nothing", "text", "none", "iterator", "empty", "texts", "list", "number", "bytes", "nan", "usage"],
)
def test_a_verifiers_nonsense_leaves_the_answer(nonsense: object) -> None:
    """The text is out already; what cannot be used is listed, and the stream ends as ever."""

    class Verifies(Verifier):
        id = "nonsense"
        batch_size = 8

        async def _verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:
            assert query
            assert sentences
            assert passages
            return cast("Verdicts", nonsense)

    pipeline = an_answering_pipeline(FakeLLM([ROLLED_BACK]), verifier=Verifies(), answer__verify=True)
    answer = check_stream(events_of(pipeline))
    assert (answer.text, answer.sentences[0].check) == (ROLLED_BACK, None)
    assert [entry.stage for entry in answer.degraded] == ["verify_answer"]
    assert json.loads(json.dumps(answer_to_json(answer), allow_nan=False))["usage"] is None


@pytest.mark.parametrize("size", [0, None, "x", float("inf")])
def test_a_verifier_without_a_batch_size_is_not_asked(size: object) -> None:
    """That too leaves the answer."""

    class Verifies(Verifier):
        id = "nonsense"
        batch_size = cast("int", size)

        async def _verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:
            raise NotImplementedError(query, sentences, passages)

    pipeline = an_answering_pipeline(FakeLLM([ROLLED_BACK]), verifier=Verifies(), answer__verify=True)
    (trouble,) = check_stream(events_of(pipeline)).degraded
    assert "batch_size must be a whole number" in trouble.reason


@pytest.mark.parametrize("prompt", ["", " \n"])
def test_a_blank_prompt_is_refused_with_the_configuration(prompt: str) -> None:
    """Not with the first answer."""
    with pytest.raises(ConfigurationError, match=r"answer\.prompt.*blank"):
        load_config(overrides={"answer.prompt": prompt})
