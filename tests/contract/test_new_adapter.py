"""What a new kind takes: three places within the library, one outside; the rest follows from its declaration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import retrieval_core
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import load_config
from retrieval_core.errors import ConfigurationError
from retrieval_core.testing.fakes import FakeEmbedder
from support.building import build_pipeline
from support.command_line import main
from support.pipelines import filled

if TYPE_CHECKING:
    from retrieval_core.pipeline import RetrievalPipeline

ADAPTER = """
from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.adapters.registry import Adapter
from retrieval_core.ports import RerankScores

KEPT = MemoryCache()

def kept():
    return KEPT

class Initials:
    batch_size = 10

    def __init__(self, model, api_key=None):
        self.id, self.key = f"initials/{model}", api_key

    async def score(self, query, passages):
        return RerankScores(tuple(float(passage[:1] == query[:1]) for passage in passages))
"""
WITHIN = "ADAPTER = Adapter(lambda reranker, _: Initials(**dict(reranker.initials)))\n"
SECTION = '''class InitialsConfig(Settings):
    """Comparing initials."""

    model: str = "first"
    api_key: Annotated[SecretStr | None, Use(environment="INITIALS_API_KEY", is_needed=True)] = None


class RerankerConfig('''
FIELD = '    initials: Annotated[InitialsConfig, Use("initials")] = InitialsConfig()\n    local: LocalReranker'
USE_OF_IT = """
import json, os, sys
from click.testing import CliRunner
from retrieval_core import load_config
from retrieval_core.adapters.stores.memory import MemoryStore
from support.command_line import main
from retrieval_core.config import missing_settings
from retrieval_core.errors import ConfigurationError
from support.building import build_pipeline
from retrieval_core.testing.fakes import FakeEmbedder
from support.pipelines import filled

def refused(**overrides):
    try:
        load_config(overrides={key.replace("__", "."): value for key, value in overrides.items()})
    except ConfigurationError as error:
        return str(error)

chosen = {"reranker.kind": "initials"}
config = load_config(overrides=chosen, environment={"INITIALS_API_KEY": "canary-7d1f0a"})
store = MemoryStore(embedder_id=FakeEmbedder().id, dimension=FakeEmbedder().dimension)
filled(store)
found = []
for model in ("first", "second", "first"):
    kept = {"cache.kind": "retrieval_core.adapters.rerankers.initials:kept", "reranker.initials.model": model}
    pipeline = build_pipeline(load_config(overrides={**chosen, **kept}), store, FakeEmbedder())
    result = pipeline.retrieve("an earlier revision")
    found.append([result.from_cache, all(hit.scores.rerank is not None for hit in result.hits)])
arguments = ["doctor", "--json", "--set", "reranker.kind=initials", "--set", "embedder.kind=none"]
doctor = CliRunner(env={"INITIALS_API_KEY": "canary-7d1f0a"}).invoke(main, arguments).output
print(json.dumps({
    "from_the_environment": config.reranker.initials.api_key.get_secret_value(),
    "dump": config.model_dump_json(),
    "missing": missing_settings(load_config(overrides=chosen)),
    "not_chosen": refused(reranker__initials__model="second"),
    "unknown": refused(reranker__kind="initials", reranker__initials__modell="second"),
    "by_the_other_name": load_config(overrides={**chosen, "reranker_model": "third"}).reranker.initials.model,
    "found": found,
    "doctor": doctor,
}))
"""


def test_a_reranker_within_the_library(tmp_path: Path) -> None:
    """A file of its own, its section of the settings and a name in the table: nothing else is to be written."""
    package = tmp_path / "retrieval_core"
    copytree(Path(retrieval_core.__file__).parent, package, ignore=ignore_patterns("__pycache__"))
    (package / "adapters/rerankers/initials.py").write_text(ADAPTER + WITHIN, encoding="utf-8")
    replaced(package / "config/adapters.py", "class RerankerConfig(", SECTION)
    replaced(package / "config/adapters.py", "    local: LocalReranker", FIELD)
    replaced(
        package / "adapters/registry.py",
        '        cohere="rerankers',
        '        initials="rerankers.initials",\n        cohere="rerankers',
    )
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(tests)))}
    done = subprocess.run(
        [sys.executable, "-c", USE_OF_IT], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["from_the_environment"] == "canary-7d1f0a"
    assert "canary" not in told["dump"] + told["doctor"]
    assert told["missing"] == {"INITIALS_API_KEY": "reranker.initials.api_key"}
    assert "reranker.initials.model: has no effect unless reranker.kind is initials" in told["not_chosen"]
    assert "reranker.initials.modell: unknown setting; did you mean model?" in told["unknown"]
    assert told["by_the_other_name"] == "third"
    assert told["found"] == [[False, True], [False, True], [True, True]]
    findings = {entry["subject"]: entry["detail"] for entry in json.loads(told["doctor"])["findings"]}
    assert findings["reranker initials"] == "initials/first scores chunks"


def replaced(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")


OUTSIDE = """
from pydantic import BaseModel, SecretStr

