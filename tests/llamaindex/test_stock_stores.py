"""``from_index`` gives what LlamaIndex's own retriever gives, over each store of docs/dev/llamaindex-stores.md.

The table has a cell for each store, each way to keep a docstore, and each thing that has to be the same.
``python tests/llamaindex/test_stock_stores.py`` runs it and prints the page with what it found; with ``--page``, as it
has to be.
"""

# LlamaIndex's own types are unknown in parts, and this file calls all of it.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core import Document, StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.schema import MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from llama_index.retrievers.retrieval_core.adapters import from_index
from support.stock_stores import FAQ, KINDS, LANCEDB, MOON, PINECONE, Hashed, Kind, documents, name_of, nodes, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from llama_index.core.schema import BaseNode, NodeWithScore
    from llama_index.core.vector_stores.types import BasePydanticVectorStore

    Check = Callable[["Setup"], None]

pytestmark = pytest.mark.filterwarnings("ignore")  # of the vendors' clients

Way = Literal["no docstore", "docstore of the index", "docstore of yours"]
WAYS: dict[Way, str] = {
    "no docstore": "LlamaIndex's default: the vector store keeps the texts, and nothing else has them.",
    "docstore of the index": "`store_nodes_override=True`; `SimpleVectorStore` has it by default.",
    "docstore of yours": "You fill a docstore and pass it to `from_index(index, docstore=…)`.",
}
QUERIES = ("how far away is the moon", "when do I get a refund for a lamp", "Größe der 月 und 🚀", "XQ-77")
ALL = 60
O = FilterOperator  # noqa: E741


class Setup:
    """An index of LlamaIndex over a store, with and without our retriever.

    Attributes:
        kind: Of the vector store.
        way: How a docstore is kept.
        nodes: Those that were written at first.
    """

    def __init__(self, kind: Kind, way: Way, folder: Path, metric: str | None = None) -> None:
        self.kind = kind
        self.way: Way = way
        self.folder = folder
        self.nodes = nodes(kind.limits)
        self.given = SimpleDocumentStore() if way == "docstore of yours" else None
        self._closing = ExitStack()
        self.store: BasePydanticVectorStore = self._closing.enter_context(
            kind.opened(folder, metric or kind.metrics[0])
        )
        self.index = VectorStoreIndex(
            [],
            storage_context=StorageContext.from_defaults(vector_store=self.store),
            embed_model=Hashed(),
            store_nodes_override=way == "docstore of the index",
            transformations=[Splitter(kind)],
        )
        self.insert(self.nodes)
        if self.given is not None:
            top = TextNode(id_=name_of("parent", kind.limits), text="A parent about Tycho that was not embedded.")
            top.relationships[NodeRelationship.CHILD] = [RelatedNodeInfo(node_id=name_of("child", kind.limits))]
            self.given.add_documents([top, Document(id_=MOON, text="A whole document that was not embedded.")])
        self.pipeline = from_index(self.index, docstore=self.given)

    def close(self) -> None:
        self.pipeline.close()
        self._closing.close()

    @property
    def has_words(self) -> bool:
        return self.way != "no docstore"

    def insert(self, given: Sequence[BaseNode]) -> None:
        """Write nodes with LlamaIndex's method, and into the docstore that the user keeps."""
        if self.given is not None:
            self.given.add_documents(given)
        copies = [node.model_copy(deep=True) for node in given]
        self.write(lambda: self.index.insert_nodes(copies), lambda: self.index.ainsert_nodes(copies))

    def delete(self, document: str, **options: Any) -> None:
        """Delete a document with LlamaIndex's method, and from the docstore that the user keeps."""
        if self.kind is LANCEDB:  # LlamaIndex's statement for it is one that LanceDB refuses
            cast("Any", self.store).table.delete(f"doc_id = '{document}'")
        else:
            self.write(
                lambda: self.index.delete_ref_doc(document, **options),
                lambda: self.index.adelete_ref_doc(document, **options),
            )

    def delete_nodes(self, given: Sequence[BaseNode]) -> None:
        """Delete nodes with LlamaIndex's method, by the ids that the store has, and from each docstore."""
        ids = [node.node_id for node in given]
        if self.kind is LANCEDB:
            listed = ", ".join(f"'{name}'" for name in ids)
            cast("Any", self.store).table.delete(f"id in ({listed})")
        else:
            is_prefixed = self.kind is PINECONE
            names = [
                f"{node.ref_doc_id}#{node.node_id}" if is_prefixed and node.ref_doc_id else node.node_id
                for node in given
            ]
            self.write(
                lambda: self.index.delete_nodes(names, delete_from_docstore=True),
                lambda: self.index.adelete_nodes(names, delete_from_docstore=True),
            )
        for docstore in (self.given, self.index.docstore):
            for name in ids if docstore is not None else ():
                cast("SimpleDocumentStore", docstore).delete_document(name, raise_error=False)

    def write(self, write: Callable[[], object], awrite: Callable[[], Any]) -> None:
        if self.kind.is_async_only:
            asyncio.run(awrite())
        else:
            write()

    def retriever(self, mode: str = "dense", top_k: int = ALL, **options: Any) -> RetrievalCoreRetriever:
        return RetrievalCoreRetriever(self.pipeline, top_k=top_k, mode=cast("Any", mode), **options)

    def ours(self, query: str, mode: str = "dense", top_k: int = ALL, **options: Any) -> list[NodeWithScore]:
        """Ask ours, which says if it did less than it should."""
        found = self.retriever(mode, top_k, **options).retrieve(query)
        assert [degraded(item) for item in found] == [[]] * len(found)
        return found

    def stock(self, query: str, top_k: int = ALL, **options: Any) -> list[NodeWithScore]:
        """Ask LlamaIndex's; that of ``as_retriever`` looks among images and references only."""
        retriever = VectorIndexRetriever(self.index, similarity_top_k=top_k, **options)
        return asyncio.run(retriever.aretrieve(query)) if self.kind.is_async_only else retriever.retrieve(query)


