"""What is known to bite users of LlamaIndex, a test for each: with our parts it does not.

What a test of another file of this folder shows is in the table at the end.
"""

# LlamaIndex's own types are unknown in parts.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ast
import asyncio
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import LLMRerank
from llama_index.core.query_engine import RetrieverQueryEngine, RouterQueryEngine
from llama_index.core.response_synthesizers import TreeSummarize
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.selectors import LLMMultiSelector
from llama_index.core.tools import QueryEngineTool
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_index.postprocessor.retrieval_core import (
    ContextPackPostprocessor,
    LLMRerankPostprocessor,
    MMRPostprocessor,
    NeighborExpansionPostprocessor,
    RelevanceFilterPostprocessor,
    RerankPostprocessor,
    SentencePruningPostprocessor,
    TokenBudgetPostprocessor,
)
from llama_index.retrievers.retrieval_core import (
    RetrievalCoreRetriever,
    RetrievalDegradedEvent,
    RetrievalQueryBundle,
    node_from_chunk,
)
from llama_index.retrievers.retrieval_core.adapters import LlamaIndexRetriever, from_index, pipeline_from
from llama_index.vector_stores.retrieval_core import RetrievalCoreVectorStore
from retrieval_core import open_index, open_indexes
from retrieval_core.adapters.pruners.threshold import EmbedderPruner
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import load_config
from retrieval_core.errors import EmbeddingError, SearchError, ServiceError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.testing.fakes import FakeEmbedder, FakeReranker
from retrieval_core.testing.fakes_llm import FakeLLM
from support.examples import times
from support.llamaindex_library import CHUNKS, Library, chunk, passage
from support.llamaindex_models import ScriptedLLM, listening
from support.llamaindex_parts import WordEmbedding, index_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from llama_index.core.postprocessor.types import BaseNodePostprocessor

O = FilterOperator  # noqa: E741
QUESTION = "how far away is the moon"
MOON = {f"moon.md#{number}" for number in range(4)}
SUN = {"sun.md#0", "sun.md#1"}


@pytest.fixture
def retriever(library: Library) -> RetrievalCoreRetriever:
    return RetrievalCoreRetriever(library.pipeline, top_k=6)


class Given(BaseRetriever):
    """Finds what it is given, the same objects each time, or fails."""

    def __init__(self, *nodes: NodeWithScore, error: Exception | None = None) -> None:
        super().__init__()
        self.nodes = list(nodes)
        self.error = error

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self.error is not None:
            raise self.error
        return self.nodes


def ids(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [item.node.node_id for item in nodes]


def one(key: str, value: Any, operator: FilterOperator = O.EQ) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])


def fused(retrievers: Sequence[BaseRetriever], mode: str = "relative_score", **settings: Any) -> QueryFusionRetriever:
    return QueryFusionRetriever(
        list(retrievers),
        llm=MockLLM(),
        num_queries=1,
        similarity_top_k=10,
        mode=FUSION_MODES(mode),
        use_async=False,
        **settings,
    )


# --- fusion


@pytest.mark.parametrize("method", ["zscore", "rrf", "minmax", "dbsf"])
def test_weights_are_honoured_by_every_method_of_fusion(method: str) -> None:
    """Reciprocal rank fusion among them, in which LlamaIndex leaves them out of account."""
    orders: dict[float, list[str]] = {}
    for weight in (0.0, 0.3, 1.0):
        with Library(settings={"search.fusion": method, "search.dense_weight": weight}) as library:
            ours = RetrievalCoreRetriever(library.pipeline, top_k=6)
            nodes = ours.retrieve("sun rocks")
            orders[weight] = ids(nodes)
            dense, lexical = (ids(ours.bound(mode=mode).retrieve("sun rocks")) for mode in ("dense", "lexical"))
        if method == "rrf":
            for item in nodes:
                ranks = passage(item).scores
                by_meaning, by_words = (1 / (60 + ranks.get(f"{side}_rank", inf)) for side in ("dense", "lexical"))
                assert item.score == pytest.approx(weight * by_meaning + (1 - weight) * by_words)
    assert dense != lexical
    assert orders[1.0] == dense
    worst = len(lexical) - 1  # which by z-score and min-max counts as what was not found
    assert orders[0.0][:worst] == lexical[:worst]


@pytest.mark.parametrize("fusion", ["zscore", "rrf", "minmax", "dbsf"])
def test_alpha_is_honoured_by_every_method_of_fusion(fusion: Any) -> None:
    """Of the vector store, from words alone at 0 to meaning alone at 1."""
    store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=2), fusion=fusion)
    words = ("moon moon moon", "moon and sun", "moon below a sky of many other stars")
    vectors = ([0.0, 1.0], [0.7, 0.7], [1.0, 0.0])
    store.add(
        [
            TextNode(id_=str(n), text=text, embedding=vector)
            for n, (text, vector) in enumerate(zip(words, vectors, strict=True))
        ]
    )

    def first(alpha: float) -> str:
        asked = VectorStoreQuery(
            query_embedding=[1.0, 0.0],
            query_str="moon",
            similarity_top_k=3,
            mode=VectorStoreQueryMode.HYBRID,
            alpha=alpha,
        )
        return (store.query(asked).ids or [])[0]

    assert [first(0), first(0.05), first(0.95), first(1)] == ["0", "0", "2", "2"]
    store.close()


