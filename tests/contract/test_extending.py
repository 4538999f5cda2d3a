"""What docs/extending.md says of parts of one's own: how short they are, how they are named, that ``def`` will do."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import open_index
from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import load_config
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Candidate, Completion, CompletionRequest, RerankScores
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Chunk
from support.building import build_pipeline
from support.pipelines import TroubledStore, filled, word_counter

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (Path(__file__).parents[2] / "docs/extending.md").read_text(encoding="utf-8")
QUESTION = "an earlier revision of an application"
NOTE = Candidate("note", 1.0, Chunk("note", "notes", "A note on the history of revisions. It is short."))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_examples_are_short() -> None:
    """Each is complete, with its imports and its use, in fewer than 25 lines."""
    assert len(blocks("python")) == 9
    assert all(len(block.splitlines()) < 25 for block in blocks("python"))


def test_instructions_of_ones_own_reach_the_models() -> None:
    """Every instruction in the page's configuration is shown to the model that it is for."""
    example = blocks("toml")[-1]
    written = re.findall(r'= "(.+ .+)"$', example, flags=re.MULTILINE)
    shown: set[str] = set()

    def answer(request: CompletionRequest) -> Completion:
        shown.add(request.messages[0].content.split("\n")[0])
        return Completion("no answer")

    config = load_config(overrides={**_settings(example), "cache.kind": "none", "retry.max_retries": 0})
    llm = FakeLLM(answer)
    store = TroubledStore()
    filled(store)
    with build_pipeline(config, store, FakeEmbedder(), llm=llm, token_counter=word_counter()) as pipeline:
        result = pipeline.retrieve(QUESTION)
        pipeline.answer(QUESTION)
    assert {item.stage for item in result.degraded} == {"transform", "rerank", "relevance", "rewrite"}
    assert shown == set(written)


def _settings(example: str) -> dict[str, Any]:
    import tomllib

    sections = tomllib.loads(example)
    prompts = sections.pop("transform")["prompts"]
    settings = {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}
    return {**settings, "transform.prompts": prompts, "transform.use": [*prompts], **_ALWAYS_REWRITTEN}


_ALWAYS_REWRITTEN = {"rewriter.relevance_threshold": 1, "rewriter.max_attempts": 1}


class Plain:
    """Every method that a part of one's own may have, as a plain function; it notes the thread that runs it."""

    id = "plain"
    batch_size = 10
    dimension = 256

    def __init__(self) -> None:
        self.threads: dict[str, str] = {}

    def note(self, method: str) -> None:
        assert current_thread() is not main_thread()
        self.threads[method] = current_thread().name

    def search(self, query: str, k: int = 10) -> Any:
        self.note("search")
        assert k >= 1
        return (NOTE,)

    def score(self, query: str, passages: Any) -> Any:
        self.note("score")
        return RerankScores(tuple(1 / (1 + place) for place, _ in enumerate(passages)))

    def transform(self, query: str, context: Any) -> Any:
        self.note("transform")
        return f"{query} please"


class Coroutines(Plain):
    """The same as coroutine functions."""

    async def search(self, query: str, k: int = 10) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().search(query, k)

    async def score(self, query: str, passages: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().score(query, passages)

    async def transform(self, query: str, context: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().transform(query, context)


@pytest.mark.parametrize(("make", "thread"), [(Plain, "retrieval-plugins"), (Coroutines, "retrieval-sync")])
def test_plain_functions_and_coroutines(make: Callable[[], Plain], thread: str) -> None:
    """A plain function runs in a thread of the pipeline's, a coroutine function on its event loop; both do."""
    part: Any = make()
    store = MemoryStore(embedder_id=FakeEmbedder().id, dimension=256)
    filled(store)
    with open_index(
        embedder=FakeEmbedder(), store=store, retrievers={"own": part}, transformers={"own": part}, reranker=part
    ) as index:
        result = index.retrieve(QUESTION)
        assert index.retrieve(QUESTION).from_cache
    assert not result.degraded
    assert result.metadata["query_searched"] == f"{QUESTION} please"
    assert "note" in [hit.id for hit in result.hits]
    assert all(hit.scores.rerank is not None for hit in result.hits)
    assert part.threads.keys() == {"search", "score", "transform"}
    assert all(name.startswith(thread) for name in part.threads.values())


def test_factories_in_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transformer and a reranker are named by their factories, with arguments."""
    (tmp_path / "parts_of_my_own.py").write_text(
        "class Suffix:\n"
        "    def __init__(self, suffix):\n"
        "        self.id, self._suffix = f'suffix {suffix}', suffix\n"
        "    def transform(self, query, context):\n"
        "        return query + self._suffix\n"
        "class Down:\n"
        "    id, batch_size = 'down', 5\n"
        "    def score(self, query, passages):\n"
        "        raise RuntimeError('not today')\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "parts_of_my_own", raising=False)
    settings: dict[str, Any] = {
        "transform.use": ["parts_of_my_own:Suffix"],
        "transform.custom": {"suffix": " please"},
        "reranker.kind": "parts_of_my_own:Down",
        "reranker.fallbacks": ["parts_of_my_own:Down"],
    }
    store = TroubledStore()
    filled(store)
    with build_pipeline(load_config(overrides=settings), store, FakeEmbedder()) as pipeline:
        result = pipeline.retrieve(QUESTION)
    assert result.metadata["query_searched"] == f"{QUESTION} please"
    assert [(item.stage, item.reason) for item in result.degraded] == [("rerank", "down: not today")]


class Nameless(Plain):
    id = ""


@pytest.mark.parametrize("place", ["retrievers", "transformers"])
def test_without_an_id_nothing_is_kept(place: str) -> None:
    """Two results of a part that does not say who it is cannot be known to be the same."""
    for part, kept in ((Plain(), True), (Nameless(), False)):
        store = MemoryStore(embedder_id=FakeEmbedder().id, dimension=256)
        filled(store)
        parts: Any = {place: {"own": part}}
        config = load_config(overrides={"transform.use": ["own"]})
        with RetrievalPipeline(store, FakeEmbedder(), cache=MemoryCache(), config=config, **parts) as pipeline:
            assert not pipeline.retrieve(QUESTION).degraded
            assert pipeline.retrieve(QUESTION).from_cache == kept


def test_a_reranker_without_an_id_is_refused() -> None:
    """Its scores are kept by it."""
    odd: Any = object()
    with pytest.raises(InvalidParameterError, match="reranker must be an object with id"):
        RetrievalPipeline(TroubledStore(), FakeEmbedder(), reranker=odd)