class Splitter:
    """Splits documents with ids that the store takes, as a transformation of LlamaIndex."""

    def __new__(cls, kind: Kind) -> Any:
        from llama_index.core.schema import TransformComponent

        class Splits(TransformComponent):
            def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> Sequence[BaseNode]:
                return split(cast("Any", nodes), kind.limits)

        return Splits()


@dataclass(frozen=True)
class Cell:
    """One thing that has to be the same.

    Attributes:
        name: As the page shows it.
        check: Shows it, given a setup.
        writes: Whether it changes the setup.
        applies: For which setups there is such a thing.
    """

    name: str
    check: Check
    writes: bool
    applies: Callable[[Kind, Way], bool]


CELLS: list[Cell] = []


def cell(
    name: str, *, writes: bool = False, applies: Callable[[Kind, Way], bool] = lambda kind, way: True
) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        CELLS.append(Cell(name, check, writes, applies))
        return check

    return add


def stock_can(kind: Kind, way: Way) -> bool:
    """Whether LlamaIndex's own method works, see :data:`NOTES`."""
    return kind is not LANCEDB and (kind, way) != (PINECONE, "docstore of the index")


def deletes(kind: Kind, way: Way) -> bool:
    return (kind, way) not in {(PINECONE, "docstore of the index"), (LANCEDB, "docstore of the index")}


def with_docstore(_: Kind, way: Way) -> bool:
    return way != "no docstore"


def degraded(item: NodeWithScore) -> list[str]:
    return cast("Any", item).degraded


def names(found: Sequence[NodeWithScore]) -> list[str]:
    return [item.node.node_id for item in found]


def texts(found: Sequence[NodeWithScore]) -> list[str]:
    return [item.node.get_content() for item in found]


def by_id(found: Sequence[NodeWithScore], see: Callable[[Any], Any]) -> dict[str, Any]:
    assert len({item.node.node_id for item in found}) == len(found)
    return {item.node.node_id: see(item.node) for item in found}


def same(setup: Setup, see: Callable[[Any], Any]) -> None:
    """Check what is seen of every node."""
    expected = by_id(setup.stock(QUERIES[0]), see)
    assert len(expected) == len(setup.nodes)
    assert by_id(setup.ours(QUERIES[0]), see) == expected


def everything(node: Any) -> Any:
    return type(node).__name__, node.hash, node.model_dump(exclude={"embedding"})


# --- nodes -----------------------------------------------------------------------------------------------------------


@cell("ids and hashes")
def _(setup: Setup) -> None:
    same(setup, lambda node: node.hash)


@cell("types")
def _(setup: Setup) -> None:
    """Text, image, reference, document and media nodes come back as LlamaIndex reads them from that store."""
    same(setup, lambda node: (type(node).__name__, node.class_name(), node.get_type()))
    seen = {type(item.node).__name__ for item in setup.ours(QUERIES[0])}
    assert {"TextNode", "ImageNode", "IndexNode"} <= seen


@cell("relationships")
def _(setup: Setup) -> None:
    same(setup, lambda node: (node.ref_doc_id, dict(node.relationships)))


