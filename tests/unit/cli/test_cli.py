"""The command ``retrieval``: what it prints, and how it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from retrieval_core import open_index
from retrieval_core.cli.commands import main
from retrieval_core.errors import ServiceError
from retrieval_core.ports import Change
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk, EvaluationScores

if TYPE_CHECKING:
    from pathlib import Path

FAKE = ("--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder")


class Shell:
    """Runs the command in a folder of its own, with an embedder that needs no model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runner = CliRunner()

    def __call__(self, *arguments: str, fake: bool = True) -> Result:
        return self.runner.invoke(main, [*arguments, *(FAKE if fake else ())])

    def json(self, *arguments: str, code: int = 0, fake: bool = True) -> dict[str, Any]:
        result = self(*arguments, "--json", fake=fake)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/moon.md").write_text("# The moon\n\n## Distance\n\nThe moon is 384,400 km away.\n")
    (tmp_path / "docs/sun.md").write_text("# The sun\n\n## Distance\n\nThe sun is eight light minutes away.\n")
    (tmp_path / "phones.csv").write_text("text,brand,price\nA sturdy phone,Acme,99.5\nA thin phone,Zenith,500\n")
    return Shell(tmp_path)


def test_indexing_that_a_service_ends_can_be_continued(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how many texts were not embedded, and that the next run goes on."""

    async def refuse(*_: object) -> None:
        raise ServiceError("it refused", "acme", status=401)

    with monkeypatch.context() as patch:
        patch.setattr(FakeEmbedder, "embed_texts", refuse)
        failed = shell("index", "docs/moon.md")
    assert failed.exit_code == 1
    assert "1 text could not be embedded: it refused. Files indexed so far are kept." in failed.output
    assert "Run the command again to continue." in failed.output
    assert shell("index", "docs/moon.md").exit_code == 0
    assert "moon" in shell("search", "moon").output


def test_indexing_names_the_place_of_a_store_of_somebody_else(shell: Shell) -> None:
    """Its own location is shown, since no path of an index is."""
    kind = "retrieval_core.adapters.stores.memory:MemoryStore"
    assert f"in the store {kind} at memory" in shell("index", "docs", "--set", f"store.kind={kind}").output


def test_indexing_says_what_it_did_as_json(shell: Shell) -> None:
    """The keys are exactly those that are documented, and a second run finds everything unchanged."""
    report = shell.json("index", "docs", "phones.csv")
    assert report.keys() == {
        "documents", "chunks", "added", "updated", "unchanged", "removed", "failed", "seconds", "notes", "store",
        "empty", "ignored", "removed_as_ignored", "skipped", "skipped_links", "skipped_types",
    }  # fmt: skip
    assert (report["documents"], report["added"], report["failed"]) == (4, 4, [])
    assert report["notes"] == []
    assert (shell.folder / ".retrieval/index.db").is_file()
    assert shell.json("index", "docs", "phones.csv")["unchanged"] == 4


def test_indexing_says_what_it_did_to_people(shell: Shell) -> None:
    """Counts on standard output, failed files as errors on standard error, and exit code 1."""
    assert "2 added" in shell("index", "docs").stdout
    (shell.folder / "docs/broken.md").write_bytes(b"\0\1\2")
    result = shell("index", "docs")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: docs/broken.md: ")
    assert "2 unchanged" in result.stdout


def test_what_is_ignored_is_counted_and_so_is_what_was_lost_by_it(shell: Shell) -> None:
    """An index from before a rule, or from before rules were heeded, loses documents, and says so once."""
    shell("index", "docs")
    (shell.folder / "docs/.gitignore").write_text("sun.md\n")
    told = shell("index", "docs").stderr
    assert "Warning: 1 skipped by .gitignore (files and folders). To index: --no-ignore." in told
    assert "Removed from the index: 1 document." in told
    report = shell.json("index", "docs")
    assert (report["ignored"], report["removed"], report["removed_as_ignored"]) == (1, 0, 0)
    again = shell.json("index", "docs", "--no-ignore")
    assert (again["added"], again["unchanged"], again["ignored"]) == (1, 1, 0)


def test_watching_without_its_extra_names_the_command_that_installs_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every other extra does."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    result = shell("index", "docs", "--watch")
    assert result.exit_code == 1
    assert "retrieval index --watch needs the extra 'watch'. Install it with: " in result.stderr
    assert "[watch]" in result.stderr


@pytest.mark.parametrize(("path", "expected"), [("phones.csv", "is a file"), ("nowhere", "does not exist")])
def test_only_folders_are_watched(shell: Shell, path: str, expected: str) -> None:
    """An editor replaces a file, and what was watched would be gone."""
    result = shell("index", path, "--watch")
    assert result.exit_code == 2
    assert f"--watch needs folders, but '{path}' {expected}" in result.stderr


def test_a_column_that_one_cell_makes_text_is_told(shell: Shell) -> None:
    """The report names table, column, counts and a cell; a run that finds the file unchanged does not repeat it."""
    rows = [*(f"phone {row},{row}.50" for row in range(19)), "phone 20,on \x1b[31mrequest"]
    (shell.folder / "prices.csv").write_text("\n".join(("text,price", *rows)))
    (note,) = shell.json("index", "prices.csv")["notes"]
    assert note.pop("path").endswith("prices.csv")
    assert note.pop("message").startswith("column 'price' is text")
    assert note == {"column": "price", "numbers": 19, "cells": 20, "example": "on \x1b[31mrequest", "row": 20}
    assert shell.json("index", "prices.csv")["notes"] == []
    shell("index", "docs")
    (shell.folder / "prices.csv").write_text("\n".join(("text,price", *rows[1:])))
    told = shell("index", "prices.csv").stderr
    assert "prices.csv: column 'price' is text, since 18 of its 19 cells are numbers" in told
    assert "in row 19" in told
    assert "\x1b" not in told


def test_failed_files_are_listed_as_json(shell: Shell) -> None:
    """Path and reason; everything else is indexed all the same."""
    (shell.folder / "docs/blank.md").write_bytes(b" ")
    report = shell.json("index", "docs", code=1)
    assert report["added"] == 2
    (failed,) = report["failed"]
    assert failed.keys() == {"path", "error"}
    assert failed["path"].endswith("blank.md")


def test_searching_gives_hits_with_their_origin_as_json(shell: Shell) -> None:
    """The keys are those that are documented, and the best hit is the right one."""
    shell("index", "docs")
    result = shell.json("search", "how far is the moon")
    assert result.keys() >= {"query", "hits", "degraded", "latency_ms", "from_cache"}
    best = result["hits"][0]
    assert best.keys() >= {"rank", "id", "score", "scores", "text", "metadata", "citation"}
    assert (best["rank"], best["source"]) == (1, "docs/moon.md")
    assert best["citation"].startswith("Doc: docs/moon.md")
    assert best["scores"]["dense_rank"] == best["scores"]["lexical_rank"] == 1
    assert result["degraded"] == []


def test_searching_shows_passages_to_people(shell: Shell) -> None:
    """Source, section and text."""
    shell("index", "docs")
    output = shell("search", "how far is the moon", "--top-k", "1").stdout
    assert "docs/moon.md" in output
    assert "Distance" in output
    assert "384,400" in output


def test_a_small_score_is_not_shown_as_none(shell: Shell) -> None:
    """A word that every chunk has scores little, which is more than nothing: as a raw score too."""
    shell("index", "docs")
    result = shell("search", "distance", "--mode", "lexical", "--verbose")
    assert len(re.findall(r"score (?:1\.00|0\.[5-9]\d) · keyword #\d\n", result.stdout)) == 2
    assert result.stdout.count("keyword <0.001 · final <0.001") == 2


def test_nothing_found_is_said(shell: Shell) -> None:
    """An empty result is no failure."""
    shell("index", "docs")
    result = shell("search", "xylophone", "--mode", "lexical")
    assert result.exit_code == 0
    assert result.stdout.startswith("No results.\n0 results · ")


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_the_mode_is_the_callers_choice(shell: Shell, mode: str) -> None:
    """And is told in the result."""
    shell("index", "docs")
    assert shell.json("search", "moon", "--mode", mode)["metadata"]["mode"] == mode


def test_filters_are_json(shell: Shell) -> None:
    """Columns of a table are fields with types of their own."""
    shell("index", "phones.csv")
    hits = shell.json("search", "phone", "--filter", '{"price": {"$lte": 150}, "brand": "Acme"}')["hits"]
    assert [hit["metadata"] for hit in hits] == [{"brand": "Acme", "price": 99.5}]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["search", "moon", "--filter", "{"], "not valid JSON"),
        (["search", "moon", "--filter", '{"price": {"$let": 1}}'], "Did you mean $lt"),
        (["search", "   "], "empty"),
        (["search", "moon", "--set", "search.topk=3"], "top_k"),
        (["search", "moon", "--set", "search.top_k"], "KEY=VALUE"),
        (["search", "moon", "--config", "nowhere.toml"], "lexical"),
        (["search", "moon", "--top-k", "0"], "1<=x<=1000"),
        (["serach", "moon"], "No such command"),
        *(
            (
                [command, *more, "--index", "a.db", "--index", "b.db"],
                "only one index is possible here: a.db, b.db. Give --index once.",
            )
            for command, *more in (["index", "docs"], ["info"], ["doctor"])
        ),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_to_do(shell: Shell, arguments: list[str], complaint: str) -> None:
    """No traceback, and a message on standard error."""
    shell("index", "docs")
    result = shell(*arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.output


def test_a_missing_index_is_a_failure_that_says_how_to_make_one(shell: Shell) -> None:
    """Exit code 1, as text and as JSON."""
    result = shell("search", "moon")
    assert result.exit_code == 1
    assert "retrieval index" in result.stderr
    assert shell.json("search", "moon", code=1)["error"]["type"] == "IndexNotFoundError"


def test_another_embedder_is_a_failure_that_says_what_to_do(shell: Shell) -> None:
    """The index is not searched with vectors that mean something else."""
    shell("index", "docs")
    error = shell.json("search", "moon", "--set", 'embedder.custom={"dimension": 8}', code=1)["error"]
    assert error["type"] == "EmbedderMismatchError"
    assert "new index" in error["message"]


def test_the_lexical_preset_needs_no_model(shell: Shell) -> None:
    """Words alone, end to end."""
    report = shell.json("index", "docs", "--config", "lexical", fake=False)
    assert report["added"] == 2
    hits = shell.json("search", "moon", "--config", "lexical", fake=False)["hits"]
    assert [hit["source"] for hit in hits] == ["docs/moon.md"]


def test_info_says_what_the_index_holds(shell: Shell) -> None:
    """For people and as JSON."""
    shell("index", "docs")
    facts = shell.json("info")
    assert (facts["documents"], facts["chunks"]) == (2, 2)
    assert facts["embedder"].startswith("fake")
    assert facts["bytes"] > 0
    assert "documents" in shell("info").stdout


def test_info_lists_the_fields(shell: Shell) -> None:
    """Each field has its types and how many passages have it, mixed types included."""
    rows = [{"text": "a", "n": 1, "x\ny": True}, {"text": "b", "n": "1", "specs": {"ram": 8}}]
    (shell.folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    shell("index", "rows.jsonl")
    fields = shell.json("info")["fields"]
    assert fields["n"] == {"passages": 2, "types": {"number": 1, "text": 1}}
    assert fields["specs.ram"] == {"passages": 1, "types": {"number": 1}}
    shown = shell("info").stdout
    for line in ("n: number 1, text 1 (2)", "specs.ram: number (1)", "x y: boolean (1)", "source: text (2)"):
        assert line in shown


def test_a_search_names_the_unknown_field_of_its_filter(shell: Shell) -> None:
    """People see a wrong name with the right one beside it, and programs see the same."""
    shell("index", "phones.csv")
    arguments = ("search", "sturdy phone", "--filter", '{"prise": {"$lte": 150}}')
    told = "filter: no chunk has a field 'prise'; did you mean 'price'?"
    assert told in shell(*arguments).stdout
    assert shell.json(*arguments)["metadata"]["note"] == told


def test_doctor_finds_a_healthy_installation(shell: Shell) -> None:
    """Every finding has a verdict and a detail; a missing index is no fault."""
    report = shell.json("doctor")
    assert report["healthy"] is True
    verdicts = {finding["subject"]: finding["verdict"] for finding in report["findings"]}
    assert verdicts["SQLite"] == verdicts["embedder"] == "ok"
    assert verdicts["index"] == "missing"
    shell("index", "docs")
    assert "2 documents" in shell("doctor").stdout


def test_doctor_says_how_to_mend_what_is_wrong(shell: Shell) -> None:
    """A model that is not where the configuration says is a fault, with exit code 1."""
    report = shell.json(
        "doctor", "--set", "embedder.local.model_folder=nowhere", "--set", "embedder.kind=local", code=1, fake=False
    )
    (finding,) = [finding for finding in report["findings"] if finding["subject"] == "embedder"]
    assert finding["verdict"] == "wrong"
    assert "nowhere" in finding["detail"]


def test_a_retrieved_text_cannot_steer_the_terminal(shell: Shell) -> None:
    """Control characters are shown as replacement characters, and markup is text."""
    (shell.folder / "docs/evil.md").write_text(
        "A lighthouse \x1b[31m[bold red]shines[/] \x07 at night.\n" + "More words. " * 20
    )
    shell("index", "docs")
    output = shell("search", "lighthouse", "--mode", "lexical").stdout
    assert "\x1b[31m" not in output
    assert "\x07" not in output
    assert "[bold red]shines[/]" in output


def test_a_long_passage_is_shown_around_the_words_of_the_question(shell: Shell) -> None:
    """The excerpt holds the word, wherever it stands."""
    text = "Filler words about nothing. " * 60 + "The lighthouse stands here. " + "More filler words. " * 10
    (shell.folder / "docs/long.md").write_text(text)
    shell("index", "docs")
    output = shell("search", "lighthouse", "--mode", "lexical").stdout
    assert "lighthouse" in output
    assert "…" in output


def test_settings_come_from_the_environment(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an option wins over them."""
    shell("index", "docs")
    monkeypatch.setenv("RETRIEVAL_SEARCH__TOP_K", "1")
    assert len(shell.json("search", "distance")["hits"]) == 1
    assert len(shell.json("search", "distance", "--top-k", "2")["hits"]) == 2


@pytest.mark.parametrize("command", [[], ["index"], ["search"], ["evaluate"], ["info"], ["doctor"]])
def test_every_command_has_help(shell: Shell, command: list[str]) -> None:
    """It ends with 0 and names the options."""
    result = shell(*command, "--help", fake=False)
    assert result.exit_code == 0
    assert "--help" in result.stdout


def test_the_module_is_the_command() -> None:
    """``python -m retrieval_core.cli`` works as a real process."""
    done = subprocess.run(
        [sys.executable, "-m", "retrieval_core.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("retrieval, version")


def test_an_index_without_vectors_serves_those_who_have_an_embedder(shell: Shell) -> None:
    """It is described and searched by words; a search by meaning falls back to them and says what to do."""
    shell("index", "docs", "--config", "lexical", fake=False)
    assert shell.json("info")["embedder"] is None
    assert shell.json("search", "moon", "--mode", "lexical")["hits"][0]["source"] == "docs/moon.md"
    for mode in ("hybrid", "dense"):
        found = shell.json("search", "moon", "--mode", mode)
        assert found["hits"][0]["source"] == "docs/moon.md"
        assert [(item["stage"], "lexical" in item["reason"]) for item in found["degraded"]] == [("dense", True)]


def test_rows_are_told_apart_for_people(shell: Shell) -> None:
    """A row of a table is shown with its number."""
    shell("index", "phones.csv")
    assert "phones.csv#1" in shell("search", "sturdy").stdout


def test_lines_are_not_broken_where_nobody_looks(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is piped on is whole, whatever the width of the terminal."""
    monkeypatch.setenv("COLUMNS", "20")
    assert "2 documents, 2 chunks in .retrieval/index.db · 2 added · " in shell("index", "docs").stdout


def collection(folder: Path) -> None:
    """Write three documents and two questions in BEIR form."""
    texts = {"d1": "The moon is far away.", "d2": "The sun is hot.", "d3": "Bread is baked."}
    (folder / "beir/qrels").mkdir(parents=True)
    corpus = [json.dumps({"_id": key, "title": "", "text": text}) for key, text in texts.items()]
    (folder / "beir/corpus.jsonl").write_text("\n".join(corpus))
    queries = [{"_id": "q1", "text": "how far is the moon"}, {"_id": "q2", "text": "is the sun hot"}]
    (folder / "beir/queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (folder / "beir/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n")


def test_evaluating_prints_figures(shell: Shell) -> None:
    """As JSON with exactly the documented keys, and for people as a table."""
    pytest.importorskip("ir_measures", reason="pip install 'retrieval-core[evaluate]'")
    collection(shell.folder)
    figures = shell.json("evaluate", "beir")
    keys = {"queries", "ndcg@10", "recall@10", "recall@100", "mrr@10", "latency_ms", "index_seconds", "index_bytes"}
    assert figures.keys() == keys
    assert figures["latency_ms"].keys() == {"p50", "p95"}
    assert (figures["queries"], figures["ndcg@10"]) == (2, 1.0)
    assert shell.json("evaluate", "beir", "--limit", "1", "--store", "memory", "--fusion", "rrf")["queries"] == 1
    assert "ndcg@10" in shell("evaluate", "beir", "--mode", "lexical").stdout


def test_a_trace_is_shown_on_request(shell: Shell) -> None:
    """A table for people, records in JSON, and nothing of it unless asked for."""
    shell("index", "docs")
    told = shell("search", "moon", "--trace").stdout
    assert "attempts" in told
    assert "lexical" in told
    records = shell.json("search", "moon", "--trace")["trace"]
    assert {"embed", "dense", "lexical", "fuse"} <= {record["stage"] for record in records}
    assert "attempts" not in shell("search", "moon").stdout
    assert "trace" not in shell.json("search", "moon")


def test_what_the_relevance_filter_kept_back_is_said(shell: Shell) -> None:
    """That nothing is left is another thing than that nothing was found."""
    shell("index", "docs")
    fake = "retrieval_core.testing.fakes:FakeRelevanceFilter"
    output = shell("search", "xylophone in the moonlight of May", "--set", f"relevance_filter.kind={fake}").stdout
    assert "dropped all results" in output


class HalfAnEvaluator:
    """Has one score, and no second one."""

    id = "half"

    async def evaluate(self, query: str, chunks: object, response: str) -> EvaluationScores:
        del query, chunks, response
        methods = {"context_precision": "counted by hand", "response_relevancy": "not computed: \x1b[31mno response"}
        return EvaluationScores(context_precision=0.8125, methods=methods)


def test_scores_of_the_evaluation_are_shown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both on one line, each with its method or why there is none; in JSON too; and nothing where it is off."""
    monkeypatch.setattr("retrieval_core.testing.fakes.HalfAnEvaluator", HalfAnEvaluator, raising=False)
    shell("index", "docs")
    on = ("--set", "evaluation.kind=retrieval_core.testing.fakes:HalfAnEvaluator")
    line = (
        "context_precision 0.812 (counted by hand), response_relevancy - (not computed: \N{REPLACEMENT CHARACTER}[31m"
    )
    assert line in shell("search", "moon", *on).stdout
    told = shell.json("search", "moon", *on)["evaluation"]
    assert (told["context_precision"], told["response_relevancy"]) == (0.8125, None)
    assert told["methods"]["context_precision"] == "counted by hand"
    assert "context_precision" not in shell("search", "moon").stdout
    assert shell.json("search", "moon")["evaluation"] is None


def test_a_wrong_assignment_does_not_show_a_password(shell: Shell) -> None:
    """What was given is not repeated."""
    result = shell("doctor", "--set", "cache.redis.url:redis://me:canary@host")
    assert result.exit_code == 2
    assert "--set needs KEY=VALUE" in result.stderr
    assert "canary" not in result.output


def test_what_has_no_vector_yet_is_told_by_search_info_and_doctor(shell: Shell) -> None:
    """And the next run of indexing makes up for it."""
    shell("index", "docs")
    with open_index(".retrieval/index.db", embedder=FakeEmbedder()) as index:
        late = (Chunk("late", "late", "A late word about the moon."),)
        index.sync.run(index.store.upsert(Change(late, unembedded=frozenset({"late"}))))
    note = "indexing in progress, 66% embedded; the rest is matched by keyword only"
    assert f"Warning: vector search: {note}" in shell("search", "moon").stderr
    assert shell.json("search", "moon")["degraded"] == [{"stage": "dense", "reason": note}]
    assert shell.json("info")["unembedded"] == 1
    assert "1 not embedded yet" in shell("doctor").stdout
    assert shell("index", "docs").exit_code == 0
    assert shell.json("search", "moon")["degraded"] == []
    assert shell.json("info")["unembedded"] == 0
