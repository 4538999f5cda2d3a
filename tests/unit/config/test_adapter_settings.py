"""Settings that adapters declare: by their former names, with an adapter's own requirements, and made in Python."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from retrieval_core import RetrievalConfig, config, load_config
from retrieval_core.config import CacheConfig, RerankerConfig, StoreConfig, kinds, missing_settings
from retrieval_core.errors import ConfigurationError, SettingRenamedWarning

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMER = ("QdrantConfig", "PineconeConfig", "LanceDBConfig", "OpenAIEmbedderConfig", "CohereEmbedderConfig",
          "LocalEmbedderConfig", "FastembedEmbedderConfig", "OpenAILLMConfig", "CohereRerankerConfig",
          "FastembedRerankerConfig")  # fmt: skip


@pytest.mark.parametrize("name", FORMER)
def test_a_former_name_of_settings(name: str) -> None:
    """It leads to the adapter's settings, and the warning says where they are."""
    with pytest.warns(DeprecationWarning, match=rf"{name} is \w+\.Settings of retrieval_core\.adapters\."):
        settings = getattr(config, name)
    assert issubclass(settings, config.AdapterSettings)
    with pytest.raises(AttributeError, match="no attribute 'NothingConfig'"):
        _ = config.NothingConfig  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def test_tables_in_python() -> None:
    """They are dictionaries or settings, a table that is not given has its defaults, and all are frozen."""
    made = RetrievalConfig.model_validate({"store": {"kind": "qdrant", "qdrant": {"url": "http://h:1"}}})
    assert made.store.qdrant.url == "http://h:1"
    assert made.store.qdrant.collection == "retrieval"
    assert made.store.settings_of("qdrant") == made.store.qdrant
    assert made.store.pinecone.namespace == ""
    assert made.store.tables.keys() == {"qdrant"}
    assert StoreConfig.model_validate({"qdrant": made.store.qdrant}).qdrant == made.store.qdrant
    with pytest.raises(ValidationError, match="frozen"):
        made.store.qdrant.url = "http://other"
    with pytest.raises(AttributeError, match="acme"):
        _ = made.store.acme


def test_former_names_in_python() -> None:
    """They work with a warning, as in a file."""
    with pytest.warns(SettingRenamedWarning, match=r"cache\.enabled is cache\.kind now"):
        assert CacheConfig.model_validate({"enabled": False}).kind == "none"
    with pytest.warns(SettingRenamedWarning, match=r"reranker\.prompt is called reranker\.llm\.prompt now"):
        assert RerankerConfig.model_validate({"prompt": "p"}).llm.prompt == "p"
    with pytest.raises(ValidationError, match=r"reranker\.concurrency: at most 4"):
        RerankerConfig.model_validate({"concurrency": 2})


def test_all_problems_of_tables_are_told_at_once() -> None:
    """With the key of each, beside those of the section; a table that nothing answers to with the closest name."""
    with pytest.raises(ConfigurationError) as refused:
        load_config(overrides={"store": {"kind": 1, "qdrant": {"collection": "", "uri": 1}, "pinecon": {}}})
    assert sorted(line.partition(": ")[0] for line in refused.value.problems) == [
        "store.kind", "store.pinecon", "store.qdrant.collection", "store.qdrant.uri",
    ]  # fmt: skip
    assert "store.pinecon: unknown setting; did you mean pinecone?" in refused.value.problems


@pytest.mark.parametrize(
    ("given", "environment", "key"),
    [
        ({}, {"OPENAI_API_KEY": "of-vendor"}, "of-vendor"),
        ({"api_key": ""}, {"OPENAI_API_KEY": "of-vendor"}, "of-vendor"),
        ({"api_key": "own"}, {"OPENAI_API_KEY": "of-vendor"}, "own"),
        ({"base_url": "http://h:1"}, {"OPENAI_API_KEY": "of-vendor"}, None),
        ({}, {"OPENAI_API_KEY": " "}, None),
    ],
)
def test_a_vendors_variable(given: Mapping[str, str], environment: Mapping[str, str], key: str | None) -> None:
    """It is the last source, and is not sent to another address."""
    loaded = load_config(overrides={"llm": {"kind": "openai", "openai": given}}, environment=environment)
    assert loaded.llm.openai.api_key == (None if key is None else SecretStr(key))
    assert ("OPENAI_API_KEY" in missing_settings(loaded)) == (key is None and "base_url" not in given)


class Plain(BaseModel):
    """Settings of a package that knows nothing of this library's classes."""

    url: str


class OfAPackage:
    """A store of another package."""

    Settings = Plain


def test_settings_of_another_package_may_be_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for when its kind is chosen, whether its table is given or not."""
    monkeypatch.setattr(kinds, "_registered", lambda _group: {"acme": (f"{__name__}:OfAPackage",)})  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    choices: tuple[dict[str, Any], ...] = ({"store.kind": "acme"}, {"store": {"kind": "acme", "acme": {}}})
    for overrides in choices:
        with pytest.raises(ConfigurationError, match=r"store\.acme\.url: not set"):
            load_config(overrides=overrides)
    loaded: Any = load_config(overrides={"store.kind": "acme", "store.acme.url": "u"}).store
    assert loaded.acme == Plain(url="u")
    with pytest.raises(ConfigurationError, match=r"store\.kind: 'acne' is none of .*acme"):
        kinds.STORE.find("acne")


@pytest.mark.parametrize("port", kinds.PORTS.values(), ids=lambda port: port.setting)
def test_every_built_in_kind_is_there(port: kinds.Port) -> None:
    """Its class can be imported without the vendor's package, and its default is one of them."""
    assert all(isinstance(port.find(kind), type) for kind, path in port.built_in.items() if path)
    section, _, setting = port.setting.partition(".")
    default = getattr(getattr(RetrievalConfig(), section), setting)
    assert set((default,) if isinstance(default, str) else default) <= port.built_in.keys()


def test_only_what_is_chosen_is_imported() -> None:
    """Loading the defaults imports no adapter, and a table only its own."""
    code = (
        "import sys\n"
        "from retrieval_core import load_config\n"
        "def adapters():\n"
        "    return sorted(name for name in sys.modules if name.startswith('retrieval_core.adapters.'))\n"
        "load_config(environment={'OPENAI_API_KEY': 'k'})\n"
        "print(adapters())\n"
        "load_config(overrides={'llm.openai.model': 'm'})\n"
        "print('retrieval_core.adapters.llms.openai' in adapters(), 'openai' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True False"]
