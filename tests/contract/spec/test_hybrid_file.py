"""The second specification file: its examples run, and what it says of its pipeline's methods and flags holds."""

# ruff: noqa: UP006, UP035 - annotations as the file has them
# pyright: reportMissingTypeArgument=false, reportUnknownParameterType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Dict, List

import numpy as np
import pytest

from retrieval_core import Index, open_index
from retrieval_core.compat.hybrid import (
    BaseReranker,
    BaseRetriever,
    BM25Retriever,
    ColBERTSmall,
    DenseRetriever,
    HybridRetriever,
    HyDEGenerator,
    MultiVectorRetriever,
    PerformanceTracker,
    QueryDecomposer,
    RetrievalPipeline,
    select_embedder,
)
from retrieval_core.config import load_config
from retrieval_core.errors import ConfigurationError, InvalidParameterError, ServiceConnectionError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Chunk
from support.pipelines import TroubledStore, filled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.ports import CompletionRequest

RETRIEVAL_CONFIG = {
    "retriever": "multivector",
    "search_type": "hybrid",
    "retrieval_k": 20,
    "reranker_top_k": 10,
    "dense_weight": 0.7,
    "late_chunking": {
        "enabled": True,
        "window_size": 5
    },
    "ai_rerank": True,
    "verify_answers": False,
    "cache_enabled": True,
    "cache_ttl": 300,
    "semantic_cache_threshold": 0.98
}  # fmt: skip
MODEL_CONFIG = {
    "embedding_model": "Qwen/Qwen3-Embedding-0.6B",
    "generation_model": "qwen3:8b",
    "enrichment_model": "qwen3:0.6b",
    "reranker_model": "answerdotai/answerai-colbert-small-v1",
    "fallback_reranker": "BAAI/bge-reranker-base"
}  # fmt: skip
PERFORMANCE_CONFIG = {
    "batch_sizes": {
        "embedding": 32,
        "reranking": 16,
        "synthesis": 1
    },
    "timeouts": {
        "embedding": 30,
        "retrieval": 60,
        "reranking": 30,
        "synthesis": 120
    },
    "memory_limits": {
        "max_cache_size": 1000,
        "max_results_per_query": 100,
        "chunk_size_limit": 2048
    }
}  # fmt: skip


class CustomRetriever(BaseRetriever):
    def search(self, query: str, k: int = 10) -> List[Dict]:
        return [{"chunk_id": "own", "text": f"What is known of {query}.", "score": 2.0, "metadata": {"price": 5}}][:k]

    def get_embeddings(self, texts: List[str]) -> np.ndarray:
        return np.ones((len(texts), 3), dtype=np.float32)


class CustomReranker(BaseReranker):
    def rank(self, query: str, documents: List[Dict]) -> List[Dict]:
        return sorted(documents, key=lambda document: len(document["text"]))


class CustomQueryTransformer:
    def transform(self, query: str, context: Dict = None) -> str:  # noqa: RUF013 # pyright: ignore[reportArgumentType]
        return f"{query} battery"


TEXTS = {
    "battery": "The battery of the phone lasts two days of use.",
    "camera": "The camera of the phone takes pictures at night.",
    "screen": "The screen is bright.",
}
QUESTION = "how long the battery of the phone lasts"


def told(request: CompletionRequest) -> Any:
    """Answer as a language model would: what it is asked for by a schema, and a sentence otherwise."""
    if request.schema is None:
        return "The battery lasts two days [1]."
    shown = str(request.schema)
    if "questions" in shown:
        return {"questions": ["How long does the battery last?", "How good is the camera?"]}
    return {"passage": " It lasts two days. "}


def a_pipeline(folder: Path, **given: Any) -> RetrievalPipeline:
    """Return a pipeline over three chunks in a file."""
    config = {
        **RETRIEVAL_CONFIG,
        "index": str(folder / "index.db"),
        "context": {"token_counter": "support.pipelines:word_counter", "neighbor_same_page": 0},
        **given.pop("config", {}),
    }
    parts: dict[str, Any] = {"embedder": FakeEmbedder(), "reranker": CustomReranker(), **given}
    pipeline = RetrievalPipeline(config, parts.pop("ollama_client", FakeLLM(told)), {}, **parts)
    pipeline.index.add([Chunk(name, "phones", text, number, 3) for number, (name, text) in enumerate(TEXTS.items())])
    return pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[RetrievalPipeline]:
    with a_pipeline(tmp_path) as pipeline:
        yield pipeline


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [item["chunk_id"] for item in found]