def test_weights_of_several_indexes_are_honoured(library: Library) -> None:
    with Library() as other:
        for weights, wanted in (({"a": 1.0, "b": 0.1}, "a"), ({"a": 0.1, "b": 1.0}, "b")):
            both = open_indexes({"a": library.pipeline, "b": other.pipeline}, weights=weights)
            nodes = RetrievalCoreRetriever(cast("Any", both), top_k=4).retrieve("moon")
            assert {item.node.node_id.partition(":")[0] for item in nodes} == {wanted}


@pytest.mark.parametrize("mode", ["relative_score", "dist_based_score"])
def test_weights_of_llamaindexs_fusion_are_honoured_with_ours(retriever: RetrievalCoreRetriever, mode: str) -> None:
    """Its nodes always have a score, without which LlamaIndex's relative scores are a TypeError."""
    other = Given(*(NodeWithScore(node=TextNode(id_=f"x{n}", text=f"x {n}"), score=9.0 - n) for n in range(3)))
    for weights, is_ours in (([0.99, 0.01], True), ([0.01, 0.99], False)):
        best = fused([retriever, other], mode, retriever_weights=weights).retrieve(QUESTION)[0]
        assert (best.node.node_id in MOON | SUN) is is_ours


@pytest.mark.parametrize("mode", [mode.value for mode in FUSION_MODES])
def test_scores_that_a_fusion_changes_in_place_are_nobody_elses(retriever: RetrievalCoreRetriever, mode: str) -> None:
    """It edits the nodes that it was given; the next question, which the cache answers, is not asked any less."""
    before = [item.model_dump() for item in retriever.retrieve(QUESTION)]
    both = fused([retriever, Given(NodeWithScore(node=TextNode(text="x"), score=5.0))], mode)
    first = [(item.node.node_id, item.score) for item in both.retrieve(QUESTION) if item.node.node_id in MOON | SUN]
    again = [(item.node.node_id, item.score) for item in both.retrieve(QUESTION) if item.node.node_id in MOON | SUN]
    assert first == again
    assert [item.model_dump() for item in retriever.retrieve(QUESTION)] == before


def test_the_same_text_in_two_documents_is_found_twice() -> None:
    """Recursive retrieval and fusion tell nodes apart by their hash, sync and async not by the same rule."""
    twice = [chunk(name, 0, "Shared words about the moon.", 1) for name in ("a.md", "b.md")]
    with Library(chunks=twice) as library:
        ours = RetrievalCoreRetriever(library.pipeline)
        wanted = {"a.md#0", "b.md#0"}
        assert set(ids(ours.retrieve("moon"))) == set(ids(asyncio.run(ours.aretrieve("moon")))) == wanted
        for mode in FUSION_MODES:
            assert set(ids(fused([ours], mode.value).retrieve("moon"))) == wanted


# --- nodes that are given


def given_nodes() -> list[NodeWithScore]:
    """Return nodes of ours and of somebody else, among them one with score 0 and one without any."""
    ours = [NodeWithScore(node=node_from_chunk(item), score=1 - n / 2) for n, item in enumerate(CHUNKS[:3])]
    other = TextNode(id_="x", text="The moon is far. It is grey. Cheese is yellow.", metadata={"a": {"b": [1]}})
    linked = TextNode(id_="y", text="Moon again.", embedding=[1.0, 0.0])
    linked.relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id="x")
    return [*ours, NodeWithScore(node=other, score=-2.5), NodeWithScore(node=linked, score=None)]


def failing() -> FakeReranker:
    reranker = FakeReranker()
    reranker.failure = ServiceError("down", "x")
    return reranker


POSTPROCESSORS: dict[str, Callable[[Library], BaseNodePostprocessor]] = {
    "MMR": lambda library: MMRPostprocessor(library.embedder, top_n=3),
    "rerank": lambda library: RerankPostprocessor(FakeReranker(), top_n=3),
    "rerank, blended": lambda library: RerankPostprocessor(FakeReranker(), top_n=3, weight=0.3),
    "rerank, down": lambda library: RerankPostprocessor(failing(), top_n=3),
    "rubric": lambda library: LLMRerankPostprocessor(FakeLLM('{"results": [{"id": 2, "relevance_score": 50}]}')),
    "rubric, prose": lambda library: LLMRerankPostprocessor(FakeLLM("Doc: 0")),
    "relevance": lambda library: RelevanceFilterPostprocessor(FakeLLM('{"1": {"relevant": false}}')),
    "pruning": lambda library: SentencePruningPostprocessor(EmbedderPruner(library.embedder, threshold=0.3)),
    "neighbours": lambda library: NeighborExpansionPostprocessor(library.store),
    "budget": lambda library: TokenBudgetPostprocessor(12, token_counter=lambda text: len(text.split())),
    "context pack": lambda library: ContextPackPostprocessor(
        library.store, max_tokens=60, token_counter=lambda text: len(text.split())
    ),
}
EACH = pytest.mark.parametrize("name", list(POSTPROCESSORS))


