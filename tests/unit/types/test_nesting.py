"""Filters and metadata that nest too deeply, and filters whose keys are no text: a typed error each."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core import Chunk, open_index
from retrieval_core.errors import FilterError, InvalidParameterError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Document
from retrieval_core.types.documents import MAX_METADATA_DEPTH
from retrieval_core.types.filters import MAX_FILTER_DEPTH, And, Eq, Exists, Filter, In, Not, Or, Text
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from pathlib import Path


def deep(levels: int, *, lists: bool = False) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if lists else {"a": value}
    return value


def negated(times: int) -> Filter:
    condition: Filter = Eq("brand", "Acme")
    for _ in range(times):
        condition = Not(condition)
    return condition


@pytest.mark.parametrize("key", [1, None, b"brand", ("brand",), 1.5, True])
@pytest.mark.parametrize("where", ["field", "operator", "nested"])
def test_keys_that_are_no_text(key: Any, where: str) -> None:
    """As names of fields and as operators."""
    filters = {"field": {key: 1}, "operator": {"price": {key: 1}}, "nested": {"$and": [{"$not": {key: 1}}]}}
    with pytest.raises(FilterError):
        parse_filter(filters[where])
    with pytest.raises(FilterError, match="takes the name of a field"):
        Eq(key, "x")


@pytest.mark.parametrize(("kind", "given"), [(And, "ab"), (Or, 5), (Not, "x"), (And, ({"a": 1},))])
def test_what_joins_filters_takes_filters(kind: Any, given: Any) -> None:
    """And says what it got."""
    with pytest.raises(FilterError, match="got"):
        kind(given)


@pytest.mark.parametrize("kind", [In, Text, Exists])
def test_every_condition_checks_its_field(kind: Any) -> None:
    """Whatever it does with its value."""
    with pytest.raises(FilterError, match="name of a field"):
        kind(5, True if kind is Exists else "x")


@pytest.mark.parametrize("levels", [MAX_FILTER_DEPTH + 1, 900, 100_000])
def test_filters_that_nest_too_deeply_from_python(levels: int) -> None:
    """They cannot be made, so nothing that reads them need be afraid."""
    with pytest.raises(FilterError, match="nest at most"):
        negated(levels)
    source: Any = {"brand": "Acme"}
    for _ in range(levels):
        source = {"$not": source}
    with pytest.raises(FilterError, match="nest at most"):
        parse_filter(source)


@pytest.mark.parametrize("lists", [True, False])
def test_values_that_nest_too_deeply(lists: bool) -> None:
    """A message about them does not fail of it."""
    with pytest.raises(FilterError):
        parse_filter({"brand": deep(100_000, lists=lists)})
    with pytest.raises(FilterError):
        Eq("brand", deep(100_000, lists=lists))


@pytest.mark.parametrize("kind", ["sqlite", "memory", "lancedb"])
def test_the_deepest_filters_are_read_by_every_store(kind: str, tmp_path: Path) -> None:
    """Negations, and conjunctions and disjunctions in turn; their JSON form is in the result."""
    from retrieval_core import load_config

    if kind == "lancedb":
        pytest.importorskip("lancedb", reason="the extra 'lancedb' is not installed")
    turns: Filter = Eq("brand", "Acme")
    for number in range(MAX_FILTER_DEPTH):
        turns = (And if number % 2 else Or)((turns, Eq("price", 1)))
    config = load_config(overrides={"store.kind": kind})
    with open_index(tmp_path / "i.db", config=config, embedder=FakeEmbedder()) as index:
        index.add(
            [
                Chunk(
                    "a", "a", "A sturdy phone", metadata={"brand": "Acme", "price": 1, "deep": deep(MAX_METADATA_DEPTH)}
                )
            ]
        )
        for condition in (negated(MAX_FILTER_DEPTH), turns):
            (hit,) = index.retrieve("sturdy phone", condition).hits
            assert hit.chunk.metadata["deep"] == deep(MAX_METADATA_DEPTH)


@pytest.mark.parametrize("levels", [MAX_METADATA_DEPTH + 1, 900, 100_000])
@pytest.mark.parametrize("lists", [True, False])
def test_metadata_that_nests_too_deeply(levels: int, lists: bool) -> None:
    """Of chunks and of documents."""
    metadata = {"a": deep(levels, lists=lists)}
    with pytest.raises(InvalidParameterError, match="nest at most"):
        Chunk("a", "a", "text", metadata=metadata)
    with pytest.raises(InvalidParameterError, match="nest at most"):
        Document("a", "text", source="a", content_hash="", metadata=metadata)


def test_metadata_that_grows_deeper_each_time() -> None:
    """What was frozen before counts too."""
    chunk = Chunk("a", "a", "text")
    for _ in range(MAX_METADATA_DEPTH):
        chunk = Chunk("a", "a", "text", metadata={"inner": chunk.metadata})
    with pytest.raises(InvalidParameterError, match="nest at most"):
        Chunk("a", "a", "text", metadata={"inner": chunk.metadata})


@pytest.mark.parametrize("levels", [MAX_METADATA_DEPTH + 1, 300, 100_000])
def test_rows_that_nest_too_deeply(levels: int, tmp_path: Path) -> None:
    """The file is told by name and reason, and stops nothing else."""
    (tmp_path / "deep.jsonl").write_text(
        '{"text": "A phone", "more": ' + '{"a": ' * levels + "1" + "}" * levels + "}\n"
    )
    (tmp_path / "fine.jsonl").write_text(json.dumps({"text": "A lamp", "more": deep(5)}) + "\n")
    with open_index(tmp_path / "i.db", embedder=FakeEmbedder()) as index:
        report = index.ingest([tmp_path / "deep.jsonl", tmp_path / "fine.jsonl"])
    (failed,) = report.failed
    assert failed.path.endswith("deep.jsonl")
    assert "nest" in failed.error
    assert report.added == 1


@pytest.mark.parametrize("metadata", [[1], [], "x", "", 5, True, None, ("a",)])
@pytest.mark.parametrize("kind", [partial(Chunk, "c", "d", "a word"), partial(Document, "d", "a word", "d", "")])
def test_metadata_is_a_mapping(kind: Any, metadata: Any) -> None:
    """One chunk with something else would take every search that finds it along."""
    with pytest.raises(InvalidParameterError, match="mapping of names to values"):
        kind(metadata=metadata)


def test_whole_numbers_without_end() -> None:
    """They cannot be compared with other numbers, nor written as JSON."""
    assert Chunk("c", "d", "a word", metadata={"a": 10**300}).metadata["a"] == 10**300
    with pytest.raises(InvalidParameterError, match="numbers must be below"):
        Chunk("c", "d", "a word", metadata={"a": [10**5000]})
    for source in ({"a": 10**5000}, {"a": {"$in": [1, -(10**309)]}}):
        with pytest.raises(FilterError, match="whole numbers below"):
            parse_filter(source)


@pytest.mark.parametrize("name", ["span", "page_span"])
def test_places_of_a_chunk_have_their_types(name: str) -> None:
    """A pair of numbers would fail only where it is cited."""
    with pytest.raises(InvalidParameterError, match=f"^{name} of the chunk 'c'"):
        cast("Any", Chunk)("c", "d", "a word", **{name: (3, 4)})
