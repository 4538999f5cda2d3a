"""The query syntax: conditions hold for each result, and all that only looks like syntax is text."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core import open_index, open_indexes
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Capability
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from retrieval_core.types.filters import Eq
from support.pipelines import a_pipeline, filled

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.types import RetrievalResult

WORDS = ("red", "green", "blue", "phone", "camera", "battery")
FOLDERS = ("docs/guide.md", "docs/api/ref.md", "src/main.py")
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
phrases = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(" ".join)
signs = st.lists(st.sampled_from(('"', "-", ":", " ", "a b", "-word", "path:", "brand:Acme", "?", "\u201c", "x")))


def a_store(texts: list[str]) -> MemoryStore:
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    brands = ("Acme", "Zenith", 5, True)
    filled(
        store,
        [
            Chunk(f"c{at}", "d", text, at, source=FOLDERS[at % 3], metadata={"brand": brands[at % 4]})
            for at, text in enumerate(texts)
        ],
    )
    return store


def told(result: RetrievalResult) -> dict[str, Any]:
    found: Any = result.metadata.get("query_syntax") or {}
    return found


def ids(result: RetrievalResult) -> set[str]:
    return {hit.id for hit in result.hits}


@given(texts=st.lists(words, min_size=1, max_size=8), query=(st.text(min_size=1) | signs.map("".join)))
def test_queries_without_syntax_have_the_result_that_they_have_with_the_syntax_off(
    texts: list[str], query: str
) -> None:
    if not query.strip():
        return
    pipeline = a_pipeline(a_store(texts))
    on, off = (asyncio.run(pipeline.aretrieve(query, syntax=syntax, use_cache=False)) for syntax in (True, False))
    if not told(on):
        assert on.hits == off.hits
        assert on.metadata == off.metadata


@given(
    texts=st.lists(words, min_size=1, max_size=12),
    text=words,
    required=st.lists(phrases, max_size=2),
    excluded=st.lists(phrases, max_size=2),
    path=st.sampled_from([None, "docs/*", "*.py", "api", "ref.md"]),
    brand=st.sampled_from([None, "acme", "5", "true", "Z*"]),
    mode=st.sampled_from(["hybrid", "dense", "lexical"]),
)
def test_each_result_has_what_is_required_and_nothing_that_is_excluded(  # noqa: PLR0917 - Hypothesis gives names
    texts: list[str],
    text: str,
    required: list[str],
    excluded: list[str],
    path: str | None,
    brand: str | None,
    mode: Any,
) -> None:
    parts = [text, *[f'"{phrase}"' for phrase in required]]
    parts += [f"path:{path}"] * (path is not None) + [f"brand:{brand}"] * (brand is not None)
    parts += [f'-"{phrase}"' for phrase in excluded]
    result = asyncio.run(a_pipeline(a_store(texts), search__top_k=50).aretrieve(" ".join(parts), mode=mode))
    has_brand = brand is not None and f"brand:{brand}" in told(result)["conditions"]
    found_in = {"docs/*": FOLDERS[:2], "*.py": FOLDERS[2:], "api": FOLDERS[1:2], "ref.md": FOLDERS[1:2], None: FOLDERS}

    def passes(hit_text: str, at: int) -> bool:
        whole = f" {hit_text} "
        is_of_brand = (
            not has_brand or {"acme": at % 4 == 0, "5": at % 4 == 2, "true": at % 4 == 3, "Z*": at % 4 == 1}[str(brand)]
        )
        is_there = FOLDERS[at % 3] in found_in[path]
        return is_of_brand and is_there and not any(f" {each} " in whole for each in excluded)

    allowed = {f"c{at}" for at, each in enumerate(texts) if passes(each, at)}
    having = {name for name in allowed if all(f" {each} " in f" {texts[int(name[1:])]} " for each in required)}
    assert ids(result) <= having
    if told(result).get("not_found"):
        assert not having
    if mode != "lexical":
        assert ids(result) == having
        assert bool(told(result).get("not_found")) is bool(required and not having)
    assert result.degraded == ()


def test_phrases_are_whole_words_in_any_case_over_line_breaks() -> None:
    texts = ["The Portal\n uses", "the  PORT uses a", "a support desk", "\u6771\u4eac\u90fd\u5e81"]
    pipeline = a_pipeline(a_store(texts))
    assert ids(asyncio.run(pipeline.aretrieve('"port"'))) == {"c1"}
    assert ids(asyncio.run(pipeline.aretrieve('"portal uses"'))) == {"c0"}
    assert ids(asyncio.run(pipeline.aretrieve('"\u4eac\u90fd"'))) == {"c3"}


def test_a_phrase_that_nothing_has_leaves_no_results_unless_a_sentence_quotes_it() -> None:
    pipeline = a_pipeline(a_store(["a support desk", "the portal", "a desk at the portal"]))
    result = pipeline.retrieve('desk "no such phrase" -portal')
    assert (ids(result), told(result)["required"], told(result)["not_found"]) == (
        set(),
        ("no such phrase",),
        ("no such phrase",),
    )
    assert told(result)["summary"] == (
        'excluded: portal \u00b7 not found: "no such phrase" (to match the words, search without quotes)'
    )
    sentence = 'since the update our support desk often logs "no such phrase" in the morning'
    result = pipeline.retrieve(sentence)
    assert ids(result) == {"c0", "c1", "c2"}
    assert told(result)["summary"] == 'not found: "no such phrase" (results match the words)'
    assert told(result)["required"] == ()
    assert ids(pipeline.retrieve(sentence.replace("no such phrase", "the portal"))) == {"c1", "c2"}


def test_a_store_that_cannot_look_up_fields_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = a_pipeline(a_store(["red phone", "green phone"]))
    monkeypatch.setattr(MemoryStore, "capabilities", frozenset[Capability]())
    result = pipeline.retrieve("phone brand:Acme path:docs/*")
    assert told(result)["summary"] == (
        "path: docs/* \u00b7 text, as this store can't look up fields (pass a filter): brand:Acme"
    )
    assert ids(result) == {"c0", "c1"}
    assert told(pipeline.retrieve("phone")) == {}


def test_a_field_is_syntax_only_if_the_caller_can_see_it_and_the_value_can_be_one() -> None:
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    one = Chunk("a", "d", "red phone", 0, metadata={"tenant": "one", "price": 5})
    other = Chunk("b", "e", "red phone", 0, metadata={"tenant": "two", "secret": "x"})
    filled(store, [one, other])
    with RetrievalPipeline(store, embedder) as pipeline:
        mine = Eq("tenant", "one")
        assert told(pipeline.retrieve("phone secret:x"))["conditions"] == ("secret:x",)
        assert told(pipeline.retrieve("phone secret:x", mine)) == {}
        assert told(pipeline.retrieve("phone price:cheap")) == {}
        assert told(pipeline.retrieve("phone price:5.0"))["conditions"] == ("price:5.0",)
        nothing = pipeline.retrieve("phone price:6")
        assert nothing.hits == ()
        assert told(nothing)["summary"] == "field: price:6"


def test_several_indexes_read_the_syntax_once_for_all(tmp_path: Path) -> None:
    texts = {"sky": ["The moon is far away.", "The sun is far away."], "kitchen": ["Cheese is made far away."]}
    for name, each in texts.items():
        with open_index(tmp_path / f"{name}.db", embedder=FakeEmbedder()) as index:
            index.add([Chunk(f"{name}{at}", name, text, at, source=f"{name}/{at}.md") for at, text in enumerate(each)])
    with open_indexes({name: tmp_path / f"{name}.db" for name in texts}, embedder=FakeEmbedder()) as both:
        result = both.retrieve('far "moon is"')
        assert [re.sub(r".*:", "", hit.id) for hit in result.hits] == ["sky0"]
        assert told(result)["required"] == ("moon is",)
        assert len(both.retrieve("far away path:kitchen/*").hits) == 1
        assert len(both.retrieve("far away -moon").hits) == 2
        missing = both.retrieve('far "stars are"')
        assert missing.hits == ()
        assert told(missing)["not_found"] == ("stars are",)


def test_results_with_and_without_the_syntax_are_cached_apart(tmp_path: Path) -> None:
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
        index.add([Chunk("a", "d", "red phone"), Chunk("b", "e", "phone red")])
        assert ids(index.retrieve('"red phone"')) == {"a"}
        assert ids(index.retrieve('"red phone"', syntax=False)) == {"a", "b"}
        again = index.retrieve('"red phone"')
        assert again.from_cache
        assert ids(again) == {"a"}