def test_the_default_configuration(tmp_path: Path) -> None:
    """The three tables are understood as they stand, alone or by name, and mean the preset's settings."""
    tables = {
        "RETRIEVAL_CONFIG": RETRIEVAL_CONFIG,
        "MODEL_CONFIG": MODEL_CONFIG,
        "PERFORMANCE_CONFIG": PERFORMANCE_CONFIG,
    }
    place = {"index": str(tmp_path / "index.db")}
    preset = load_config("local-hybrid", place)
    with RetrievalPipeline({**tables, **place}, None, {"host": "http://localhost:11434"}) as pipeline:
        assert pipeline.config == preset
    with RetrievalPipeline({**RETRIEVAL_CONFIG, **MODEL_CONFIG, **PERFORMANCE_CONFIG, **place}) as pipeline:
        assert pipeline.config == preset
    with pytest.raises(ConfigurationError, match="did you mean dense_weight"):
        RetrievalPipeline({"dense_wieght": 0.5})


def test_select_embedder() -> None:
    """The example of lazy loading gives the model at the host, and loads nothing."""
    config: dict[str, str] = {}
    ollama_config = {"host": "http://ollama:11434"}
    text_embedder = select_embedder(
        config.get("embedding_model_name", "Qwen/Qwen3-Embedding-0.6B"),
        ollama_config.get("host"),
    )
    assert "qwen3-embedding:0.6b" in text_embedder.id
    assert text_embedder.dimension == 1024


def test_custom_parts_in_the_pipeline(tmp_path: Path) -> None:
    """Retriever, reranker and transformer are used as the file writes them."""
    retriever = CustomRetriever()
    parts = {"retrievers": {"own": retriever}, "transformers": {"own": CustomQueryTransformer()}}
    with a_pipeline(tmp_path, **parts) as pipeline:
        found = pipeline.search(QUESTION)
    own = next(item for item in found if item["chunk_id"] == "own")
    assert own["text"] == f"What is known of {QUESTION} battery."
    assert own["metadata"] == {"price": 5}
    assert retriever.get_embeddings(["a", "b"]).shape == (2, 3)


def test_custom_parts_in_an_index(tmp_path: Path) -> None:
    """The same classes serve in an index of the library; the reranker's order is the order of its documents."""
    config = load_config(overrides={"reranker.weight": 1.0})
    retrievers = {"own": CustomRetriever().as_retriever()}
    parts: dict[str, Any] = {"embedder": FakeEmbedder(), "retrievers": retrievers, "reranker": CustomReranker()}
    with open_index(tmp_path / "index.db", config=config, **parts) as index:
        index.add([Chunk(name, "phones", text) for name, text in TEXTS.items()])
        hits = index.retrieve("phone").hits
    lengths = [len(hit.chunk.text) for hit in hits]
    assert len(hits) == 4
    assert lengths == sorted(lengths)
    assert {origin.kind for hit in hits if hit.id == "own" for origin in hit.found_by} == {"own"}


def test_custom_parts_that_give_something_else(tmp_path: Path) -> None:
    """What is no passage, or none that was given, is done without and told; a base class alone has no embeddings."""

    class Broken(BaseRetriever):
        def search(self, query: str, k: int = 10) -> List[Dict]:
            return [{"score": 1.0}]

    class Forgetful(BaseReranker):
        def rank(self, query: str, documents: List[Dict]) -> List[Dict]:
            return [{"text": document["text"]} for document in documents]

    with a_pipeline(
        tmp_path, retrievers={"broken": Broken()}, reranker=Forgetful(), config={"retry.max_retries": 0}
    ) as one:
        result = one.index.retrieve(QUESTION)
    assert {entry.stage for entry in result.degraded} == {"retrieve", "rerank"}
    assert "a passage is a dictionary with text" in str(result.degraded)
    assert "with its index" in str(result.degraded)
    with pytest.raises(InvalidParameterError, match="get_embeddings"):
        Broken().get_embeddings(["a"])


