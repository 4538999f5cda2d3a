"""What the commands print, as somebody sees it in a terminal or in a file."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from support.command_line import main
from support.extras import needs_tokenizer
from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAKE = ("--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder")
ABSENT = "\N{EN DASH}"
RESULT = re.compile(
    rf"^(\d+)\. (\S+?)(?::\d+(?:-\d+)?)?(?: > .*?)?   score (\d\.\d\d)((?: · (?:vector|keyword) (?:#\d+|{ABSENT}))*)$",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three documents and an index of them."""
    folder = tmp_path_factory.mktemp("output")
    texts = {
        "moon": "# The moon\n\nThe moon is 384,400 km away from the earth.\n",
        "sun": "# The sun\n\nThe sun is eight light minutes away.\n",
        "bread": "# Bread\n\nBread is baked from flour, water and salt.\n",
    }
    (folder / "notes").mkdir()
    for name, text in texts.items():
        (folder / f"notes/{name}.md").write_text(text)
    assert run(folder, "index", "notes", *FAKE).returncode == 0
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose output goes to files, as in ``retrieval … > file``."""
    return subprocess.run(
        [*RETRIEVAL, *arguments],
        cwd=folder,
        env={**with_our_modules(), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_results_have_one_score_and_their_ranks(folder: Path, mode: str) -> None:
    """The score is in (0, 1], the best result has 1.00, and the order is that of the scores."""
    printed = run(folder, "search", "how far away is the moon", "--mode", mode, *FAKE).stdout
    found = RESULT.findall(printed)
    scores = [float(score) for _, _, score, _ in found]
    assert [rank for rank, *_ in found] == [str(number) for number in range(1, len(found) + 1)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == 1
    assert min(scores) > 0
    for *_, ranks in found:
        assert ("vector" in ranks, "keyword" in ranks) == (mode != "lexical", mode != "dense")
    assert re.search(rf"^{len(found)} results? · (?:\d+\.\d|<0\.1) s\n\Z", printed, re.MULTILINE)


def test_a_result_of_one_side_has_no_rank_of_the_other(folder: Path) -> None:
    """Keyword search does not find what has no word of the query."""
    printed = run(folder, "search", "flour", *FAKE).stdout
    ranks = {document: ranks for _, document, _, ranks in RESULT.findall(printed)}
    assert ranks["notes/bread.md"].endswith(" · keyword #1")
    assert ranks["notes/moon.md"].endswith(f" · keyword {ABSENT}")


def test_one_result_is_one_result(folder: Path) -> None:
    """The only result has the best score, and the footer counts it in the singular."""
    printed = run(folder, "search", "flour", "--mode", "lexical", *FAKE).stdout
    assert [score for _, _, score, _ in RESULT.findall(printed)] == ["1.00"]
    assert re.search(r"^1 result · ", printed, re.MULTILINE)


@pytest.mark.slow
def test_explanations_come_with_verbose_only(folder: Path) -> None:
    """Raw scores, and what score, relevance and fusion are."""
    asked = ("search", "how far away is the moon", *FAKE)
    explained = ("Raw scores: vector 0.", "Score: how near", "Relevance 0.", "Fusion: ")
    assert all(part in run(folder, *asked, "--verbose").stdout for part in explained)
    assert run(folder, *asked, "-v").stdout.count("Raw scores: vector 0.") == 3
    assert not any(part in run(folder, *asked).stdout for part in explained)


@needs_tokenizer
def test_an_answer_ends_with_one_line(folder: Path) -> None:
    """It has relevance, verified citations and time; the explanation of them is left to --verbose."""
    asked = ("answer", "how far away is the moon", "--set", "answer.abstain_below=0", *FAKE)
    ended = run(folder, *asked)
    assert ended.stdout.startswith("The moon is 384,400 km away from the earth. [1]\n")
    footer = r"Relevance 0\.\d\d · (\d)/\1 citations verified · (?:\d+\.\d|<0\.1) s"
    assert re.fullmatch(footer, ended.stdout.splitlines()[-1])
    assert "language model" not in ended.stdout
    verbose = run(folder, *asked, "--verbose").stdout
    assert "Extracted from the documents: no language model is configured" in verbose
    assert "estimated probability" in verbose


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        *(("index", "notes"), ("search", "moon"), ("search", "xylophone", "--mode", "lexical"), ("answer", "moon")),
        *(("context", "moon"), ("info",), ("verify",), ("doctor",), ("search", "moon", "--top-k", "no")),
        ("search", "moon", "--index", "nowhere.db"),
    ],
    ids=" ".join,
)
def test_files_get_plain_text(folder: Path, arguments: tuple[str, ...]) -> None:
    """No colours, no progress, no carriage returns, and no box around a table."""
    counter = ("--set", "context.token_counter=support.pipelines:word_counter")
    ended = run(folder, *arguments, *FAKE, *counter)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u2500-\u257f]", ended.stdout + ended.stderr)
    assert all(
        re.match(r"Warning: |Error: |Usage: |Try |\[\d\] |Relevance |\d passage|$", line)
        for line in ended.stderr.split("\n")
    )


def _commands(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield name, command
        if isinstance(command, click.Group):
            yield from _commands(command)


@pytest.mark.parametrize(("name", "command"), [pytest.param(*each, id=each[0]) for each in _commands(main)])
def test_help_texts_are_short(name: str, command: click.Command) -> None:
    """A summary and each option fit in 60 characters, begin with a capital and end with a full stop or a default."""
    summary = (command.help or "").split("\n\n")[0]
    texts = [summary, *(one.help or "" for one in command.params if isinstance(one, click.Option))]
    for text in texts:
        assert len(text) <= 65 if text is summary else len(text) <= 60, text
        assert re.fullmatch(r"[A-Z].*(?:\.|\])", text), text


def test_an_indexing_run_is_one_line_and_its_problems_are_errors(folder: Path, tmp_path: Path) -> None:
    """Counts are in the singular if they are one, what did not happen is left out, and a failure names the file."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one/good.md").write_text("# Good\n\nA good file.\n")
    (tmp_path / "one/picture.png").write_bytes(b"")
    ended = run(tmp_path, "index", "one", *FAKE)
    assert re.match(r"1 document, 1 chunk in \.retrieval/index\.db · 1 added · \d+\.\d s\n", ended.stdout)
    assert ended.stderr == "Warning: 1 file of unsupported types skipped: 1 .png\n"
    (tmp_path / "one/bad.md").write_bytes(b"\0\1\2")
    ended = run(tmp_path, "index", "one", *FAKE)
    assert (ended.returncode, "1 unchanged" in ended.stdout) == (1, True)
    assert re.search(r"^Error: one/bad\.md: .+\n", ended.stderr, re.MULTILINE)