@EACH
def test_given_nodes_their_scores_their_metadata_and_their_list_stay(library: Library, name: str) -> None:
    """Whatever is done with them, whatever fails, and whatever is done to the result."""
    postprocessor = POSTPROCESSORS[name](library)
    nodes = given_nodes()
    objects, wanted = list(nodes), [item.model_dump() for item in nodes]

    def unchanged() -> bool:
        is_same = all(a is b for a, b in zip(nodes, objects, strict=True))
        return is_same and [item.model_dump() for item in nodes] == wanted

    results = [postprocessor.postprocess_nodes(nodes, query_str="moon")]
    assert unchanged()
    results.append(asyncio.run(postprocessor.apostprocess_nodes(nodes, query_str="moon")))
    assert unchanged()
    for result in results:
        result.clear()
    assert unchanged()
    cast("Any", postprocessor).close()


@EACH
def test_no_nodes_are_no_error(library: Library, name: str) -> None:
    """Services and models of rerankers refuse an empty list."""
    postprocessor = POSTPROCESSORS[name](library)
    assert postprocessor.postprocess_nodes([], query_str="moon") == []
    assert asyncio.run(postprocessor.apostprocess_nodes([], query_str="moon")) == []
    cast("Any", postprocessor).close()


@EACH
def test_settings_of_a_postprocessor_are_not_those_of_its_last_call(library: Library, name: str) -> None:
    """Fewer nodes than ``top_n`` once are no reason to return fewer ever after."""
    postprocessor = POSTPROCESSORS[name](library)
    before = {key: getattr(postprocessor, key) for key in type(postprocessor).model_fields}
    whole = ids(postprocessor.postprocess_nodes(given_nodes(), query_str="moon"))
    postprocessor.postprocess_nodes(given_nodes()[:1], query_str="moon")
    assert {key: getattr(postprocessor, key) for key in type(postprocessor).model_fields} == before
    assert ids(postprocessor.postprocess_nodes(given_nodes(), query_str="moon")) == whole
    cast("Any", postprocessor).close()


@pytest.mark.parametrize("order", [(1, 0), (0, 1), (3, 1, 0), (2, 3, 0, 1)])
def test_windows_that_overlap_lose_no_score(library: Library, order: tuple[int, ...]) -> None:
    """In any order of what was found, a score of 0 among them; neighbours have none."""
    scores = {f"moon.md#{number}": score for number, score in enumerate((0.8, 0.0, 0.4, 0.3)) if number in order}
    nodes = [NodeWithScore(node=node_from_chunk(CHUNKS[number]), score=scores[f"moon.md#{number}"]) for number in order]
    expansion = NeighborExpansionPostprocessor(library.store)
    found = {item.node.node_id: item.score for item in expansion.postprocess_nodes(nodes)}
    assert {name: score for name, score in found.items() if name in scores} == scores
    assert all(score is None for name, score in found.items() if name not in scores)
    expansion.close()


def test_nodes_of_a_users_retriever_stay_as_they_are() -> None:
    """In our pipeline too, which reranks, filters and scores them."""
    own = Given(*given_nodes()[:4])
    before = [item.model_dump() for item in own.nodes]
    with pipeline_from(retriever=own, rerank=FakeReranker()) as pipeline:
        assert pipeline.retrieve("moon", top_k=2).hits
        found = RetrievalCoreRetriever(pipeline).retrieve("moon")
        found[0].score = 77.0
        found[0].node.metadata["title"] = "changed"
    assert [item.model_dump() for item in own.nodes] == before


# --- a language model that reranks

NONSENSE = {
    "Doc: 0": "Doc: 0, Relevance: 10",
    "the same twice": "Doc: 2, Relevance: 9\nDoc: 2, Relevance: 1\nDoc: 2, Relevance: 5",
    "prose": "I am sorry, but as a model I cannot rank documents, or can I?",
    "prose with a comma and a colon": "Sure: here they are, best first: 1\nDoc: one, Relevance: high",
    "out of range": "Doc: 99, Relevance: 10\nDoc: -3, Relevance: 9\nDoc: 100000000000000000000, Relevance: 2",
    "a page label": "page_label: 4, file_name: a.pdf\nDoc: page_label, Relevance: 3",
    "no relevance": "Doc: 1\nDoc: 2",
    "nothing": "",
    "blank": " \n\n ",
    "other JSON": '{"answer": [1, 2, {"id": "Doc: 0"}]}',
}


@pytest.mark.parametrize("said", NONSENSE.values(), ids=[*NONSENSE])
def test_nonsense_of_a_reranking_model_costs_no_node_and_moves_none_to_the_front(said: str) -> None:
    """Nobody chose the last node, which LlamaIndex's LLMRerank makes of "Doc: 0"; and none comes twice."""
    nodes = [NodeWithScore(node=TextNode(id_=str(n), text=f"text {n}"), score=1 - n / 10) for n in range(5)]
    postprocessor = LLMRerankPostprocessor(ScriptedLLM(lambda _: said), top_n=5)
    with listening() as events:
        assert postprocessor.postprocess_nodes(nodes, query_str="q") == nodes
    assert any(isinstance(event, RetrievalDegradedEvent) for event in events)
    with pytest.raises((SearchError, ServiceError)):
        LLMRerankPostprocessor(ScriptedLLM(lambda _: said), top_n=5, strict=True).postprocess_nodes(
            nodes, query_str="q"
        )
    postprocessor.close()


