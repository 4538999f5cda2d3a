"""The first nodes whose texts fit into a token budget together."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from hypothesis import example, given, settings
from hypothesis import strategies as st
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.schema import ImageNode, MetadataMode, NodeWithScore
from llama_index.core.settings import Settings

from llama_index.postprocessor.retrieval_core import TokenBudgetPostprocessor
from retrieval_core.errors import InvalidParameterError
from support.examples import times
from support.llamaindex_models import both, listening, node, texts


def words(text: str) -> int:
    return len(text.split())


def shown(nodes: list[NodeWithScore]) -> str:
    """Return what LlamaIndex's synthesizers make of nodes."""
    return "\n\n".join(item.node.get_content(metadata_mode=MetadataMode.LLM) for item in nodes)


FOUND = [node("one two three", 0.9), node("four five", 0.8), node("six", None)]


@pytest.mark.parametrize(("budget", "left"), [(3, 1), (4, 1), (5, 2), (6, 3), (100, 3)])
def test_nodes_go_from_the_last_one_up(budget: int, left: int) -> None:
    """Those that stay are the same, with their scores."""
    result = both(TokenBudgetPostprocessor(budget, token_counter=words), FOUND, None)
    assert [id(item) for item in result] == [id(item) for item in FOUND[:left]]


def test_what_models_see_is_what_counts() -> None:
    """The metadata too, unless they are kept from models."""
    metadata = {"author": "Ann of the moon"}
    for excluded, left in (([], 1), (["author"], 2)):
        given = [node("one two", metadata=metadata, excluded_llm_metadata_keys=excluded), node("three")]
        assert len(both(TokenBudgetPostprocessor(7, token_counter=words), given, None)) == left


LONG = "The moon is far. The sun is hot. Salt is white."


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(3, None), (5, "The moon is far. […]"), (9, "The moon is far. The sun is hot. […]"), (12, LONG)],
)
@pytest.mark.parametrize("metadata", [{}, {"by": "Ann"}])
def test_the_first_is_cut_after_whole_sentences(budget: int, expected: str | None, metadata: dict[str, str]) -> None:
    """With its metadata, and without the embedding and the place of the whole text."""
    given = [node(LONG, 0.5, metadata=metadata, embedding=[1.0], start_char_idx=10, end_char_idx=57), node("x" * 99)]
    postprocessor = TokenBudgetPostprocessor(budget + 2 * len(metadata), token_counter=words)
    result = both(postprocessor, given[:1], None)
    assert texts(result) == ([] if expected is None else [expected])
    assert words(shown(result)) <= postprocessor.max_tokens
    if expected not in (None, LONG):
        cut: Any = result[0].node
        assert (cut.embedding, cut.start_char_idx, cut.end_char_idx) == (None, None, None)
        assert cut.metadata == metadata
        assert result[0].score == 0.5


def test_another_template_is_kept_to() -> None:
    """One that puts the metadata last: what models see is cut as a whole."""
    given = [node(LONG, metadata={"by": "Ann"}, text_template="{content}\n\n{metadata_str}")]
    (result,) = both(TokenBudgetPostprocessor(9, token_counter=words), given, None)
    assert result.node.get_content(metadata_mode=MetadataMode.LLM) == "The moon is far. The sun is hot. […]"


def test_nothing_fits_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """An empty list otherwise says that nothing was found."""
    with caplog.at_level(logging.WARNING):
        assert TokenBudgetPostprocessor(1, token_counter=words).postprocess_nodes([node("one two")]) == []
    assert caplog.messages == ["not one sentence of 1 nodes fits into 1 tokens, so none is left"]
    assert TokenBudgetPostprocessor(1).postprocess_nodes([]) == []


def test_nodes_without_a_text_cost_nothing() -> None:
    """Such as images."""
    given = [NodeWithScore(node=ImageNode(image="aGk=")), *FOUND]
    assert both(TokenBudgetPostprocessor(3, token_counter=words), given, None) == given[:2]


def test_llamaindexs_tokenizer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of the settings at that moment."""
    import llama_index.core

    assert both(TokenBudgetPostprocessor(4), FOUND, None) == FOUND[:1]
    monkeypatch.setattr(llama_index.core, "global_tokenizer", list)
    assert Settings.tokenizer("abc") == ["a", "b", "c"]
    assert both(TokenBudgetPostprocessor(13), FOUND, None) == FOUND[:1]
    assert both(TokenBudgetPostprocessor(24), FOUND, None) == FOUND[:2]


@given(
    st.lists(st.lists(st.sampled_from(["One two.", "Three!", "Four five six.", ""]), max_size=4), max_size=5),
    st.integers(1, 30),
    st.booleans(),
)
@example([["", "One two.", "One two."]], 3, False)
@settings(max_examples=times(100))
def test_the_budget_holds_and_nothing_comes_twice(rows: list[list[str]], budget: int, labelled: bool) -> None:
    """Whatever the nodes are; what is left is in its order, and the beginning of what it was."""
    metadata = {"by": "Ann"} if labelled else {}
    nodes = [node(" ".join(row), number, id_="same", metadata=metadata) for number, row in enumerate(rows)]
    result = TokenBudgetPostprocessor(budget, token_counter=words).postprocess_nodes(nodes)
    assert words(shown(result)) <= budget
    places = [int(item.get_score()) for item in result]
    assert places == sorted(set(places))
    for item, place in zip(result, places, strict=True):
        beginning = item.node.get_content().removesuffix(" […]")
        assert texts(nodes)[place].lstrip().startswith(beginning.lstrip())


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, None, "many"])
def test_what_is_no_budget_is_refused(wrong: Any) -> None:
    """At once, as is what does not count."""
    with pytest.raises(InvalidParameterError, match="max_tokens"):
        TokenBudgetPostprocessor(wrong)
    with pytest.raises(InvalidParameterError, match="token_counter"):
        TokenBudgetPostprocessor(5, token_counter="tiktoken")  # type: ignore[arg-type]


def test_a_counter_that_does_not_count_is_an_error() -> None:
    """And an event."""
    with listening() as events, pytest.raises(InvalidParameterError, match="token counter must return"):
        TokenBudgetPostprocessor(5, token_counter=lambda text: text).postprocess_nodes(FOUND)  # type: ignore[arg-type, return-value]
    assert any(isinstance(event, ExceptionEvent) for event in events)
    with pytest.raises(TypeError, match="TokenBudgetPostprocessor cannot be pickled"):
        pickle.dumps(TokenBudgetPostprocessor(5))
