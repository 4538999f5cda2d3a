"""The promises of the port Verifier, kept by each verifier."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.adapters.verifiers.llm import LLMVerifier
from retrieval_core.testing.fakes import FakeVerifier
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.testing.verifier_kit import VerifierConformance

if TYPE_CHECKING:
    from retrieval_core.ports import CompletionRequest


class TestFake(VerifierConformance):
    @pytest.fixture
    def verifier(self) -> FakeVerifier:
        return FakeVerifier()


class TestLLM(VerifierConformance):
    @pytest.fixture
    def verifier(self) -> LLMVerifier:
        return LLMVerifier(FakeLLM(_read), batch_size=2)


def _read(request: CompletionRequest) -> dict[str, Any]:
    """Answer as a model would that finds sentences which a passage has as they are."""
    lines = [line.partition(": ") for line in request.messages[-1].content.split("\n")]
    values = {label: json.loads(value) for label, _, value in lines}
    passages = [value for label, value in values.items() if label.startswith("passage ")]
    answer: dict[str, Any] = {}
    for label, sentence in values.items():
        if label.startswith("sentence "):
            place = next((number for number, text in enumerate(passages, start=1) if sentence in text), 0)
            if not sentence.isprintable():  # half a surrogate pair would be no answer
                place = 0
            verdict = "supported" if place and sentence.strip() else "not_found"
            answer[label.removeprefix("sentence ")] = {
                "passage": place,
                "quote": sentence if place else "",
                "reason": "It is there." if place else "It is not there.",
                "verdict": verdict,
            }
    return answer