@pytest.mark.parametrize("said", NONSENSE.values(), ids=[*NONSENSE])
def test_nonsense_of_llamaindexs_own_reranker_costs_no_hit_in_our_pipeline(said: str) -> None:
    """Where it is what reranks: each passage once, and what nobody chose does not come first."""
    rerank = LLMRerank(llm=ScriptedLLM(lambda _: said), choice_batch_size=5, top_n=3)
    with from_index(index_of(), rerank=rerank) as reranking, from_index(index_of()) as plain:
        found, wanted = ([hit.id for hit in each.retrieve(QUESTION, top_k=6).hits] for each in (reranking, plain))
    assert sorted(found) == sorted(wanted)
    if said != NONSENSE["the same twice"]:  # which is one choice
        assert found[0] == wanted[0]


# --- filters

HOSTILE = [
    "' OR '1'='1",
    '"; DROP TABLE chunks; --',
    "a' UNION SELECT * FROM chunks --",
    "'); DELETE FROM chunks; --",
    '" OR 1=1 --',
    '$."a"\' OR 1 --',
    "NEAR(moon sun, 2)",
    'text:moon AND NOT "sun" OR *',
    "moon*",
    "^moon",
    "(a+)+$",
    "(a|a)*b" + "a" * 60,
    "*" * 60 + "z",
    "?" * 60,
    "[a-z",
    "%",
    "_",
    "\\",
    "\\'",
    "\0",
    "a\0b",
    "\r\n\t",
    "\u202edlrow",
    "\U0001f600 ﬁ ß İ",
    "\uff4d\uff4f\uff4f\uff4e",
    "e\u0301",
    "$ne",
    '{"$gt": ""}',
    "__proto__",
    "a.b.c",
    "[]",
    "null",
    "",
    "x" * 100_000,
]
TAKES_TEXT = (O.EQ, O.NE, O.GT, O.GTE, O.LT, O.LTE, O.IN, O.NIN, O.TEXT_MATCH_INSENSITIVE)


def as_told(operator: FilterOperator, field: str, value: str) -> bool:  # noqa: PLR0911 - one line an operator
    """Whether a text field matches, said once more."""
    match operator:
        case O.EQ | O.IN:
            return field == value
        case O.NE | O.NIN:
            return field != value
        case O.GT:
            return field > value
        case O.GTE:
            return field >= value
        case O.LT:
            return field < value
        case O.LTE:
            return field <= value
        case _:
            return value.casefold() in field.casefold()


def of(operator: FilterOperator, key: str, value: str) -> MetadataFilters:
    return one(key, [value] if operator in {O.IN, O.NIN} else value, operator)


@pytest.fixture(scope="module")
def hostile_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RetrievalCoreRetriever]:
    """A file whose passages have hostile values, and hostile names of fields."""
    chunks = [
        chunk("h.md", n, f"moon {n}", len(HOSTILE), metadata={"v": text, **({text: n} if text else {})})
        for n, text in enumerate(HOSTILE)
    ]
    with open_index(tmp_path_factory.mktemp("hostile") / "i.db", embedder=FakeEmbedder()) as index:
        index.add(chunks)
        yield RetrievalCoreRetriever(index, top_k=len(HOSTILE))


def places(nodes: Sequence[NodeWithScore]) -> list[int]:
    return sorted(int(item.node.node_id.rpartition("#")[2]) for item in nodes)


@pytest.mark.parametrize("operator", TAKES_TEXT)
def test_hostile_values_of_filters_are_values(hostile_index: RetrievalCoreRetriever, operator: FilterOperator) -> None:
    """Quotes, SQL, the syntax of full-text search, expressions that explode, control characters, a hundred thousand."""
    for value in HOSTILE:
        wanted = [n for n, field in enumerate(HOSTILE) if as_told(operator, field, value)]
        assert places(hostile_index.retrieve_with("moon", filters=of(operator, "v", value))) == wanted, value[:40]


def test_hostile_names_of_fields_are_names(hostile_index: RetrievalCoreRetriever) -> None:
    """The key of a filter is data as its value is; several of LlamaIndex's stores write it into their SQL."""
    for n, key in enumerate(HOSTILE):
        if key:
            assert places(hostile_index.retrieve_with("moon", filters=one(key, n))) == [n], key[:40]
        assert places(hostile_index.retrieve_with("moon", filters=one(f"no {key}", n))) == []
    assert len(hostile_index.retrieve("moon")) == len(HOSTILE)  # nobody dropped a table