@cell("metadata")
def _(setup: Setup) -> None:
    """Empty, nested, lists, ``None`` and non-ASCII, as far as the store takes them; nothing is added."""
    same(setup, lambda node: node.metadata)
    assert {} in by_id(setup.ours(QUERIES[0]), lambda node: node.metadata).values()


@cell("templates and excluded keys")
def _(setup: Setup) -> None:
    fields = ("text_template", "metadata_template", "metadata_separator", "metadata_seperator")
    same(
        setup,
        lambda node: (
            [getattr(node, name, None) for name in fields],
            node.excluded_llm_metadata_keys,
            node.excluded_embed_metadata_keys,
        ),
    )


@cell("`get_content` in each `MetadataMode`")
def _(setup: Setup) -> None:
    same(setup, lambda node: [node.get_content(metadata_mode=mode) for mode in MetadataMode])


@cell("every other field")
def _(setup: Setup) -> None:
    same(setup, everything)


@cell("copies")
def _(setup: Setup) -> None:
    """A program may change what it gets; the next query, the docstore and the store don't see it."""
    before = by_id(setup.stock(QUERIES[0]), everything)
    for item in setup.ours(QUERIES[0]):
        item.node.metadata["changed"] = True
        item.node.relationships.clear()
        item.node.excluded_llm_metadata_keys.append("kind")
    assert by_id(setup.ours(QUERIES[0]), everything) == before
    assert by_id(setup.stock(QUERIES[0]), everything) == before


@cell("an object behind a reference")
def _(setup: Setup) -> None:
    target = TextNode(text="Volcanoes spit fire.")
    found = setup.retriever(object_map={"volcanoes": target}).retrieve("everything about volcanoes")
    expected = setup.stock("everything about volcanoes", object_map={"volcanoes": target})
    assert target in [item.node for item in expected]
    assert by_id(found, everything) == by_id(expected, everything)
    assert any(item.node is target for item in found)


# --- order -----------------------------------------------------------------------------------------------------------


def groups(found: Sequence[NodeWithScore], scores: dict[str, float]) -> list[list[str]]:
    """Return ids in their order; those that LlamaIndex scores the same are sorted."""
    by_score = groupby(names(found), key=lambda name: round(scores[name], 5))
    return [sorted(group) for _, group in by_score]


def same_order(setup: Setup, **options: Any) -> None:
    for query in QUERIES:
        every = setup.stock(query, **options)
        scores = {item.node.node_id: item.score or 0.0 for item in every}
        assert groups(setup.ours(query, **options), scores) == groups(every, scores)
        for top_k in (1, 3, 8):
            found, expected = setup.ours(query, top_k=top_k, **options), setup.stock(query, top_k, **options)
            assert [round(scores[name], 5) for name in names(found)] == [
                round(scores[name], 5) for name in names(expected)
            ]


@cell("order of vector search")
def _(setup: Setup) -> None:
    """For each number of results; nodes of the same score in any order."""
    same_order(setup)


@cell("order of vector search with the store's other metrics", applies=lambda kind, way: len(kind.metrics) > 1)
def _(setup: Setup) -> None:
    for number, metric in enumerate(setup.kind.metrics[1:]):
        folder = setup.folder / str(number)
        other = Setup(setup.kind, setup.way, folder, metric)
        try:
            same_order(other)
        finally:
            other.close()


@cell('scores, with `score="relevance"`')
def _(setup: Setup) -> None:
    """Stock's, if these are cosines; otherwise they fall from best to worst."""
    found = setup.ours(QUERIES[0], score="relevance")
    scores = [item.score or 0.0 for item in found]
    assert all(0 <= score <= 1 for score in scores)
    expected = {item.node.node_id: item.score or 0.0 for item in setup.stock(QUERIES[0])}
    if setup.kind.cosine is not None:
        assert {item.node.node_id: item.score for item in found} == {
            name: pytest.approx(max(0.0, score), abs=1e-3) for name, score in expected.items()
        }
    else:
        assert scores == sorted(scores, reverse=True)


@cell('`search__search_type="mmr"`')
def _(setup: Setup) -> None:
    """Of two nodes with the same text, only one is among the first."""
    query = "Lamps are shipped on Mondays."
    options: dict[str, Any] = {"search__search_type": "mmr", "search__lambda_mult": 0.3, "search__mode": "dense"}
    with from_index(setup.index, docstore=setup.given, **options) as pipeline:
        found = RetrievalCoreRetriever(pipeline, top_k=4).retrieve(query)
    assert [degraded(item) for item in found] == [[]] * 4
    assert texts(found)[:1] == texts(setup.stock(query, 1))
    assert texts(found).count(query) <= 1 < texts(setup.stock(query)).count(query)


