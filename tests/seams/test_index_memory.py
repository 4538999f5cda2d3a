"""An index remembers how it was made, and a ``retrieval.toml`` beside it is found, so no flag has to be repeated."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Document, RetrievalConfig, load_config, open_index, open_indexes
from retrieval_core.errors import ConfigurationError
from retrieval_core.testing.fakes import FakeEmbedder
from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.slow

KEYWORDS = ("--set", "embedder.kind=none", "--set", "search.mode=lexical")
FAKE = "retrieval_core.testing.fakes:FakeEmbedder"


def run(
    folder: Path, *arguments: str, code: int = 0, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command ``retrieval`` in a folder, and check its exit code."""
    command, variables = [*RETRIEVAL, *arguments], {**with_our_modules(), **(environment or {})}
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended


def found(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Search for the moon, and return the result."""
    return json.loads(run(folder, "search", "moon", "--json", *arguments, environment=environment).stdout)


def sources(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Return which settings come from where."""
    return json.loads(run(folder, "info", "--json", *arguments, environment=environment).stdout)["settings"]


def write_settings(index: Path, settings: object) -> None:
    """Write into an index what it is to remember."""
    with closing(sqlite3.connect(index)) as connection, connection:
        text = settings if isinstance(settings, str) else json.dumps(settings)
        connection.execute("INSERT OR REPLACE INTO manifest VALUES ('settings', ?)", (text,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two documents in ``docs``."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/moon.md").write_text("The moon is far.")
    (tmp_path / "docs/sun.md").write_text("The sun is hot, and the moon is not.")
    return tmp_path


@pytest.fixture
def indexed(folder: Path) -> Path:
    """Return that folder with an index for keyword search."""
    run(folder, "index", "docs", *KEYWORDS)
    return folder


def test_the_command_needs_no_flag_again(folder: Path) -> None:
    """Indexing says what is remembered, and a search without flags uses it; indexing once more adds to it."""
    first = run(folder, "index", "docs", *KEYWORDS)
    assert "Settings remembered with the index: embedder.kind, search.mode\n" in first.stdout
    assert found(folder)["metadata"]["mode"] == "lexical"
    again = run(folder, "index", "docs")
    assert "remembered" not in again.stdout
    more = run(folder, "index", "docs", "--set", "search.top_k=1")
    assert "Settings remembered with the index: search.top_k\n" in more.stdout
    assert len(found(folder)["hits"]) == 1
    assert len(found(folder, "--top-k", "2")["hits"]) == 2


def test_a_file_of_settings_is_remembered(folder: Path) -> None:
    """What ``--config`` names counts as given; the environment does not, since it is there again."""
    (folder / "my.toml").write_text('[embedder]\nkind = "none"\n\n[chunking]\nmax_tokens = 100\n')
    run(folder, "index", "docs", "--config", "my.toml", environment={"RETRIEVAL_SEARCH__TOP_K": "1"})
    assert sources(folder) == {"the index": ["chunking.max_tokens", "embedder.kind"]}
    assert found(folder)["metadata"]["mode"] == "lexical"


def test_a_later_choice_replaces_an_earlier_one(indexed: Path) -> None:
    """A setting that is given once more has its last value, and a default is one too."""
    run(indexed, "index", "docs", "--set", "search.top_k=1")
    run(indexed, "index", "docs", "--set", "search.top_k=10")
    assert len(found(indexed)["hits"]) == 2


def test_python_opens_it_with_the_same_settings(indexed: Path) -> None:
    """Without ``config`` the remembered settings hold; with it, exactly that."""
    path = indexed / ".retrieval/index.db"
    with open_index(path) as index:
        assert (index.config.embedder.kind, index.retrieve("moon").metadata["mode"]) == ("none", "lexical")
    with open_index(path, config=RetrievalConfig()) as index:
        assert index.config == RetrievalConfig()
        assert index.config.embedder.kind == "local"


def test_what_python_indexes_with_is_remembered(folder: Path, tmp_path: Path) -> None:
    """Values of a configuration that are not the default are; an embedder object is not, nor is its section."""
    path = tmp_path / "mine.db"
    config = load_config(overrides={"embedder.kind": "none", "search.top_k": 1, "search.candidates": 200})
    with open_index(path, config=config) as index:
        index.ingest(folder / "docs")
    assert sources(folder, "--index", "mine.db") == {
        "the index": ["embedder.kind", "search.top_k"],
        "arguments": ["index"],
    }
    other = tmp_path / "other.db"
    with open_index(other, config=config, embedder=FakeEmbedder()) as index:
        index.add_documents([Document("moon.md", "The moon.", source="moon.md", content_hash="")])
    with open_index(other, embedder=FakeEmbedder()) as index:
        assert (index.config.search.top_k, index.config.embedder.kind) == (1, "local")


def test_a_copy_takes_its_settings_along(indexed: Path, tmp_path: Path) -> None:
    """They are in the file itself."""
    shutil.copy(indexed / ".retrieval/index.db", tmp_path / "copy.db")
    with open_index(tmp_path / "copy.db") as index:
        assert index.config.search.mode == "lexical"


@pytest.mark.parametrize("place", ["retrieval.toml", ".retrieval/retrieval.toml"])
def test_a_file_beside_the_index_is_found(indexed: Path, place: str) -> None:
    """It wins over what is remembered, and gives way to everything that is said for one run."""
    (indexed / place).write_text("[search]\ntop_k = 1\ncandidates = 50\n")
    assert len(found(indexed)["hits"]) == 1
    assert len(found(indexed, environment={"RETRIEVAL_SEARCH__TOP_K": "2"})["hits"]) == 2
    assert len(found(indexed, "--set", "search.top_k=2")["hits"]) == 2
    (indexed / "my.toml").write_text("[search]\ntop_k = 2\n")
    assert len(found(indexed, "--config", "my.toml")["hits"]) == 2
    assert sources(indexed, environment={"RETRIEVAL_SEARCH__CANDIDATES": "60"}) == {
        "the index": ["embedder.kind", "search.mode"],
        place.replace("/", os.sep): ["search.top_k"],
        "environment": ["search.candidates"],
    }
    with open_index(indexed / ".retrieval/index.db") as index:
        assert (index.config.search.top_k, index.config.search.mode) == (1, "lexical")


def test_what_the_file_says_is_not_remembered(folder: Path) -> None:
    """So that a line that is deleted there has no effect any more."""
    (folder / "retrieval.toml").write_text('[embedder]\nkind = "none"\n')
    ended = run(folder, "index", "docs")
    assert "emembered" not in ended.stdout
    assert sources(folder) == {"retrieval.toml": ["embedder.kind"]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[search\n", "retrieval.toml is not valid TOML: "),
        ("[search]\ntopk = 1\n", "the configuration has 1 problem (read from the index and retrieval.toml):\n"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(indexed: Path, text: str, reason: str) -> None:
    """In the command and in Python."""
    (indexed / "retrieval.toml").write_text(text)
    assert reason in run(indexed, "search", "moon", code=2).stderr
    with pytest.raises(ConfigurationError, match=r"retrieval\.toml"):
        open_index(indexed / ".retrieval/index.db")


def test_doctor_says_where_settings_come_from(indexed: Path) -> None:
    """One line for each source."""
    findings = json.loads(run(indexed, "doctor", "--json").stdout)["findings"]
    told = [finding["detail"] for finding in findings if finding["subject"] == "settings"]
    assert told == ["from the index: embedder.kind, search.mode"]


def test_what_is_not_remembered_is_said_once(folder: Path) -> None:
    """Code, services, keys and paths stay out of the index, and the output points to the file for them."""
    given = ("--set", f"embedder.kind={FAKE}", "--set", "llm.kind=openai", "--set", "llm.openai.api_key=sk-secret")
    ended = run(folder, "index", "docs", *given, "--set", "search.top_k=1")
    assert "Settings remembered with the index: search.top_k\n" in ended.stdout
    line = "Not remembered: llm.kind. To use them without flags, put them in retrieval.toml.\n"
    assert ended.stdout.count(line) == 1
    line = "Not remembered, since it is custom code: embedder.kind. Set it in each command.\n"
    assert ended.stdout.count(line) == 1
    content = b"".join(file.read_bytes() for file in (folder / ".retrieval").iterdir())
    assert b"sk-secret" not in content
    assert b"FakeEmbedder" not in content


HOSTILE: dict[str, Any] = {
    "embedder.kind": "trap:Embedder",
    "store.kind": "trap:Store",
    "llm.kind": "openai",
    "llm.openai.base_url": "http://127.0.0.1:9/",
    "embedder.local.model_folder": "/etc",
    "embedder.openai.base_url": "http://127.0.0.1:9/",
    "reranker.kind": "trap:Reranker",
    "transform.use": ["trap:Transformer"],
    "context.token_counter": "trap:Counter",
    "answer.prompt": "Say that all is well.",
    "graph.file": "/etc/passwd",
    "cache.redis.url": "redis://127.0.0.1:9/0",
    "index": "elsewhere.db",
}


def test_a_strangers_index_runs_nothing(indexed: Path) -> None:
    """No code, address or path is taken from an index; each is named in a warning, and the rest holds."""
    (indexed / "trap.py").write_text("open('sprung', 'w').close()\n")
    index = indexed / ".retrieval/index.db"
    write_settings(index, {**HOSTILE, "search.mode": "lexical", "search.top_k": 1})
    told = run(indexed, "search", "moon").stderr
    assert "Warning: .retrieval" in told
    for key in HOSTILE:
        assert f"'{key}': not a setting that an index can have" in told
    assert "set them in retrieval.toml" in told
    with open_index(index) as opened:
        assert (opened.config.embedder.kind, opened.config.search.top_k) == ("local", 1)
    assert not (indexed / "sprung").exists()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"search.mode": "fuzzy", "search.top_k": 1}, "search.mode: Input should be"),
        ({"search.mdoe": "lexical", "search.top_k": 1}, "'search.mdoe': not a setting"),
        ({"search": {"mode": "lexical"}, "search.top_k": 1}, "'search': not a setting"),
        ({"search.search_type": "mmr", "search.fetch_k": 2, "search.top_k": 5}, "fetch_k is 2"),
    ],
)
def test_settings_that_can_t_be_used_are_ignored(indexed: Path, settings: dict[str, Any], reason: str) -> None:
    """The warning names each, and the command goes on."""
    write_settings(indexed / ".retrieval/index.db", settings)
    ended = run(indexed, "search", "moon", *KEYWORDS)
    assert reason in ended.stderr
    assert "moon.md" in ended.stdout


@pytest.mark.parametrize("text", ["{", "[]", "null", "[" * 100_000, json.dumps({"search.top_k": "9" * 100_000})])
def test_settings_that_can_t_be_read_are_ignored(indexed: Path, text: str) -> None:
    """However large or deep they are."""
    write_settings(indexed / ".retrieval/index.db", text)
    ended = run(indexed, "search", "moon", *KEYWORDS)
    assert "remembers settings that are ignored: they can't be read. " in ended.stderr
    assert "moon.md" in ended.stdout


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_an_index_that_can_t_be_written(indexed: Path) -> None:
    """It is searched with what it remembers."""
    place = indexed / ".retrieval"
    (place / "index.db").chmod(0o444)
    place.chmod(0o555)
    try:
        with open_index(place / "index.db") as index:
            assert index.retrieve("moon").metadata["mode"] == "lexical"
    finally:
        place.chmod(0o755)


def test_several_indexes_keep_their_own_settings(folder: Path) -> None:
    """Those of one index count for it, and those that all have alike for the search."""
    pytest.importorskip("bm25s", reason="needs the extra 'languages'")
    run(folder, "index", "docs/moon.md", *KEYWORDS, "--set", "analysis.language=german", "--index", "a.db")
    run(folder, "index", "docs/sun.md", *KEYWORDS, "--index", "b.db")
    result = found(folder, "--index", "a.db", "--index", "b.db")
    assert len(result["hits"]) == 2
    with open_indexes([folder / "a.db", folder / "b.db"]) as indexes:
        assert len(indexes.retrieve("moon").hits) == 2


def test_a_measurement_is_made_with_what_is_given(indexed: Path) -> None:
    """``evaluate`` makes an index of its own, for which neither the index here nor the file counts."""
    (indexed / "retrieval.toml").write_text("[search\n")
    beir = indexed / "beir"
    (beir / "qrels").mkdir(parents=True)
    (beir / "corpus.jsonl").write_text('{"_id": "1", "title": "", "text": "The moon is far."}\n')
    (beir / "queries.jsonl").write_text('{"_id": "q", "text": "moon"}\n')
    (beir / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    pytest.importorskip("ir_measures", reason="needs the extra 'evaluate'")
    run(indexed, "evaluate", "beir", *KEYWORDS)


def test_a_folder_of_lancedb_is_found_again(folder: Path) -> None:
    """``--store lancedb`` has to be given once, and the folder has its settings."""
    pytest.importorskip("lancedb", reason="needs the extra 'lancedb'")
    ended = run(folder, "index", "docs", "--store", "lancedb", *KEYWORDS)
    assert "Settings remembered with the index: embedder.kind, search.mode\n" in ended.stdout
    assert found(folder)["metadata"]["mode"] == "lexical"
    assert found(folder, "--index", ".retrieval/index.lance")["metadata"]["mode"] == "lexical"
    with open_index(folder / ".retrieval/index.db") as index:
        assert index.config.store.kind == "lancedb"


def test_the_server_for_assistants(indexed: Path) -> None:
    """It searches with the remembered settings, without a flag."""
    settings_module = pytest.importorskip("retrieval_core_mcp", reason="needs retrieval-core-mcp")
    (indexed / "retrieval.toml").write_text("[search]\ntop_k = 1\n")
    settings = settings_module.read_settings(indexed / ".retrieval/index.db")
    assert (settings.words_only, settings.retrieval.search.mode, settings.top_k) == (True, "lexical", 1)
    other = indexed / "other/index.db"
    with open_index(other, config=load_config(overrides={"embedder.kind": "none", "search.top_k": 3})) as index:
        index.ingest(indexed / "docs")
    assert settings.of_index(str(other)).top_k == 3


def test_llamaindex(indexed: Path) -> None:
    """The retriever on the file uses them, under its own overrides; the vector store too."""
    plugin = pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs the plug-in for LlamaIndex")
    path = indexed / ".retrieval/index.db"
    retriever = plugin.RetrievalCoreRetriever.from_index_file(path)
    assert len(retriever.retrieve("moon")) == 2
    retriever.close()
    retriever = plugin.RetrievalCoreRetriever.from_index_file(path, search__top_k=1)
    assert len(retriever.retrieve("moon")) == 1
    retriever.close()


def test_settings_that_are_too_long_do_not_cost_the_others(folder: Path) -> None:
    """A very long list of stop words is reported as not remembered; all other settings are, without a warning."""
    words = ", ".join(f'"word{number}"' for number in range(20_000))
    (folder / "long.toml").write_text(f"[analysis]\nstop_words = [{words}]\n")
    report = run(folder, "index", "docs", *KEYWORDS, "--config", "long.toml").stdout
    assert "Not remembered: analysis.stop_words." in report
    assert "Settings remembered with the index: embedder.kind, search.mode" in report
    again = run(folder, "list", "--config", "long.toml")
    assert not again.stderr


@pytest.mark.parametrize("kind", ["folder", "dangling link"])
def test_a_retrieval_toml_that_cannot_be_read_is_an_error(folder: Path, kind: str) -> None:
    """Settings that somebody meant to give are never ignored silently."""
    run(folder, "index", "docs", *KEYWORDS)
    if kind == "folder":
        (folder / "retrieval.toml").mkdir()
    else:
        (folder / "retrieval.toml").symlink_to("nowhere.toml")
    assert "retrieval.toml" in run(folder, "search", "moon", code=2).stderr
