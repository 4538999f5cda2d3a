"""What a new kind takes: a file and a line within the library, a class outside; the rest follows from its settings."""

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
from typing import ClassVar

from pydantic import AliasChoices, Field, SecretStr

from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.config import AdapterSettings
from retrieval_core.ports import RerankScores

KEPT = MemoryCache()

def kept():
    return KEPT

class InitialsSettings(AdapterSettings):
    required: ClassVar[dict[str, str]] = {"api_key": "canary"}

    model: str = "first"
    api_key: SecretStr | None = Field(default=None, validation_alias=AliasChoices("api_key", "INITIALS_API_KEY"))

class Initials:
    Settings = InitialsSettings
    batch_size = 10

    def __init__(self, model, api_key=None):
        self.id, self.key = f"initials/{model}", api_key

    async def score(self, query, passages):
        return RerankScores(tuple(float(passage[:1] == query[:1]) for passage in passages))
"""
USE_OF_IT = """
import json, os, sys
from click.testing import CliRunner
from retrieval_core import load_config
from retrieval_core.adapters.stores.memory import MemoryStore
from support.command_line import main
from retrieval_core.compat.flags import load_flags
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
    kept = {"cache.kind": "MODULE:kept", "reranker.initials.model": model}
    pipeline = build_pipeline(load_config(overrides={**chosen, **kept}), store, FakeEmbedder())
    result = pipeline.retrieve("an earlier revision")
    found.append([result.from_cache, all(hit.scores.rerank is not None for hit in result.hits)])
arguments = ["doctor", "--json", "--set", "reranker.kind=initials", "--set", "embedder.kind=none"]
doctor = CliRunner(env={"INITIALS_API_KEY": "canary-7d1f0a"}).invoke(main, arguments).output
print(json.dumps({
    "from_the_environment": config.reranker.initials.api_key.get_secret_value(),
    "dump": config.model_dump_json(),
    "missing": missing_settings(load_config(overrides=chosen)),
    "not_chosen": load_config(overrides={"reranker.initials.model": "second"}).reranker.kinds,
    "unknown": refused(reranker__kind="initials", reranker__initials__modell="second"),
    "by_the_other_name": load_flags(overrides={**chosen, "reranker_model": "third"}).reranker.initials.model,
    "found": found,
    "doctor": doctor,
}))
"""


def test_a_reranker_within_the_library(tmp_path: Path) -> None:
    """A file of its own and a line in the table of kinds: nothing else is to be written."""
    package = tmp_path / "retrieval_core"
    copytree(Path(retrieval_core.__file__).parent, package, ignore=ignore_patterns("__pycache__"))
    (package / "adapters/rerankers/initials.py").write_text(ADAPTER, encoding="utf-8")
    kinds = package / "config/kinds.py"
    replaced(kinds, 'cohere="cohere:CohereReranker",', 'cohere="cohere:CohereReranker", initials="initials:Initials",')
    replaced(kinds, '"reranker.kind", "rerankers", "rerankers.", "cohere",',
             '"reranker.kind", "rerankers", "rerankers.", "cohere initials",')  # fmt: skip
    assert_is_used(tmp_path)


def test_a_reranker_of_another_package(tmp_path: Path) -> None:
    """It is registered as an entry point, and is used as the built-in ones are."""
    (tmp_path / "of_a_package.py").write_text(ADAPTER, encoding="utf-8")
    metadata = tmp_path / "of_a_package-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: of-a-package\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[retrieval_core.rerankers]\ninitials = of_a_package:Initials\n")
    assert_is_used(tmp_path, "of_a_package")


USE_OF_A_STORE = """
from retrieval_core import Chunk, load_config, open_index
from retrieval_core.testing.fakes import FakeEmbedder

config = load_config(overrides={"store.kind": "dict"})
with open_index(config=config, embedder=FakeEmbedder()) as index:
    index.add([Chunk("moon", "sky", "The moon is far away."), Chunk("bread", "food", "Bread is baked.")])
    print([hit.id for hit in index.retrieve("the moon", top_k=1).hits])
"""
USE_OF_THE_KIT = """
import pytest
from retrieval_core.adapters.stores.dict import DictStore
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID, StoreConformance

class TestDictStore(StoreConformance):
    async def open_store(self, folder):
        return DictStore(EMBEDDER_ID, DIMENSION)
"""


def test_a_store_within_the_library(tmp_path: Path) -> None:
    """The store of docs/dev/stores.md is a file and a line, is opened by its kind, and passes the kit."""
    page = (Path(__file__).parents[2] / "docs/dev/stores.md").read_text(encoding="utf-8")
    package = tmp_path / "retrieval_core"
    copytree(Path(retrieval_core.__file__).parent, package, ignore=ignore_patterns("__pycache__"))
    code = page.split("```python\n")[1].split("```")[0]
    (package / "adapters/stores/dict.py").write_text(code, encoding="utf-8")
    replaced(
        package / "config/kinds.py",
        'memory="memory:MemoryStore",',
        'memory="memory:MemoryStore", dict="dict:DictStore",',
    )
    (tmp_path / "test_dict.py").write_text(USE_OF_THE_KIT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for arguments in (("-c", USE_OF_A_STORE), ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_dict.py")):
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "failed" not in done.stdout
        assert ("['moon']" in done.stdout) == (arguments[0] == "-c")


STAGE = """
from retrieval_core.pipeline.stages.state import Stage

