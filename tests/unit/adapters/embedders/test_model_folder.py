"""Embedding models in folders, used as their files, their names and the configuration say."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core.adapters.embedders.local import LocalEmbedder, LocalEmbedderSettings
from retrieval_core.adapters.local_models.known_models import ModelFacts, facts_in
from retrieval_core.errors import ConfigurationError, ModelNotFoundError
from retrieval_core.testing.embedder_kit import PASSAGES, EmbedderConformance

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from retrieval_core.ports import Embedder
    from retrieval_core.types import Matrix

SIZE = 64  # of support.tiny_colbert
TEXT = "The telescope showed Saturn."
STATED: dict[str, Any] = {
    "dimension": SIZE,
    "max_tokens": 128,
    "pooling": "mean",
    "query_prefix": "rings ",
    "passage_prefix": "bread ",
}
needs_runtime = pytest.mark.skipif(
    not all(map(find_spec, ("onnxruntime", "tokenizers"))), reason="the extra 'local' is not installed"
)


def write(folder: Path, **files: object) -> None:
    """Write JSON files; ``__`` in a name is a folder's mark."""
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


class TestFacts:
    """What the files beside a model say."""

    def test_all_of_them(self, tmp_path: Path) -> None:
        """As sentence-transformers writes them."""
        write(
            tmp_path,
            config={"hidden_size": 8, "matryoshka_dimensions": [4, 2]},
            config_sentence_transformers={"prompts": {"query": "ask: ", "document": "read: "}},
            sentence_bert_config={"max_seq_length": 100, "do_lower_case": False},
            **{"1_Pooling__config": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False,
                                     "include_prompt": True}},
        )  # fmt: skip
        assert facts_in(tmp_path) == ModelFacts(8, 100, "mean", "ask: ", "read: ", (4, 2))

    def test_none_of_them(self, tmp_path: Path) -> None:
        """Then nothing is said, nor by prompts that are blank, as they are written where nobody gave any."""
        assert facts_in(tmp_path) == ModelFacts()
        write(tmp_path, config_sentence_transformers={"prompts": {"query": "", "document": ""}})
        assert facts_in(tmp_path) == ModelFacts()

    @pytest.mark.parametrize(("mode", "pooling"), [("cls", "cls"), ("mean", "mean"), ("lasttoken", "last")])
    def test_pooling_by_its_name(self, tmp_path: Path, mode: str, pooling: str) -> None:
        """Newer versions write one name, and older ones a mark for each."""
        write(tmp_path, **{"1_Pooling__config": {"pooling_mode": mode, "embedding_dimension": 8}})
        assert facts_in(tmp_path) == ModelFacts(dimension=8, pooling=pooling)  # pyright: ignore[reportArgumentType]
        named = {"cls": "cls_token", "mean": "mean_tokens"}.get(mode, mode)
        write(tmp_path, **{"1_Pooling__config": {f"pooling_mode_{named}": True}})
        assert facts_in(tmp_path).pooling == pooling

    @pytest.mark.parametrize(
        "files",
        [
            {"1_Pooling__config": {"pooling_mode_max_tokens": True}},
            {"1_Pooling__config": {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}},
            {"1_Pooling__config": {"pooling_mode_mean_tokens": True, "include_prompt": False}},
            {"modules": [{"type": "sentence_transformers.models.Dense"}]},
        ],
    )
    def test_steps_that_cannot_be_made(self, tmp_path: Path, files: dict[str, Any]) -> None:
        """They are refused, as the vectors would be others than the model's."""
        write(tmp_path, **files)
        with pytest.raises(ConfigurationError, match="and what can be used are the vectors"):
            facts_in(tmp_path)

    @pytest.mark.parametrize("content", [[], {"hidden_size": "many"}, {"matryoshka_dimensions": 5}])
    def test_damaged_files(self, tmp_path: Path, content: object) -> None:
        """The folder is named."""
        write(tmp_path, config=content)
        with pytest.raises(ConfigurationError, match="not the configuration of a model"):
            facts_in(tmp_path)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model that knows the words of the kit, and nothing said of it."""
    from support.tiny_colbert import write_model

    folder = tmp_path_factory.mktemp("tiny")
    write_model(folder, "model.onnx")
    (folder / "tokenizer_config.json").unlink()
    return folder


def made(folder: Path, **settings: Any) -> LocalEmbedder:
    return LocalEmbedder(folder=folder, settings=LocalEmbedderSettings(**{**STATED, **settings}), threads=1)


def vectors(embedder: LocalEmbedder, *texts: str) -> Matrix:
    try:
        return asyncio.run(embedder.embed_texts(texts))
    finally:
        embedder.close()


@needs_runtime
class TestEmbedding:
    """What the settings do to vectors."""

    def test_each_setting_makes_another_embedder(self, tiny: Path) -> None:
        """Its id tells; the same settings have the same id."""
        others = [
            {}, {"query_prefix": ""}, {"passage_prefix": ""}, {"pooling": "cls"}, {"max_tokens": 64},
            {"dimension": 16, "matryoshka_dimensions": (16,), "model": "intfloat/e5-base-v2"},
        ]  # fmt: skip
        assert len({made(tiny, **each).id for each in others[:5]}) == 5
        assert made(tiny).id == made(tiny, model=None).id
        assert made(tiny).id.startswith("custom@")

    def test_prefixes_are_put_before_texts(self, tiny: Path) -> None:
        """That of questions before questions, and that of passages before passages."""
        bare = made(tiny, query_prefix="", passage_prefix="")
        question, passage = vectors(bare, f"rings {TEXT}", f"bread {TEXT}")
        embedder = made(tiny)
        np.testing.assert_array_equal(asyncio.run(embedder.embed_query(TEXT)), question)
        np.testing.assert_array_equal(asyncio.run(embedder.embed_queries([TEXT]))[0], question)
        np.testing.assert_array_equal(vectors(embedder, TEXT)[0], passage)
        assert question @ passage < 0.99

    def test_room_for_passages_is_what_their_prefix_leaves(self, tiny: Path) -> None:
        """Two tokens are the tokenizer's own, and one is the prefix."""
        assert made(tiny).max_tokens == 128 - 2 - 1
        assert made(tiny, passage_prefix="").max_tokens == 128 - 2

    def test_pooling(self, tiny: Path) -> None:
        """The first token is the same mark for all texts, and so is the last; the mean is of all of them."""
        first, last, mean = (
            vectors(made(tiny, pooling=pooling, passage_prefix=""), *PASSAGES) for pooling in ("cls", "last", "mean")
        )
        assert np.allclose(first @ first.T, 1)
        assert np.allclose(last @ last.T, 1)
        assert first[0] @ last[0] < 0.99
        assert (mean @ mean.T)[0, 1] < 0.99
        np.testing.assert_allclose(np.linalg.norm(mean, axis=1), 1, rtol=1e-6)

    def test_vectors_are_cut_and_scaled_again(self, tiny: Path) -> None:
        """To what the model's own file lists; the components that stay are in the same proportion."""
        write(tiny, config={"hidden_size": SIZE, "matryoshka_dimensions": [32, 16]})
        try:
            whole = vectors(made(tiny, dimension=None), TEXT)[0]
            cut = vectors(made(tiny, dimension=16), TEXT)[0]
            with pytest.raises(ConfigurationError, match=r"may be cut to 32, 16; embedder\.local\.dimension is 8"):
                made(tiny, dimension=8)
            write(tiny, config={"hidden_size": SIZE})
            with pytest.raises(ConfigurationError, match="not known to bear being cut"):
                made(tiny, dimension=16)
        finally:
            (tiny / "config.json").unlink()
        np.testing.assert_allclose(cut, whole[:16] / np.linalg.norm(whole[:16]), rtol=1e-5)

    def test_a_model_that_is_centred_before_it_is_cut(self, tmp_path: Path) -> None:
        """As the card of nomic-embed-text-v1.5 has it: a vector gets the mean 0 first; a whole one stays as it is."""
        from support.tiny_colbert import write_model

        write_model(tmp_path, "model.onnx")
        write(tmp_path, config={"hidden_size": SIZE, "matryoshka_dimensions": [16]})
        settings = {"model": "nomic-ai/nomic-embed-text-v1.5", "dimension": None, "passage_prefix": ""}
        whole = vectors(made(tmp_path, **settings), TEXT)[0]
        cut = vectors(made(tmp_path, **{**settings, "dimension": 16}), TEXT)[0]
        centred = (whole - whole.mean())[:16]
        np.testing.assert_allclose(cut, centred / np.linalg.norm(centred), rtol=1e-4, atol=1e-6)

    def test_a_model_that_pools_by_itself(self, tmp_path: Path) -> None:
        """The output for the text as a whole is used, whatever pooling is configured; this one is a sum."""
        from support.tiny_colbert import write_model

        write_model(tmp_path, "model.onnx", with_sum=True)
        pooled = vectors(made(tmp_path, pooling="cls"), *PASSAGES)
        np.testing.assert_allclose(pooled, vectors(made(tmp_path, pooling="mean"), *PASSAGES))
        assert (pooled @ pooled.T)[0, 1] < 0.99

    def test_the_file_is_chosen(self, tmp_path: Path) -> None:
        """The usual places are looked at, and another one is named by its path; what there is, is told."""
        from support.tiny_colbert import write_model

        write_model(tmp_path, "onnx/model_int8.onnx")
        with pytest.raises(ModelNotFoundError, match=r"set embedder\.local\.file to one that it has: onnx/model_int8"):
            made(tmp_path)
        chosen = made(tmp_path, file="onnx/model_int8.onnx")
        (tmp_path / "onnx" / "model_int8.onnx").rename(tmp_path / "onnx" / "model.onnx")
        np.testing.assert_array_equal(made(tmp_path).id, chosen.id)
        assert vectors(made(tmp_path), TEXT).shape == (1, SIZE)

    def test_data_beside_the_file_is_part_of_the_model(self, tmp_path: Path) -> None:
        """Where the weights lie in a file of their own, another one is another model."""
        from support.tiny_colbert import write_model

        write_model(tmp_path, "model.onnx")
        ids = {made(tmp_path).id}
        for content in (b"one", b"two"):
            (tmp_path / "model.onnx_data").write_bytes(content)
            ids.add(made(tmp_path).id)
        assert len(ids) == 3

    def test_a_dimension_that_is_not_true(self, tiny: Path) -> None:
        """The file tells what is."""
        with pytest.raises(ConfigurationError, match="gives vectors of 64 components, and 32 were configured"):
            vectors(made(tiny, dimension=32), TEXT)

    def test_what_nothing_says_is_not_guessed(self, tiny: Path) -> None:
        """The error names each missing setting, and names that are close to a wrong one."""
        with pytest.raises(ConfigurationError, match=r"Set embedder\.local\.pooling, embedder\.local\.query_prefix as"):
            made(tiny, pooling=None, query_prefix=None, passage_prefix=None)
        with pytest.raises(ConfigurationError, match="such as intfloat/e5-base-v2"):
            made(tiny, pooling=None, model="intfloat/e5-base-v3")

    def test_who_says_it_first(self, tmp_path: Path) -> None:
        """The configuration, then the files, then the name, and last the tokenizer's own limit."""
        from support.tiny_colbert import write_model

        write_model(tmp_path, "model.onnx")
        write(tmp_path, config={"hidden_size": SIZE}, tokenizer_config={"model_max_length": 77})
        name: dict[str, Any] = {**dict.fromkeys(STATED), "model": "intfloat/e5-base-v2"}
        model = made(tmp_path, **name)._model
        assert (model.query_prefix, model.passage_prefix, model.max_tokens) == ("query: ", "passage: ", 510)
        unnamed = made(tmp_path, **{**name, "model": None, "query_prefix": "", "pooling": "mean"})._model
        assert (unnamed.passage_prefix, unnamed.max_tokens) == ("", 75)
        write(tmp_path, config_sentence_transformers={"prompts": {"query": "ask: "}})
        write(tmp_path, sentence_bert_config={"max_seq_length": 100})
        model = made(tmp_path, **name)._model
        assert (model.query_prefix, model.passage_prefix, model.max_tokens) == ("ask: ", "passage: ", 98)
        model = made(tmp_path, **{**name, "query_prefix": "", "max_tokens": 50})._model
        assert (model.query_prefix, model.max_tokens) == ("", 48)