def test_hostile_questions_are_words(hostile_index: RetrievalCoreRetriever) -> None:
    """By words alone, where the syntax of full-text search would be at home."""
    for text in HOSTILE:
        found = hostile_index.bound(mode="lexical").retrieve(f"moon {text}")
        assert len(found) == len(HOSTILE)
        assert not passage(found[0]).degraded


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_hostile_filters_of_the_vector_store_are_values(tmp_path: Path, kind: str) -> None:
    """Read, search and delete; a filter that is one row's deletes one row."""
    own: Any = MemoryStore(embedder_id="m", dimension=2)
    if kind == "sqlite":
        from retrieval_core.adapters.stores.sqlite import SqliteStore

        own = SqliteStore(tmp_path / "i.db", embedder_id="m", dimension=2)
    store = RetrievalCoreVectorStore(own)
    store.add(
        [
            TextNode(id_=str(n), text="moon", metadata={"v": text}, embedding=[1.0, 0.0])
            for n, text in enumerate(HOSTILE)
        ]
    )
    for n, text in enumerate(HOSTILE):
        for operator in (O.EQ, O.IN, O.TEXT_MATCH, O.CONTAINS):
            wanted = {
                str(m)
                for m, field in enumerate(HOSTILE)
                if (text in field if operator in {O.TEXT_MATCH, O.CONTAINS} else m == n)
            }
            assert {item.node_id for item in store.get_nodes(filters=of(operator, "v", text))} == wanted, text[:40]
        asked = VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=99, filters=of(O.EQ, "v", text))
        assert store.query(asked).ids == [str(n)]
    for n, text in enumerate(HOSTILE):
        store.delete_nodes(filters=of(O.EQ, "v", text))
        assert len(store.get_nodes()) == len(HOSTILE) - n - 1
    store.delete("' OR '1'='1")
    store.close()
    if kind == "sqlite":
        asyncio.run(own.aclose())


FIELDS: dict[str, dict[str, Any]] = {
    "absent": {},
    "null": {"f": None},
    "empty": {"f": ""},
    "same": {"f": "news"},
    "other case": {"f": "News"},
    "longer": {"f": "newspaper"},
    "number": {"f": 1},
    "fraction": {"f": 1.0},
    "truth": {"f": True},
    "list with it": {"f": ["news", "sport"]},
    "list without it": {"f": ["sport"]},
    "empty list": {"f": []},
}


@pytest.mark.parametrize(
    ("value", "same"),
    [
        ("news", {"same", "list with it"}),
        (1, {"number", "fraction"}),
        ("", {"empty"}),
    ],
)
def test_unequal_is_exactly_what_is_not_equal(value: Any, same: set[str]) -> None:
    """The rule of the retriever: absent and null differ from everything, a list where none of its items is equal.

    Text has its case, 1 and 1.0 are one number, and true is none. ``nin`` and ``not`` say the same.
    """
    names = list(FIELDS)
    chunks = [chunk("f.md", n, f"moon {n}", len(names), metadata=FIELDS[name]) for n, name in enumerate(names)]
    with Library(chunks=chunks) as library:
        ours = RetrievalCoreRetriever(library.pipeline, top_k=len(names))

        def found(filters: MetadataFilters) -> set[str]:
            return {names[place] for place in places(ours.retrieve_with("moon", filters=filters))}

        assert found(one("f", value)) == found(one("f", [value], O.IN)) == same
        different = set(names) - same
        assert found(one("f", value, O.NE)) == found(one("f", [value], O.NIN)) == different
        for inner in (one("f", value), one("f", [value], O.IN)):
            assert found(MetadataFilters(filters=inner.filters, condition=FilterCondition.NOT)) == different


def test_unequal_of_the_vector_store_is_llamaindexs() -> None:
    """There a list is one value, and true is 1, as in Python; absent and null differ from everything too."""
    names = list(FIELDS)
    store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=2))
    store.add([TextNode(id_=name, text="moon", metadata=FIELDS[name], embedding=[1.0, 0.0]) for name in names])
    for value, same in (("news", {"same"}), (1, {"number", "fraction", "truth"}), ("", {"empty"})):
        for filters in (one("f", value, O.NE), one("f", [value], O.NIN)):
            assert {item.node_id for item in store.get_nodes(filters=filters)} == set(names) - same
    store.close()


_UNEQUAL = (O.EQ, O.NE)
_LEAVES = st.one_of(
    *(
        st.builds(MetadataFilter, key=st.just(key), value=values, operator=st.sampled_from(operators))
        for key, values, operators in (
            ("kind", st.sampled_from(["moon", "star"]), _UNEQUAL),
            ("year", st.integers(1968, 1973), (*_UNEQUAL, O.GT, O.GTE, O.LT, O.LTE)),
            ("tags", st.just("hot"), (O.CONTAINS,)),
        )
    )
)
_NESTED = st.recursive(
    _LEAVES,
    lambda inner: st.builds(
        MetadataFilters,
        filters=st.lists(inner, min_size=1, max_size=3),
        condition=st.sampled_from([*FilterCondition, None]),
    ),
    max_leaves=8,
).map(lambda item: item if isinstance(item, MetadataFilters) else MetadataFilters(filters=[item]))


def _holds(item: MetadataFilter | MetadataFilters, fields: Any) -> bool:  # noqa: PLR0911 - one line an operator
    if isinstance(item, MetadataFilters):
        parts = [_holds(part, fields) for part in item.filters]
        if item.condition is FilterCondition.NOT:
            return not any(parts)
        return any(parts) if item.condition is FilterCondition.OR else all(parts)
    field, value = fields.get(item.key), cast("Any", item.value)
    match item.operator:
        case O.NE:
            return field != value
        case O.CONTAINS:
            return value in (field or ())
        case _ if field is None:
            return False
        case O.EQ:
            return field == value
        case O.GT:
            return field > value
        case O.GTE:
            return field >= value
        case O.LT:
            return field < value
        case _:
            return field <= value


