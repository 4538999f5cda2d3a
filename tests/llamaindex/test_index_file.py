"""The retriever of an index file: what it opens it closes, and what is wrong with file or settings is said at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from retrieval_core import open_index
from retrieval_core.config import RetrievalConfig, load_config
from retrieval_core.errors import (
    ConfigurationError,
    FilterError,
    IndexFormatError,
    IndexNotFoundError,
    InvalidParameterError,
    RetrievalError,
    StoreError,
)
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.testing.fakes import FakeEmbedder
from support.llamaindex_library import CHUNKS, Library

if TYPE_CHECKING:
    from pathlib import Path

    from llama_index.core.schema import NodeWithScore

QUESTION = "how far away is the moon"


def ids(nodes: list[NodeWithScore]) -> list[str]:
    return [item.node.node_id for item in nodes]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "index.db"
    with open_index(path, embedder=FakeEmbedder()) as index:
        index.add(CHUNKS)
    return path


def test_an_index_file_is_closed_with_its_retriever(file: Path) -> None:
    """Closing twice is fine; asking afterwards is an error of ours."""
    with pytest.raises(InvalidParameterError, match="give one of them"):
        RetrievalCoreRetriever.from_index_file(file, embedder=FakeEmbedder(), embed_model=FakeEmbedder())
    with RetrievalCoreRetriever.from_index_file(file, embed_model=FakeEmbedder(), top_k=1) as retriever:
        assert ids(retriever.retrieve(QUESTION)) == ["moon.md#1"]
        assert len(retriever.bound(similarity_top_k=2).retrieve(QUESTION)) == 2
    retriever.close()
    with pytest.raises(RetrievalError):
        retriever.retrieve(QUESTION)

    async def asynchronously() -> None:
        async with RetrievalCoreRetriever.from_index_file(file, embedder=FakeEmbedder()) as other:
            await other.aretrieve(QUESTION)
        await other.aclose()
        with pytest.raises(RetrievalError):
            await other.aretrieve(QUESTION)

    asyncio.run(asynchronously())


@pytest.mark.parametrize(
    "config", [None, load_config(overrides={"search.mode": "lexical", "search.top_k": 5}), "lexical"]
)
def test_single_settings_win_over_a_configuration(file: Path, config: RetrievalConfig | str | None) -> None:
    """An object, a preset or none; a whole table is laid over the configured one."""
    embedder = None if config == "lexical" else FakeEmbedder()
    with (
        open_index(file.parent / "words.db", config=load_config("lexical")) as index,
        RetrievalCoreRetriever.from_index_file(
            file if embedder else file.parent / "words.db",
            config=config,
            embedder=embedder,
            search={"candidates": 7},
            search__top_k=2,
            deadline_seconds=None,
        ) as retriever,
    ):
        index.add(CHUNKS)
        settings = retriever.pipeline.config
        assert (settings.search.top_k, settings.search.candidates, settings.deadline_seconds) == (2, 7, None)
        assert settings.search.mode == ("hybrid" if config is None else "lexical")
        assert len(retriever.retrieve(QUESTION)) == 2


def test_a_configuration_alone_is_used_as_it_is(file: Path) -> None:
    """Nothing is read from elsewhere."""
    config = load_config(overrides={"search.top_k": 1})
    with RetrievalCoreRetriever.from_index_file(file, config=config, embedder=FakeEmbedder()) as retriever:
        assert retriever.pipeline.config is config


def test_a_wrong_setting_or_filter_is_an_error_at_once(file: Path) -> None:
    """With the setting's key."""
    with pytest.raises(ConfigurationError, match=r"search\.topk: unknown setting; did you mean top_k"):
        RetrievalCoreRetriever.from_index_file(file, search__topk=2)
    with pytest.raises(FilterError):
        RetrievalCoreRetriever.from_index_file(file, filters={"$unknown": 1})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("similarity_topk", "similarity_top_k"),
        ("topk", "top_k"),
        ("filter", "filters"),
        ("vector_store_query_mode", "mode"),
        ("candidates", "search__candidates"),
    ],
)
def test_an_unknown_keyword_is_an_error_with_the_one_that_was_meant(file: Path, given: str, meant: str) -> None:
    """Those of this method and of the settings; other problems stand beside it."""
    hint = f"{given}: unknown setting; did you mean {meant}?"
    with pytest.raises(ConfigurationError) as caught:
        RetrievalCoreRetriever.from_index_file(file, search__top_k=0, **cast("Any", {given: 2}))
    assert hint in caught.value.problems
    assert str(caught.value).count("\n") == len(caught.value.problems) == 2
    assert f"\n  {hint}" in str(caught.value)


