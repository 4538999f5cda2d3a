"""Settings that would do nothing are refused, and what is missing of a reranker or pruner is done without."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval_core import RetrievalConfig, RetrievalPipeline, load_config, open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.compat.flags import load_flags
from retrieval_core.compat.settings import RetrievalSettings
from retrieval_core.errors import ConfigurationError, InvalidParameterError, MissingExtraError, ModelNotFoundError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"timeouts.synthesis": 120, "deadline_seconds": 30}, "set deadline_seconds to more"),
        ({"deadline_seconds": "inf"}, "or null for no limit"),
        ({"search.search_type": "mmr", "search.fetch_k": 5, "search.top_k": 30}, "set fetch_k to more than 30"),
    ],
)
def test_what_would_do_nothing_is_refused(overrides: dict[str, Any], said: str) -> None:
    """When it is read, with what to write instead."""
    with pytest.raises(ConfigurationError, match=said):
        load_config(overrides=overrides)


def test_timeouts_without_a_deadline_are_honoured() -> None:
    """The deadline is long enough for them, unless it is set."""
    assert load_config(overrides={"timeouts.synthesis": 120}).deadline_seconds == 360
    assert load_config(overrides={"timeouts.synthesis": 3}).deadline_seconds == 30
    assert load_config(overrides={"timeouts.synthesis": 120, "deadline_seconds": None}).deadline_seconds is None


def test_a_reranker_model_alone_chooses_its_reranker() -> None:
    """As the specification has it; of a reranker that is chosen it is the model."""
    with pytest.raises(ConfigurationError, match=r"reranker\.kind is 'local'"):
        load_flags(overrides={"EXTERNAL_MODELS": {"reranker_model": "a/b"}, "reranker.kind": "local"})
    alone = load_flags(overrides={"EXTERNAL_MODELS": {"reranker_model": "a/b"}}).reranker
    assert (alone.kind, alone.late_interaction.model) == ("late-interaction", "a/b")
    chosen = load_flags(overrides={"reranker_model": "a/b", "reranker.kind": "cross-encoder"}).reranker
    assert (chosen.kind, chosen.cross_encoder.model) == ("cross-encoder", "a/b")
    assert load_flags(overrides={"fallback_reranker": "a/b"}).reranker.kind == "cross-encoder"
    both = load_flags(overrides={"fallback_reranker": "a/b", "reranker.kind": "local"}).reranker
    assert both.fallbacks == ("cross-encoder",)


def test_a_configuration_is_no_store_and_no_place() -> None:
    """The message says how it is handed over."""
    with pytest.raises(InvalidParameterError, match=r"open_index\(config=config\)"):
        RetrievalPipeline(RetrievalConfig())  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidParameterError, match=r"open_index\(config=config\)"):
        open_index(RetrievalConfig())  # pyright: ignore[reportArgumentType]


def test_top_k_above_fetch_k_in_the_environment() -> None:
    """It is refused where both are set; a fetch_k that is not set is as many as needed."""
    keys = {"OPENAI_API_KEY": "k1", "PINECONE_API_KEY": "k2"}
    with pytest.raises(ConfigurationError, match="FETCH_K"):
        RetrievalSettings.load({**keys, "TOP_K": "30", "FETCH_K": "20"}, env_file=None)
    assert RetrievalSettings.load({**keys, "TOP_K": "30"}, env_file=None).to_config().search.top_k == 30


class Missing:
    """A reranker, or pruner, that is not installed."""

    id, batch_size = "missing", 10

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def score(self, *_: Any) -> Any:
        raise self.error

    keep = score


@pytest.mark.parametrize("part", ["reranker", "pruner"])
@pytest.mark.parametrize("error", [MissingExtraError("fastembed", "It"), ModelNotFoundError("no such model here")])
@pytest.mark.parametrize("strict", [False, True])
def test_what_is_not_installed_of_a_reranker_or_pruner(part: str, error: Exception, *, strict: bool) -> None:
    """The search's order and whole passages stay, and it is listed; in strict mode it is raised."""
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    with open_index(embedder=embedder, store=store) as index:
        index.add([Chunk("a", "a", "A sturdy phone. It rains."), Chunk("b", "b", "A phone. It rains.")])
        plain = [hit.id for hit in index.retrieve("sturdy phone").hits]
        parts: Any = {part: Missing(error)}
        asked = RetrievalPipeline(store, embedder, config=RetrievalConfig(strict=strict), **parts)
        if strict:
            with pytest.raises(type(error)):
                asked.retrieve("sturdy phone")
        else:
            result = asked.retrieve("sturdy phone")
            assert [hit.id for hit in result.hits] == plain
            assert {entry.stage for entry in result.degraded} == {"rerank" if part == "reranker" else "prune"}
