"""A timeout is an error that names itself, never an empty result; loading does not count against the deadline."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import FederatedIndex, RetrievalPipeline, load_config, open_index
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from support.extras import needs_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

PLUGIN = """
import asyncio
from retrieval_core.testing.fakes import FakeEmbedder

class Hanging(FakeEmbedder):
    async def embed_query(self, text):
        await asyncio.Event().wait()

def hanging():
    return Hanging()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an index of one file and a plug-in whose queries hang."""
    folder = tmp_path_factory.mktemp("timeouts")
    (folder / "docs").mkdir()
    (folder / "docs/moon.md").write_text("The moon is 384,400 km away.\n", encoding="utf-8")
    (folder / "hanging_plugin.py").write_text(PLUGIN, encoding="utf-8")
    with open_index(folder / "index.db", embedder=FakeEmbedder()) as index:
        index.ingest(folder / "docs")
    return folder


def retrieval(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with the hanging embedder and a deadline of one second."""
    settings = ("--set", "embedder.kind=hanging_plugin:hanging", "--set", "deadline_seconds=1")
    command = [sys.executable, "-m", "retrieval_core.cli", *arguments, "--index", "index.db", *settings]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.mark.parametrize(
    "command",
    ["search", pytest.param("context", marks=needs_tokenizer), pytest.param("answer", marks=needs_tokenizer)],
)
def test_the_command_line_calls_a_timeout_a_timeout(folder: Path, command: str) -> None:
    """It prints what timed out, after how long and what to set, and ends with the code of failures."""
    done = retrieval(folder, command, "zebra crossing")
    assert done.returncode == 1
    assert "Nothing was found" not in done.stdout + done.stderr
    assert "Error: " in done.stderr
    assert "timed out after" in done.stderr
    assert "(deadline 1 s)" in done.stderr
    assert "Increase `deadline_seconds`" in done.stderr


def test_the_json_of_a_search_has_the_error(folder: Path) -> None:
    """Programs find it in the metadata."""
    done = retrieval(folder, "search", "zebra crossing", "--json")
    assert done.returncode == 1
    assert "timed out after" in json.loads(done.stdout)["metadata"]["error"]


def test_hits_of_the_other_side_are_results(folder: Path) -> None:
    """What keyword search finds is printed below a warning, and the command succeeds."""
    done = retrieval(folder, "search", "moon away")
    assert done.returncode == 0
    assert "384,400 km" in done.stdout
    assert "timed out after" in done.stderr


class SlowToLoad(FakeEmbedder):
    """An embedder whose model takes far longer to load than a query may take.

    Args:
        clock: The pipeline's, which loading advances by 100 s.
    """

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        self.is_loaded = False
        self.loads = 0

    async def load(self) -> None:
        self.loads += 1
        await asyncio.sleep(0)
        self._clock.advance(100)
        self.is_loaded = True

    async def embed_query(self, text: str) -> Any:
        if not self.is_loaded:
            await self.load()
        return await super().embed_query(text)


async def pipeline_of(folder: Path, embedder: SlowToLoad, clock: FakeClock) -> tuple[Any, RetrievalPipeline]:
    """Return the index that owns the store, and a pipeline with another clock over it."""
    index = open_index(folder / "index.db", embedder=FakeEmbedder())
    config = load_config(overrides={"deadline_seconds": 30.0, "cache.kind": "none"})
    return index, RetrievalPipeline(index.store, embedder, config=config, clock=clock)


def test_loading_does_not_count_against_the_deadline(folder: Path) -> None:
    """A model that loads for 100 s is loaded once for all first queries, which then have all of their 30 s."""
    clock = FakeClock()
    embedder = SlowToLoad(clock)

    async def test() -> None:
        index, pipeline = await pipeline_of(folder, embedder, clock)
        async with pipeline, index:
            results = await asyncio.gather(*(pipeline.aretrieve(f"how far is the moon {n}") for n in range(3)))
        for result in results:
            assert result.hits
            assert result.degraded == ()
        assert embedder.loads == 1

    asyncio.run(test())


def test_several_indexes_load_before_their_deadline_too(folder: Path) -> None:
    """The deadline of the common query does not pay for it either."""
    clock = FakeClock()
    embedder = SlowToLoad(clock)

    async def test() -> None:
        index, pipeline = await pipeline_of(folder, embedder, clock)
        config = load_config(overrides={"deadline_seconds": 30.0})
        async with FederatedIndex({"one": pipeline}, config=config, clock=clock) as indexes, index:
            result = await indexes.aretrieve("how far is the moon")
        assert result.hits
        assert result.degraded == ()

    asyncio.run(test())


def test_keyword_search_does_not_wait_for_the_model(folder: Path) -> None:
    """A query that embeds nothing loads no embedder."""
    clock = FakeClock()
    embedder = SlowToLoad(clock)

    async def test() -> None:
        index, pipeline = await pipeline_of(folder, embedder, clock)
        async with pipeline, index:
            assert (await pipeline.aretrieve("moon", mode="lexical")).hits
        assert embedder.loads == 0

    asyncio.run(test())
