"""The vector store's filters are LlamaIndex's own, operator by operator, however they nest."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from hypothesis import example, given, settings
from hypothesis import strategies as st
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from llama_index.core.vector_stores.utils import build_metadata_filter_fn, node_to_metadata_dict

from llama_index.vector_stores.retrieval_core import RetrievalCoreVectorStore
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import FilterError, UnsupportedFilterError
from retrieval_core.types.filters import MAX_FILTER_DEPTH, Eq
from support.examples import times
from support.llamaindex_library import Library

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

O = FilterOperator  # noqa: E741
LISTS = (O.IN, O.NIN, O.ANY, O.ALL)
TEXTS = (O.TEXT_MATCH, O.TEXT_MATCH_INSENSITIVE)
HOLDS = (O.CONTAINS, O.ANY, O.ALL)
# Names of a passage's own fields, a path, and those under which LlamaIndex has the document, beside two plain ones.
KEYS = ["a", "b", "b.c", "title", "source", "id", "page", "document_id", "doc_id", "ref_doc_id", "file_name"]
WORDS = st.sampled_from(["", "a", "A", "b", "ab", "aB", "ß", "SS", "İ", "Σς", "1", "doc", "None", "'; --", "%", "*"])
NUMBERS = st.sampled_from([0, 1, 2, -1, 0.0, 1.0, 1.5, -0.0, 10**20])
SCALARS = WORDS | NUMBERS | st.booleans()
VALUES = st.one_of(
    SCALARS,
    st.none(),
    st.lists(SCALARS | st.none(), max_size=3),
    st.dictionaries(st.sampled_from(["a", "c"]), SCALARS, max_size=2),
)
METADATA = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5)


def leaf(operator: FilterOperator) -> st.SearchStrategy[MetadataFilter]:
    integers, floats = st.sampled_from([0, 1, 2]), st.sampled_from([0.0, 1.0, 1.5])
    values: st.SearchStrategy[Any] = WORDS | NUMBERS
    if operator in LISTS:
        values = st.one_of(*(st.lists(kind, max_size=3) for kind in (WORDS, integers, floats)))
    elif operator in {O.EQ, O.NE}:
        values = values | st.lists(WORDS, max_size=2) | st.lists(integers, max_size=2)
    elif operator in TEXTS:
        values = WORDS
    elif operator is O.IS_EMPTY:
        values = st.none()
    return st.builds(MetadataFilter, key=st.sampled_from(KEYS), value=values, operator=st.just(operator))


LEAVES = st.one_of(*(leaf(operator) for operator in O))
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        MetadataFilters,
        filters=st.lists(inner, min_size=1, max_size=3),
        condition=st.sampled_from([*FilterCondition, None]),
    ),
    max_leaves=6,
).map(lambda item: item if isinstance(item, MetadataFilters) else MetadataFilters(filters=[item]))


def expected(filters: MetadataFilters, metadata: Mapping[str, Any]) -> bool:
    """Hold each condition against LlamaIndex's own function, which does not nest by itself."""
    parts = [
        expected(item, metadata) if isinstance(item, MetadataFilters) else expected_of_one(item, metadata)
        for item in filters.filters
    ]
    if filters.condition is FilterCondition.NOT:
        return not any(parts)
    return any(parts) if filters.condition is FilterCondition.OR else all(parts)


def expected_of_one(item: MetadataFilter, metadata: Mapping[str, Any]) -> bool:
    if item.operator in HOLDS and item.value != [] and isinstance(metadata.get(item.key), dict):
        return False  # documented: the keys of an object are not looked for
    try:
        return build_metadata_filter_fn(lambda _: metadata, MetadataFilters(filters=[item]))("")
    except TypeError:
        return False  # documented: what cannot be compared does not match


def node(name: str, metadata: dict[str, Any], document: str | None = "doc") -> TextNode:
    source = {} if document is None else {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}
    return TextNode(id_=name, text=f"text {name}", metadata=metadata, relationships=source, embedding=[1.0, 0.0])


def found(nodes: Sequence[TextNode], filters: Any, **arguments: Any) -> set[str]:
    async def ask() -> set[str]:
        store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=2))
        await store.async_add(nodes)
        query = VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=len(nodes), filters=filters, **arguments)
        names = (await store.aquery(query)).ids or []
        got = {item.node_id for item in await store.aget_nodes(filters=filters)}
        assert got == set(names)
        return got

    return asyncio.run(ask())


@given(st.lists(st.tuples(METADATA, st.sampled_from(["doc", "a", None])), min_size=1, max_size=6), FILTERS)
@settings(max_examples=times(300))
@example([({"a": True}, "doc"), ({"a": 1}, "doc")], MetadataFilters(filters=[MetadataFilter(key="a", value=1)]))
def test_filters_mean_what_they_mean_to_llamaindex(
    drawn: list[tuple[dict[str, Any], str | None]], filters: MetadataFilters
) -> None:
    """Each operator, on any metadata, in any nesting of AND, OR and NOT, in ``query`` and ``get_nodes``."""
    nodes = [node(str(number), metadata, document) for number, (metadata, document) in enumerate(drawn)]
    wanted = {item.node_id for item in nodes if expected(filters, node_to_metadata_dict(item))}
    assert found(nodes, filters) == wanted


