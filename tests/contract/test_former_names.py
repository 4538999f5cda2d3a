"""Names that protocols of former versions had still work, and say what to use instead."""

from __future__ import annotations

import pytest

from retrieval_core import ports
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore

OF_PORTS = {
    "CountsTokens": (ports.Embedder, "count_tokens"),
    "EmbedsQueries": (ports.Embedder, "embed_queries"),
    "Preloading": (ports.Embedder, "preload"),
    "Reopening": (ports.Embedder, "reopen"),
    "Repairing": (ports.Reranker, "repair"),
}
OF_STORES = {
    "AddsVectors": "add_vectors",
    "Catalog": "sources",
    "CountsChunks": "count_chunks",
    "CountsTerms": "count_terms",
    "DescribesCollection": "describe_collection",
    "FieldCatalogue": "fields",
    "ListsDocuments": "document_ids",
    "Optimizes": "optimize",
    "SamplesFields": "sample_fields",
    "SearchesBoth": "search_both",
    "SelfChecking": "find_damage",
    "SelfRepairing": "repair",
}


@pytest.mark.parametrize("name", OF_PORTS)
def test_an_optional_protocol_of_a_plugin_is_its_base_class(name: str) -> None:
    """The warning names the method."""
    port, method = OF_PORTS[name]
    with pytest.warns(DeprecationWarning, match=f'{name} is part of {port.__name__} now; .* test "{method}" in'):
        assert getattr(ports, name) is port


@pytest.mark.parametrize("name", OF_STORES)
def test_an_optional_protocol_of_a_store_tells_who_has_it(name: str) -> None:
    """With ``isinstance()``, as before."""
    ability = OF_STORES[name]
    with pytest.warns(DeprecationWarning, match=f"{name} is no protocol any more; ask whether '{ability}' is in"):
        former = getattr(ports, name)
    for store in (MemoryStore(), SqliteStore("index.db")):
        assert isinstance(store, former) == (ability in store.capabilities)


def test_a_store_with_a_catalog_is_a_store() -> None:
    """Each store may have one."""
    with pytest.warns(DeprecationWarning, match="CataloguedStore is retrieval_core.ports.Store now"):
        assert ports.CataloguedStore is ports.Store


def test_other_names_are_unknown() -> None:
    """As in any module."""
    with pytest.raises(AttributeError, match=r"module 'retrieval_core\.ports' has no attribute 'Nothing'"):
        _ = ports.Nothing  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
