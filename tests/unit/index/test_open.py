from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from retrieval_core import open_index
from retrieval_core.adapters.registry import build_embedder, build_store
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.adapters.transformers.keywords import KeywordExpander
from retrieval_core.config import EmbedderConfig, RetrievalConfig, StoreConfig, load_config, missing_settings
from retrieval_core.errors import ConfigurationError
from retrieval_core.index.settings import base_folder
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.fakes_llm import FakeLLM

if TYPE_CHECKING:
    from retrieval_core.ports import Store

FAKE = "retrieval_core.testing.fakes:FakeEmbedder"
NOTHING = (
    "faiss",
    "no.such:thing",
    "retrieval_core.errors:Nothing",
    ":factory",
    ".relative:factory",
    "json:",
    "math:pi",
)
MEMORY = RetrievalConfig(store=StoreConfig(kind="memory"))


def test_the_kinds_that_come_with_the_library(tmp_path: Path) -> None:
    """A name stands for a class, and making an object opens no file and loads no model."""
    location = tmp_path / "folder" / "index.db"
    assert build_embedder(EmbedderConfig(kind="none")) is None
    assert type(build_embedder(EmbedderConfig())).__name__ == "LocalEmbedder"
    assert isinstance(build_store(StoreConfig(), location, FakeEmbedder()), SqliteStore)
    assert isinstance(build_store(StoreConfig(kind="memory"), location, None), MemoryStore)
    assert not location.parent.exists()


def test_factories_of_ones_own() -> None:
    """``package.module:factory`` is called with the options, a store's with the embedder's identity too."""
    embedder = build_embedder(EmbedderConfig.model_validate({"kind": FAKE, "custom": {"dimension": 8}}))
    assert isinstance(embedder, FakeEmbedder)
    assert embedder.dimension == 8
    store = build_store(StoreConfig(kind="retrieval_core.adapters.stores.memory:MemoryStore"), Path("unused"), embedder)
    assert isinstance(store, MemoryStore)


def test_a_factory_that_makes_something_else() -> None:
    """What is no store and no embedder is told at once, with what it lacks."""
    with pytest.raises(ConfigurationError, match=r"builtins:dict.*has no describe"):
        build_store(StoreConfig.model_validate({"kind": "builtins:dict", "custom": {"a": 1}}), Path("unused"), None)
    with pytest.raises(ConfigurationError, match=r"os:getcwd.*has no id"):
        build_embedder(EmbedderConfig(kind="os:getcwd"))


@pytest.mark.parametrize("kind", NOTHING)
def test_names_that_stand_for_nothing(kind: str) -> None:
    """A name that leads nowhere is an error that begins with its key."""
    with pytest.raises(ConfigurationError, match=r"^store\.kind: "):
        build_store(StoreConfig(kind=kind), Path("unused"), None)
    with pytest.raises(ConfigurationError, match=r"^embedder\.kind: "):
        build_embedder(EmbedderConfig(kind=kind))


def test_options_that_a_factory_does_not_take() -> None:
    """A wrong option is found before the factory is called, and named."""
    with pytest.raises(ConfigurationError, match="dimensions"):
        build_embedder(EmbedderConfig.model_validate({"kind": FAKE, "custom": {"dimensions": 8}}))


def test_instances_win_over_the_configuration() -> None:
    """What is handed in is used, also where it counts as false, as an empty collection does."""

    class EmptyStore(MemoryStore):
        def __len__(self) -> int:
            return 0

    class FalseEmbedder(FakeEmbedder):
        def __bool__(self) -> bool:
            return False

    embedder = FalseEmbedder()
    store = EmptyStore(embedder_id=embedder.id, dimension=embedder.dimension)
    with open_index(store=cast("Store", store), embedder=embedder) as index:
        assert index.store is store
        assert index.embedder is embedder
    with open_index(config=MEMORY, embedder=embedder) as index:
        info = cast("Any", index.store)._identity
        assert (info.embedder_id, info.dimension) == (embedder.id, embedder.dimension)


@pytest.mark.parametrize(
    ("index", "folder"),
    [
        ("/docs/.retrieval/index.db", "/docs"),
        ("/indexes/mine.db", "/indexes"),
        ("/.retrieval/b/c.db", "/.retrieval/b"),
    ],
)
def test_the_folder_that_names_are_relative_to(index: str, folder: str) -> None:
    """It is the index's own folder, or the one above where that is ``.retrieval``."""
    assert base_folder(Path(index)) == Path(folder)
    assert base_folder(Path("index.db")) == Path.cwd()


@pytest.mark.parametrize(
    ("overrides", "missing"),
    [
        ({}, ()),
        ({"embedder.kind": "openai"}, ("OPENAI_API_KEY",)),
        ({"llm.kind": "openai", "embedder.kind": "openai", "llm.openai.base_url": "http://h/v1"}, ("OPENAI_API_KEY",)),
        ({"llm.kind": "openai", "llm.openai.base_url": "http://h/v1"}, ()),
        ({"llm.kind": "openai", "embedder.kind": "openai", "embedder.openai.api_key": "k"}, ("OPENAI_API_KEY",)),
        ({"store.kind": "pinecone"}, ("PINECONE_API_KEY", "PINECONE_INDEX_NAME")),
        ({"store.kind": "pinecone", "store.pinecone.host": "h"}, ("PINECONE_API_KEY",)),
        ({"store.kind": "pinecone", "store.pinecone.api_key": " "}, ("PINECONE_API_KEY", "PINECONE_INDEX_NAME")),
        ({"cache.kind": "redis"}, ("cache.redis.url",)),
        ({"cache.kind": "none"}, ()),
        ({"cache.kind": "redis", "llm.kind": "openai"}, ("OPENAI_API_KEY", "cache.redis.url")),
    ],
)
def test_all_that_is_missing_is_told_at_once(overrides: dict[str, Any], missing: tuple[str, ...]) -> None:
    """What is not used is not missing, and what is missing of one part does not hide what another lacks."""
    config = load_config(overrides=overrides)
    assert tuple(missing_settings(config)) == missing
    if missing:
        with pytest.raises(ConfigurationError) as caught:
            open_index(config=config)
        assert caught.value.missing_keys == missing
        assert len(caught.value.problems) == len(missing)


def test_what_is_handed_in_needs_no_key() -> None:
    """The configured embedder and store are not made then."""
    config = load_config(overrides={"embedder.kind": "openai", "store.kind": "pinecone"})
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    with open_index(config=config, embedder=embedder, store=store) as index:
        assert index.store is store


def test_a_transformer_that_is_handed_in_is_no_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is not looked up among those that packages register, which would read files on an event loop."""
    monkeypatch.setattr("retrieval_core.config.kinds._registered", Mock(side_effect=AssertionError))
    expand = KeywordExpander(FakeLLM("luna"))

    async def opened() -> tuple[str, ...]:
        async with open_index(config=MEMORY, transformers={"mine": expand}, embedder=FakeEmbedder()) as index:
            return index.config.transform.use

    assert asyncio.run(opened())[-1] == "mine"


def test_a_wrong_product_of_a_factory_is_not_shown() -> None:
    """It may show the options that it was made with, keys among them."""
    with pytest.raises(ConfigurationError, match="made an object of the type dict") as caught:
        build_store(
            StoreConfig.model_validate({"kind": "builtins:dict", "custom": {"api_key": "canary"}}), Path("unused"), None
        )
    assert "canary" not in str(caught.value)