@cell("as many as there are")
def _(setup: Setup) -> None:
    assert len(setup.ours("the moon", top_k=1000)) == len(setup.stock("the moon", 1000)) == len(setup.nodes)


@cell("sync, async, and sync in a running loop")
def _(setup: Setup) -> None:
    async def inside() -> list[list[str]]:
        retriever = setup.retriever()
        return [names(await retriever.aretrieve(QUERIES[1])), names(retriever.retrieve(QUERIES[1]))]

    expected = names(setup.ours(QUERIES[1]))
    assert asyncio.run(inside()) == [expected] * 2
    assert names(setup.ours(QUERIES[1])) == expected
    assert sorted(expected) == sorted(names(setup.stock(QUERIES[1])))


@cell("many queries at once")
def _(setup: Setup) -> None:
    async def ask() -> list[list[str]]:
        retriever = setup.retriever(top_k=1)
        return [texts(found) for found in await asyncio.gather(*(retriever.aretrieve(query) for query in QUERIES * 5))]

    assert asyncio.run(ask()) == [texts(setup.stock(query, 1)) for query in QUERIES * 5]


# --- keyword search --------------------------------------------------------------------------------------------------


@cell("hybrid search: the nodes of vector search")
def _(setup: Setup) -> None:
    expected = by_id(setup.stock(QUERIES[0]), everything)
    found = setup.retriever("hybrid").retrieve(QUERIES[0])
    assert by_id(found, everything) == expected
    told = {reason for item in found for reason in degraded(item)}
    if setup.has_words:
        assert not told
    else:
        assert "has no keyword search" in told.pop()
        assert not told


WORDS = {
    "XQ-77": "XQ-77",
    "Gipfeln": "Gipfeln",
    "größe": "Größe",
    "故乡": "故乡",
    "نور": "نور",
    "СОЛНЦЕ": "солнце",
    "Tycho": "Tycho",
    "Halley": "Halley",
    "volcanoes": "volcanoes",
    "Mondays": "Mondays",
    "tides": "tides",
    "metadata": "metadata",
}


@cell("keyword search: every node with the word, as stock returns it", applies=with_docstore)
def _(setup: Setup) -> None:
    """No parents, no whole documents, both of two nodes with the same text, in any script."""
    expected = by_id(setup.stock(QUERIES[0]), everything)
    for word, part in WORDS.items():
        found = by_id(setup.ours(word, "lexical"), everything)
        assert found == {
            node.node_id: expected[node.node_id] for node in setup.nodes if part.lower() in node.get_content().lower()
        }


@cell("keyword search: a document that is a node", applies=with_docstore)
def _(setup: Setup) -> None:
    """LanceDB and Pinecone, whose nodes can't be read by id, show it in their results."""
    setup.ours(QUERIES[0])
    assert texts(setup.ours("split", "lexical")) == ["A short document that nobody split."]


@cell("keyword search without the word: nothing", applies=with_docstore)
def _(setup: Setup) -> None:
    assert setup.ours("zebra", "lexical") == []
    assert texts(setup.ours("zebra", "hybrid", top_k=1)) != []


# --- the same index, opened in another way ---------------------------------------------------------------------------


@cell("an index that is opened again")
def _(setup: Setup) -> None:
    """``from_vector_store``, or a folder that ``persist`` wrote."""
    expected = by_id(setup.stock(QUERIES[0]), everything)
    if setup.kind.keeps_text:
        again = VectorStoreIndex.from_vector_store(setup.store, embed_model=Hashed())
    else:
        context = StorageContext.from_dict(setup.index.storage_context.to_dict())
        again = cast("VectorStoreIndex", load_index_from_storage(context, embed_model=Hashed()))
    options: dict[str, Any] = {"docstore": setup.index.docstore} if setup.way == "docstore of the index" else {}
    if setup.given is not None:
        options = {"docstore": setup.given}
    if not setup.kind.keeps_text:
        options = {}
    with from_index(again, **options) as pipeline:
        for mode in ("dense", "hybrid") if setup.has_words else ("dense",):
            found = RetrievalCoreRetriever(pipeline, top_k=ALL, mode=cast("Any", mode)).retrieve(QUERIES[0])
            assert by_id(found, everything) == expected
            assert not [reason for item in found for reason in degraded(item)]


