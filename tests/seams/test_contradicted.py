"""A language model's sentence that the words it cites contradict: it has no source, and is shown as contradicted."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Answer, Document, RetrievalConfig, load_config, open_index
from retrieval_core.ports import LLM, as_plugin
from support.extras import needs_tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from retrieval_core.ports import CompletionRequest

pytestmark = needs_tokenizer

PAGE = (
    "It is not possible to restore a backup while the server runs. "
    "Backups are kept for thirty days. The server listens on port 8471 by default. "
    "An administrator may add users with the command harbour user add."
)
QUESTION = "restore a backup while the server runs, and how long are backups kept"
NEGATED = "It is possible to restore a backup while the server runs [1]."
WRONG_FIGURE = "Backups are kept for 60 days [1]."
WRONG_PORT = "By default the server listens on port 8472 [1]."
RIGHT = "Backups are kept for 30 days [1]."
RIGHT_NEGATION = "A backup cannot be restored while the server runs [1]."


class Writer:
    """A language model that writes the same sentences every time."""

    id = "writer"
    context_window = 100_000

    def __init__(self, text: str) -> None:
        self._text = text

    async def stream(self, request: CompletionRequest) -> AsyncIterator[str]:
        """Write it."""
        assert request
        yield self._text

    async def complete(self, request: CompletionRequest) -> Any:
        """Refuse: nothing is asked of it but answers."""
        raise NotImplementedError


def write_contradicted(_: Any = None, *__: Any) -> Writer:
    """Return a model for the configuration of a process."""
    return Writer(f"{NEGATED} {RIGHT}")


def config_of(path: Path) -> RetrievalConfig:
    return load_config(
        overrides={"index": str(path), "embedder.kind": "none", "search.mode": "lexical", "answer.abstain_below": 0}
    )


@pytest.fixture(scope="module")
def index_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of one page."""
    path = tmp_path_factory.mktemp("index") / "harbour.db"
    with open_index(config=config_of(path)) as index:
        index.add_documents([Document("backup", PAGE, source="backup.md", content_hash="")])
    return path


def answer_of(index_file: Path, text: str, **options: Any) -> Answer:
    with open_index(config=config_of(index_file), llm=as_plugin(Writer(text), LLM)) as index:
        return index.answer(QUESTION, **options)


@pytest.mark.parametrize("text", [NEGATED, WRONG_FIGURE, WRONG_PORT])
def test_what_the_quote_denies_loses_its_source(index_file: Path, text: str) -> None:
    """A verdict says so by default, with the words of the passage; the confidence counts it as not supported."""
    answer = answer_of(index_file, text)
    (sentence,) = answer.sentences
    assert sentence.check is not None
    assert sentence.check.verdict == "contradicted"
    assert sentence.check.quote is not None
    assert sentence.check.quote.text in PAGE
    assert sentence.check.reason
    assert not sentence.has_source
    assert [each.problem for each in sentence.attributions] == ["contradicted"]
    assert answer.unsupported == (sentence,)
    assert answer.sources == ()
    assert answer.confidence is not None
    assert answer.confidence.value == 0


@pytest.mark.parametrize("text", [RIGHT, RIGHT_NEGATION])
def test_what_the_quote_says_keeps_its_source(index_file: Path, text: str) -> None:
    """In other words too; and nothing is ever called supported by this check."""
    (sentence,) = answer_of(index_file, text).sentences
    assert sentence.has_source
    assert sentence.check is None


def test_the_quoted_words_stand_where_the_verdict_says(index_file: Path) -> None:
    """Its span is one of the document."""
    check = answer_of(index_file, f"{RIGHT} {WRONG_PORT}").sentences[1].check
    assert check is not None
    assert check.sentence == 1
    assert check.quote is not None
    assert check.quote.span is not None
    assert PAGE[check.quote.span.start : check.quote.span.end] == check.quote.text


def test_a_stream_tells_it_after_the_text(index_file: Path) -> None:
    """One verification comes for the one sentence, before the end."""
    with open_index(config=config_of(index_file), llm=as_plugin(Writer(f"{NEGATED} {RIGHT}"), LLM)) as index:
        events = list(index.answer_stream(QUESTION))
    kinds = [event.type for event in events]
    assert kinds[-2:] == ["verification", "done"]
    assert kinds.count("verification") == 1
    verification: Any = events[-2]
    assert (verification.check.sentence, verification.check.verdict) == (0, "contradicted")


def test_the_command_line_marks_it(index_file: Path, tmp_path: Path) -> None:
    """The sentence is printed again with its verdict and the words of the passage."""
    settings = ("--set", "embedder.kind=none", "--set", "search.mode=lexical", "--set", "answer.abstain_below=0")
    line = [sys.executable, "-m", "retrieval_core.cli", "answer", QUESTION, "--index", str(index_file), *settings]
    line += ["--set", "llm.kind=test_contradicted:write_contradicted"]
    folders = (Path(__file__).parent, Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}

    def run(*more: str) -> str:
        ended = subprocess.run(
            [*line, *more], capture_output=True, text=True, check=False, cwd=tmp_path, encoding="utf-8", env=environment
        )
        assert ended.stdout, ended.stderr
        return ended.stdout

    shown = run()
    assert "contradicted by [1]" in shown
    assert "It is not possible to restore a backup while the server runs." in shown
    first, second = json.loads(run("--json").splitlines()[-1])["answer"]["sentences"]
    assert first["check"]["verdict"] == "contradicted"
    assert second["check"] is None


def test_the_mcp_tool_names_it(index_file: Path) -> None:
    """In text and in data."""
    pytest.importorskip("retrieval_core_mcp", reason="the server is not installed")
    from mcp import Client
    from retrieval_core_mcp import ServerSettings, create_server, serve_indexes

    settings = ServerSettings(retrieval=config_of(index_file), tools=("all",), structured=True)

    async def talk() -> Any:
        writer = as_plugin(Writer(f"{NEGATED} {RIGHT}"), LLM)
        indexes = serve_indexes(settings, open_index=partial(open_index, llm=writer))
        async with Client(create_server(settings, indexes)) as client:
            return await client.call_tool("answer", {"query": QUESTION})

    told = asyncio.run(talk())
    assert told.structured_content["contradicted"] == [NEGATED]
    assert told.structured_content["unsupported"] == []
    assert f"contradict this sentence: {NEGATED}" in told.content[0].text
