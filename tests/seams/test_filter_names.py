"""Filters by the specification's names, and warnings about fields that no chunk has, on every face."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk, load_config, open_index
from retrieval_core.compat.retrieval_tests import RetrievalQuery, RetrievalTester
from retrieval_core.testing.fakes import FakeEmbedder
from support.extras import needs_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core import Index

URL = "https://example.com/ros2-intro"
QUERY = "robot operating system"
SETTINGS: dict[str, Any] = {
    "cache.kind": "none",
    "embedder.kind": "retrieval_core.testing.fakes:FakeEmbedder",
    "embedder.custom.dimension": 64,
}
CHUNKS = [
    Chunk("ros#0", "ros", "ROS 2 is a robot operating system.", 0, 2, source=URL, metadata={"brand": "open"}),
    Chunk("ros#1", "ros", "A node of the robot publishes messages.", 1, 2, source=URL, metadata={"brand": "open"}),
    Chunk("gaz#0", "gaz", "Gazebo simulates the world of a robot.", source="https://example.com/gazebo"),
]


@pytest.fixture(params=["memory", "sqlite"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    """Yield an index of this library."""
    config = load_config(overrides={"cache.kind": "none", "store.kind": request.param})
    with open_index(tmp_path / "index.db", config=config, embedder=FakeEmbedder(64)) as opened:
        opened.add(CHUNKS)
        yield opened


def found(index: Index, filters: dict[str, Any], top_k: int = 3) -> list[str]:
    """Return the ids of what the file's own search finds."""
    tester = RetrievalTester({"book": index})
    query = RetrievalQuery("book", tester.embed("book", QUERY), top_k, filters=filters)
    return sorted(str(result.id) for result in tester.search(query))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"source_url": URL}, ["ros#0", "ros#1"]),
        ({"source_url": {"$ne": URL}}, ["gaz#0"]),
        ({"source_url": {"$in": [URL, "x"]}, "brand": "open"}, ["ros#0", "ros#1"]),
        ({"content": {"$text": "simulates"}}, ["gaz#0"]),
        ({"content": "A node of the robot publishes messages."}, ["ros#1"]),
        ({"chunk_id": "ros#1"}, ["ros#1"]),
        ({"total_chunks": {"$gte": 2}}, ["ros#0", "ros#1"]),
        ({"chunk_index": 1}, ["ros#1"]),
        ({"embedding_model": "fake-words-64"}, ["gaz#0", "ros#0", "ros#1"]),
        ({"$or": [{"total_chunks": 1}, {"chunk_id": "ros#0"}]}, ["gaz#0", "ros#0"]),
        ({"$not": {"total_chunks": 1}}, ["ros#0", "ros#1"]),
        ({"source_url": "https://example.com/none"}, []),
    ],
)
def test_the_names_of_the_file_filter(index: Index, filters: dict[str, Any], expected: list[str]) -> None:
    """Every field of the payload can be filtered by, under the name that the payload has for it."""
    assert found(index, filters) == expected


def test_a_filter_by_content_looks_far_enough(tmp_path: Path) -> None:
    """The only chunk that passes is found, however many are more similar to the query."""
    config = load_config(overrides={"cache.kind": "none", "store.kind": "memory"})
    with open_index(tmp_path / "index.db", config=config, embedder=FakeEmbedder(64)) as opened:
        near = [Chunk(f"n#{number}", "n", f"robot operating system {number}") for number in range(300)]
        opened.add([*near, Chunk("far#0", "far", "Something else entirely.")])
        assert found(opened, {"content": {"$text": "entirely"}}, top_k=1) == ["far#0"]


@pytest.mark.slow
def test_a_filter_that_looked_at_too_few_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A store can't filter by content: 10,000 chunks are tested. The results and the log say if that was too few."""
    config = load_config(overrides={"cache.kind": "none", "store.kind": "memory"})
    with open_index(tmp_path / "index.db", config=config, embedder=FakeEmbedder(16)) as opened:
        near = [Chunk(f"n#{number}", "n", "robot operating system") for number in range(10_000)]
        opened.add([*near, Chunk("n#last", "n", "robot")])
        tester = RetrievalTester({"book": opened})
        vector = tester.embed("book", QUERY)
        passing = {"content": {"$ne": "robot"}}
        (first, *_) = tester.search(RetrievalQuery("book", vector, 1, filters=passing))
        assert first.degraded == ()
        half = {"$or": [{"content": "robot"}, {"chunk_id": "n#1"}]}
        results = tester.search(RetrievalQuery("book", vector, 2, filters=half))
        assert [result.id for result in results] == ["n#1"]
        assert ["10,000 nearest" in entry.reason for entry in results[0].degraded] == [True]
        caplog.clear()
        assert tester.search(RetrievalQuery("book", vector, 2, filters={"content": "owls"})) == []
        assert "10,000 nearest" in caplog.text


