"""Embedding models that fastembed lists: with its real list, and files in a folder in place of a download."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("fastembed", reason="the extra 'fastembed' is not installed")

from fastembed import TextEmbedding

from retrieval_core.adapters.embedders.fastembed import FastembedEmbedder, FastembedEmbedderSettings
from retrieval_core.adapters.embedders.local import LocalEmbedder, LocalEmbedderSettings
from retrieval_core.adapters.local_models.known_models import ModelFacts
from retrieval_core.adapters.registry import build_embedder
from retrieval_core.config import load_config
from retrieval_core.errors import ConfigurationError, MissingExtraError, ModelNotFoundError
from support.tiny_colbert import write_model

if TYPE_CHECKING:
    from pathlib import Path

# One that fastembed lists and of which nothing is known here, so that facts of a tiny model can be given for it.
UNKNOWN = "Qdrant/constella-nano"
STATED: dict[str, Any] = {"dimension": 64, "max_tokens": 128, "pooling": "mean", "query_prefix": "bread "}
TEXT = "The telescope showed Saturn."


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Have fastembed find every model in one folder; the repositories that it is asked for."""
    write_model(tmp_path, "model.onnx")
    facts = dict.fromkeys((UNKNOWN.lower(), "me/mine"), ModelFacts(**STATED))
    monkeypatch.setattr("retrieval_core.adapters.local_models.known_models._BY_LOWER_NAME", facts)
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "cache"))
    asked: list[str] = []

    def fetch(repository: str, **_: object) -> str:
        asked.append(repository)
        return str(tmp_path)

    monkeypatch.setattr(TextEmbedding, "download_files_from_huggingface", fetch)
    return asked


def test_nothing_is_downloaded_before_the_first_text(downloads: list[str], tmp_path: Path) -> None:
    """Then the model's files are fetched, and give what they give in a folder."""
    embedder = FastembedEmbedder(FastembedEmbedderSettings(model=UNKNOWN), threads=1)
    assert embedder.id.startswith(f"fastembed/{UNKNOWN}@")
    assert (embedder.dimension, embedder.max_tokens) == (64, 126)
    assert not downloads
    question, passages = asyncio.run(embedder.embed_query(TEXT)), asyncio.run(embedder.embed_texts([TEXT]))
    assert set(downloads) == {"Qdrant/constella-nano"}
    local = LocalEmbedder(folder=tmp_path, settings=LocalEmbedderSettings(**STATED), threads=1)
    np.testing.assert_array_equal(question, asyncio.run(local.embed_query(TEXT)))
    np.testing.assert_array_equal(passages, asyncio.run(local.embed_texts([TEXT])))
    embedder.close()
    local.close()


def test_a_known_model_needs_its_name_alone() -> None:
    """It may be cut to what it was trained for, and to nothing else."""
    options: dict[str, Any] = {
        "embedder.kind": "fastembed",
        "embedder.fastembed.model": "nomic-ai/nomic-embed-text-v1.5-Q",
    }
    embedder = build_embedder(load_config(overrides=options).embedder)
    assert isinstance(embedder, FastembedEmbedder)
    model = embedder._model
    assert (model.query_prefix, model.passage_prefix) == ("search_query: ", "search_document: ")
    assert (model.pooling, model.dimension, model.max_tokens) == ("mean", 768, 8190)
    cut = build_embedder(load_config(overrides={**options, "embedder.fastembed.dimension": 256}).embedder)
    assert cut is not None
    assert cut.dimension == 256
    assert cut.id != embedder.id
    with pytest.raises(ConfigurationError, match=r"cut to 512, 256, 128, 64; embedder\.fastembed\.dimension is 300"):
        build_embedder(load_config(overrides={**options, "embedder.fastembed.dimension": 300}).embedder)


def test_a_model_of_which_nothing_is_known() -> None:
    """It is not used with a guess."""
    with pytest.raises(
        ConfigurationError, match=r"not known\. Set embedder\.fastembed\.model .* embedder\.local\.model_folder"
    ):
        FastembedEmbedder(FastembedEmbedderSettings(model=UNKNOWN))


def test_a_model_that_fastembed_does_not_list(downloads: list[str]) -> None:
    """The first text tells those that it does, and nothing was asked for."""
    embedder = FastembedEmbedder(FastembedEmbedderSettings(model="me/mine"))
    with pytest.raises(ConfigurationError, match=r"knows no model 'me/mine' of this kind\. It knows BAAI/bge-base-en"):
        asyncio.run(embedder.embed_query(TEXT))
    assert not downloads
    embedder.close()


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says which files to copy where."""
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))

    def unreachable(*_: object, **__: object) -> str:
        msg = "no route"
        raise OSError(msg)

    monkeypatch.setattr(TextEmbedding, "download_files_from_huggingface", unreachable)
    embedder = FastembedEmbedder()
    with pytest.raises(ModelNotFoundError, match=r"embedder\.kind = local and embedder\.local\.model = BAAI/bge-small"):
        asyncio.run(embedder.embed_query(TEXT))
    embedder.close()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it."""
    monkeypatch.setitem(__import__("sys").modules, "fastembed", None)
    embedder = FastembedEmbedder()
    with pytest.raises(MissingExtraError, match=r"\[fastembed\]"):
        asyncio.run(embedder.embed_query(TEXT))
    embedder.close()