class ById(Stage):
    name = "by_id"
    deadline_share = 0
    on_merged = True

    def fingerprint(self):
        return self.name

    async def __call__(self, run, state):
        if not state.plan.options.get("by_id"):
            return state
        run.note(self.name, run.elapsed_ms, len(state.hits), len(state.hits))
        return state.but(hits=tuple(sorted(state.hits, key=lambda hit: hit.chunk.id)))
"""
USE_OF_A_STAGE = """
from retrieval_core import Chunk, load_config, open_index, open_indexes
from retrieval_core.testing.fakes import FakeEmbedder

config = load_config(overrides={"cache.kind": "memory"})
for name in ("first", "second"):
    with open_index(f"{name}.db", config=config, embedder=FakeEmbedder()) as index:
        index.add([
            Chunk(f"{name} z", name, f"The moon is far away from {name}."),
            Chunk(f"{name} a", name, f"Bread is baked, and the moon has nothing to do with {name}."),
        ])
with (
    open_index("first.db", config=config, embedder=FakeEmbedder()) as one,
    open_indexes(["first.db", "second.db"], config=config, embedder=FakeEmbedder()) as several,
):
    for index in (one, several):
        plain = [hit.chunk.id for hit in index.retrieve("The moon is far away").hits]
        result = index.retrieve("The moon is far away", by_id=True)
        assert [record.stage for record in result.trace].count("by_id") == 1
        ordered = [hit.chunk.id for hit in result.hits]
        assert ordered == sorted(plain) != plain, (plain, ordered)
"""


def test_a_stage_and_its_option_within_the_library(tmp_path: Path) -> None:
    """A file and two lines for the stage, a line for the option; both work with one index and with several."""
    package = tmp_path / "retrieval_core"
    copytree(Path(retrieval_core.__file__).parent, package, ignore=ignore_patterns("__pycache__"))
    (package / "pipeline/stages/by_id.py").write_text(STAGE, encoding="utf-8")
    stages = package / "pipeline/stage_list.py"
    imported = "from retrieval_core.pipeline.stages.select import Select\n"
    replaced(stages, imported, f"{imported}from retrieval_core.pipeline.stages.by_id import ById\n")
    replaced(stages, "improving: list[Stage] = [TopK()]", "improving: list[Stage] = [TopK(), ById()]")
    replaced(
        package / "pipeline/options.py",
        "    use_cache: bool | None\n",
        "    use_cache: bool | None\n    by_id: bool | None\n",
    )
    done = subprocess.run(
        [sys.executable, "-c", USE_OF_A_STAGE],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr


def assert_is_used(tmp_path: Path, module: str = "retrieval_core.adapters.rerankers.initials") -> None:
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(tests)))}
    done = subprocess.run(
        [sys.executable, "-c", USE_OF_IT.replace("MODULE", module)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["from_the_environment"] == "canary-7d1f0a"
    assert "canary" not in told["dump"] + told["doctor"]
    assert told["missing"] == {"INITIALS_API_KEY": "reranker.initials.api_key"}
    assert told["not_chosen"] == []
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
from pydantic import BaseModel

class Options(BaseModel, extra="forbid"):
    model: str = "first"
    api_key: SecretStr | None = None

class Declared(Initials):
    Settings = Options

class Probed(Declared):
    async def probe(self):
        return f"{self.id} was asked"

class Asking(Declared):
    needs_llm = True

    @classmethod
    def from_settings(cls, settings, parts):
        return cls(parts.model.id)
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
    overrides = {"reranker.kind": kind, "reranker.custom": options, "cache.kind": cache}
    return build_pipeline(load_config(overrides=overrides), store or MemoryStore(), FakeEmbedder())


def test_a_reranker_of_somebody_else(outside: str) -> None:
    """Its options have defaults and decide who it is, so results of one are not those of another."""
    store = MemoryStore(embedder_id=FakeEmbedder().id, dimension=FakeEmbedder().dimension)
    filled(store)
    found: list[tuple[bool, bool]] = []
    for options in ({}, {"model": "second"}, {}):
        result = opened(f"{outside}:Declared", store, **options).retrieve("an earlier revision")
        found.append((result.from_cache, all(hit.scores.rerank is not None for hit in result.hits)))
    assert found == [(False, True), (False, True), (True, True)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"modell": "canary-7d1f0a"}, "reranker.custom.modell: unknown setting; did you mean model?"),
        ({"model": ["canary-7d1f0a"]}, "reranker.custom.model: Input should be a valid string"),
    ],
)
def test_options_that_are_wrong(outside: str, options: dict[str, Any], said: str) -> None:
    """They are refused by name, and nothing of them is shown."""
    with pytest.raises(ConfigurationError, match=said.replace("?", r"\?")) as caught:
        opened(f"{outside}:Declared", **options)
    assert caught.value.problems == (said,)
    assert "canary" not in str(caught.value)


def test_a_required_setting_of_somebody_else(outside: str) -> None:
    """It is missed when the class is made, as that is not imported before."""
    with pytest.raises(ConfigurationError, match=r"reranker\.custom\.api_key: not set") as caught:
        opened(f"{outside}:Initials")
    assert caught.value.missing_keys == ("reranker.custom.api_key",)
    opened(f"{outside}:Initials", api_key="canary").close()


@pytest.mark.parametrize(
    ("name", "verdict", "said"),
    [
        ("Declared", "ok", "initials/first scores chunks"),
        ("Probed", "ok", "initials/first was asked"),
        ("Asking", "missing", "disabled: it needs a language model. Set llm.kind."),
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