def test_the_retrievers() -> None:
    """Each searches in its own way and embeds with its embedder; fusion is the file's formula of scaled scores."""

    def a_store() -> TroubledStore:
        store = TroubledStore(brings_chunks=True)
        filled(store, [Chunk(name, "phones", text) for name, text in TEXTS.items()])
        return store

    with BM25Retriever(a_store()) as words, DenseRetriever(a_store(), FakeEmbedder()) as meaning:
        bm25 = {hit.id: hit.score for hit in words.retrieve(QUESTION)}
        dense = {hit.id: hit.score for hit in meaning.retrieve(QUESTION)}
        assert meaning.get_embeddings(["a", "b"]).shape == (2, 256)
        with pytest.raises(InvalidParameterError):
            words.get_embeddings(["a"])
    dense_weight = 0.7
    with HybridRetriever(a_store(), FakeEmbedder(), dense_weight=dense_weight, fusion="minmax") as both:
        for hit in both.retrieve(QUESTION):
            bm25_score, dense_score = scaled(bm25, hit.id), scaled(dense, hit.id)
            final_score = (1 - dense_weight) * bm25_score + dense_weight * dense_score
            assert hit.score == pytest.approx(final_score)


def test_the_multi_vector_retriever() -> None:
    """It is made as the file makes it; a vision model is refused."""
    db_manager, text_embedder = TroubledStore(), FakeEmbedder()
    filled(db_manager, [Chunk(name, "phones", text) for name, text in TEXTS.items()])
    dense_retriever = MultiVectorRetriever(
        db_manager,
        text_embedder,
        vision_model=None,
        fusion_config={}
    )  # fmt: skip
    with dense_retriever:
        assert dense_retriever.retrieve(QUESTION, k=1)[0].id == "battery"
    with pytest.raises(InvalidParameterError, match="vision_model"):
        MultiVectorRetriever(db_manager, text_embedder, vision_model="clip", fusion_config={})  # type: ignore[arg-type]


def scaled(scores: dict[str, float], name: str) -> float:
    """Return a score in [0, 1] over all of its side; 0 for what the side did not find."""
    low, high = min(scores.values()), max(scores.values())
    return 0.0 if name not in scores else 1.0 if high == low else (scores[name] - low) / (high - low)


def test_flags_of_a_request(pipeline: RetrievalPipeline) -> None:
    """Each flag changes what is done for one request; without them the settings hold."""
    as_set = pipeline.search(QUESTION)
    assert as_set[0]["scores"]["lexical"] is not None
    assert as_set[0]["scores"]["rerank"] is not None
    dense = pipeline.search(QUESTION, search_type="dense", ai_rerank=False)
    assert {item["scores"]["lexical"] for item in dense} == {None}
    assert {item["scores"]["rerank"] for item in dense} == {None}
    assert ids(dense)[0] == "battery"
    words = pipeline.search("camera battery", searchType="fts", aiRerank=False)
    assert set(ids(words)) == {"battery", "camera"}
    best = pipeline.search(QUESTION, reranker_top_k=1)
    assert [item["scores"]["rerank"] is None for item in best] == [False, True, True]
    by_words = pipeline.search("bright camera", dense_weight=0.0, ai_rerank=False)
    by_meaning = pipeline.search("bright camera", dense_weight=1.0, ai_rerank=False)
    assert [item["score"] for item in by_words] != [item["score"] for item in by_meaning]
    assert len(pipeline.search(QUESTION, top_k=1, retrieval_k=1, ai_rerank=False)) == 1
    assert len(pipeline.search(QUESTION, retrieval_k=2, ai_rerank=False)) == 2
    assert pipeline.search(QUESTION) == as_set
    with pytest.raises(ConfigurationError, match="dense_weight"):
        pipeline.search(QUESTION, dense_weight=2)
    with pytest.raises(InvalidParameterError, match="search_type"):
        pipeline.search(QUESTION, search_type="telepathy")
    with pytest.raises(TypeError, match="retrieval"):
        pipeline.search(QUESTION, retrieval=5)


@pytest.mark.slow
def test_many_flags_take_no_more_room(pipeline: RetrievalPipeline) -> None:
    """What is kept for combinations of flags is bounded, and a pipeline works on after it let go of some."""
    for number in range(40):
        assert pipeline.search("battery", dense_weight=number / 40, ai_rerank=False)
    assert pipeline.search("battery")
    store = pipeline.index.store
    gc.collect()
    assert sum(isinstance(one, Index) and one.store is store for one in gc.get_objects()) < 40