# --- filters ---------------------------------------------------------------------------------------------------------


def one(key: str, value: Any, operator: FilterOperator = O.EQ) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])


def both(*given: MetadataFilters, condition: FilterCondition = FilterCondition.AND) -> MetadataFilters:
    return MetadataFilters(filters=list(given), condition=condition)


def flat(*given: MetadataFilters, condition: FilterCondition = FilterCondition.AND) -> MetadataFilters:
    return MetadataFilters(filters=[part for item in given for part in item.filters], condition=condition)


RATED = one("rating", -1, O.GT)
"""Holds for nodes that have every field: stores differ in what they make of ``!=`` if there is none."""
FILTERS: dict[str, tuple[MetadataFilters, Callable[[dict[str, Any]], bool]]] = {
    "`==` text": (one("kind", "moon"), lambda m: m.get("kind") == "moon"),
    "`==` text, not ASCII": (one("kind", "诗"), lambda m: m.get("kind") == "诗"),
    "`==` a whole number": (one("year", 1969), lambda m: m.get("year") == 1969),
    "`==` a fraction": (one("rating", 2.25), lambda m: m.get("rating") == 2.25),
    "`!=`": (flat(one("kind", "moon", O.NE), RATED), lambda m: "rating" in m and m["kind"] != "moon"),
    "`>`": (one("year", 1986, O.GT), lambda m: m.get("year", 0) > 1986),
    "`>=`": (one("year", 1986, O.GTE), lambda m: m.get("year", 0) >= 1986),
    "`<`": (one("rating", 3.0, O.LT), lambda m: m.get("rating", 9) < 3),
    "`<=`": (one("rating", 3.0, O.LTE), lambda m: m.get("rating", 9) <= 3),
    "`in`": (one("kind", ["moon", "诗", "nowhere"], O.IN), lambda m: m.get("kind") in {"moon", "诗"}),
    "`nin`": (
        flat(one("kind", ["moon", "faq"], O.NIN), RATED),
        lambda m: "rating" in m and m["kind"] not in {"moon", "faq"},
    ),
    "`contains` in a list": (one("tags", "old", O.CONTAINS), lambda m: "old" in m.get("tags", ())),
    "`any`": (one("tags", ["rocks", "new"], O.ANY), lambda m: bool({"rocks", "new"} & {*m.get("tags", ())})),
    "`all`": (one("tags", ["new", "old"], O.ALL), lambda m: {"new", "old"} <= {*m.get("tags", ())}),
    "`text_match_insensitive`": (
        one("kind", "gedicht", O.TEXT_MATCH_INSENSITIVE),
        lambda m: "gedicht" in str(m.get("kind")).lower(),
    ),
    "`and`": (flat(one("kind", "faq"), one("rating", 2.0, O.GT)), lambda m: m.get("kind") == "faq" and "rating" in m),
    "`or`": (
        flat(one("kind", "star"), one("year", 1000, O.LT), condition=FilterCondition.OR),
        lambda m: m.get("kind") == "star" or m.get("year", 9999) < 1000,
    ),
    "`not`": (
        both(flat(one("kind", "star"), one("kind", "faq"), condition=FilterCondition.NOT), RATED),
        lambda m: "rating" in m and m["kind"] not in {"star", "faq"},
    ),
    "nested": (
        both(one("lang", "en"), flat(one("kind", "star"), one("year", 1969), condition=FilterCondition.OR)),
        lambda m: m.get("lang") == "en" and (m.get("kind") == "star" or m.get("year") == 1969),
    ),
    "nothing passes": (one("kind", "nowhere"), lambda m: False),
}
LISTS = {"`contains` in a list", "`any`", "`all`"}
NONE = "\u2013"
ONLY_HERE: dict[str, set[str]] = {
    "SimpleVectorStore": {"`not`", "nested"},
    "Qdrant": LISTS,
    "Qdrant, async client": LISTS,
    "Chroma": {"`text_match_insensitive`", "`not`"},
    "LanceDB": {"`!=`", "`nin`", "`text_match_insensitive`", "`not`", "nested", "nothing passes"},
    "Pinecone": {*LISTS, "`text_match_insensitive`", "`not`"},
}
"""Filters that LlamaIndex's store raises for, or understands in another way."""


