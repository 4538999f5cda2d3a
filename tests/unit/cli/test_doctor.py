"""``retrieval doctor`` asks every part that is configured, once, in a bounded time, and says what to do."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from importlib.util import find_spec
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from retrieval_core import Chunk, open_index
from retrieval_core.cli import doctor
from retrieval_core.cli.commands import main
from retrieval_core.config import load_config
from retrieval_core.errors import MissingExtraError
from retrieval_core.testing.fakes import FakeEmbedder
from support import openai_service, pinecone_service
from support.openai_service import OpenAIService
from support.pinecone_service import PineconeService
from support.redis_server import RedisServer, needs_server
from support.wire_server import Hang, Status, WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAKE = {"embedder.kind": "retrieval_core.testing.fakes:FakeEmbedder"}
CANARY = "canary-7d1f0a"
needs_openai = pytest.mark.skipif(find_spec("openai") is None, reason="the extra 'openai' is not installed")
needs_pinecone = pytest.mark.skipif(find_spec("pinecone") is None, reason="the extra 'pinecone' is not installed")
needs_redis = pytest.mark.skipif(find_spec("redis") is None, reason="the extra 'redis' is not installed")


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "PINECONE_API_KEY", "PINECONE_INDEX_NAME", "PINECONE_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def openai() -> Iterator[WireServer]:
    with WireServer(OpenAIService(answer=lambda _: "yes")) as server:
        yield server


def report(preset: str | None = None, *, environment: dict[str, str] | None = None, **settings: Any) -> dict[str, Any]:
    """Return the whole report."""
    options = ["--config", preset] if preset else []
    for key, value in settings.items():
        text = value if isinstance(value, str) else json.dumps(value)
        options += ["--set", f"{key.replace('__', '.')}={text}"]
    result = CliRunner(env=environment).invoke(main, ["doctor", "--json", *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    told = json.loads(result.stdout)
    assert result.exit_code == (0 if told["healthy"] else 1)
    return told


def findings(preset: str | None = None, **given: Any) -> dict[str, tuple[str, str]]:
    """Return verdict and detail of each finding, by its subject."""
    return {entry["subject"]: (entry["verdict"], entry["detail"]) for entry in report(preset, **given)["findings"]}


def with_fake(**settings: Any) -> dict[str, Any]:
    return {"embedder__kind": FAKE["embedder.kind"], **settings}


def llm_at(server: WireServer, **settings: str) -> dict[str, Any]:
    given = {"base_url": f"{server.url}/v1", "api_key": openai_service.KEY, **settings}
    return with_fake(llm__kind="openai", **{f"llm__openai__{name}": value for name, value in given.items()})


def test_only_what_is_configured_is_looked_at() -> None:
    """With the defaults there are no findings about parts that are not there."""
    told = findings(**with_fake())
    assert told.keys().isdisjoint({"language model", "relevance_filter", "rewriter", "evaluation", "cache"})
    assert told["embedder"] == ("ok", "fake-words-256, 256 dimensions")


@needs_openai
def test_a_language_model_is_asked_for_one_word(openai: WireServer) -> None:
    """One short completion, and the stages that use the model need no request of their own."""
    told = findings(relevance_filter__kind="llm", rewriter__kind="llm", **llm_at(openai))
    name = f"openai/gpt-4.1-mini@{openai.url.removeprefix('http://')}"
    assert told["language model"] == ("ok", f"{name} answers")
    assert told["relevance_filter"] == told["rewriter"] == ("ok", f"asks {name}")
    (request,) = openai.requests
    assert request.path == "/v1/chat/completions"
    assert 0 < request.json()["max_tokens"] <= 1000


@needs_openai
@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"api_key": CANARY}, "Check the API key."),
        ({"model": "gpt-0"}, "Check the model's name and the base URL."),
        ({"base_url": "http://127.0.0.1:1/v1"}, "Check that the address is right and reachable."),
    ],
)
def test_a_language_model_that_cannot_be_used(openai: WireServer, settings: dict[str, str], advice: str) -> None:
    """Key, model and address: each has its own advice, and no key is shown."""
    told = report(relevance_filter__kind="llm", **llm_at(openai, **settings))
    (entry,) = [entry for entry in told["findings"] if entry["subject"] == "language model"]
    assert (entry["verdict"], told["healthy"]) == ("wrong", False)
    assert entry["detail"].endswith(f". {advice}")
    assert ".." not in entry["detail"]
    assert CANARY not in json.dumps(told)


@needs_openai
@pytest.mark.parametrize("silent", ["language model", "embedder"])
def test_a_service_that_is_silent_is_waited_for_within_bounds(
    openai: WireServer, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is given up, and the next part is looked at."""
    openai.fail_always(Hang())
    monkeypatch.setattr(doctor, "SERVICE_SECONDS", 0.0)
    settings = llm_at(openai)
    if silent == "embedder":
        address = {"model": "mine", "dimension": "8", "base_url": f"{openai.url}/v1"}
        settings = {"embedder__kind": "openai"} | {f"embedder__openai__{name}": text for name, text in address.items()}
    told = findings(**settings)
    assert told[silent] == ("wrong", doctor._silence(0))
    assert "index" in told


