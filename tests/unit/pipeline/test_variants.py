"""Texts of the caller's own query expansion are searched for beside the question."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval_core import open_index, open_indexes
from retrieval_core.errors import InvalidParameterError
from retrieval_core.index.index import Index
from retrieval_core.ports import Variant
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk

CHUNKS = [
    Chunk("moon", "moon.md", "The moon is 384,400 km away."),
    Chunk("sun", "sun.md", "The sun is eight light minutes away."),
    Chunk("cheese", "cheese.md", "Cheese is made of milk and rennet."),
]


@pytest.fixture
def index(tmp_path: Any) -> Any:
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
        index.add(CHUNKS)
        yield index


def test_what_a_variant_finds_is_among_the_hits_and_says_so(index: Index) -> None:
    variant = Variant("passage", CHUNKS[2].text, sides=frozenset({"dense"}), is_passage=True)
    result = index.retrieve("lunar distance", top_k=3, mode="dense", variants=[variant])
    hit = next(hit for hit in result.hits if hit.id == "cheese")
    assert [(origin.kind, origin.text) for origin in hit.found_by] == [("passage", CHUNKS[2].text)]
    assert result.hits[0].id == "cheese"  # its own text is as near as can be
    assert index.retrieve("lunar distance", top_k=3, mode="dense").hits[0].found_by == ()


def test_results_with_other_variants_are_other_results(index: Index) -> None:
    def ask(text: str) -> Any:
        return index.retrieve("lunar distance", top_k=1, variants=[Variant("keywords", text)])

    first = ask("cheese milk rennet")
    assert not first.from_cache
    assert ask("cheese milk rennet").from_cache
    assert not ask("sun light minutes").from_cache
    assert not index.retrieve("lunar distance", top_k=1).from_cache


@pytest.mark.parametrize("variants", ["text", ["text"], [Variant("x", " ")], [Variant("x", "y")] * 17, 3])
def test_what_is_no_list_of_variants_is_refused(index: Index, variants: Any) -> None:
    with pytest.raises(InvalidParameterError, match="variants must be"):
        index.retrieve("lunar distance", variants=variants)


def test_several_indexes_search_for_them_too(tmp_path: Any) -> None:
    for name, chunks in (("sky", CHUNKS[:2]), ("kitchen", CHUNKS[2:])):
        with open_index(tmp_path / f"{name}.db", embedder=FakeEmbedder()) as index:
            index.add(chunks)
    paths = {name: tmp_path / f"{name}.db" for name in ("sky", "kitchen")}
    with open_indexes(paths, embedder=FakeEmbedder()) as indexes:
        result = indexes.retrieve("lunar distance", variants=[Variant("keywords", "cheese milk rennet")])
        found = {hit.id: hit.found_by for hit in result.hits}
        assert [origin.kind for origin in found["cheese"]] == ["keywords"]
        with pytest.raises(InvalidParameterError, match="variants must be"):
            indexes.retrieve("lunar distance", variants="cheese")  # type: ignore[arg-type]


def test_a_kind_decides_which_searches_use_a_text(index: Index) -> None:
    texts = [{"kind": "keywords", "text": "rennet"}, {"kind": "text", "text": "light minutes"}]
    result = index.retrieve("lunar distance", variants=[*texts, {"kind": "passage", "text": CHUNKS[2].text}])
    kinds = {hit.id: {origin.kind for origin in hit.found_by} for hit in result.hits}
    assert kinds["cheese"] == {"keywords", "text", "passage"}
    assert kinds["sun"] == {"text", "passage"}
    by_keyword = index.retrieve("lunar distance", mode="lexical", variants=texts)
    assert {hit.id for hit in by_keyword.hits} == {"cheese", "sun"}


@pytest.mark.parametrize("variant", [{"kind": "other", "text": "x"}, {"kind": "text"}, {"kind": "text", "text": " "}])
def test_an_unknown_kind_is_refused(index: Index, variant: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"text, keywords, passage"):
        index.retrieve("lunar distance", variants=[variant])


def test_an_intent_reaches_vector_search_only(index: Index) -> None:
    assert (
        index.retrieve("moon", mode="lexical", intent="cheese milk rennet").hits
        == index.retrieve("moon", mode="lexical").hits
    )
    plain = index.retrieve("moon", mode="dense", top_k=3)
    with_intent = index.retrieve("moon", mode="dense", top_k=3, intent="cheese is made of milk and rennet")
    assert [hit.id for hit in plain.hits].index("cheese") >= [hit.id for hit in with_intent.hits].index("cheese")
    assert any(origin.kind == "intent" for hit in with_intent.hits for origin in hit.found_by)
    assert not index.retrieve("moon", intent="milk").from_cache
    with pytest.raises(InvalidParameterError, match="intent must be text"):
        index.retrieve("moon", intent="x" * 1001)