@needs_tokenizer
@pytest.mark.parametrize(
    "filters",
    [{"brnd": "open"}, {"brnd": {"$ne": "open"}}, {"$or": [{"brnd": "open"}, {"source": URL}]}],
)
def test_an_unknown_field_is_named_once_with_the_closest_one(index: Index, filters: dict[str, Any]) -> None:
    """The result says so, whether something is found or not."""
    result = index.retrieve(QUERY, filters)
    warnings = [entry.reason for entry in result.degraded if entry.stage == "filter"]
    assert len(warnings) == 1
    assert "'brnd'" in warnings[0]
    assert "'brand'" in warnings[0]
    assert [entry for entry in index.context(QUERY, filters=filters).degraded if entry.stage == "filter"]


@pytest.mark.parametrize(
    "filters", [{"brand": "closed"}, {"brand": {"$ne": "open"}}, {"title": "none"}, {"source": URL}]
)
def test_a_known_field_gets_no_warning(index: Index, filters: dict[str, Any]) -> None:
    """A field that some chunk has, or that every chunk may have, is not unknown."""
    assert [entry for entry in index.retrieve(QUERY, filters).degraded if entry.stage == "filter"] == []


def test_the_files_own_search_warns_too(index: Index) -> None:
    """The warning is in each result; the file's names are never unknown."""
    tester = RetrievalTester({"book": index})
    vector = tester.embed("book", QUERY)
    (first, *_) = tester.search(RetrievalQuery("book", vector, filters={"brnd": {"$ne": "x"}}))
    assert ["'brand'" in entry.reason for entry in first.degraded] == [True]
    (first, *_) = tester.search(RetrievalQuery("book", vector, filters={"content": {"$ne": "x"}}))
    assert first.degraded == ()


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Return an index in a file, and its settings."""
    config = tmp_path / "retrieval.toml"
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in SETTINGS.items()), encoding="utf-8")
    with open_index(tmp_path / "index.db", config=load_config(config)) as opened:
        opened.add(CHUNKS)
    return str(tmp_path / "index.db"), str(config)


def test_the_command_line_warns(files: tuple[str, str]) -> None:
    """The warning is printed on standard error."""
    place, config = files
    command = [sys.executable, "-m", "retrieval_core.cli", "search", QUERY, "--index", place, "--config", config]
    done = subprocess.run([*command, "--filter", '{"brnd": {"$ne": "x"}}'], capture_output=True, text=True, check=True)
    assert "no chunk has a field 'brnd'; did you mean 'brand'?" in " ".join(done.stderr.split())


def test_the_server_warns_over_http_and_mcp(files: tuple[str, str]) -> None:
    """Both of the server's faces say so beside the results."""
    pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
    from mcp.client.stdio import StdioServerParameters, stdio_client

    from mcp import Client
    from support.http_process import http_process
    from support.processes import EVERYTHING

    place, config = files
    with http_process("--index", place, "--config", config) as service:
        body = json.dumps({"query_text": QUERY, "filters": {"brnd": {"$ne": "x"}}}).encode()
        request = urllib.request.Request(
            f"{service.url}/v1/search", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            told = json.load(answer)
    assert told["results"]
    assert ["'brand'" in entry["reason"] for entry in told["degraded"]] == [True]

    async def conversation() -> list[Any]:
        arguments = ["-m", "retrieval_core_mcp", "--index", place, "--config", config, *EVERYTHING]
        async with Client(stdio_client(StdioServerParameters(command=sys.executable, args=arguments))) as client:
            search = await client.call_tool("search", {"query": QUERY, "filters": {"brnd": {"$ne": "x"}}})
            misspelt = {"query": QUERY, "filters": {"brnd": "x"}}
            return [search, *[await client.call_tool(name, misspelt) for name in ("search", "retrieve_context")]]

    search, *empty = asyncio.run(conversation())
    told = search.structured_content
    assert told["results"]
    assert ["'brand'" in line for line in told["degraded"]] == [True]
    for answer in empty:  # a complete search, that the filter left nothing of
        text = answer.content[0].text
        assert "Nothing was found" in text or text.startswith("The filter excludes all documents.")
        assert "incomplete" not in answer.content[0].text