def filtered(name: str) -> Check:
    filters, test = FILTERS[name]

    def check(setup: Setup) -> None:
        expected = sorted(node.node_id for node in setup.nodes if test(node.metadata))
        every = setup.ours(QUERIES[0], filters=filters)
        assert sorted(names(every)) == expected
        few = setup.ours(QUERIES[0], top_k=2, filters=filters)
        assert [round(item.score or 0, 5) for item in few] == [round(item.score or 0, 5) for item in every[:2]]
        if name not in ONLY_HERE[setup.kind.name]:
            assert names(setup.stock(QUERIES[0], 2, filters=filters)) == names(few)
        if setup.has_words:
            assert sorted(names(setup.ours(QUERIES[0], "hybrid", filters=filters))) == expected
            found = setup.ours("moon sun lamp Tagged Gipfeln 故乡", "lexical", filters=filters)
            assert {*names(found)} <= {*expected}

    return check


for _name in FILTERS:
    cell(
        f"filter {_name}",
        applies=(lambda kind, way: kind.limits.lists) if _name in LISTS else (lambda kind, way: True),
    )(filtered(_name))


# --- what is written is seen by the next query -----------------------------------------------------------------------


def is_seen(setup: Setup, query: str, *, there: str = "", gone: str = "") -> None:
    """Check every mode after a write: what stock finds is found, and no text that is gone."""
    modes = ("dense", "hybrid", "lexical") if setup.has_words else ("dense",)
    expected = by_id(setup.stock(query), everything)
    for mode in modes:
        found = setup.ours(query, mode)
        seen = by_id(found, everything)
        assert seen == (expected if mode != "lexical" else {name: expected[name] for name in seen if name in expected})
        assert not there or any(there in text for text in texts(found))
        assert not gone or not any(gone in text for text in texts(found))


def warm(setup: Setup) -> None:
    """Ask before a write, so that whatever is kept is kept."""
    for mode in ("dense", "hybrid", "lexical") if setup.has_words else ("dense",):
        assert setup.ours("refunds for lamps", mode)


def forget(setup: Setup, document: str) -> None:
    """Delete from the docstore that the user keeps, which LlamaIndex doesn't know."""
    if setup.given is not None:
        setup.given.delete_ref_doc(document, raise_error=False)


@cell("`delete_ref_doc`", writes=True, applies=deletes)
def _(setup: Setup) -> None:
    warm(setup)
    setup.delete(FAQ)
    forget(setup, FAQ)
    is_seen(setup, "refunds take five working days for lamps", gone="Refunds")


@cell(
    "`delete_ref_doc` with `delete_from_docstore=True`",
    writes=True,
    applies=lambda kind, way: way == "docstore of the index" and deletes(kind, way),
)
def _(setup: Setup) -> None:
    warm(setup)
    setup.delete(FAQ, delete_from_docstore=True)
    forget(setup, FAQ)
    is_seen(setup, "refunds take five working days for lamps", gone="Refunds")


@cell(
    "`delete_ref_doc`, but the node stays in your docstore",
    writes=True,
    applies=lambda kind, way: way == "docstore of yours" and kind not in {PINECONE, LANCEDB},
)
def _(setup: Setup) -> None:
    """LlamaIndex's stores for the others can't read nodes by id."""
    warm(setup)
    setup.delete(FAQ)
    is_seen(setup, "refunds take five working days for lamps", gone="Refunds")


@cell("`delete_nodes`", writes=True)
def _(setup: Setup) -> None:
    warm(setup)
    setup.delete_nodes([node for node in setup.nodes if "Refunds" in node.get_content()])
    is_seen(setup, "refunds take five working days for lamps", gone="Refunds")


@cell("`insert_nodes`", writes=True)
def _(setup: Setup) -> None:
    warm(setup)
    new = TextNode(id_=name_of("new", setup.kind.limits), text="The probe ZQ-99 landed on Titan.", metadata={"year": 2})
    setup.insert([new])
    is_seen(setup, "where did ZQ-99 land", there="Titan")
    assert texts(setup.ours("The probe ZQ-99 landed on Titan.", top_k=1)) == [new.text]


@cell("`insert` of a document", writes=True)
def _(setup: Setup) -> None:
    warm(setup)
    document = Document(id_="notes/titan.md", text="Titan has lakes. They are of methane.", metadata={"year": 2005})
    setup.write(lambda: setup.index.insert(document), lambda: setup.index.ainsert(document))
    if setup.given is not None:
        setup.given.add_documents(split([document], setup.kind.limits))
    is_seen(setup, "lakes of methane", there="methane")


def corrected() -> list[Document]:
    """Return the documents, one of which has another text."""
    return [
        document
        if document.id_ != FAQ
        else document.model_copy(update={"text_resource": Document(text="Refunds take two days now.").text_resource})
        for document in documents()
    ]