@given(_NESTED)
@settings(max_examples=times(60))
def test_filters_nest_as_deep_as_they_are_written(filters: MetadataFilters) -> None:
    """AND, OR and NOT in each other, in a search: LlamaIndex's own store raises, others read no further than one."""
    wanted = {item.id for item in CHUNKS if _holds(filters, item.metadata)}
    with Library() as library:
        ours = RetrievalCoreRetriever(library.pipeline, top_k=6)
        assert set(ids(ours.retrieve_with(QUESTION, filters=filters))) == wanted
        assert set(ids(ours.bound(filters=filters).retrieve(QUESTION))) == wanted


def test_a_users_field_with_a_name_of_ours_is_found_by_its_value() -> None:
    """``document_id`` is a field that some stores keep to themselves, so that a filter on it finds nothing."""
    chunks = [
        chunk("a.md", n, f"moon {n}", 2, metadata={"document_id": f"mine-{n}", "source": f"s{n}"}) for n in range(2)
    ]
    with Library(chunks=chunks) as library:
        ours = RetrievalCoreRetriever(library.pipeline)
        assert places(ours.retrieve_with("moon", filters=one("document_id", "mine-1"))) == [1]
        assert places(ours.retrieve_with("moon", filters=one("source", "s0"))) == [0]


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
def test_what_fails_a_filter_is_not_found_however_much_is_asked_for(
    retriever: RetrievalCoreRetriever, mode: Any
) -> None:
    """LlamaIndex's BM25Retriever fills up with nodes that fail it, at score 0, and raises where none is left."""
    ours = retriever.bound(mode=mode, top_k=1000)
    assert set(ids(ours.retrieve_with("sun moon", filters=one("kind", "star")))) == SUN
    assert ours.retrieve_with("sun moon", filters=one("kind", "comet")) == []
    assert ours.retrieve_with("sun moon", filters=one("nothing", 1)) == []


@pytest.mark.parametrize("mode", ["default", "mmr", "hybrid", "text_search"])
def test_documents_that_are_named_are_the_only_ones_and_no_names_are_none(mode: str) -> None:
    """``doc_ids`` reach the store from ``as_retriever``; an empty list of what is allowed allows nothing."""
    store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=2))
    nodes = [
        TextNode(
            id_=f"{name}-{n}",
            text=f"moon {name} {n}",
            embedding=[1.0, float(n)],
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=name)},
        )
        for name in ("a", "b")
        for n in range(2)
    ]
    store.add(nodes)
    index = VectorStoreIndex.from_vector_store(store, MockEmbedding(embed_dim=2))
    for doc_ids, wanted in ((None, {"a-0", "a-1", "b-0", "b-1"}), (["a"], {"a-0", "a-1"}), (["c"], set()), ([], set())):
        found = index.as_retriever(doc_ids=doc_ids, similarity_top_k=9, vector_store_query_mode=mode).retrieve("moon")
        assert set(ids(found)) == wanted, doc_ids
    store.close()


def test_filters_of_one_query_are_no_other_querys(library: Library) -> None:
    """The same question by many users at once, from coroutines and threads, through one engine and one cache."""
    engine = RetrieverQueryEngine.from_args(RetrievalCoreRetriever(library.pipeline, top_k=6), llm=MockLLM())
    cases: list[tuple[dict[str, Any] | None, set[str]]] = [
        ({"kind": "moon"}, MOON),
        ({"kind": "star"}, SUN),
        ({"year": {"$gt": 1970}}, {"moon.md#2", "moon.md#3"}),
        ({"year": 1969}, {"moon.md#0"}),
        ({"kind": "comet"}, set()),
        (None, MOON | SUN),
    ]

    def bundle(number: int) -> QueryBundle:
        filters = cases[number % len(cases)][0]
        return QueryBundle(QUESTION) if filters is None else RetrievalQueryBundle(QUESTION, filters=filters)

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*(engine.aquery(bundle(number)) for number in range(60)))

    responses = asyncio.run(all_at_once())
    with ThreadPoolExecutor(8) as pool:
        responses += pool.map(engine.query, map(bundle, range(60)))
    for number, response in enumerate(responses):
        assert set(ids(response.source_nodes)) == cases[number % 60 % len(cases)][1]
        assert not [reason for item in response.source_nodes for reason in passage(item).degraded]


def test_filters_of_one_query_to_the_vector_store_are_no_other_querys() -> None:
    store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=2))
    store.add([TextNode(id_=str(n), text="moon", metadata={"n": n}, embedding=[1.0, 0.0]) for n in range(50)])
    index = VectorStoreIndex.from_vector_store(store, MockEmbedding(embed_dim=2))

    async def all_at_once() -> list[list[NodeWithScore]]:
        return await asyncio.gather(
            *(index.as_retriever(filters=one("n", n), similarity_top_k=50).aretrieve("moon") for n in range(50))
        )

    assert [ids(found) for found in asyncio.run(all_at_once())] == [[str(n)] for n in range(50)]
    store.close()


# --- one dead source of several


DEAD = "index dead: dense: the index went away; lexical: the index went away"


