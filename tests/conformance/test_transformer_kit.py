"""Every transformer that comes with the library passes the kit, and the kit finds what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.adapters.transformers.condense import LLMCondenser
from retrieval_core.adapters.transformers.decompose import QueryDecomposer
from retrieval_core.adapters.transformers.heuristic import HeuristicCondenser
from retrieval_core.adapters.transformers.hyde import HyDEGenerator
from retrieval_core.adapters.transformers.keywords import KeywordExpander
from retrieval_core.errors import UnusableAnswerError
from retrieval_core.ports import Linked, QueryContext, QueryTransformer, Transformed, Variant
from retrieval_core.testing.fakes import FakeTransformer
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.testing.transformer_kit import TransformerConformance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval_core.ports import CompletionRequest


def answered(request: CompletionRequest) -> dict[str, Any]:
    """Answer from the question alone, with everything that any schema asks for."""
    said = request.messages[1].content
    values: dict[str, Any] = {
        "words": ["alpha", f"beta{len(said)}"],
        "questions": [f"What is {len(said)}?", "Why is that so?"],
        "passage": f"It is {len(said)}.",
        "reason": "So it is.",
        "query": f"What of {len(said)}?",
    }
    schema: Any = request.schema
    return {name: values[name] for name in schema["properties"]}


class TestKeywordExpander(TransformerConformance):
    @pytest.fixture
    def transformer(self) -> QueryTransformer:
        return KeywordExpander(FakeLLM(answered))


class TestQueryDecomposer(TransformerConformance):
    @pytest.fixture
    def transformer(self) -> QueryTransformer:
        return QueryDecomposer(FakeLLM(answered))


class TestHyDEGenerator(TransformerConformance):
    @pytest.fixture
    def transformer(self) -> QueryTransformer:
        return HyDEGenerator(FakeLLM(answered))


class TestLLMCondenser(TransformerConformance):
    @pytest.fixture
    def transformer(self) -> QueryTransformer:
        return LLMCondenser(FakeLLM(answered))


class TestHeuristicCondenser(TransformerConformance):
    @pytest.fixture
    def transformer(self) -> QueryTransformer:
        return HeuristicCondenser()


class TestFakeTransformer(TransformerConformance):
    @pytest.fixture
    def transformer(self) -> QueryTransformer:
        return FakeTransformer(lambda query, _context: f"again: {query}")


def counting() -> Iterator[Transformed]:
    number = 0
    while True:
        number += 1
        yield Transformed(query=f"question {number}")


@pytest.mark.parametrize(
    ("made", "test"),
    [
        ("", "test_what_is_made_can_be_searched_for"),
        (" \n", "test_hostile_questions_and_conversations"),
        (None, "test_odd_conversations"),
        (Transformed(variants=(Variant("x", ""),)), "test_what_is_made_can_be_searched_for"),
        (Transformed(variants=(Variant(" ", "x"),)), "test_what_is_made_can_be_searched_for"),
        (Transformed(variants=(Variant("x", "x", weight=0),)), "test_what_is_made_can_be_searched_for"),
        (Transformed(variants=(Variant("x", "x", weight=float("nan")),)), "test_odd_conversations"),
        (Transformed(variants=(Variant("x", "x", frozenset()),)), "test_what_is_made_can_be_searched_for"),
        (Transformed(variants=(Variant("x", "x"),) * 17), "test_what_is_made_can_be_searched_for"),
        (Transformed(query="x" * 6000), "test_what_is_made_can_be_searched_for"),
        (Transformed(linked=(Linked("x", "x", (), weight=-1),)), "test_what_is_made_can_be_searched_for"),
        (counting(), "test_the_same_again"),
        (counting(), "test_concurrent_calls_do_not_mix"),
    ],
)
def test_the_kit_finds_what_is_wrong(made: Any, test: str) -> None:
    """A transformer that breaks a promise fails the test of that promise."""

    def make(_query: str, _context: QueryContext) -> Any:
        return next(made) if hasattr(made, "__next__") else made

    with pytest.raises((AssertionError, UnusableAnswerError)):
        getattr(TransformerConformance(), test)(FakeTransformer(make))
