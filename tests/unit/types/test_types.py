"""The values that flow: frozen all the way down, and exact in what they accept."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.errors import InvalidParameterError
from retrieval_core.testing.filter_strategies import metadata
from retrieval_core.types import (
    Chunk,
    Document,
    FrozenDict,
    Hit,
    Query,
    RetrievalResult,
    Scores,
    Section,
    Span,
    content_hash,
    freeze,
)


def test_a_frozen_dict_refuses_every_change() -> None:
    frozen = FrozenDict({"a": 1})
    changes: list[Any] = [
        lambda: frozen.__setitem__("a", 2),
        lambda: frozen.__delitem__("a"),
        lambda: frozen.update(a=2),
        lambda: frozen.pop("a"),
        frozen.popitem,
        frozen.clear,
        lambda: frozen.setdefault("b", 2),
        lambda: frozen.__ior__({"b": 2}),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="frozen"):
            change()
    assert frozen == {"a": 1}


def test_a_frozen_dict_is_a_dict_to_others() -> None:
    frozen = freeze({"a": [1, {"b": None}]})
    assert json.loads(json.dumps(frozen)) == {"a": [1, {"b": None}]}
    assert pickle.loads(pickle.dumps(frozen)) == frozen == copy.deepcopy(frozen)
    assert isinstance(pickle.loads(pickle.dumps(frozen)), FrozenDict)


@given(metadata())
def test_freezing_keeps_the_value_and_is_idempotent(value: dict[str, Any]) -> None:
    frozen = freeze(value)
    assert json.dumps(frozen) == json.dumps(value)
    assert freeze(frozen) is frozen


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_must_be_finite(value: float) -> None:
    with pytest.raises(InvalidParameterError, match="finite"):
        freeze({"a": [value]})


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", MappingProxyType[str, int]({}), {"a": {1: 2}}])
def test_what_json_cannot_express_is_refused(value: Any) -> None:
    with pytest.raises(InvalidParameterError, match="metadata"):
        freeze({"a": value})


def test_later_changes_of_the_given_metadata_do_not_reach_a_chunk() -> None:
    given_list: list[Any] = [1]
    chunk = Chunk("c", "d", "text", metadata={"list": given_list})
    given_list.append(2)
    assert chunk.metadata["list"] == (1,)
    with pytest.raises(FrozenInstanceError):
        chunk.text = "other"  # type: ignore[misc]


def test_documents_and_results_freeze_their_metadata() -> None:
    assert isinstance(Document("d", "text", "s", "h", metadata={"a": {}}).metadata, FrozenDict)
    assert isinstance(RetrievalResult("q", (), "", {"a": {}}, 1.0).metadata, FrozenDict)


@given(st.text())
def test_content_hash_is_sha256_and_computed_when_missing(text: str) -> None:
    assert len(content_hash(text)) == 64
    assert Chunk("c", "d", text).content_hash == content_hash(text)
    assert Chunk("c", "d", text, content_hash="given").content_hash == "given"


def test_content_hash_takes_lone_surrogates() -> None:
    assert content_hash("\ud800") != content_hash("\ud801")


def test_values_are_made_of_valid_unicode() -> None:
    """A lone surrogate is U+FFFD in every value that a text is kept or searched by; the halves of a pair are joined."""
    bad, good = "a\ud800b\ud83d\ude00", "a\ufffdb\U0001f600"
    metadata: Any = {bad: [bad, {"x": bad}]}
    kept: Any = {good: (good, {"x": good})}
    chunk = Chunk(bad, bad, bad, section_path=(bad,), parent_id=bad, title=bad, source=bad, metadata=metadata)
    assert chunk == Chunk(
        good, good, good, section_path=(good,), parent_id=good, title=good, source=good, metadata=kept
    )
    assert chunk.content_hash == content_hash(good)
    assert Document(bad, bad, bad, bad, bad, metadata) == Document(good, good, good, good, good, kept)
    assert Section(bad, bad, "page", (bad,), Span(0, 1)) == Section(good, good, "page", (good,), Span(0, 1))
    assert Query(bad, bad) == Query(good, good)


@pytest.mark.parametrize(
    ("title", "path", "expected"),
    [
        (None, (), "text"),
        ("T", (), "T\ntext"),
        (None, ("A", "B"), "A > B\ntext"),
        ("T", ("T", "", "B"), "T > B\ntext"),
    ],
)
def test_indexed_text_leads_with_title_and_headings(title: str | None, path: tuple[str, ...], expected: str) -> None:
    assert Chunk("c", "d", "text", title=title, section_path=path).indexed_text == expected


def test_a_result_lists_its_chunks_and_dense_scores() -> None:
    chunk = Chunk("c", "d", "text")
    result = RetrievalResult("q", (Hit(chunk, 1.0, Scores(dense=0.5)), Hit(chunk, 0.5, Scores())), "", {}, 1.0)
    assert result.documents == (chunk, chunk)
    assert result.scores == (0.5, None)
    assert result.hits[0].id == "c"