def test_the_installed_model_may_be_used_in_another_way() -> None:
    """Its prefix or its length; another model or file needs a folder."""
    plain = LocalEmbedder()
    assert LocalEmbedder(settings=LocalEmbedderSettings(model="BAAI/bge-small-en-v1.5")).id == plain.id
    other = LocalEmbedder(settings=LocalEmbedderSettings(query_prefix="", max_tokens=128))
    assert (other.max_tokens, other.dimension) == (126, 384)
    assert other.id != plain.id
    others = (LocalEmbedderSettings(model="BAAI/bge-base-en-v1.5"), LocalEmbedderSettings(file="model_int8.onnx"))
    for settings in others:
        with pytest.raises(
            ConfigurationError, match=r"without embedder\.local\.model_folder there is only bge-small-en-v1"
        ):
            LocalEmbedder(settings=settings)
    with pytest.raises(ConfigurationError, match=r"not known to bear being cut; embedder\.local\.dimension is 256"):
        LocalEmbedder(settings=LocalEmbedderSettings(dimension=256))


@needs_runtime
class TestConformance(EmbedderConformance):
    """A model in a folder, with both prefixes, passes the kit."""

    @pytest.fixture
    def embedder(self, tiny: Path) -> Generator[Embedder]:
        embedder = made(tiny)
        yield embedder
        embedder.close()
