"""What holds for every public class of the plug-in: it is listed and typed, and leaves nothing behind."""

# LlamaIndex's own types are unknown in parts.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import gc
import inspect
import pickle
import re
import threading
import tomllib
import typing
import warnings
from importlib import import_module
from importlib.metadata import requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.tools import FunctionTool
from llama_index.core.vector_stores import VectorStoreQuery
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_index.embeddings.retrieval_core import RetrievalCoreEmbedding
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
from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever, node_from_hit
from llama_index.storage.docstore.retrieval_core import RetrievalCoreDocumentStore
from llama_index.vector_stores.retrieval_core import RetrievalCoreVectorStore
from retrieval_core import open_index
from retrieval_core.adapters.pruners.threshold import EmbedderPruner
from retrieval_core.testing.fakes import FakeEmbedder, FakeReranker
from retrieval_core.testing.fakes_llm import FakeLLM
from support.llamaindex_library import CHUNKS, Library
from support.threads import left_running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROJECT = Path(__file__).parents[2] / "packages" / "llamaindex_plugin" / "pyproject.toml"
PACKAGES = (
    "llama_index.retrievers.retrieval_core",
    "llama_index.retrievers.retrieval_core.adapters",
    "llama_index.postprocessor.retrieval_core",
    "llama_index.vector_stores.retrieval_core",
    "llama_index.storage.docstore.retrieval_core",
    "llama_index.embeddings.retrieval_core",
)
BASES = (BaseRetriever, BaseNodePostprocessor, BasePydanticVectorStore, BaseDocumentStore, BaseEmbedding)
"""What LlamaHub lists classes of."""


def exported() -> dict[str, Any]:
    """Return what the packages export, by its name."""
    modules = [import_module(name) for name in PACKAGES]
    return {name: getattr(module, name) for module in modules for name in module.__all__}


COMPONENTS = {
    name: part for name, part in exported().items() if inspect.isclass(part) and issubclass(part, BASES)
}  # fmt: skip


def test_llamahub_lists_every_class() -> None:
    hub = tomllib.loads(PROJECT.read_text("utf-8"))["tool"]["llamahub"]
    assert sorted(hub["class_authors"]) == sorted(COMPONENTS)
    assert hub["import_path"] in PACKAGES