@pytest.mark.parametrize("operator", O)
@given(data=st.data())
@settings(max_examples=times(40))
def test_each_operator_and_its_negation(operator: FilterOperator, data: st.DataObject) -> None:
    """None is refused: 14 of 14."""
    item = data.draw(leaf(operator))
    nodes = [
        node(str(number), {item.key: value}) for number, value in enumerate(data.draw(st.lists(VALUES, max_size=5)))
    ]
    for condition in (FilterCondition.AND, FilterCondition.NOT):
        filters = MetadataFilters(filters=[item], condition=condition)
        wanted = {item.node_id for item in nodes if expected(filters, node_to_metadata_dict(item))}
        assert not nodes or found(nodes, filters) == wanted


def test_text_that_is_found_in_lower_case_is_found_in_folded_case() -> None:
    """The store ignores case by folding and LlamaIndex by lowering; what the store lets through must be no less."""
    letters = [chr(number) for number in range(sys.maxunicode + 1) if not 0xD800 <= number < 0xE000]
    assert all(letter.lower().casefold() == letter.casefold() for letter in letters)
    assert all(f"a{letter}b".casefold() == "a" + letter.casefold() + "b" for letter in letters)


@pytest.mark.parametrize("mode", ["default", "mmr", "hybrid", "text_search", "sparse"])
def test_filters_apply_before_the_limit_in_every_mode(mode: str) -> None:
    """Even one node of many that the store cannot tell apart itself."""
    nodes = [node(str(number), {"a": "X" if number == 77 else "x"}) for number in range(100)]
    filters = MetadataFilters(filters=[MetadataFilter(key="a", value="X", operator=O.TEXT_MATCH)])
    store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=2), candidates=2)
    store.add(nodes)
    query = VectorStoreQuery(
        query_embedding=[1.0, 0.0],
        query_str="text",
        similarity_top_k=1,
        filters=filters,
        mode=VectorStoreQueryMode(mode),
    )
    assert store.query(query).ids == ["77"]
    store.close()


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        (O.EQ, None),
        (O.GT, None),
        (O.GT, ["a"]),
        (O.CONTAINS, ["a"]),
        (O.IN, "abc"),
        (O.NIN, 1),
        (O.ANY, "abc"),
        (O.ALL, None),
        (O.TEXT_MATCH, 1),
        (O.TEXT_MATCH_INSENSITIVE, 1.5),
        (O.GT, float("nan")),
    ],
)
def test_values_that_an_operator_does_not_take_are_refused(operator: FilterOperator, value: Any) -> None:
    """By the names of the field and the operator; LlamaIndex raises a TypeError at the first node, or finds nothing."""
    with pytest.raises(FilterError, match=r"f|number"):
        found([node("1", {"f": 2})], MetadataFilters(filters=[MetadataFilter(key="f", value=value, operator=operator)]))


def test_groups_that_are_empty_or_too_deep_are_refused() -> None:
    """An empty group at the top filters nothing, as in LlamaIndex."""
    nodes = [node("1", {})]
    assert found(nodes, MetadataFilters(filters=[])) == {"1"}
    with pytest.raises(UnsupportedFilterError, match="empty"):
        found(nodes, MetadataFilters(filters=[MetadataFilters(filters=[])]))
    deep = MetadataFilters(filters=[MetadataFilter(key="a", value=1)])
    for _ in range(MAX_FILTER_DEPTH + 1):
        deep = MetadataFilters(filters=[deep])
    with pytest.raises(FilterError, match="nest"):
        found(nodes, deep)


def test_filters_of_retrieval_core_are_taken_too() -> None:
    """They keep their own meaning, which finds items of lists."""
    nodes = [node("1", {"tags": ["x"]}), node("2", {"tags": "x"}), node("3", {})]
    assert found(nodes, {"tags": "x"}) == found(nodes, Eq("tags", "x")) == {"1", "2"}
    assert found(nodes, MetadataFilters(filters=[MetadataFilter(key="tags", value="x")])) == {"2"}


def test_passages_of_an_index_have_the_fields_that_filters_of_retrieval_core_find() -> None:
    """Also their document, by any of LlamaIndex's names for it."""
    with Library() as library:
        store = RetrievalCoreVectorStore(library.store)
        for key, value, names in (
            ("title", "Sun", {"sun.md#0", "sun.md#1"}),
            ("ref_doc_id", "sun.md", {"sun.md#0", "sun.md#1"}),
            ("year", 1970, {"moon.md#1"}),
        ):
            filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value)])
            assert {item.node_id for item in store.get_nodes(filters=filters)} == names
        store.close()