@cell("`update_ref_doc`", writes=True, applies=stock_can)
def _(setup: Setup) -> None:
    """The corrected text is found, and the former one no longer."""
    warm(setup)
    new = next(document for document in corrected() if document.id_ == FAQ)
    setup.write(lambda: setup.index.update_ref_doc(new), lambda: setup.index.aupdate_ref_doc(new))
    if setup.given is not None:
        forget(setup, FAQ)
        setup.given.add_documents(split([new], setup.kind.limits))
    is_seen(setup, "refunds take days", there="two days now", gone="five working days")


@cell("`refresh_ref_docs`", writes=True, applies=stock_can)
def _(setup: Setup) -> None:
    """Of an index that remembers its documents, one changes."""
    for document in documents():
        setup.index.docstore.set_document_hash(document.id_, document.hash)
    warm(setup)
    done: list[list[bool]] = []

    async def refresh() -> None:
        done.append(await setup.index.arefresh_ref_docs(corrected()))

    setup.write(lambda: done.append(setup.index.refresh_ref_docs(corrected())), refresh)
    assert sum(done[0]) == 1
    if setup.given is not None:
        forget(setup, FAQ)
        setup.given.add_documents(split([item for item in corrected() if item.id_ == FAQ], setup.kind.limits))
    is_seen(setup, "refunds take days", there="two days now", gone="five working days")


@cell(
    "`ainsert_nodes`, `aupdate_ref_doc` and `adelete_ref_doc`",
    writes=True,
    applies=lambda kind, way: (
        kind.has_async and not kind.is_async_only and way != "docstore of yours" and stock_can(kind, way)
    ),
)
def _(setup: Setup) -> None:
    new = TextNode(id_=name_of("new", setup.kind.limits), text="The probe ZQ-99 landed on Titan.", metadata={"year": 2})
    retriever = setup.retriever("hybrid" if setup.has_words else "dense", top_k=ALL)

    async def write_and_ask() -> None:
        await retriever.aretrieve("refunds")
        await setup.index.ainsert_nodes([new])
        assert "The probe ZQ-99 landed on Titan." in texts(await retriever.aretrieve("ZQ-99"))
        await setup.index.aupdate_ref_doc(next(document for document in corrected() if document.id_ == FAQ))
        found = texts(await retriever.aretrieve("refunds"))
        assert any("two days now" in text for text in found)
        assert not any("five working days" in text for text in found)
        await setup.index.adelete_ref_doc(MOON)
        assert not any("Apollo" in text for text in texts(await retriever.aretrieve("Apollo")))

    asyncio.run(write_and_ask())


@cell("an index that is emptied, and filled again", writes=True)
def _(setup: Setup) -> None:
    """Nothing is an error, and what comes later is found."""
    warm(setup)
    setup.delete_nodes(setup.nodes)
    for mode in ("dense", "hybrid") if setup.has_words else ("dense",):
        assert setup.retriever(mode).retrieve("the moon") == []
    setup.insert(setup.nodes[:2])
    assert sorted(names(setup.ours("the moon"))) == sorted(node.node_id for node in setup.nodes[:2])


@cell(
    "an `IngestionPipeline` that upserts",
    writes=True,
    applies=lambda kind, way: (
        kind.keeps_text and not kind.is_async_only and way == "no docstore" and stock_can(kind, way)
    ),
)
def _(setup: Setup) -> None:
    """Its docstore has whole documents, which keyword search must not find."""
    memory = SimpleDocumentStore()
    pipeline = IngestionPipeline(
        transformations=[Splitter(setup.kind), Hashed()],
        vector_store=setup.store,
        docstore=memory,
        docstore_strategy=DocstoreStrategy.UPSERTS,
    )
    for document in documents():
        setup.index.delete_ref_doc(document.id_)
    pipeline.run(documents=documents())
    warm(setup)
    pipeline.run(documents=corrected())
    is_seen(setup, "refunds take days", there="two days now", gone="five working days")
    with from_index(setup.index, docstore=memory) as ours:
        found = RetrievalCoreRetriever(ours, mode="dense", top_k=ALL).retrieve("refunds")
        assert by_id(found, everything) == by_id(setup.stock("refunds"), everything)


# --- the table itself ------------------------------------------------------------------------------------------------


def setups() -> Iterator[tuple[Kind, Way]]:
    for way in get_args(Way):
        for kind in KINDS:
            if kind.keeps_text or way == "docstore of the index":
                yield kind, way


TABLE: list[tuple[Kind, Way, Cell]] = [
    (kind, way, item) for kind, way in setups() for item in CELLS if item.applies(kind, way)
]