def test_no_file_lies_in_a_folder_that_other_packages_share() -> None:
    """One would replace theirs, or hide them: the folders above ours are a namespace."""
    source = PROJECT.parent / "src"
    files = [path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    own = {Path(*module.removesuffix(".adapters").split(".")) for module in PACKAGES}
    assert own == {Path(*path.parts[: path.parts.index("retrieval_core") + 1]) for path in files}
    assert all((source / folder / "py.typed").is_file() for folder in own)


def test_the_bounds_on_llamaindex_are_closed_and_hold_here() -> None:
    """The next minor version may change what the plug-in needs; `nox -s plugin_lowest` runs the lowest one."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    (bound,) = (text for text in project["dependencies"] if text.startswith("llama-index-core"))
    found = re.fullmatch(r"llama-index-core>=(\d+)\.(\d+)\.(\d+),<(\d+)\.(\d+)", bound)
    assert found
    lowest, end = tuple(map(int, found.groups()[:3])), tuple(map(int, found.groups()[3:]))
    assert lowest <= tuple(map(int, version("llama-index-core").split(".")[:3])) < (*end, 0)
    assert any("llama-index-core" in text for text in requires("llama-index-retrievers-retrieval-core") or ())


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, part in exported().items():
        if inspect.isfunction(part):
            yield name, part
        elif name in COMPONENTS:
            for method, function in inspect.getmembers(part, callable):
                if not method.startswith("_") and "retrieval_core" in str(getattr(function, "__module__", "")):
                    yield f"{name}.{method}", inspect.unwrap(function)


FUNCTIONS = dict(public_functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_annotations_are_resolved_at_run_time(name: str) -> None:
    """Whoever makes a tool or a dictionary of it looks at them."""
    assert "return" in typing.get_type_hints(FUNCTIONS[name])


def test_a_tool_tells_a_model_what_it_takes() -> None:
    """Its schema is made of the annotations; a filter that a model writes is JSON."""
    with Library() as library:
        ours = RetrievalCoreRetriever(library.pipeline, top_k=6)
        for function in (ours.retrieve_with, ours.aretrieve_with):
            tool = FunctionTool.from_defaults(fn=function, name="search", description="Searches.")
            schema = tool.metadata.get_parameters_dict()
            assert set(schema["properties"]) == {"query", "filters", "top_k", "mode"}
            assert schema["required"] == ["query"]
            filters, nothing = schema["properties"]["filters"]["anyOf"]
            assert (filters["type"], nothing["type"]) == ("object", "null")
            assert {"type": "integer"} in schema["properties"]["top_k"]["anyOf"]
            assert "hybrid" in str(schema["properties"]["mode"])
            assert tool.metadata.to_openai_tool()["function"]["parameters"] == schema
        found = FunctionTool.from_defaults(fn=ours.retrieve_with).call(query="sun", filters={"kind": "star"}, top_k=9)
        assert {item.node.node_id for item in found.raw_output} == {"sun.md#0", "sun.md#1"}
        view = RetrievalCoreDocumentStore(library.store)
        looked_up = FunctionTool.from_defaults(fn=view.get_document)
        assert looked_up.metadata.get_parameters_dict()["required"] == ["doc_id"]
        assert "The sun is a star." in str(looked_up.call(doc_id="sun.md#0"))
        view.close()


MADE: dict[str, Callable[[Library], Any]] = {
    "RetrievalCoreRetriever": lambda library: RetrievalCoreRetriever(library.pipeline),
    "RetrievalCoreVectorStore": lambda library: RetrievalCoreVectorStore(library.store),
    "RetrievalCoreDocumentStore": lambda library: RetrievalCoreDocumentStore(library.store),
    "RetrievalCoreEmbedding": lambda library: RetrievalCoreEmbedding(library.embedder),
    "MMRPostprocessor": lambda library: MMRPostprocessor(library.embedder),
    "RerankPostprocessor": lambda _: RerankPostprocessor(FakeReranker()),
    "LLMRerankPostprocessor": lambda _: LLMRerankPostprocessor(FakeLLM("no")),
    "RelevanceFilterPostprocessor": lambda _: RelevanceFilterPostprocessor(FakeLLM("no")),
    "SentencePruningPostprocessor": lambda library: SentencePruningPostprocessor(
        EmbedderPruner(library.embedder, threshold=0.1)
    ),
    "NeighborExpansionPostprocessor": lambda library: NeighborExpansionPostprocessor(library.store),
    "TokenBudgetPostprocessor": lambda _: TokenBudgetPostprocessor(100, token_counter=len),
    "ContextPackPostprocessor": lambda library: ContextPackPostprocessor(
        library.store, max_tokens=1000, token_counter=len
    ),
}


@pytest.mark.parametrize("name", sorted(COMPONENTS.keys() - {"RetrievalCoreEmbedding"}))
def test_what_cannot_be_pickled_says_so_and_what_to_do(name: str) -> None:
    """A copy without its store would be found out much later, in another process."""
    with Library() as library:
        part = MADE[name](library)
        with pytest.raises(TypeError, match=r"cannot be pickled.*make a new one instead"):
            pickle.dumps(part)


def used(part: Any, library: Library) -> None:
    """Call a synchronous method, which starts a background loop."""
    hits = library.pipeline.retrieve("moon").hits
    nodes = [node_from_hit(hit, rank) for rank, hit in enumerate(hits, start=1)]
    if isinstance(part, RetrievalCoreRetriever):
        assert part.retrieve("moon")
    elif isinstance(part, RetrievalCoreVectorStore):
        dimension = library.embedder.dimension
        assert part.query(VectorStoreQuery(query_embedding=[1.0] * dimension)).ids
    elif isinstance(part, RetrievalCoreDocumentStore):
        assert part.docs
    elif isinstance(part, RetrievalCoreEmbedding):
        assert part.get_text_embedding("moon")
    else:
        assert part.postprocess_nodes(nodes, query_str="moon")


def is_gone(left: ref[Any], before: set[threading.Thread]) -> bool:
    """Whether nothing is left of a part: neither itself, nor a thread, nor something that nobody closed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    running = left_running(before)
    gc.collect()
    return left() is None and not running


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
@pytest.mark.filterwarnings("error")
def test_nothing_is_left_of_what_nobody_closed(name: str) -> None:
    """Neither a thread nor an open loop, which would be a ResourceWarning, and that an error here."""
    with Library() as library:
        library.pipeline.retrieve("moon")  # its own loop has begun
        before = set(threading.enumerate())
        part = MADE[name](library)
        used(part, library)
        left = ref(part)
        del part
        assert is_gone(left, before)


@pytest.mark.filterwarnings("error")
@pytest.mark.slow
def test_nothing_is_left_of_a_vector_store_over_a_file(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    with open_index(tmp_path / "i.db", embedder=embedder) as index:
        index.add(CHUNKS)
    before = set(threading.enumerate())
    store = RetrievalCoreVectorStore.from_index_file(tmp_path / "i.db", embed_model=embedder)
    assert len(store.get_nodes()) == len(CHUNKS)
    left = ref(store)
    del store
    assert is_gone(left, before)
