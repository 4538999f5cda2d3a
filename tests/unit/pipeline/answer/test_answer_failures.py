"""Answers when something fails: what stands in, what is told, and what is raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.errors import (
    ConfigurationError,
    RetrievalError,
    ServiceConnectionError,
)
from retrieval_core.pipeline.answer.writing import UNAVAILABLE
from retrieval_core.ports import CompletionRequest
from retrieval_core.testing.fakes_llm import FakeLLM
from support.answers import ROLLED_BACK, an_answering_pipeline, check_stream, events_of, kinds
from support.pipelines import TroubledStore, filled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@pytest.mark.parametrize("setting", ["strict", "raise_on_error"])
def test_strict_answers_raise(setting: str) -> None:
    """What keeps an answer from being complete is raised where that is asked for."""
    llm = FakeLLM([ROLLED_BACK])
    llm.failure, llm.failure_after = ServiceConnectionError("the line is dead"), 3
    settings: dict[str, Any] = {setting: True}
    pipeline = an_answering_pipeline(llm, **settings)
    with pipeline, pytest.raises(ServiceConnectionError, match="the line is dead"):
        pipeline.answer("roll back an application")


def test_what_is_no_text_is_refused() -> None:
    """A plug-in may stream anything; what is no text is a failure, and halves of characters are replaced."""

    class Broken(FakeLLM):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
            self.requests.append(request)
            yield 42  # type: ignore[misc]

    answer = check_stream(events_of(an_answering_pipeline(Broken([]), retry__max_retries=0)))
    assert answer.kind == "extracted"
    answer = check_stream(events_of(an_answering_pipeline(FakeLLM(["half \ud83d character [1]."]))))
    assert answer.text == "half \ufffd character [1]."


def test_when_everything_fails_there_are_three_rungs() -> None:
    """The whole search, then meaning alone, then a general answer that says so first; each step is told."""
    store = TroubledStore()
    filled(store)
    store.failures = {name: ServiceConnectionError("store is down") for name in ("dense", "lexical")}
    llm = FakeLLM(["Usually there is a command for that."])
    events = events_of(an_answering_pipeline(llm, store, retry__max_retries=0, breaker__failures=0))
    answer = check_stream(events)
    assert [item.step for item in answer.fallbacks] == ["dense", "without_documents"]
    assert all("store is down" in item.reason for item in answer.fallbacks)
    assert kinds(events)[:2] == ["fallback", "retrieval_done"]
    assert answer.kind == "without_documents"
    assert answer.text == f"{UNAVAILABLE}Usually there is a command for that."
    assert (answer.sources, answer.confidence, answer.pack) == ((), None, None)
    assert "passage" not in llm.requests[0].messages[1].content
    assert store.calls["dense"] == 2


def test_meaning_alone_stands_in() -> None:
    """Where the configured search fails altogether, the bare one answers, and the answer is as good as any."""
    store = TroubledStore()
    filled(store)

    class Once(TroubledStore):
        def __init__(self) -> None:
            super().__init__()
            self._inner = store._inner

        async def _serve(self, purpose: str) -> None:
            await super()._serve(purpose)
            if self.calls[purpose] == 1 and purpose in {"dense", "lexical"}:
                msg = "not yet"
                raise ServiceConnectionError(msg)

    llm = FakeLLM([ROLLED_BACK])
    answer = check_stream(events_of(an_answering_pipeline(llm, Once(), retry__max_retries=0)))
    assert [item.step for item in answer.fallbacks] == ["dense"]
    assert answer.kind == "written"
    assert answer.sentences[0].has_source


@pytest.mark.parametrize("with_model", [True, False])
def test_without_search_and_without_a_general_answer_there_is_an_error(with_model: bool) -> None:
    """Where none may be given, or nothing can give it, the stream ends with the error of the search."""
    store = TroubledStore()
    filled(store)
    store.failures = {name: ServiceConnectionError("store is down") for name in ("dense", "lexical")}
    llm = FakeLLM([]) if with_model else None
    pipeline = an_answering_pipeline(llm, store, retry__max_retries=0, answer__without_documents=not with_model)
    events = events_of(pipeline)
    answer = check_stream(events)
    assert answer.text == ""
    assert answer.error is not None
    assert "store is down" in answer.error
    assert kinds(events)[-2:] == ["error", "done"]


def test_a_search_that_is_set_up_wrongly_is_raised() -> None:
    """No fallback hides it, and the stream raises it before its first event."""
    store = TroubledStore()
    filled(store)
    store.failures = {name: ConfigurationError("no such index") for name in ("dense", "lexical")}
    with pytest.raises(ConfigurationError, match="no such index"):
        events_of(an_answering_pipeline(FakeLLM([]), store))


def test_the_same_error_tree_for_everything() -> None:
    """Whatever a broken model raises becomes an outcome; a bug of its own is told by its name."""
    llm = FakeLLM([ROLLED_BACK, ROLLED_BACK])
    llm.failure, llm.failure_after = ZeroDivisionError("division by zero"), 2
    events = events_of(an_answering_pipeline(llm))
    check_stream(events)
    assert events[-2].error == "ZeroDivisionError"  # type: ignore[union-attr]
    with an_answering_pipeline(llm, strict=True) as pipeline, pytest.raises(RetrievalError, match="division by zero"):
        pipeline.answer("roll back an application")