def test_flags_where_a_part_has_options(tmp_path: Path) -> None:
    """The options of a part of one's own hold for requests with flags too."""
    use = {"pruner.kind": "retrieval_core.testing.fakes:FakePruner", "pruner.custom": {"batch_size": 7}}
    with a_pipeline(tmp_path, config=use) as pipeline:
        assert pipeline.search(QUESTION, ai_rerank=False)


@pytest.mark.parametrize(("window", "shown"), [(0, 1), (1, 2)])
def test_the_window_of_a_request(pipeline: RetrievalPipeline, window: int, shown: int) -> None:
    """context_window_size says how many chunks beside a hit become one passage with it."""
    events: list[dict[str, Any]] = []
    options: dict[str, Any] = {"top_k": 1, "ai_rerank": False, "event_callback": events.append}
    assert list(pipeline.answer_stream(QUESTION, context_window_size=window, **options))
    found = next(event for event in events if event["type"] == "retrieval_done")
    text = str(found)
    assert sum(one in text for one in TEXTS.values()) == shown


def test_answer_stream(pipeline: RetrievalPipeline) -> None:
    """The text comes in pieces, and the callback is told of each as the file has it."""
    events: list[dict[str, Any]] = []
    pieces = list(pipeline.answer_stream(QUESTION, event_callback=events.append))
    assert "".join(pieces).startswith("The battery lasts two days")
    chunks = [event for event in events if event["type"] == "answer_chunk"]
    assert chunks == [{"type": "answer_chunk", "content": piece} for piece in pieces]
    assert events[-1]["type"] == "done"
    assert "".join(pipeline.answer_stream(QUESTION, prompt_override="Answer in one word.")) == "".join(pieces)


def test_the_fallback_ladder(tmp_path: Path) -> None:
    """Where nothing can be searched the model still answers, and says first that it had no documents."""
    store = TroubledStore()
    filled(store)
    store.failures = dict.fromkeys(("dense", "lexical", "fetch"), ServiceConnectionError("refused"))
    config: dict[str, Any] = {"retry.max_retries": 0}
    config["context.token_counter"] = "support.pipelines:word_counter"
    pipeline = RetrievalPipeline(
        {"index": str(tmp_path / "x.db"), **config},
        FakeLLM(["I cannot see your documents now."]),
        store=store,  # type: ignore[arg-type]
        embedder=FakeEmbedder(),
    )
    events: list[dict[str, Any]] = []
    with pipeline:
        text = "".join(pipeline.answer_stream(QUESTION, event_callback=events.append))
    assert "Document search unavailable. Providing general response:" in text
    assert text.endswith("I cannot see your documents now.")
    assert [event["step"] for event in events if event["type"] == "fallback"] == ["dense", "without_documents"]


def test_answer_with_history(pipeline: RetrievalPipeline) -> None:
    """The turns before a question, in the file's form, go along with it."""
    conversation_history = [
        {"role": "user", "content": "Tell me of the phone."},
        {"role": "assistant", "content": "It has a battery and a camera."},
    ]
    assert "".join(pipeline.answer_with_history("How long does it last?", conversation_history))


def test_get_cached_result(pipeline: RetrievalPipeline) -> None:
    """A question that was asked before is found again, and one that asks the same; others are not."""
    assert pipeline.get_cached_result(QUESTION) is None
    found = pipeline.search(QUESTION)
    kept = pipeline.get_cached_result(QUESTION)
    assert kept is not None
    assert kept["from_cache"] is True
    assert [hit["id"] for hit in kept["hits"]] == ids(found)
    same = pipeline.get_cached_result(f"{QUESTION.capitalize()}?")
    assert same is not None
    assert same["metadata"]["cache_matched_query"] == QUESTION
    assert pipeline.get_cached_result("how good is the camera") is None
    assert pipeline.get_cached_result(QUESTION, search_type="dense") is None


def test_a_cache_for_each_session(tmp_path: Path) -> None:
    """Where the scope is the session, a question in other words is compared with those of its session alone."""
    with a_pipeline(tmp_path, config={"cache_scope": "session"}) as pipeline:
        pipeline.search(QUESTION, session_id="a")
        other_words = f"{QUESTION.capitalize()}?"
        assert pipeline.get_cached_result(other_words, session_id="a") is not None
        assert pipeline.get_cached_result(other_words, session_id="b") is None


def test_process_query_batch(pipeline: RetrievalPipeline) -> None:
    """Results come in the order of the questions; one that fails does not touch the others."""
    results = pipeline.process_query_batch(["the battery", " ", "the camera"])
    assert [result["query"] for result in results] == ["the battery", " ", "the camera"]
    assert "empty" in results[1]["error"]
    assert {hit["id"] for hit in results[2]["hits"]} >= {"camera"}