class Options(BaseModel, extra="forbid"):
    model: str = "first"
    api_key: SecretStr | None = None

ADAPTER = Adapter(lambda options, _: Initials(options.model, options.api_key), settings=Options)

async def asked(reranker):
    return f"{reranker.id} was asked"

PROBED = Adapter(lambda options, _: Initials(options.model), settings=Options, probe=asked)
ASKING = Adapter(lambda options, parts: Initials(parts.model.id), asks_llm=True)
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of somebody else's with declarations."""
    (tmp_path / "of_somebody_else.py").write_text(ADAPTER + OUTSIDE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "of_somebody_else", raising=False)
    monkeypatch.chdir(tmp_path)
    return "of_somebody_else"


def opened(kind: str, store: MemoryStore | None = None, **options: Any) -> RetrievalPipeline:
    """Return a pipeline with a reranker; results are kept in the module's own cache."""
    cache = f"{kind.partition(':')[0]}:kept"
    overrides = {"reranker.kind": kind, "reranker.options": options, "cache.kind": cache}
    return build_pipeline(load_config(overrides=overrides), store or MemoryStore(), FakeEmbedder())


def test_a_reranker_of_somebody_else(outside: str) -> None:
    """Its options have defaults and decide who it is, so results of one are not those of another."""
    store = MemoryStore(embedder_id=FakeEmbedder().id, dimension=FakeEmbedder().dimension)
    filled(store)
    found: list[tuple[bool, bool]] = []
    for options in ({}, {"model": "second"}, {}):
        result = opened(f"{outside}:ADAPTER", store, **options).retrieve("an earlier revision")
        found.append((result.from_cache, all(hit.scores.rerank is not None for hit in result.hits)))
    assert found == [(False, True), (False, True), (True, True)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"modell": "canary-7d1f0a"}, "reranker.options.modell: unknown setting; did you mean model?"),
        ({"model": ["canary-7d1f0a"]}, "reranker.options.model: Input should be a valid string"),
    ],
)
def test_options_that_are_wrong(outside: str, options: dict[str, Any], said: str) -> None:
    """They are refused by name, and nothing of them is shown."""
    with pytest.raises(ConfigurationError, match=said.replace("?", r"\?")) as caught:
        opened(f"{outside}:ADAPTER", **options)
    assert caught.value.problems == (said,)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "verdict", "said"),
    [
        ("ADAPTER", "ok", "initials/first scores chunks"),
        ("PROBED", "ok", "initials/first was asked"),
        ("ASKING", "missing", "disabled: it needs a language model. Set llm.kind."),
        ("Nothing", "wrong", "cannot be imported"),
    ],
)
def test_what_doctor_says_of_it(outside: str, name: str, verdict: str, said: str) -> None:
    """As its declaration says, or as of every reranker."""
    settings = ["--set", f"reranker.kind={outside}:{name}", "--set", "embedder.kind=none"]
    told = json.loads(CliRunner().invoke(main, ["doctor", "--json", *settings]).output)
    (entry,) = [entry for entry in told["findings"] if entry["subject"].startswith("reranker")]
    assert entry["verdict"] == verdict
    assert said in entry["detail"]