class Setups:
    """Opens setups; those that no cell writes to are shared."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._shared: tuple[tuple[Kind, Way], Setup] | None = None

    def run(self, kind: Kind, way: Way, item: Cell) -> None:
        if item.writes:
            setup = self._opened(kind, way)
            try:
                item.check(setup)
            finally:
                setup.close()
            return
        if self._shared is None or self._shared[0] != (kind, way):
            self.close()
            self._shared = (kind, way), self._opened(kind, way)
        item.check(self._shared[1])

    def _opened(self, kind: Kind, way: Way) -> Setup:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        return Setup(kind, way, folder)

    def close(self) -> None:
        if self._shared is not None:
            self._shared[1].close()
        self._shared = None


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setups]:
    made = Setups(tmp_path_factory.mktemp("stores"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("kind", "way", "item"), TABLE, ids=[f"{kind} | {way} | {item.name}".replace("`", "") for kind, way, item in TABLE]
)
def test_cell(opened: Setups, kind: Kind, way: Way, item: Cell) -> None:
    opened.run(kind, way, item)


NOTES = """- **here only**: LlamaIndex's store raises an error for this filter, or reads it in another way. `from_index`
  returns the nodes that match.
- A dash: the store or LlamaIndex can't do it. Chroma and LanceDB take no lists and objects in metadata; Pinecone takes
  no objects and no `None`. LanceDB has one metric here. LlamaIndex's deletes raise an error with LanceDB 0.40, and with
  Pinecone if the index has a docstore (`KeyError`). Delete with LanceDB's table, and from the docstore by the id of the
  node. Qdrant's synchronous client has no asynchronous methods.
- Delete nodes from your own docstore too. A node that only your docstore still has is found by keyword search with
  Pinecone and LanceDB, whose nodes can't be read by ID; with the other stores it isn't.
"""
HEAD = """# LlamaIndex's vector stores under `from_index`

With `from_index` you keep your vector store and get the nodes that LlamaIndex's own retriever returns, with keyword
search added. This table shows, for each store, what was compared with `VectorIndexRetriever` over the same index.

- **same**: ids, hashes, classes, relationships, metadata, templates, order and scores are those of LlamaIndex's
  retriever, for text, image, reference, document and media nodes.
- Vector search returns the store's order for every number of results. Nodes with equal scores may change places.
- After each write, the next query is asked with vector, keyword and hybrid search.
"""
PAGE = Path(__file__).parents[2] / "docs/dev/llamaindex-stores.md"


def page(shown: Callable[[Kind, Way, Cell], str]) -> str:
    """Return the page: a table for each way to keep a docstore."""
    parts = [HEAD + NOTES]
    for way in get_args(Way):
        what = WAYS[way]
        kinds = [kind for kind, its in setups() if its == way]
        lines = [
            f"## {way.capitalize()}",
            "",
            what,
            "",
            f"| | {' | '.join(map(repr, kinds))} |",
            "|---" * (len(kinds) + 1) + "|",
        ]
        for item in CELLS:
            cells = [shown(kind, way, item) if item.applies(kind, way) else NONE for kind in kinds]
            if {*cells} != {NONE}:
                lines.append(f"| {item.name} | {' | '.join(cells)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def expected(kind: Kind, way: Way, item: Cell) -> str:
    return "here only" if item.name.removeprefix("filter ") in ONLY_HERE[kind.name] else "same"


def test_the_page_is_this_table() -> None:
    assert PAGE.read_text("utf-8") == page(expected)


def test_the_table_compares_every_store() -> None:
    assert len(TABLE) > 600
    assert {kind.name for kind, _, _ in TABLE} == {kind.name for kind in KINDS}


def main() -> None:
    """Print the page with what each cell gives now; with ``--page``, as it has to be."""
    if sys.argv[1:] == ["--page"]:
        sys.stdout.write(page(expected))
        return
    with tempfile.TemporaryDirectory() as folder:
        opened = Setups(Path(folder))

        def run(kind: Kind, way: Way, item: Cell) -> str:
            try:
                opened.run(kind, way, item)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the cell isn't the same
                return "not installed" if type(error).__name__ == "Skipped" else f"**{type(error).__name__}**"
            return expected(kind, way, item)

        results = {(kind.name, way, item.name): run(kind, way, item) for kind, way, item in TABLE}
        opened.close()
    sys.stdout.write(page(lambda kind, way, item: results[kind.name, way, item.name]))


if __name__ == "__main__":
    main()
