"""Settings that no person would write: each is a configuration error of a few lines, whatever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from retrieval_core import RetrievalConfig, load_config, open_index
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::retrieval_core.errors.SettingRenamedWarning")

LONG = "x" * 1_000_000
NAMES = ("model_fields", "_x", "__proto__", "__class__", "__pydantic_extra__", "Settings", "port", "tables", "kinds",
         "", " ", "a\0b", "\u202e", LONG)  # fmt: skip


def nested(depth: int) -> dict[str, Any]:
    """Return tables in tables."""
    table: dict[str, Any] = {}
    for _ in range(depth):
        table = {"a": table}
    return table


@pytest.mark.parametrize("name", NAMES, ids=[repr(name[:20]) for name in NAMES])
@pytest.mark.parametrize("place", ["store", None])
def test_names_that_are_no_settings(name: str, place: str | None) -> None:
    """They are unknown, and none reaches an attribute of the settings."""
    tree: dict[str, Any] = {name: {"a": 1}}
    with pytest.raises(ConfigurationError, match="unknown setting") as refused:
        load_config(overrides={place: tree} if place else tree)
    assert len(str(refused.value)) < 3000


@pytest.mark.parametrize(
    "overrides",
    [
        {"store.custom": nested(5000)},
        {"store.options": nested(5000)},
        {"a." * 5000: 1},
        {"vectors": {1: 2}},
        {"store.options": {3: {}}, "store": {4: 5}},
        {"search.mode": LONG},
        {"store.options": {LONG: 1}, "store.custom": {LONG: 1}},
    ],
    ids=["deep", "deep by the old name", "dots", "number", "numbers", "long", "long twice"],
)
def test_values_that_no_person_writes(overrides: dict[str, Any]) -> None:
    """No other error, and no long message."""
    with pytest.raises(ConfigurationError) as refused:
        load_config(overrides=overrides)
    assert len(str(refused.value)) < 3000


def test_a_deep_table_in_python() -> None:
    """It is refused as Pydantic refuses values."""
    with pytest.raises(ValidationError, match="nested too deeply"):
        RetrievalConfig.model_validate({"store": {"options": nested(5000)}})


def test_a_long_kind(tmp_path: Path) -> None:
    """Its beginning is shown."""
    with pytest.raises(ConfigurationError, match=r"store\.kind: 'xxxx") as refused:
        open_index(tmp_path / "index.db", config=load_config(overrides={"store.kind": LONG}))
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("store.memory.size", "store.memory: the kind 'memory' has no settings; remove this table"),
        ("llm.model", "llm.model: unknown setting; did you mean llm.openai.model?"),
        (
            "store.collection",
            "store.collection: unknown setting; did you mean store.postgres.collection or store.qdrant.collection?",
        ),
        ("embedder.pooling", "embedder.pooling: unknown setting; did you mean embedder.local.pooling?"),
        ("embedder.local.pool", "embedder.local.pool: unknown setting; did you mean pooling?"),
    ],
)
def test_a_setting_of_another_table(key: str, said: str) -> None:
    """The error names where it is."""
    with pytest.raises(ConfigurationError) as refused:
        load_config(overrides={key: "x"})
    assert refused.value.problems == (said,)


@pytest.mark.parametrize(
    "name",
    ["EMBEDDER__LOCAL__MODEL_FOLDER", "EMBEDDER__MODEL_FOLDER", "GRAPH__FILE", "RERANKER__CROSS_ENCODER__MODEL_FOLDER",
     "STORE__QDRANT__URL", "STORE__QDRANT__FIELDS"],
)  # fmt: skip
def test_an_empty_variable(name: str) -> None:
    """Containers give variables that are not set so: it is as if it were not there."""
    config = load_config(environment={f"RETRIEVAL_{name}": ""})
    assert config.embedder.local.model_folder is None
    assert config.graph.file is None
    assert config.reranker.cross_encoder.model_folder is None
    assert config.store.qdrant.url is None
