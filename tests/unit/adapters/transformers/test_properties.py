"""Whatever a model answers and whatever a conversation holds, what comes of it can be searched for, or is an error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.transformers.condense import LLMCondenser
from retrieval_core.adapters.transformers.decompose import QueryDecomposer
from retrieval_core.adapters.transformers.heuristic import HeuristicCondenser
from retrieval_core.adapters.transformers.hyde import HyDEGenerator
from retrieval_core.adapters.transformers.keywords import KeywordExpander
from retrieval_core.config import QueryConfig
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.pipeline.stages.transform import normalize
from retrieval_core.ports import Message, QueryContext, Transformed
from retrieval_core.testing.fakes_llm import FakeLLM
from support.examples import times

KINDS: dict[str, Any] = {
    "words": KeywordExpander,
    "questions": QueryDecomposer,
    "passage": HyDEGenerator,
    "query": LLMCondenser,
}
LONGEST = 2000
TEXTS = st.text(max_size=60) | st.text(alphabet="a ?1.\n\u200b\u0301心", max_size=60)
LONG: st.SearchStrategy[str] = st.builds(str.__mul__, TEXTS, st.integers(1, 200))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | LONG,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
QUESTIONS = TEXTS.filter(str.strip)
TURNS = st.lists(st.builds(Message, st.sampled_from(["user", "assistant", "system"]), LONG), max_size=6).map(tuple)


@st.composite
def answers(draw: st.DrawFn) -> str:
    """An object that has what is asked for, or is like it; any JSON; any text."""
    right = st.fixed_dictionaries(
        {"words": st.lists(LONG), "questions": st.lists(LONG), "passage": LONG, "reason": LONG, "query": LONG}
    )
    value: Any = draw(st.one_of(right, right, st.dictionaries(st.sampled_from([*KINDS, "reason"]), VALUES), VALUES))
    text = json.dumps(value)
    return draw(st.sampled_from([text, f"```json\n{text}\n```", text[: len(text) // 2], draw(st.text())]))


def check(made: Transformed, query: str) -> None:
    assert isinstance(made, Transformed)
    assert len(made.variants) <= 4
    if made.query is not None:
        assert_searchable(made.query, LONGEST + len(query))
    for variant in made.variants:
        assert_searchable(variant.text, LONGEST + len(query))
        assert 0 < variant.weight <= 1
        assert variant.sides
    assert not made.variants or made.query is not None or any(item.text != query for item in made.variants)


def assert_searchable(text: str, limit: int) -> None:
    assert len(text) <= limit
    assert normalize(text, QueryConfig()).text


@pytest.mark.parametrize("kind", KINDS)
@given(query=QUESTIONS, history=TURNS, answer=answers())
@settings(max_examples=times(150), deadline=None)
def test_any_answer(kind: str, query: str, history: tuple[Message, ...], answer: str) -> None:
    """A transformer that asks a model gives bounded texts, or the one error that is asked about again."""
    transformer = KINDS[kind](FakeLLM(lambda _request: answer))
    try:
        made = asyncio.run(transformer.transform(query, QueryContext(history)))
    except MalformedAnswerError:
        return
    check(made, query)


@given(query=QUESTIONS, history=TURNS, words=st.integers(1, 10))
@settings(max_examples=times(300), deadline=None)
def test_any_conversation(query: str, history: tuple[Message, ...], words: int) -> None:
    """The heuristic never fails; it keeps the question whole, at the end, and searches for it alone as well."""
    made = asyncio.run(HeuristicCondenser(words=words).transform(query, QueryContext(history)))
    check(made, query)
    if made.query is None:
        assert made.variants == ()
    else:
        assert made.query.endswith(f" {query}")
        assert [variant.text for variant in made.variants] == [query]
