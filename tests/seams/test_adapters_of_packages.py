"""Adapters of other packages: as good as built-in ones, and what is wrong with one is told by its setting's name."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
from pydantic import AliasChoices, BaseModel, Field, SecretStr, field_validator
from retrieval_core.config import AdapterSettings
from retrieval_core.ports import RerankScores

class AcmeSettings(AdapterSettings):
    required = {"token": "abc"}
    token: SecretStr | None = Field(default=None, validation_alias=AliasChoices("token", "ACME_TOKEN"))
    pin: int = 0

class Acme:
    Settings = AcmeSettings
    batch_size = 8
    def __init__(self, token=None, pin=0):
        self.id = f"acme {pin}"
    async def score(self, query, passages):
        return RerankScores(tuple(1 / (1 + len(passage)) for passage in passages))

def plain(pin=1):
    return Acme(pin=pin)

class NoModel(Acme):
    Settings = dict

class Careless(Acme):
    class Settings(BaseModel):
        pin: int = 0
        @field_validator("pin")
        @classmethod
        def _check(cls, value):
            raise RuntimeError("no pins")

class Fails(Acme):
    def __init__(self, **settings):
        raise RuntimeError("out of memory")

value = {"a": 1}
"""
ENTRIES = {
    "acme": "acme:Acme",
    "plain": "acme:plain",
    "no-model": "acme:NoModel",
    "careless": "acme:Careless",
    "fails": "acme:Fails",
    "missing": "acme_missing:Acme",
    "explodes": "acme_explodes:Acme",
    "unfinished": "acme_unfinished:Acme",
    "twice": "acme:Acme",
}
CODE = """
import json, sys
from retrieval_core import load_config
from retrieval_core.adapters.registry import build_rerankers
from retrieval_core.config import missing_settings
from retrieval_core.errors import ConfigurationError
for line in sys.stdin:
    given, environment = json.loads(line)
    try:
        config = load_config(overrides=given, environment=environment)
        lacks = list(missing_settings(config))
        made = [] if lacks else [reranker.id for reranker in build_rerankers(config.reranker, None)]
        print(json.dumps([made, lacks, repr(config) + config.model_dump_json()]))
    except ConfigurationError as error:
        print(json.dumps(str(error)))
"""
KIND, TABLE = "reranker.kind", "reranker.custom"
CASES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "complete": ({KIND: "acme", "reranker.acme": {"token": "t0ken", "pin": 4}}, {}),
    "incomplete": ({KIND: "acme"}, {}),
    "from the environment": ({KIND: "acme"}, {"ACME_TOKEN": "t0ken"}),
    "wrong values": ({KIND: "acme", "reranker.acme": {"token": 1234, "pin": "t0ken"}}, {}),
    "a typo": ({KIND: "acme", "reranker.acme.tokn": "t0ken"}, {}),
    "by its path": ({KIND: "acme:Acme", TABLE: {"token": "t0ken", "pin": 2}}, {}),
    "by its path, incomplete": ({KIND: "acme:Acme"}, {}),
    "plain": ({KIND: "plain"}, {}),
    "plain with a table": ({KIND: "plain", "reranker.plain.pin": 7654321}, {}),
    "plain as a fallback": ({KIND: "acme:plain", "reranker.fallbacks": ["plain"]}, {}),
    "no-model": ({KIND: "no-model"}, {}),
    "no-model by its path": ({KIND: "acme:NoModel"}, {}),
    "careless": ({KIND: "careless", "reranker.careless.pin": 1}, {}),
    "fails": ({KIND: "fails", "reranker.fails.token": "t0ken"}, {}),
    "fails by its path": ({KIND: "acme:Fails", TABLE: {"token": "t0ken"}}, {}),
    "missing": ({KIND: "missing"}, {"ACME_TOKEN": "x"}),
    "explodes": ({KIND: "explodes"}, {}),
    "explodes by its path": ({KIND: "acme_explodes:Acme"}, {}),
    "unfinished": ({"reranker.unfinished.pin": 1}, {}),
    "twice": ({KIND: "twice"}, {}),
    "no function": ({KIND: "acme:value"}, {}),
    "others are broken": ({KIND: "acme", "reranker.acme.token": "t0ken", "search.top_k": 3}, {}),
    "a key in place of a key": ({"embedder.openai.OPENAI_API_KEY": 1234}, {}),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Load all cases in one process that has the packages."""
    folder: Path = tmp_path_factory.mktemp("site")
    (folder / "acme.py").write_text(MODULE)
    (folder / "acme_explodes.py").write_text("raise RuntimeError('token=abcd1234efgh5678')")
    (folder / "acme_unfinished.py").write_text("def (")
    packages = {"acme": ENTRIES, "other": {"twice": "acme:plain", "acme": "acme:Acme"}}
    for name, entries in packages.items():
        info = folder / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        lines = "".join(f"{kind} = {path}\n" for kind, path in entries.items())
        (info / "entry_points.txt").write_text(f"[retrieval_core.rerankers]\n{lines}")
    asked = "".join(json.dumps(case) + "\n" for case in CASES.values())
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{CODE}"
    ended = subprocess.run([sys.executable, "-c", code], input=asked, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return dict(zip(CASES, map(json.loads, ended.stdout.splitlines()), strict=True))


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("complete", ["acme 4"]),
        ("from the environment", ["acme 0"]),
        ("by its path", ["acme 2"]),
        ("plain", ["acme 1"]),
        ("plain with a table", ["acme 7654321"]),
        ("plain as a fallback", ["acme 1", "acme 1"]),
        ("others are broken", ["acme 0"]),
    ],
)
def test_it_is_made(results: dict[str, Any], name: str, made: list[str]) -> None:
    """From its table, whether it declares settings or not; no secret shows in any form of the settings."""
    assert results[name][:2] == [made, []]
    assert "t0ken" not in results[name][2]
    assert "7654321" not in results[name][2]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong values", ["reranker.acme.token: ", "reranker.acme.pin: "]),
        ("a typo", ["reranker.acme.tokn: unknown setting; did you mean token?"]),
        ("by its path, incomplete", ["reranker.custom.token: not set"]),
        ("no-model", ["reranker.no_model: Settings of 'no-model' must be a class that inherits from"]),
        ("no-model by its path", ["reranker.kind: Settings of 'acme:NoModel' must be a class that inherits from"]),
        ("careless", ["reranker.careless: it cannot be read (RuntimeError: no pins)"]),
        ("fails", ["reranker.kind: 'fails' could not be created (RuntimeError: out of memory)"]),
        ("fails by its path", ["reranker.kind: 'acme:Fails' could not be created (RuntimeError: out of memory)"]),
        ("missing", ["reranker.missing: 'acme_missing:Acme' cannot be imported (No module named 'acme_missing')"]),
        ("explodes", ["reranker.explodes: 'acme_explodes:Acme' cannot be imported (RuntimeError: [secret])"]),
        ("explodes by its path", ["reranker.kind: 'acme_explodes:Acme' cannot be imported (RuntimeError: "]),
        ("unfinished", ["reranker.unfinished: 'acme_unfinished:Acme' cannot be imported (SyntaxError: "]),
        ("twice", ["reranker.twice: 'twice' is registered by several packages, as ", "'acme:Acme'", "'acme:plain'"]),
        ("no function", ["reranker.kind: 'acme:value' is no class or function, but a value of type dict"]),
        ("a key in place of a key", ["embedder.openai.OPENAI_API_KEY: Input should be a valid string"]),
    ],
)
def test_it_is_refused(results: dict[str, Any], name: str, said: list[str]) -> None:
    """By one configuration error that names the setting, and shows no value that may be a secret."""
    error = results[name]
    assert isinstance(error, str)
    assert [text for text in said if text not in error] == []
    assert not any(text in error for text in ("t0ken", "1234", "got None"))


def test_what_it_needs_is_missing(results: dict[str, Any]) -> None:
    """Under the name of the variable that sets it."""
    assert results["incomplete"][:2] == [[], ["ACME_TOKEN"]]