def test_an_unknown_keyword_that_is_like_no_other_gets_no_hint(file: Path) -> None:
    """Nor does a preset that there is not become one."""
    with pytest.raises(ConfigurationError, match=r"colour: unknown setting$"):
        RetrievalCoreRetriever.from_index_file(file, colour="red")
    with pytest.raises(ConfigurationError, match="no configuration file or preset 'top_k'"):
        RetrievalCoreRetriever.from_index_file(file, config="top_k")


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"top_k": 0}, "top_k"),
        ({"top_k": 1001}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"mode": "psychic"}, "mode"),
    ],
)
def test_settings_outside_their_range_are_refused_at_once(
    library: Library, file: Path, wrong: dict[str, Any], name: str
) -> None:
    """By name, and not by the first query."""
    with pytest.raises(InvalidParameterError, match=name):
        RetrievalCoreRetriever(library.pipeline, **wrong)
    with pytest.raises(InvalidParameterError, match=name):
        RetrievalCoreRetriever.from_index_file(file, embedder=FakeEmbedder(), **wrong)


def test_what_is_no_pipeline_or_embedder_is_refused_at_once(library: Library, file: Path) -> None:
    """With what to give or call instead."""
    retriever = RetrievalCoreRetriever(library.pipeline)
    for wrong in ("index.db", None, RetrievalPipeline, retriever):
        with pytest.raises(InvalidParameterError, match=r"pipeline must be a RetrievalPipeline.*from_index_file"):
            RetrievalCoreRetriever(pipeline=cast("Any", wrong))
    for wrong in ("sk-secret", FakeEmbedder):
        with pytest.raises(InvalidParameterError, match="embedder must be") as caught:
            RetrievalCoreRetriever.from_index_file(file, embedder=cast("Any", wrong))
        assert "sk-secret" not in str(caught.value)


def test_a_path_of_something_else_is_refused_at_once(tmp_path: Path) -> None:
    """A folder and a text file; an empty file may become an index, and other stores need none."""
    with pytest.raises(InvalidParameterError, match="is a folder; give the index file"):
        RetrievalCoreRetriever.from_index_file(tmp_path)
    text = tmp_path / "notes.md"
    text.write_text("The moon is 384,400 km away.")
    with pytest.raises(IndexFormatError, match=r"notes\.md is not an index"):
        RetrievalCoreRetriever.from_index_file(text)
    assert text.read_text() == "The moon is 384,400 km away."
    (tmp_path / "empty.db").touch()
    RetrievalCoreRetriever.from_index_file(tmp_path / "empty.db", embedder=FakeEmbedder()).close()
    RetrievalCoreRetriever.from_index_file(tmp_path, embedder=FakeEmbedder(), store__kind="memory").close()


def test_looking_at_an_index_file_leaves_the_locks_on_it(file: Path) -> None:
    """Closing it in another way than SQLite's would let go of all locks of this process, and another could break it."""
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('PRAGMA journal_mode = DELETE')"
    with open_index(file, embedder=FakeEmbedder()) as index:
        assert index.retrieve(QUESTION).hits
        RetrievalCoreRetriever.from_index_file(file, embedder=FakeEmbedder()).close()
        other = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True, check=False)
        assert "database is locked" in other.stderr
        assert index.retrieve(QUESTION).hits


def test_a_missing_file_is_named_by_the_first_query(tmp_path: Path) -> None:
    """Opening reads nothing; and nothing is made."""
    with RetrievalCoreRetriever.from_index_file(tmp_path / "no.db", embedder=FakeEmbedder()) as retriever:
        with pytest.raises(IndexNotFoundError, match=r"no\.db"):
            retriever.retrieve(QUESTION)
        assert not (tmp_path / "no.db").exists()
        assert issubclass(IndexNotFoundError, StoreError)