def test_a_dead_index_of_several_costs_its_own_passages_alone(library: Library) -> None:
    """And every node says so; where all are dead that is an error, and no empty answer."""
    with Library() as other:
        both = open_indexes({"good": library.pipeline, "dead": other.pipeline})
        other.store.failing = {"dense", "lexical"}
        ours = RetrievalCoreRetriever(cast("Any", both), top_k=6)
        for nodes in (ours.retrieve(QUESTION), asyncio.run(ours.aretrieve(QUESTION))):
            assert {item.node.node_id for item in nodes} == {f"good:{name}" for name in MOON | SUN}
            assert all(passage(item).degraded == [DEAD] for item in nodes)
        library.store.failing = {"dense", "lexical"}
        with pytest.raises(SearchError, match=r"at least one search failed: index good: .*index dead: "):
            ours.retrieve("how far away is the sun")


def test_in_a_fusion_half_of_ours_is_dead(library: Library, retriever: RetrievalCoreRetriever) -> None:
    """Its nodes are there, found by words, and say what they were found without."""
    library.embedder.failure = EmbeddingError("the model is gone")
    other = Given(NodeWithScore(node=TextNode(id_="x", text="x"), score=0.5))
    for both in (fused([retriever, other], "reciprocal_rerank"), fused([other, retriever], "simple")):
        for nodes in (both.retrieve(QUESTION), asyncio.run(both.aretrieve(QUESTION))):
            assert "x" in ids(nodes)
            ours = [passage(item) for item in nodes if item.node.node_id != "x"]
            assert ours
            assert all(node.degraded == ["embed: the model is gone"] for node in ours)


def test_a_dead_retriever_is_an_error_of_llamaindexs_fusion_and_a_note_of_ours(library: Library) -> None:
    """LlamaIndex loses the whole answer with it; beside our index it costs what it would have found."""
    dead = Given(error=ConnectionError("no route"))
    ours = RetrievalCoreRetriever(library.pipeline)
    with pytest.raises(ConnectionError):
        fused([ours, dead]).retrieve(QUESTION)
    beside = LlamaIndexRetriever(dead, name="dead")
    once = load_config(overrides={"retry.max_retries": 0})
    with RetrievalPipeline(library.store, library.embedder, config=once, retrievers={"dead": beside}) as pipeline:
        nodes = RetrievalCoreRetriever(pipeline, top_k=6).retrieve(QUESTION)
        assert set(ids(nodes)) == MOON | SUN
        (told,) = passage(nodes[0]).degraded
        assert "dead" in told
        assert "Given failed: ConnectionError" in told
        dead.error = None
        dead.nodes = [NodeWithScore(node=TextNode(id_="x", text="found elsewhere"), score=1.0)]
        again = RetrievalCoreRetriever(pipeline, top_k=7).retrieve("how far away is it")
        assert "x" in ids(again)
        assert not passage(again[0]).degraded


def test_a_dead_engine_of_a_router_is_an_error_by_name_and_a_half_dead_one_answers(library: Library) -> None:
    """An empty list would have the model answer from nothing."""
    with Library() as other:
        engines = {
            name: RetrieverQueryEngine.from_args(RetrievalCoreRetriever(each.pipeline, top_k=2), llm=MockLLM())
            for name, each in (("good", library), ("other", other))
        }
        tools = [QueryEngineTool.from_defaults(engine, name=name, description=name) for name, engine in engines.items()]
        choice = ScriptedLLM(lambda _: '[{"choice": 1, "reason": ""}, {"choice": 2, "reason": ""}]')
        router = RouterQueryEngine(
            LLMMultiSelector.from_defaults(llm=choice), tools, llm=MockLLM(), summarizer=TreeSummarize(llm=MockLLM())
        )
        other.embedder.failure = EmbeddingError("the model is gone")
        nodes = router.query(QUESTION).source_nodes
        told = [reason for item in nodes for reason in passage(item).degraded]
        assert set(told) == {"embed: the model is gone"}
        assert len(told) == len(nodes) // 2 == 2
        other.store.failing = {"dense", "lexical"}
        with pytest.raises(SearchError, match="at least one search failed"):
            router.query("how far away is the sun")


# --- BM25 and hybrid search


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
def test_more_may_be_asked_for_than_there_is_and_so_much_comes(retriever: RetrievalCoreRetriever, mode: Any) -> None:
    """BM25Retriever raises where ``similarity_top_k`` is more than the corpus; others return fewer than they have."""
    for top_k in (1, 2, 5):
        assert len(retriever.bound(mode=mode, top_k=top_k).retrieve("moon sun the is")) == top_k
    assert set(ids(retriever.bound(mode=mode, top_k=1000).retrieve("moon sun is star"))) == MOON | SUN


def test_an_empty_index_finds_nothing(tmp_path: Path) -> None:
    """BM25Retriever divides by zero over it."""
    with open_index(tmp_path / "i.db", embedder=FakeEmbedder()) as index:
        index.add(CHUNKS)
        for name in ("moon.md", "sun.md"):
            index.delete(name)
        for mode in ("lexical", "dense", "hybrid"):
            assert RetrievalCoreRetriever(index, mode=mode).retrieve(QUESTION) == []


