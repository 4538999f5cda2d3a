"""Plug-ins that ignore their cancellation: a query ends at its deadline, with what the others found."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from retrieval_core import RetrievalPipeline, load_config, open_index
from retrieval_core.testing.fakes import FakeEmbedder
from support.extras import needs_tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from retrieval_core import Index

# The limit is far more than any of them takes: only a hang exceeds it.
pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]

TEXT = "The deadline bounds a query.\n\nBread is baked for forty minutes.\n"


async def never_end() -> NoReturn:
    """Retry for ever, as a careless loop does."""
    while True:
        try:
            await asyncio.sleep(3600)
        except (asyncio.CancelledError, ConnectionError):
            continue


class Stubborn:
    """A plug-in of any kind; every one of its methods never ends."""

    id = "stubborn"
    batch_size = 8

    async def _never_end(self, *_: object, **__: object) -> Any:
        await never_end()

    score = judge = keep = rewrite = evaluate = transform = search = complete = verify = _never_end

    async def stream(self, _request: object) -> AsyncIterator[str]:
        await never_end()
        yield "too late"

    async def aclose(self) -> None:
        return


class ReturnsAwaitable(Stubborn):
    """The same with synchronous methods, which return something that is to be awaited."""

    def _begin(self, *_: object, **__: object) -> Any:
        return never_end()

    score = judge = keep = rewrite = evaluate = transform = search = complete = verify = _begin


class StubbornEmbedder(FakeEmbedder):
    """Embeds passages, and never a query."""

    async def embed_query(self, text: str) -> Any:
        await never_end()


def config(**settings: object) -> Any:
    """Return settings with a short deadline and without a breaker, so that each query meets the plug-in."""
    return load_config(overrides={"deadline_seconds": 4.0, "breaker.failures": 0, "cache.kind": "none", **settings})


def opened(folder: Path, settings: Any = None, **plugins: Any) -> Index:
    """Return an index of one file."""
    (folder / "docs").mkdir()
    (folder / "docs/deadline.md").write_text(TEXT, encoding="utf-8")
    plugins = {"embedder": FakeEmbedder(), **plugins}
    with open_index(folder / "index.db", config=config(), embedder=FakeEmbedder()) as index:
        index.ingest(folder / "docs")
    return open_index(folder / "index.db", config=settings or config(), **plugins)


def stages(degraded: Sequence[Any]) -> set[str]:
    """Return the stages that a result did without."""
    return {item.stage for item in degraded}


def test_an_embedder_leaves_the_keyword_hits(tmp_path: Path) -> None:
    """The keyword side is ready, and answers; the result names the timeout of the other one."""
    with opened(tmp_path, embedder=StubbornEmbedder()) as index:
        result = index.retrieve("deadline of a query")
    assert "deadline" in result.hits[0].chunk.text
    assert "embed" in stages(result.degraded)
    assert "deadline" in next(item.reason for item in result.degraded if item.stage == "embed")


@pytest.mark.parametrize("plugin", [Stubborn(), ReturnsAwaitable()], ids=["async", "returns-awaitable"])
@pytest.mark.parametrize("kind", ["reranker", "transformer", "retriever"])
def test_a_stage_is_done_without(tmp_path: Path, kind: str, plugin: Any) -> None:
    """The hits that are ready come without it, and the result names it."""
    plugins = {
        "reranker": {"reranker": plugin},
        "transformer": {"transformers": {"mine": plugin}},
        "retriever": {"retrievers": {"mine": plugin}},
    }[kind]
    with opened(tmp_path, **plugins) as index:
        result = index.retrieve("deadline of a query")
    assert "deadline" in result.hits[0].chunk.text
    assert result.degraded


def test_a_store_whose_vector_search_hangs_leaves_its_keyword_hits(tmp_path: Path) -> None:
    """The other search of the same store answers."""

    class HalfStubborn:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def search(self, request: Any) -> Any:
            if request.vector is not None:
                await never_end()
            return await self._store.search(request)

    with opened(tmp_path) as index:
        store: Any = HalfStubborn(index.store)
        pipeline = RetrievalPipeline(store, FakeEmbedder(), config=config())
        result = pipeline.retrieve("deadline of a query")
        pipeline.close()
    assert "deadline" in result.hits[0].chunk.text
    assert "dense" in stages(result.degraded)


@needs_tokenizer
def test_a_language_model_leaves_an_extracted_answer(tmp_path: Path) -> None:
    """The answer is made of the passages, and says what it falls back to; what comes too late is not part of it."""

    class Late(Stubborn):
        async def stream(self, _request: object) -> AsyncIterator[str]:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                while True:
                    yield "Too late. "

    with opened(tmp_path, config(**{"answer.abstain_below": 0.0, "deadline_seconds": 6.0}), llm=Late()) as index:
        answer = index.answer("What bounds a query?")
    assert answer.kind == "extracted"
    assert "Too late" not in answer.text
    assert [item.step for item in answer.fallbacks] == ["extracted"]


def test_a_synchronous_plugin_that_blocks_is_done_without(tmp_path: Path) -> None:
    """It keeps its thread, and not the query."""
    from threading import Event

    release = Event()

    class Blocking(Stubborn):
        def score(self, *_: object) -> Any:
            release.wait(3600)

    with opened(tmp_path, reranker=Blocking()) as index:
        result = index.retrieve("deadline of a query")
        release.set()
    assert result.hits
    assert "rerank" in stages(result.degraded)


def test_closing_does_not_wait_for_a_plugin_that_never_closes(tmp_path: Path) -> None:
    """The index is closed without it."""

    class NeverCloses(FakeEmbedder):
        async def aclose(self) -> None:
            await never_end()

    opened(tmp_path, embedder=NeverCloses()).close()


PROGRAM = """
import asyncio, sys
from retrieval_core import open_index, load_config
from retrieval_core.testing.fakes import FakeEmbedder

class CatchesEverything:
    id, batch_size = "stubborn", 8
    async def score(self, query, passages):
        while True:
            try:
                await asyncio.sleep(3600)
            except:
                pass

async def main():
    settings = load_config(overrides={"deadline_seconds": 1.0, "cache.kind": "none"})
    async with open_index(sys.argv[1], config=settings, embedder=FakeEmbedder(), reranker=CatchesEverything()) as index:
        for _ in range(3):
            print(len((await index.aretrieve("deadline")).hits))

asyncio.run(main())
"""


def test_the_process_ends_without_complaints(tmp_path: Path) -> None:
    """Neither the event loop nor the garbage collector has anything to report, whatever the plug-in catches."""
    opened(tmp_path).close()
    command = [sys.executable, "-X", "dev", "-c", PROGRAM, str(tmp_path / "index.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["1", "1", "1"]), done.stderr
    for complaint in ("never retrieved", "Exception ignored", "was destroyed", "Traceback"):
        assert complaint not in done.stderr
    assert "ignores that it was cancelled" in done.stderr