def test_files_with_one_problem_share_one_line(tmp_path: Path) -> None:
    """Of seven files that can't be read for one reason, five are named and the others are counted."""
    (tmp_path / "bad").mkdir()
    for number in range(7):
        (tmp_path / f"bad/{number}.md").write_bytes(b"\0\1\2")
    ended = run(tmp_path, "index", "bad", *FAKE)
    assert ended.returncode == 1
    named = ", ".join(f"bad/{number}.md" for number in range(5))
    assert re.match(rf"Error: {named} and 2 more: .+\n", ended.stderr)
    assert ended.stderr.count("Error: ") == 1


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["stats", "--json"], "The command 'stats' was removed. Use the address /metrics"),
        (["graph", "moon"], "retrieval search QUERY --transform graph"),
        (["evaluate", ".", "--run", "run.txt"], "The option '--run' was removed."),
        (["evaluate", ".", "--compare=a.toml"], "retrieval suite compare"),
        (["suite", "run", "s.retrieval.yaml", "--url", "http://127.0.0.1:8000"], "where the index is, with --index"),
        (["suite", "run", "s.retrieval.yaml", "--before", "old.json"], "retrieval suite compare BEFORE AFTER"),
    ],
)
def test_removed_commands_and_options_say_what_to_use(arguments: list[str], advice: str) -> None:
    """The error names no other option with a similar name."""
    outcome = CliRunner().invoke(main, arguments)
    assert outcome.exit_code == 2
    assert advice in outcome.stderr
    assert "Did you mean" not in outcome.stderr