def test_words_are_searched_where_no_document_store_was_filled() -> None:
    """A vector store that keeps texts leaves LlamaIndex's document store empty, and BM25Retriever with nothing."""
    model = WordEmbedding()
    store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=model.size))
    index = index_of(model, store)
    assert not index.docstore.docs
    for mode in ("text_search", "hybrid"):
        found = index.as_retriever(vector_store_query_mode=mode, similarity_top_k=1).retrieve("XQ-77")
        assert ids(found) == ["sea-5"]
    store.close()


def test_the_threshold_of_mmr_may_be_zero() -> None:
    """In the query and beside it; "0 or 0.5" is 0.5."""
    store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=2))
    vectors = {"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [0.0, 1.0]}
    store.add([TextNode(id_=name, text=name, embedding=vector) for name, vector in vectors.items()])

    def found(in_query: float | None, **beside: Any) -> list[str]:
        asked = VectorStoreQuery(
            query_embedding=[1.0, 0.0], similarity_top_k=2, mode=VectorStoreQueryMode.MMR, mmr_threshold=in_query
        )
        return store.query(asked, **beside).ids or []

    assert found(0.0) == found(0.25) == found(None, mmr_threshold=0.0) == found(1.0, mmr_threshold=0.0) == ["a", "c"]
    assert found(1.0) == found(None, mmr_threshold=1.0) == found(0.0, mmr_threshold=1.0) == ["a", "b"]
    assert found(None) == found(0.5)
    store.close()


# --- writing


def test_a_document_that_is_updated_is_there_once_and_one_that_is_deleted_is_gone() -> None:
    """Also where the index was opened from the vector store, without any document store that remembers."""
    model = WordEmbedding()
    store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=model.size))
    VectorStoreIndex.from_documents(
        [Document(id_="a", text="The moon is old."), Document(id_="b", text="The sun is hot.")],
        embed_model=model,
        storage_context=index_of(model, store, nodes=[TextNode(text="x", id_="x")]).storage_context,
    )
    again = VectorStoreIndex.from_vector_store(store, embed_model=model)
    for _ in range(2):
        again.update_ref_doc(Document(id_="a", text="The moon is new."))
        texts = sorted(item.get_content() for item in store.get_nodes())
        assert texts == ["The moon is new.", "The sun is hot.", "x"]
    again.delete_ref_doc("b")
    assert sorted(item.get_content() for item in store.get_nodes()) == ["The moon is new.", "x"]
    again.delete_nodes(["x"])
    assert [item.get_content() for item in store.get_nodes()] == ["The moon is new."]
    store.close()


def test_nodes_that_are_written_twice_are_there_once() -> None:
    store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=WordEmbedding().size))
    for _ in range(2):
        index_of(WordEmbedding(), store)
    assert len(store.get_nodes()) == 6
    store.close()


def test_a_score_belongs_to_the_node_that_was_scored() -> None:
    """Services give scores best first, and a client that pairs them with the given order mixes them up."""
    nodes = [
        NodeWithScore(node=TextNode(text=text), score=0.5) for text in ("sea", "moon", "moon sun", "sun moon star")
    ]
    found = RerankPostprocessor(FakeReranker(), top_n=4).postprocess_nodes(nodes, query_str="sun moon star")
    assert [(item.node.get_content(), item.score) for item in found] == [
        ("sun moon star", 1.0),
        ("moon sun", pytest.approx(2 / 3)),
        ("moon", pytest.approx(1 / 3)),
        ("sea", 0.0),
    ]


# --- what tests of other files show

ELSEWHERE = {
    "a fusion tells nodes apart by their hash, and loses ours": (
        "test_stock_uses.py::test_fusion_recognises_passages_that_several_questions_find"
    ),
    "whatever a reranking model answers, in any form, no node is lost": (
        "test_rerank_postprocessors.py::test_whatever_a_model_answers_no_node_is_lost_or_comes_twice"
    ),
    "all operators, nested, in the vector store": (
        "test_vector_store_filters.py::test_filters_mean_what_they_mean_to_llamaindex"
    ),
    "a filter that is applied behind the limit leaves too few": (
        "test_vector_store_filters.py::test_filters_apply_before_the_limit_in_every_mode"
    ),
    "a filter that a store cannot evaluate is left out": (
        "test_adapter_build.py::test_a_filter_on_a_retriever_says_where_there_may_be_others"
    ),
    "an index is asked with another model than it was built with": (
        "test_vector_store.py::test_the_model_is_named_once_and_held_to"
    ),
    "a synchronous call where a loop is running raises": (
        "test_retriever.py::test_sync_async_and_sync_inside_a_running_loop_agree"
    ),
    "a client belongs to the event loop of its first call": (
        "test_adapter_openai.py::test_trap_its_client_belongs_to_one_event_loop"
    ),
    "documents that come again are there twice": (
        "test_vector_store.py::test_a_pipeline_of_llamaindex_fills_it_and_keeps_it_in_step"
    ),
    "scores without a scale pass no cutoff": "test_stock_uses.py::test_a_relevance_can_be_cut_off",
}


@pytest.mark.parametrize("test", ELSEWHERE.values(), ids=[*ELSEWHERE])
def test_what_is_shown_elsewhere_has_its_test(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((Path(__file__).parent / file).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