def test_what_cannot_be_cancelled_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that blocks its thread is a finding like others."""
    monkeypatch.setattr(doctor, "GRACE_SECONDS", 0.0)
    end_of_test = Event()
    try:
        found = doctor.bounded("embedder", 0.0, lambda: str(end_of_test.wait(30)), frozenset())
    finally:
        end_of_test.set()
    assert (found.verdict, found.detail) == ("wrong", doctor._silence(0))


def broken(**_options: Any) -> Any:
    """Fail as a factory of somebody else's may, with what it was given in the message."""
    msg = f"cannot log in at https://me:{CANARY}@host with {_options}"
    raise OSError(msg)


@pytest.mark.parametrize("section", ["embedder", "llm", "relevance_filter", "rewriter", "cache", "store", "evaluation"])
def test_an_error_of_a_factory_is_a_finding_without_its_secrets(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback, and neither a password in an address nor an option that is a key is shown."""
    monkeypatch.setattr(doctor, "broken", broken, raising=False)
    factory: dict[str, Any] = {
        f"{section}__kind": "retrieval_core.cli.doctor:broken",
        f"{section}__custom": {"api_key": f"{CANARY}9"},
    }
    told = report(**with_fake() | factory)
    wrong = {entry["subject"]: entry["detail"] for entry in told["findings"] if entry["verdict"] == "wrong"}
    assert wrong, "the fault is told"
    assert all("OSError: cannot log in at https://[secret]@host" in detail for detail in wrong.values())
    assert CANARY not in json.dumps(told)


def test_stages_without_their_language_model_are_no_fault() -> None:
    """The preset for a shop names them; they are left out, which is said together with what to set."""
    told = report("ecommerce", **with_fake())
    entries = {entry["subject"]: entry for entry in told["findings"]}
    assert told["healthy"]
    for subject in ("relevance_filter", "rewriter"):
        assert entries[subject]["verdict"] == "missing"
        assert "Set llm.kind" in entries[subject]["detail"]


def test_what_the_preset_for_the_cloud_needs_is_all_told() -> None:
    """Every part says what it lacks; nothing is asked without it."""
    told = findings("ecommerce-cloud")
    for subject in ("embedder", "language model"):
        assert told[subject][0] == "wrong"
        assert "OPENAI_API_KEY" in told[subject][1]
    assert told["relevance_filter"] == told["rewriter"] == ("missing", "not checked: the language model failed")
    assert told["index"][0] == "wrong"
    assert all(name in told["index"][1] for name in ("PINECONE_API_KEY", "PINECONE_INDEX_NAME"))


@needs_pinecone
@pytest.mark.parametrize(
    ("key", "dimension", "verdict", "said"),
    [
        (pinecone_service.KEY, 256, "ok", "0 documents, 0 chunks"),
        (pinecone_service.KEY, 8, "wrong", "expected a vector of 8 components and got 256"),
        (CANARY, 256, "wrong", "Check the API key."),
    ],
)
def test_an_index_at_pinecone_is_described_and_searched(key: str, dimension: int, verdict: str, said: str) -> None:
    """The key is tried, and the dimension is held against the embedder's."""
    with WireServer(PineconeService(dimension)) as server:
        given = with_fake(store__kind="pinecone", store__pinecone__host=server.url)
        told = report(environment={"PINECONE_API_KEY": key}, **given)
        assert server.count("/describe_index_stats") >= 1
    (entry,) = [entry for entry in told["findings"] if entry["subject"] == "index"]
    assert (entry["verdict"], said in entry["detail"]) == (verdict, True), entry
    assert CANARY not in json.dumps(told)


@needs_redis
def test_a_cache_that_cannot_be_reached() -> None:
    """It says where, and neither user nor password."""
    told = report(**with_fake(cache__kind="redis", cache__redis__url=f"redis://me:{CANARY}@127.0.0.1:1/0"))
    (entry,) = [entry for entry in told["findings"] if entry["subject"] == "cache"]
    assert entry["verdict"] == "wrong"
    assert "Redis at 127.0.0.1:1/0 cannot be reached" in entry["detail"]
    assert CANARY not in json.dumps(told)


@needs_server
def test_a_cache_that_answers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A real server is asked; a wrong password is told and not shown."""
    server = RedisServer(tmp_path_factory.mktemp("r"), "--requirepass", CANARY)
    try:
        url = server.url.get_secret_value()
        told = findings(**with_fake(cache__kind="redis", cache__redis__url=f"{url}?password={CANARY}"))
        assert told["cache"] == ("ok", f"RedisCache({server.socket}, namespace='retrieval') answers")
        told = findings(**with_fake(cache__kind="redis", cache__redis__url=f"{url}?password={CANARY}8"))
        assert told["cache"][0] == "wrong"
        assert "refuses the user or the password" in told["cache"][1]
        assert CANARY not in str(told)
    finally:
        server.kill()


def test_a_cache_of_ones_own_is_asked_for_something() -> None:
    """One lookup shows that it answers; one in memory is not looked at."""
    told = findings(**with_fake(cache__kind="retrieval_core.adapters.caches.memory:MemoryCache"))
    assert told["cache"] == ("ok", "MemoryCache answers")


def test_a_local_relevance_filter_whose_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding has the line that installs it, for both cases."""
    missing = MissingExtraError("local", "The local cross-encoder")  # as where a model loads: outside the event loop

    async def judge(*_arguments: object) -> None:
        raise missing

    monkeypatch.setattr(
        "retrieval_core.adapters.relevance_filters.cross_encoder.CrossEncoderRelevanceFilter.judge", judge
    )
    verdict, detail = findings(**with_fake(relevance_filter__kind="local"))["relevance_filter"]
    assert verdict == "wrong"
    assert "pip install" in detail
    assert "[local]" in detail


def test_custom_stages_answer_as_the_built_in_ones_do() -> None:
    """One small call shows that they work; a port that has no such call says so."""
    fakes = "retrieval_core.testing.fakes"
    stages = {"relevance_filter__kind": f"{fakes}:FakeRelevanceFilter", "rewriter__kind": f"{fakes}:FakeRewriter"}
    told = findings(**with_fake(**stages, rewriter__custom={"answer": []}))
    assert told["relevance_filter"][0] == "ok"
    assert told["relevance_filter"][1].endswith(" judges chunks")
    assert told["rewriter"] == ("ok", f"created by {fakes}:FakeRewriter, not called")


def test_evaluation_says_what_it_is_computed_by() -> None:
    """By vectors, by nothing without an embedder, and not at all where RAGAS lacks its language model."""
    assert findings(**with_fake(evaluation__kind="local"))["evaluation"] == (
        "ok",
        "estimates with fake-words-256; RAGAS scores need the extra 'ragas' and a language model",
    )
    verdict, detail = findings("lexical", evaluation__kind="local")["evaluation"]
    assert (verdict, "embedder.kind" in detail) == ("missing", True)
    verdict, detail = findings(**with_fake(evaluation__kind="ragas"))["evaluation"]
    assert verdict == "wrong"
    assert "ragas" in detail


@pytest.mark.skipif(find_spec("ragas") is None, reason="the extra 'ragas' is not installed")
def test_ragas_is_imported_and_asks_nobody() -> None:
    """What goes wrong with it is its import; the language model is not asked for that."""
    model = {"llm__kind": "retrieval_core.testing.fakes_llm:FakeLLM", "llm__custom": {"answer": ["yes"]}}
    told = findings(**with_fake(evaluation__kind="ragas", **model))
    assert told["evaluation"][0] == "ok"
    assert told["evaluation"][1].startswith("RAGAS works: ragas-")


@needs_openai
def test_a_service_that_fails_is_asked_once(openai: WireServer) -> None:
    """A finding is one attempt: what is wrong now is told, and not what may be right a little later."""
    openai.fail(Status(503))
    told = findings(**llm_at(openai))
    assert told["language model"][0] == "wrong"
    assert openai.count() == 1


def test_what_looks_at_questions_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Transformers, conversations and the pruner have findings; without a language model those that need one say so."""
    monkeypatch.chdir(tmp_path)
    settings = {"transform.use": ["keywords", "graph"], "transform.history": "llm", "embedder.kind": "none"}
    told = {f.subject: (f.verdict, f.detail) for f in doctor.examine_parts(load_config(overrides=settings))}
    missing = ("missing", "disabled: it needs a language model. Set llm.kind.")
    assert told["transformer keywords"] == missing
    assert told["conversations"] == ("missing", "no language model: a rule is used. Set llm.kind.")
    assert told["transformer graph"] == ("missing", "disabled: there is no graph. Set graph.file.")
    by_rule = load_config(overrides={**settings, "transform.history": "heuristic", "transform.use": []})
    told = {f.subject: (f.verdict, f.detail) for f in doctor.examine_parts(by_rule)}
    assert told["conversations"] == ("ok", "by a rule, without a language model")
    pruning = load_config(overrides={"embedder.kind": "none", "pruner.kind": "embedder"})
    told = {f.subject: (f.verdict, f.detail) for f in doctor.examine_parts(pruning)}
    assert told["pruner"][0] == "wrong"
    assert "embedder.kind" in told["pruner"][1]


@pytest.mark.parametrize("lost", ["word_segments", "vectors"])
def test_a_damaged_side_of_an_index_is_told(lost: str, tmp_path: Path) -> None:
    """Searches do without it, which nobody may have seen."""
    place = tmp_path / "pages.db"
    with open_index(place, embedder=FakeEmbedder()) as index:
        index.add([Chunk("c", "d", "a word")])
    assert findings(**with_fake(index=str(place)))["index"][0] == "ok"
    with closing(sqlite3.connect(place)) as file:
        file.execute(f"DROP TABLE {lost}")
        file.commit()
    verdict, detail = findings(**with_fake(index=str(place)))["index"]
    assert verdict == "wrong"
    assert "build the index anew" in detail