def test_search_multiple_indexes(tmp_path: Path) -> None:
    """Each hit says which index it is from, and an index that is not there is done without."""
    for name in ("a", "b"):
        with open_index(tmp_path / f"text_pages_{name}.db", config="local-hybrid", embedder=FakeEmbedder()) as index:
            index.add([replace(Chunk("one", "phones", TEXTS["battery"]), text=f"{TEXTS['battery']} In {name}.")])
    with a_pipeline(tmp_path) as pipeline:
        found = pipeline.search_multiple_indexes(QUESTION, ["a", "b"])
        assert {item["source_index"] for item in found} == {"a", "b"}
        assert len(pipeline.search_multiple_indexes(QUESTION, ["a", "b"], retrieval_k=1)) == 1
        found = pipeline.search_multiple_indexes(QUESTION, ["a", "gone"], search_type="bm25")
        assert {item["source_index"] for item in found} == {"a"}
        with pytest.raises(ValueError, match="name"):
            pipeline.search_multiple_indexes(QUESTION, ["../a"])
        with pytest.raises(InvalidParameterError, match=r"write \['main'\]"):
            pipeline.search_multiple_indexes(QUESTION, "main")


def test_weights_of_indexes_that_are_not_asked(tmp_path: Path) -> None:
    """Those of the settings count for the indexes that a request names; the others are passed over."""
    for name in ("a", "b"):
        with open_index(tmp_path / f"text_pages_{name}.db", config="local-hybrid", embedder=FakeEmbedder()) as index:
            index.add([Chunk("one", "phones", f"{TEXTS['battery']} In {name}.")])
    weights = {"a": 0.5, "b": 0, "elsewhere": 2}
    with a_pipeline(tmp_path, config={"federation": {"weights": weights}}) as pipeline:
        assert {item["source_index"] for item in pipeline.search_multiple_indexes(QUESTION, ["a", "b"])} == {"a"}


def test_recovery_of_the_embedder(tmp_path: Path) -> None:
    """It says whether the embedder works; while it does not, words alone are searched."""
    embedder = FakeEmbedder()
    with a_pipeline(tmp_path, embedder=embedder, config={"retry.max_retries": 0}) as pipeline:
        embedder.failure = RuntimeError("the model is gone")
        assert pipeline.recover_from_embedding_failure(QUESTION) is False
        assert ids(pipeline.search("camera")) == ["camera"]


def test_colbert_small() -> None:
    """It is the file's model, not yet loaded, and a reranker of the library."""
    reranker = ColBERTSmall()
    assert "answerdotai/answerai-colbert-small-v1" in reranker.id
    assert reranker.is_loaded is False


def test_query_decomposer_and_hyde() -> None:
    """A question becomes simpler ones, or a passage that might answer it."""
    sub_questions = QueryDecomposer(FakeLLM(told)).decompose_query("How good are battery and camera?")
    assert sub_questions == ["How long does the battery last?", "How good is the camera?"]
    simple = QueryDecomposer(FakeLLM([{"questions": []}])).decompose_query("How long?")
    assert simple == ["How long?"]
    assert HyDEGenerator(FakeLLM(told)).generate_hypothetical_doc("How long?") == "It lasts two days."


def test_performance_tracker() -> None:
    """The file's numbers are there; a query that raises counts once, as an error."""
    tracker = PerformanceTracker()
    assert tracker.metrics == {
        "query_count": 0,
        "avg_response_time": 0,
        "cache_hit_rate": 0,
        "error_rate": 0,
        "embedding_time": 0,
        "retrieval_time": 0,
        "reranking_time": 0,
        "synthesis_time": 0,
    }
    with tracker.track_query("a"):
        pass
    with pytest.raises(KeyError), tracker.track_query("b"):
        raise KeyError
    assert (tracker.metrics["query_count"], tracker.metrics["error_rate"]) == (2, 0.5)


def test_monitor_memory_usage(pipeline: RetrievalPipeline) -> None:
    """It names the parts, and loads none of them."""
    usage = pipeline.monitor_memory_usage()
    assert {"embedder": "FakeEmbedder", "rerankers": "CustomReranker"}.items() <= {
        one.role: one.type for one in usage.components
    }.items()
